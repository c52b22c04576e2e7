"""The hypergradient with respect to the graph, as what it is: a sum of few thin outer products.

A network that meets the graph only in products ``Â H`` has ``dL/dÂ = sum C H'`` over the products,
C being the cotangent of the product. With ``s`` the diagonal of ``D~^{-1/2}``,

    dL/dA_ij = s_i s_j (sum C H')_ij + r_i,
    r_i = -1/2 s_i^2 sum_j Â_ij ((sum C H')_ij + (sum C H')_ji),

and the sum in r is ``sum over columns of (Â H) * C + (Â C) * H``: no N x N array anywhere.

A masked loss leaves one side of each product non-zero on few rows only, the labelled nodes or
their neighbours. That side is stored without its zero rows; which side it is does not matter,
because a pair's derivative is ``G_ij + G_ji``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.graph import kernels
from edgewise.graph.sampled import Graph, TapeEntry

# What it costs to add one row of a product to the rest of the gradient, in multiplications of that
# row by a column. Factors that share rows are multiplied at once, zeros included, where that saves
# more additions than it adds multiplications.
ADDITION = 20


@dataclass(frozen=True)
class Factors:
    """``left right'`` where `left` holds the given (sorted) rows only, the others being zero.

    With a `scale`, each row of `right` is still to be multiplied by its entry.
    """

    rows: NDArray[np.int64]
    left: Tensor  # (len(rows), rank)
    right: Tensor  # (n_nodes, rank)
    scale: Tensor | None = None  # (n_nodes,)

    @property
    def rank(self) -> int:
        return self.left.shape[1]

    def restricted(self, chosen: NDArray[np.bool_]) -> Factors:
        """The same on some of its rows."""
        if chosen.all():
            return self
        return Factors(
            self.rows[chosen], self.left[torch.from_numpy(chosen)], self.right, self.scale
        )


class RowProduct(NamedTuple):
    """A differentiated product ``Â H`` on the CPU whose cotangent C is zero but on some rows."""

    rows: NDArray[np.int64]
    cotangent: Tensor  # C on the rows
    product: Tensor  # Â H on the rows
    dense: Tensor  # H
    near: NDArray[np.int64]  # where Â C may not be zero
    back: Tensor  # Â C there


class LowRank:
    """The derivative of a loss with respect to the adjacency of an undirected graph.

    The derivative for the pair {i, j} is ``G_ij + G_ji`` with ``G = sum left right' + r 1'``.

    Attributes
    ----------
    parts : tuple of Factors
    shift : ndarray, shape (n_nodes,); the vector r
    """

    def __init__(self, parts: Sequence[Factors], shift: NDArray[Any]) -> None:
        self.parts = tuple(parts)
        self.shift = shift

    @cached_property
    def factors(self) -> tuple[Factors, ...]:
        """The parts, those merged that are better multiplied at once, and without a `scale`."""
        groups: list[_Group] = []
        for part in _split_at_core(self.parts, self.n_nodes):
            gains = [group.gain(part) for group in groups]
            best = int(np.argmax(gains)) if gains else 0
            if gains and gains[best] > 0:
                groups[best].add(part)
            else:
                groups.append(_Group(part, self.n_nodes))
        return tuple(group.merged() for group in groups)

    @property
    def n_nodes(self) -> int:
        return len(self.shift)

    @property
    def rank(self) -> int:
        """Number of outer products (without that of `shift`)."""
        return sum(part.rank for part in self.parts)

    @classmethod
    def from_tape(cls, graph: Graph, tape: Sequence[TapeEntry]) -> LowRank:
        """The derivative that the products recorded on one graph add up to."""
        scale = graph.scale.cpu()
        moment = np.zeros_like(scale.numpy())
        nodes = np.arange(len(moment))
        by_rows: dict[bytes, tuple[NDArray[np.int64], list[Tensor], list[Tensor]]] = {}
        for entry in tape:
            cotangent, dense, back, product = (tensor.cpu().contiguous() for tensor in entry)
            kernels.add_row_products(moment, nodes, product.numpy(), cotangent.numpy())
            kernels.add_row_products(moment, nodes, back.numpy(), dense.numpy())
            rows, sparse, full = _sparser_side_first(cotangent, dense)
            _, lefts, rights = by_rows.setdefault(rows.tobytes(), (rows, [], []))
            lefts.append(sparse)
            rights.append(full)
        factors = []
        for rows, lefts, rights in by_rows.values():
            if len(rows):
                chosen = torch.from_numpy(rows)
                left = torch.cat(lefts, dim=1).index_select(0, chosen)
                left *= scale.index_select(0, chosen)[:, None]
                factors.append(Factors(rows, left, torch.cat(rights, dim=1), scale))
        return cls(factors, -0.5 * scale.square().numpy() * moment)

    @classmethod
    def from_rows(cls, graph: Graph, products: Sequence[RowProduct]) -> LowRank:
        """The same for products of which is known where they are not zero."""
        scale = graph.scale
        moment = np.zeros_like(scale.numpy())
        grouped: dict[int, list[RowProduct]] = {}
        for product in products:
            everywhere = len(product.near) == len(moment)
            dense = product.dense if everywhere else product.dense[torch.from_numpy(product.near)]
            own = product.cotangent.numpy(), product.product.numpy()
            kernels.add_row_products(moment, product.rows, *own)
            kernels.add_row_products(moment, product.near, product.back.numpy(), dense.numpy())
            grouped.setdefault(id(product.rows), []).append(product)
        factors = []
        for group in grouped.values():
            rows = group[0].rows
            left = torch.cat([product.cotangent for product in group], dim=1)
            left *= scale.index_select(0, torch.from_numpy(rows))[:, None]
            right = torch.cat([product.dense for product in group], dim=1)
            factors.append(Factors(rows, left, right, scale))
        return cls(factors, -0.5 * scale.square().numpy() * moment)

    @classmethod
    def total(cls, gradients: Sequence[LowRank]) -> LowRank:
        """The sum of several derivatives."""
        shift = np.sum([gradient.shift for gradient in gradients], axis=0)
        return cls([part for gradient in gradients for part in gradient.parts], shift)

    def band(self, start: int, stop: int) -> NDArray[Any]:
        """``sum left right'`` symmetrised, without the shift: rows start..stop-1, columns start..

        The derivative at the pair {i, j} is ``band[i - start, j - start] + shift[i] + shift[j]``.
        """
        band = np.zeros((stop - start, self.n_nodes - start), self.shift.dtype)
        for factor in self.factors:
            lo, hi = np.searchsorted(factor.rows, [start, stop])
            if hi > lo:
                own = factor.left[lo:hi] @ factor.right[start:].T
                kernels.add_rows(band, factor.rows[lo:hi] - start, own.numpy())
            if len(factor.rows) > lo:
                mirrored = factor.right[start:stop] @ factor.left[lo:].T
                kernels.add_columns(band, factor.rows[lo:] - start, mirrored.numpy())
        return band

    def row_bounds(self) -> NDArray[Any]:
        """A bound on the length of each row of ``sum left right'``; 0 where no factor has it."""
        bounds = np.zeros_like(self.shift)
        for factor in self.factors:
            bounds[factor.rows] += (factor.left.abs() @ factor.right.norm(dim=0)).numpy()
        return bounds

    def tile(self, rows: NDArray[np.int64], start: int, stop: int) -> NDArray[Any]:
        """``sum left right'`` symmetrised, without the shift: some rows, columns start..stop-1."""
        tile = np.zeros((len(rows), stop - start), self.shift.dtype)
        for factor in self.factors:
            place = np.minimum(np.searchsorted(factor.rows, rows), len(factor.rows) - 1)
            mine = np.flatnonzero(factor.rows[place] == rows)
            if len(mine):
                left = factor.left[torch.from_numpy(place[mine])]
                kernels.add_rows(tile, mine, (left @ factor.right[start:stop].T).numpy())
            lo, hi = np.searchsorted(factor.rows, [start, stop])
            if hi > lo:
                mirrored = factor.right[torch.from_numpy(rows)] @ factor.left[lo:hi].T
                kernels.add_columns(tile, factor.rows[lo:hi] - start, mirrored.numpy())
        return tile

    def at_pairs(self, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[Any]:
        """The derivative at the pairs {rows[e], cols[e]}."""
        values: NDArray[Any] = self.shift[rows] + self.shift[cols]
        for factor in self.factors:
            position = np.full(self.n_nodes, -1)
            position[factor.rows] = np.arange(len(factor.rows))
            kernels.add_at_pairs(
                values, rows, cols, position, factor.left.numpy(), factor.right.numpy()
            )
        return values


def _split_at_core(parts: Sequence[Factors], n_nodes: int) -> list[Factors]:
    """Each factor as two: on the rows that most of them have, and on its other rows.

    The graphs drawn in consecutive steps share their certain edges, and with these a core of rows;
    other rows are mostly of one factor alone. Split so, hardly a zero is multiplied.
    """
    present = np.zeros(n_nodes, np.int64)
    for part in parts:
        present[part.rows] += part.rank
    core = 2 * present > sum(part.rank for part in parts)
    if not core.any():
        return list(parts)
    split = []
    for part in parts:
        inside = core[part.rows]
        split += [part.restricted(inside), part.restricted(~inside)]
    return [part for part in split if len(part.rows)]


class _Group:
    """Factors to be multiplied at once, on all the rows that any of them has."""

    def __init__(self, first: Factors, n_nodes: int) -> None:
        self._members = [first]
        self._present = np.zeros(n_nodes, np.bool_)
        self._present[first.rows] = True
        self._n_rows = len(first.rows)
        self._rank = first.rank

    def gain(self, other: Factors) -> int:
        """What is saved when `other` joins, in multiplications by a column."""
        shared = int(np.count_nonzero(self._present[other.rows]))
        added = len(other.rows) - shared
        new_zeros = added * self._rank + (self._n_rows - shared) * other.rank
        return ADDITION * shared - new_zeros

    def add(self, other: Factors) -> None:
        self._members.append(other)
        self._present[other.rows] = True
        self._n_rows = int(np.count_nonzero(self._present))
        self._rank += other.rank

    def merged(self) -> Factors:
        rows = np.flatnonzero(self._present)
        position = np.cumsum(self._present) - 1
        n_nodes, sample = len(self._present), self._members[0].left
        left = sample.new_zeros(len(rows), self._rank)
        right = sample.new_empty(n_nodes, self._rank)
        start = 0
        for member in self._members:
            stop = start + member.rank
            left.numpy()[position[member.rows], start:stop] = member.left.numpy()
            if member.scale is None:
                right[:, start:stop] = member.right
            else:
                torch.mul(member.right, member.scale[:, None], out=right[:, start:stop])
            start = stop
        return Factors(rows, left, right)


def _sparser_side_first(one: Tensor, other: Tensor) -> tuple[NDArray[np.int64], Tensor, Tensor]:
    """Rows on which the sparser of the two is not zero, that one, and the other one."""
    rows, other_rows = kernels.nonzero_rows(one.numpy()), kernels.nonzero_rows(other.numpy())
    return (other_rows, other, one) if len(other_rows) < len(rows) else (rows, one, other)
