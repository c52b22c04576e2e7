"""A dense matrix of similarities in place of a random graph: kNN-LDS (dense) of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from edgewise.graph.distribution import (
    EdgeDistribution,
    EdgeGradient,
    bands,
    check_probabilities,
    real_type,
)
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.snapshot import Snapshot


class SimilarityMatrix(EdgeDistribution):
    """A real-valued symmetric matrix with entries in [0, 1], used as the adjacency itself.

    Nothing is random: every draw is the graph with these weights, so one draw is as good as many.
    Memory: one matrix of n_nodes × n_nodes (4 or 8 bytes an entry), which drawn graphs share. A
    graph is therefore to be used before the next `descend`.

    Parameters
    ----------
    n_nodes : int
    pairs : Pairs
        The initial graph: weight 1, or that in `weights`; all others weigh 0.
    weights : ndarray, optional
    dtype : torch.dtype, default=torch.float32
    device : str, default="cpu"

    Examples
    --------
    >>> similarity = SimilarityMatrix(3, Pairs.fold([0], [1], n_nodes=3), np.array([0.5]))
    >>> (similarity.draw(np.random.default_rng(0)) @ torch.eye(3)).detach()
    tensor([[0.6667, 0.3333, 0.0000],
            [0.3333, 0.6667, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """

    def __init__(
        self,
        n_nodes: int,
        pairs: Pairs,
        weights: NDArray[Any] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.n_nodes = n_nodes
        self.dtype = dtype
        self.device = torch.device(device)
        self._values = np.zeros((n_nodes, n_nodes), real_type(dtype))
        initial = 1.0 if weights is None else weights
        self._values[pairs.rows, pairs.cols] = initial
        self._values[pairs.cols, pairs.rows] = initial

    def sample(self, rng: np.random.Generator | int) -> Pairs:
        """All pairs that are similar at all."""
        return self.above(0.0)[0]

    def draw(self, rng: np.random.Generator) -> Graph:
        """The graph of these weights."""
        return Graph.from_dense(torch.from_numpy(self._values).to(self.device))

    def expected_edges(self) -> float:
        """Sum of the similarities over the pairs."""
        return float(self._values.sum(dtype=np.float64)) / 2.0

    def probability(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[Any]:
        """The similarities of the pairs {rows[e], cols[e]}."""
        values: NDArray[Any] = self._values[np.asarray(rows, np.int64), np.asarray(cols, np.int64)]
        return values

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        shift = gradient.shift
        for start, stop in bands(self.n_nodes):
            step = gradient.band(start, stop)
            step += shift[start:stop, None]
            step += shift[start:]
            step *= rate
            values = self._values[start:stop, start:]
            values -= step
            np.clip(values, 0.0, 1.0, out=values)
            # Rounding differs above and below the diagonal: the upper half is what counts.
            upper = np.triu(values[:, : stop - start], 1)
            values[:, : stop - start] = upper + upper.T
            self._values[stop:, start:stop] = values[:, stop - start :].T

    def above(self, threshold: float) -> tuple[Pairs, NDArray[Any]]:
        rows, cols = np.nonzero(np.triu(self._values > threshold, 1))
        return Pairs(rows, cols), self._values[rows, cols]

    def copy(self) -> SimilarityMatrix:
        twin = object.__new__(SimilarityMatrix)
        twin.__dict__.update(self.__dict__, _values=self._values.copy())
        return twin

    def snapshot(self) -> Snapshot:
        return Snapshot({}, {"values": self._values.copy()})

    def restore(self, snapshot: Snapshot) -> None:
        values = snapshot.arrays["values"]
        check_probabilities(values.ravel(), self.n_nodes**2, self.dtype)
        if values.shape != (self.n_nodes, self.n_nodes) or (values != values.T).any():
            raise ValueError("a snapshot must hold a symmetric matrix.")
        self._values = values.copy()
