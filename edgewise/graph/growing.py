"""A free probability for few pairs, the few being chosen anew as the gradient asks for others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgewise.graph import kernels
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import EdgeGradient, bands
from edgewise.graph.pairs import Pairs
from edgewise.snapshot import Snapshot


class GrowingEdges(CandidateEdges):
    """Free probabilities on a set of candidate pairs that follows the gradient.

    A step of descent touches the candidates only. Every `growth_interval` steps the pairs outside
    the set are scanned, in blocks and never all at once, for those whose probability the gradient
    raises most. They join, and the least probable leave, so that at most `max_edges_per_node`
    pairs a node remain. With room for all pairs and an interval of 1 this is `DenseEdges`.

    Parameters
    ----------
    n_nodes : int
    pairs : Pairs
        The initial graph; its edges are certain, or as probable as `weights` says.
    weights : ndarray, optional
    max_edges_per_node : int, default=20
        Candidates a node, on average (a pair counts for both of its nodes).
    growth_interval : int, default=20
    dtype : torch.dtype, default=torch.float32
    device : str, default="cpu"

    Examples
    --------
    >>> edges = GrowingEdges(4, Pairs.fold([0, 2], [1, 3], n_nodes=4))
    >>> edges.expected_edges()
    2.0
    """

    def __init__(
        self,
        n_nodes: int,
        pairs: Pairs,
        weights: NDArray[Any] | None = None,
        *,
        max_edges_per_node: int = 20,
        growth_interval: int = 20,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        initial = np.ones(pairs.n_pairs) if weights is None else weights
        super().__init__(n_nodes, pairs, initial, dtype=dtype, device=device)
        self.max_edges_per_node = max_edges_per_node
        self.growth_interval = growth_interval
        self._steps = 0

    @property
    def capacity(self) -> int:
        """The greatest number of candidates."""
        return max(1, self.n_nodes * self.max_edges_per_node // 2)

    def __getstate__(self) -> dict[str, Any]:
        own = ("max_edges_per_node", "growth_interval", "_steps")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def snapshot(self) -> Snapshot:
        settings = {
            "max_edges_per_node": self.max_edges_per_node,
            "growth_interval": self.growth_interval,
            "steps": self._steps,
        }
        return Snapshot(settings, super().snapshot().arrays)

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.max_edges_per_node = int(snapshot.settings["max_edges_per_node"])
        self.growth_interval = max(1, int(snapshot.settings["growth_interval"]))
        self._steps = int(snapshot.settings["steps"])

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        super().descend(gradient, rate)
        if self._steps % self.growth_interval == 0:
            found, slopes = self._wanted(gradient)
            # They were at probability 0, and take the same step.
            self._admit(found, np.clip(np.multiply(slopes, -rate), 0.0, 1.0))
        self._steps += 1

    def _wanted(self, gradient: EdgeGradient) -> tuple[Pairs, NDArray[Any]]:
        """The pairs that the gradient asks for most, and their derivatives."""
        return most_negative(gradient, self.n_nodes, self.pairs, self.capacity)

    def _admit(self, found: Pairs, probabilities: NDArray[Any]) -> None:
        """Add candidates, then keep the most probable ones that there is room for."""
        theta = np.concatenate([self._theta, probabilities.astype(self._theta.dtype)])
        rows = np.concatenate([self.pairs.rows, found.rows])
        cols = np.concatenate([self.pairs.cols, found.cols])
        kept = np.flatnonzero(np.greater(theta, 0))
        if len(kept) > self.capacity:
            kept = kept[np.argsort(-theta[kept], kind="stable")[: self.capacity]]
        kept = kept[np.argsort(rows[kept] * self.n_nodes + cols[kept])]
        self._theta = theta[kept]
        self.pairs = Pairs(rows[kept], cols[kept])
        self._lay_out()


def most_negative(
    gradient: EdgeGradient,
    n_nodes: int,
    known: Pairs,
    count: int,
    scanned: Iterable[tuple[int, int]] | None = None,
) -> tuple[Pairs, NDArray[Any]]:
    """The `count` pairs outside `known` with the most negative derivatives, and these.

    Scans the gradient in bands of rows, by default all (`scanned`), and keeps a running selection:
    memory is one band and `count` pairs. Only negative derivatives are taken. The pairs are sorted;
    of equal derivatives the first ones are taken.
    """
    rows, cols = np.empty((2, 0), np.int64)
    values = np.empty(0, gradient.shift.dtype)
    threshold = 0.0
    for start, stop in bands(n_nodes) if scanned is None else scanned:
        band = gradient.band(start, stop)
        first, last = np.searchsorted(known.rows, [start, stop])
        band[known.rows[first:last] - start, known.cols[first:last] - start] = np.inf
        found = kernels.collect_below(band, gradient.shift, start, threshold)
        rows, cols, values = (
            np.concatenate(both) for both in zip((rows, cols, values), found, strict=True)
        )
        if len(values) > 2 * count:
            best = lowest(values, count)
            rows, cols, values = rows[best], cols[best], values[best]
            threshold = float(values.max())
    best = lowest(values, count)
    return Pairs(rows[best], cols[best]), values[best]


def lowest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Positions of the `count` lowest values, in order; of equal ones, the first.

    Examples
    --------
    >>> lowest(np.array([3.0, 1.0, 2.0, 2.0]), 2)
    array([1, 2])
    """
    if len(values) <= count:
        return np.arange(len(values))
    bound = np.partition(values, count - 1)[count - 1]
    below, equal = np.flatnonzero(values < bound), np.flatnonzero(values == bound)
    return np.sort(np.concatenate([below, equal[: count - len(below)]]))
