"""A term of the outer objective that needs no labels: hidden features, told from the neighbours.

A second network with two products ``Â relu(Â X W1) W2 + b`` sees the features with some of them
hidden, and is trained to tell what was hidden. How its loss depends on the graph is low-rank, like
everything here, and guides the edges where labels are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from edgewise.bilevel.dynamics import Adam, State
from edgewise.bilevel.lowrank import LowRank
from edgewise.graph import kernels
from edgewise.graph.sampled import FixedMatrix, Graph, csr_tensor
from edgewise.nn.network import glorot_uniform
from edgewise.snapshot import Snapshot

HIDDEN_UNITS = 128


class Masked(NamedTuple):
    """Features with some entries hidden, and what is to be told about which entries."""

    features: Any
    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    targets: NDArray[Any]


class _EntriesOfProduct(torch.autograd.Function):
    """Some entries of ``left right'``; once differentiable."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, rows: NDArray[Any], cols: NDArray[Any]
    ) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.entries = rows, cols
        values = torch.empty(len(rows), dtype=left.dtype)
        kernels.entries_of_product(
            left.cpu().numpy(), right.cpu().numpy(), rows, cols, values.numpy()
        )
        return values.to(left.device)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, None]:
        left, right = ctx.saved_tensors
        shape = (len(left), len(right))
        matrix = sparse.coo_array((cotangent.cpu().numpy(), ctx.entries), shape=shape)
        forth = csr_tensor(matrix.tocsr(), left.dtype, left.device)
        back = csr_tensor(matrix.T.tocsr(), left.dtype, left.device)
        return forth @ right, back @ left, None, None


class Denoiser:
    """Reconstructs hidden features through sampled graphs; see the module.

    Sparse features (words): a share of the non-zero entries is hidden, and told apart from as many
    zeros, times `zeros_per_entry`, by logistic loss. Dense features: a share of the entries is
    hidden, and their standardised values are told by squared loss.

    Parameters
    ----------
    features : ndarray or scipy CSR array
    generator : torch.Generator
        For the initial weights.
    hidden_units : int, default=128
    hidden_share : float, default=0.2
    zeros_per_entry : int, default=5
    learning_rate : float, default=0.01
    """

    def __init__(
        self,
        features: Any,
        generator: torch.Generator,
        *,
        hidden_units: int = HIDDEN_UNITS,
        hidden_share: float = 0.2,
        zeros_per_entry: int = 5,
        learning_rate: float = 0.01,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._sparse = not isinstance(features, np.ndarray)
        self._features: Any = features if self._sparse else _standardised(features)
        self._share = hidden_share
        self._zeros = zeros_per_entry
        self._dtype = dtype
        self._device = torch.device(device)
        n_features = features.shape[1]
        weights = [
            glorot_uniform(n_features, hidden_units, generator),
            glorot_uniform(n_features, hidden_units, generator),
            torch.zeros(n_features, 1, dtype=torch.float64),
        ]
        self._shapes = [weight.shape for weight in weights]
        self._dynamics = Adam(learning_rate)
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        self._state = self._dynamics.start(flat.to(dtype=dtype, device=self._device))

    def gradient(self, draw: Callable[[], Graph], rng: np.random.Generator) -> LowRank:
        """Derivative of the loss by the edges on one graph and mask; the network takes a step."""
        masked = self._mask(rng)
        graph = draw()
        sizes = [shape.numel() for shape in self._shapes]
        leaves = [
            part.view(shape).requires_grad_()
            for part, shape in zip(
                self._state.weights.detach().split(sizes), self._shapes, strict=True
            )
        ]
        loss = self._loss(leaves, masked, graph)
        with graph.recording() as tape:
            *by_weights, _ = torch.autograd.grad(loss, [*leaves, graph.anchor])
        flat = torch.cat([part.reshape(-1) for part in by_weights])
        self._state = self._dynamics.step(self._state, flat)
        return LowRank.from_tape(graph, tape)

    def snapshot(self) -> Snapshot:
        """The network's weights and its optimiser's memory."""
        vectors = (self._state.weights, *self._state.memory)
        arrays = {f"{place}": vector.cpu().numpy() for place, vector in enumerate(vectors)}
        return Snapshot({"count": self._state.count}, arrays)

    def restore(self, snapshot: Snapshot) -> None:
        weights, *memory = (
            torch.from_numpy(np.array(snapshot.arrays[f"{place}"])).to(self._device)
            for place in range(1 + self._dynamics.n_memory)
        )
        self._state = State(weights, tuple(memory), int(snapshot.settings["count"]))

    def _loss(self, weights: list[Tensor], masked: Masked, graph: Graph) -> Tensor:
        first, second, bias = weights
        features = masked.features
        table = (
            FixedMatrix.from_scipy(features, self._dtype, self._device)
            if self._sparse
            else torch.as_tensor(features, dtype=self._dtype, device=self._device)
        )
        deep = graph @ torch.relu(graph @ (table @ first))
        told = _EntriesOfProduct.apply(deep, second, masked.rows, masked.cols)  # type: ignore[no-untyped-call]
        told = told + bias[torch.from_numpy(masked.cols).to(self._device), 0]
        targets = torch.as_tensor(masked.targets, dtype=self._dtype, device=self._device)
        if self._sparse:
            return torch.nn.functional.binary_cross_entropy_with_logits(told, targets)
        return torch.nn.functional.mse_loss(told, targets)

    def _mask(self, rng: np.random.Generator) -> Masked:
        return self._mask_words(rng) if self._sparse else self._mask_values(rng)

    def _mask_words(self, rng: np.random.Generator) -> Masked:
        table = self._features
        hidden = rng.random(table.nnz) < self._share
        owners = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))[hidden]
        data = np.where(hidden, 0, table.data)
        features = sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)
        # A sampled zero may be a word after all, as rarely as rows are sparse.
        others = rng.integers(table.shape[1], size=self._zeros * len(owners))
        return Masked(
            features,
            np.concatenate([owners, np.repeat(owners, self._zeros)]),
            np.concatenate([table.indices[hidden].astype(np.int64), others]),
            np.repeat([1.0, 0.0], [len(owners), len(others)]),
        )

    def _mask_values(self, rng: np.random.Generator) -> Masked:
        table = self._features
        hidden = rng.random(table.shape) < self._share
        rows, cols = np.nonzero(hidden)
        return Masked(np.where(hidden, 0.0, table), rows, cols, table[rows, cols])


def _standardised(features: NDArray[Any]) -> NDArray[Any]:
    """Columns of mean 0 and standard deviation 1; constant ones are 0."""
    centred = features - features.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))
