"""One distribution for several processes: the probabilities divided, or the work on them.

Dense storage is divided by rows. Each process owns the rows of a stretch of the strict upper
triangle, with about as many pairs as any other: it draws and updates these, and nobody else has
them. The edges drawn are gathered, so that all processes see the same graph.

Sparse storage is linear in the rows, as are the features, which every process holds anyway. There
the candidates are known to all, and the work is divided: the derivatives at the candidates, and the
search for new ones.

With equal generators, both draw and become what one process would draw and become, to the last bit
on equal processors with as many threads. A method that changes or reads probabilities must be
called by all processes, except `expected_edges` and `copy`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import DenseEdges, EdgeDistribution, EdgeGradient
from edgewise.graph.growing import TILE_COLS, GrowingEdges, Selection, most_negative
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampling import BernoulliSegment, Extent
from edgewise.snapshot import Snapshot
from edgewise.team import Team

# Pairs of a learned distribution that every process gets in the end: 80 MB of candidates.
MOST_PAIRS = 2**22


def balanced_rows(n_nodes: int, n_parts: int) -> NDArray[np.int64]:
    """Bounds of stretches of rows of the strict upper triangle with about equally many pairs.

    Raises
    ------
    ValueError
        If there are too few rows for each part to have a pair.

    Examples
    --------
    >>> balanced_rows(100, 4)
    array([  0,  14,  30,  50, 100])
    """
    before = np.concatenate([[0], np.cumsum(np.arange(n_nodes - 1, -1, -1))])
    inner = np.searchsorted(before, before[-1] * np.arange(1, n_parts) / n_parts)
    bounds = np.concatenate([[0], inner, [n_nodes]])
    if (np.diff(before[bounds]) <= 0).any():
        raise ValueError(
            f"{n_nodes} rows are too few to be divided among {n_parts} processes: start fewer."
        )
    return bounds


def agreed(team: Team, pairs: Pairs) -> Pairs:
    """The pairs that the first process found: of rows equally near, another may find others."""
    return Pairs(*(team.gather(ends)[0] for ends in pairs))


class ShardedEdges(DenseEdges):
    """A free probability for every pair of nodes, of which this process holds some rows.

    Memory: the pairs of these rows, a share of all.

    Parameters
    ----------
    team : Team
    n_nodes, pairs, weights, dtype, device
        As for `DenseEdges`, the same in all processes.
    """

    def __init__(
        self,
        team: Team,
        n_nodes: int,
        pairs: Pairs,
        weights: NDArray[Any] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.team = team
        bounds = balanced_rows(n_nodes, team.size)
        self._first, self._last = bounds[team.rank], bounds[team.rank + 1]
        own = self._owned(pairs.rows)
        chosen = Pairs(pairs.rows[own], pairs.cols[own])
        super().__init__(
            n_nodes, chosen, None if weights is None else weights[own], dtype=dtype, device=device
        )
        self._index()

    @cached_property
    def _sampler(self) -> BernoulliSegment:
        return BernoulliSegment(self._theta, self._block_bounds())

    def _owned(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        own: NDArray[np.bool_] = (rows >= self._first) & (rows < self._last)
        return own

    def _row_lengths(self) -> NDArray[np.int64]:
        lengths = super()._row_lengths()
        lengths[: self._first] = lengths[self._last :] = 0
        return lengths

    def _index(self) -> None:
        # One process after the other: sums in any other order would differ in the last bits, and
        # a draw can tell. It is one addition for 32 probabilities.
        ends = [Extent()]
        for source in range(self.team.size):
            if source == self.team.rank:
                ends.append(self._sampler.begin(ends[-1]))
            else:
                ends.append(Extent())
            mass, n_likely, likely_sum = self.team.broadcast(np.array(ends[-1]), source)
            ends[-1] = Extent(float(mass), int(n_likely), float(likely_sum))
        self._before, self._total = ends[self.team.rank], ends[-1]
        self._sampler.complete(self._total)

    def __getstate__(self) -> dict[str, Any]:
        own = ("team", "_first", "_last", "_before", "_total")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._sampler.begin(self._before)
        self._sampler.complete(self._total)

    def sample(self, rng: np.random.Generator | int) -> Pairs:
        own = super().sample(rng)
        return self._from_keys(np.concatenate(self.team.gather(self._keys(own))))

    def above(self, threshold: float) -> tuple[Pairs, NDArray[Any]]:
        own, probability = super().above(threshold)
        keys = np.concatenate(self.team.gather(self._keys(own)))
        return self._from_keys(keys), np.concatenate(self.team.gather(probability))

    def _keys(self, pairs: Pairs) -> NDArray[np.int64]:
        return pairs.rows * self.n_nodes + pairs.cols

    def _from_keys(self, keys: NDArray[np.int64]) -> Pairs:
        return Pairs(keys // self.n_nodes, keys % self.n_nodes)

    def probability(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[Any]:
        first, second = np.broadcast_arrays(np.asarray(rows, np.int64), np.asarray(cols, np.int64))
        self._check_nodes(first, second)
        own = self._owned(np.minimum(first, second))
        values = np.zeros(own.shape, self._theta.dtype)
        values[own] = super().probability(first[own], second[own])
        for rank, part in enumerate(self.team.gather(values.ravel())):
            if rank != self.team.rank:  # each pair has one owner; the others say 0
                values += part.reshape(values.shape)
        return values

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self._index()

    def whole(self) -> EdgeDistribution:
        """The distribution in one piece, in every process.

        A `DenseEdges` where that has at most `MOST_PAIRS` probabilities. Else candidates: all that
        are possible, or so many of the most probable ones.
        """
        pairs, probability = self.above(self._threshold())
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
        if self.n_nodes * (self.n_nodes - 1) // 2 <= MOST_PAIRS:
            return DenseEdges(self.n_nodes, pairs, probability, **options)
        return CandidateEdges(self.n_nodes, pairs, probability, **options)

    def _threshold(self) -> float:
        """The least threshold, up to rounding, that leaves `MOST_PAIRS` pairs at most."""
        if self._n_above(0.0) <= MOST_PAIRS:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2.0
            if self._n_above(middle) <= MOST_PAIRS:
                high = middle
            else:
                low = middle
        return high

    def _n_above(self, threshold: float) -> int:
        own = np.array([np.count_nonzero(np.greater(self._theta, threshold))])
        return int(np.sum(self.team.gather(own)))


class SharedCandidates(GrowingEdges):
    """Candidates that all processes know, each of which does a part of the work on them.

    Parameters
    ----------
    team : Team
    n_nodes, pairs, weights, options
        As for `GrowingEdges`, the same in all processes.
    """

    def __init__(
        self,
        team: Team,
        n_nodes: int,
        pairs: Pairs,
        weights: NDArray[Any] | None = None,
        **options: Any,
    ) -> None:
        self.team = team
        super().__init__(n_nodes, pairs, weights, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "team": self.team}

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        super().descend(_SharedGradient(gradient, self.team), rate)

    def _wanted(self, gradient: EdgeGradient) -> tuple[Pairs, NDArray[Any]]:
        n_tiles = -(-self.n_nodes // TILE_COLS)
        first, last = (n_tiles * (self.team.rank + part) // self.team.size for part in (0, 1))
        columns = (first * TILE_COLS, min(last * TILE_COLS, self.n_nodes))
        found, slopes = most_negative(gradient, self.n_nodes, self.pairs, self.capacity, columns)
        selection = Selection(self.n_nodes, self.capacity, slopes.dtype)
        of_all = (self.team.gather(part) for part in (*found, slopes))
        for rows, cols, values in zip(*of_all, strict=True):
            selection.add(rows, cols, values)
        return selection.result()

    def whole(self) -> EdgeDistribution:
        """The distribution of one process."""
        return GrowingEdges.from_snapshot(
            self.snapshot(), self.n_nodes, None, dtype=self.dtype, device=self.device
        )


class _SharedGradient:
    """A gradient of whose values at given pairs each process computes a part."""

    def __init__(self, gradient: EdgeGradient, team: Team) -> None:
        self.shift = gradient.shift
        self.band, self.tile = gradient.band, gradient.tile
        self.row_bounds = gradient.row_bounds
        self._gradient = gradient
        self._team = team

    def at_pairs(self, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[Any]:
        ends = len(rows) * np.arange(self._team.size + 1) // self._team.size
        own = slice(ends[self._team.rank], ends[self._team.rank + 1])
        values = self._gradient.at_pairs(rows[own], cols[own])
        return np.concatenate(self._team.gather(values))
