"""One sampled graph, as a network sees it: something to multiply by."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.graph import kernels
from edgewise.graph.pairs import Pairs

with warnings.catch_warnings():
    # PyTorch announces once a process that its CSR tensors are in beta. We use their construction
    # and their product with a dense matrix, and nothing else.
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))


class TapeEntry(NamedTuple):
    """What one differentiated product ``Â H`` leaves behind."""

    cotangent: Tensor  # C, of the product
    dense: Tensor  # H
    back: Tensor  # Â C
    product: Tensor  # Â H


class Batch(NamedTuple):
    """Labelled rows that stand for all of them: one of `n_parts` equally likely parts."""

    rows: NDArray[np.int64]  # numbered as in the whole graph
    n_parts: int


class FixedMatrix:
    """A constant sparse matrix whose product with a dense one can be differentiated twice.

    PyTorch's own sparse products go dense at the second derivative; the derivative of
    ``M @ H`` is again such a product, with the transpose, which is built once.
    """

    def __init__(self, matrix: Tensor, transposed: Tensor) -> None:
        self.matrix = matrix
        self.transposed = transposed
        self.shape = tuple(matrix.shape)
        self.dtype = matrix.dtype
        self.device = matrix.device

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype, device: torch.device) -> FixedMatrix:
        """From a SciPy sparse matrix or array."""
        return cls(
            csr_tensor(matrix.tocsr(), dtype, device), csr_tensor(matrix.T.tocsr(), dtype, device)
        )

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return sparse_product(self.matrix, dense)
        product: Tensor = _FixedProduct.apply(self.matrix, self.transposed, dense)  # type: ignore[no-untyped-call]
        return product


def csr_tensor(matrix: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A SciPy CSR matrix as a PyTorch CSR tensor with 32-bit indices."""
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.require(matrix.indptr, np.int32, "W")),
        torch.from_numpy(np.require(matrix.indices, np.int32, "W")),
        torch.from_numpy(np.require(matrix.data, requirements="W")),
        matrix.shape,
        dtype=dtype,
        device=device,
        check_invariants=False,
    )


def sparse_product(matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense``, without the zeros that PyTorch would first write and add to."""
    out = dense.new_empty(matrix.shape[0], dense.shape[1])
    return torch.addmm(out, matrix, dense, beta=0.0, out=out)


class _FixedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return sparse_product(matrix, dense)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, None, Tensor]:
        return None, None, FixedMatrix(ctx.transposed, ctx.matrix) @ cotangent


class Graph:
    """The normalised adjacency of one graph, ``D~^{-1/2} (A + I) D~^{-1/2}``.

    ``graph @ H`` is the only way in which a network sees it, so every derivative with respect to
    the graph is known from such products: see `recording`.

    Parameters
    ----------
    operator : object with ``operator @ H``
        The normalised adjacency, symmetric: a `SparseOperator`, or anything that multiplies.
    scale : Tensor, shape (n_nodes,)
        ``D~^{-1/2}``: the square roots of the inverse degrees, the self-loop counted.

    Attributes
    ----------
    nodes : ndarray or None
        Of a part of a larger graph: which of its nodes these are, in order. Degrees, and so the
        entries of the operator, are those of the larger graph.
    n_whole : int
        Number of nodes of the larger graph.
    batch : Batch or None
        The labelled rows that the graph was drawn for, if not for all.
    """

    def __init__(self, operator: Any, scale: Tensor) -> None:
        self.operator = operator
        self.scale = scale
        self.nodes: NDArray[np.int64] | None = None
        self.n_whole = len(scale)
        self.batch: Batch | None = None
        self.tape: list[TapeEntry] | None = None
        # Takes part in every product, so that also those with a constant H (``graph @ X``) are
        # seen by autograd, and hence by the tape, when a derivative is asked for.
        self.anchor = torch.zeros((), dtype=scale.dtype, device=scale.device, requires_grad=True)

    @property
    def n_nodes(self) -> int:
        return len(self.scale)

    @classmethod
    def from_pairs(
        cls,
        pairs: Pairs,
        n_nodes: int,
        *,
        weights: Any = None,
        further_degree: Any = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Graph:
        """The graph of the given pairs; nodes may have a degree beyond these.

        Examples
        --------
        >>> graph = Graph.from_pairs(Pairs.fold([0], [1], 3), n_nodes=3)
        >>> (graph @ torch.eye(3)).detach()
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
        """
        real = np.float64 if dtype == torch.float64 else np.float32
        n_entries = 2 * pairs.n_pairs + n_nodes
        indptr = np.empty(n_nodes + 1, np.int32)
        indices = np.empty(n_entries, np.int32)
        data = np.empty(n_entries, real)
        scale = np.empty(n_nodes, real)
        weight = np.empty(0, real) if weights is None else np.asarray(weights, real)
        degree = np.ones(n_nodes) if further_degree is None else 1.0 + further_degree
        kernels.normalised_csr(pairs.rows, pairs.cols, weight, degree, indptr, indices, data, scale)
        matrix = torch.sparse_csr_tensor(
            torch.from_numpy(indptr),
            torch.from_numpy(indices),
            torch.from_numpy(data),
            (n_nodes, n_nodes),
            device=device,
            check_invariants=False,
        )
        operator = SparseOperator(matrix, indptr, indices, data)
        return cls(operator, torch.from_numpy(scale).to(device))

    @classmethod
    def from_dense(cls, adjacency: Tensor) -> Graph:
        """The graph of a dense symmetric matrix of non-negative weights without diagonal.

        The matrix is kept, not copied: whoever changes it needs a new graph.
        """
        scale = (1.0 + adjacency.sum(dim=1)).rsqrt()
        return cls(_Scaled(adjacency, scale), scale)

    @classmethod
    def complete(
        cls,
        n_nodes: int,
        *,
        weight: float = 1.0,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> Graph:
        """The complete graph with equal weights: its product is a mean, so no matrix is built.

        Examples
        --------
        >>> graph = Graph.complete(3, weight=0.5, dtype=torch.float32)
        >>> (graph @ torch.eye(3)).detach()
        tensor([[0.5000, 0.2500, 0.2500],
                [0.2500, 0.5000, 0.2500],
                [0.2500, 0.2500, 0.5000]])
        """
        degree = 1.0 + weight * (n_nodes - 1)
        scale = torch.full((n_nodes,), degree**-0.5, dtype=dtype, device=device)
        return cls(_Mean(weight * n_nodes / degree, (1.0 - weight) / degree), scale)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self.operator @ dense  # type: ignore[no-any-return]
        product: Tensor = _GraphProduct.apply(self, self.anchor, dense)  # type: ignore[no-untyped-call]
        return product

    @contextmanager
    def recording(self) -> Iterator[list[TapeEntry]]:
        """While open, each product that is differentiated leaves a `TapeEntry`.

        With L the quantity differentiated, ``dL/dÂ = sum of C H'`` over the tape. `anchor` must
        be among the inputs of the derivative.
        """
        self.tape = []
        try:
            yield self.tape
        finally:
            self.tape = None


@dataclass(frozen=True)
class SparseOperator:
    """A sparse normalised adjacency: on the device, and as its entries on the host."""

    matrix: Tensor
    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: NDArray[Any]

    @property
    def entries(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        return self.indptr, self.indices, self.data

    def __matmul__(self, dense: Tensor) -> Tensor:
        return sparse_product(self.matrix, dense)


class _Scaled:
    """``D~^{-1/2} (A + I) D~^{-1/2}`` of a dense A, without a second matrix of its size."""

    def __init__(self, adjacency: Tensor, scale: Tensor) -> None:
        self._adjacency = adjacency
        self._scale = scale[:, None]

    def __matmul__(self, dense: Tensor) -> Tensor:
        scaled = self._scale * dense
        return self._scale * torch.addmm(scaled, self._adjacency, scaled)


class _Mean:
    """``mean 11'/n + own I``: what normalisation makes of the complete graph."""

    def __init__(self, mean: float, own: float) -> None:
        self._mean = mean
        self._own = own

    def __matmul__(self, dense: Tensor) -> Tensor:
        mean = self._mean * dense.mean(dim=0, keepdim=True)
        return mean.expand_as(dense) if self._own == 0.0 else mean + self._own * dense


class _GraphProduct(torch.autograd.Function):
    """Â H. Its backward pass is the same product on the cotangent, Â being symmetric."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, anchor: Tensor, dense: Tensor) -> Tensor:
        ctx.graph = graph
        product: Tensor = graph.operator @ dense
        # Saved by autograd's own means, so that a network which changes the product in place
        # (``out += bias``) meets an error, not a wrong derivative.
        ctx.save_for_backward(anchor, dense, product)
        return product

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        anchor, dense, product = ctx.saved_tensors
        graph: Graph = ctx.graph
        back = graph @ cotangent
        if graph.tape is not None:
            entry = cotangent, dense, back, product
            graph.tape.append(TapeEntry(*(tensor.detach() for tensor in entry)))
        return None, torch.zeros_like(anchor), back
