"""Class probabilities of rows that nobody had when the graph and the network were fitted.

A new row v is attached to the fitted rows, and listens to them; they do not listen to it. Its
neighbours are those of the k-nearest-neighbour graph of the fitted rows and v: its k nearest
rows, and the rows to which it is nearer than their k-th nearest. (Half of a row's neighbours in
such a graph are of the second kind.) With N the neighbours in a sampled graph, and d~ the degrees
with the self-loop counted, its row of the normalised adjacency is ::

    (Â H)_v = H_v / d~_v + sum over u in N of H_u / sqrt(d~_v (d~_u + 1)),    d~_v = |N| + 1

which is the very row it would have, had v alone joined the graph. The rows of Â that belong to
fitted rows stay as they are. So no prediction of a fitted row changes, and that of a new row does
not depend on which other rows are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import pairwise_distances
from sklearn.utils.extmath import row_norms
from torch import Tensor

from edgewise.graph.construct import Metric, nearest_neighbours, neighbours_within
from edgewise.graph.sampled import Graph, csr_tensor
from edgewise.nn.network import Network
from edgewise.train import as_features

# A row is far from everything if its nearest neighbour is more than FAR_FACTOR times as far as
# nearest neighbours are among fitted rows, leaving out the most remote of these.
FAR_QUANTILE = 0.95
FAR_FACTOR = 2.0
# Fitted rows that are asked for their nearest neighbour, to know what is usual.
FAR_ROWS = 2000
# Cosine distances of multiples of the same row are zero up to rounding.
SAME = 1e-12
# Distances in one temporary: 32 MB.
BLOCK_VALUES = 2**22


class DrawsGraphs(Protocol):
    """Where the graphs of the fitted rows come from: an `EdgeDistribution`, for one."""

    def draw(self, rng: np.random.Generator) -> Graph: ...


@runtime_checkable
class AttachesRows(Protocol):
    """A distribution that knows, from features alone, how likely a new row has which edges."""

    def attach(self, queries: Any, features: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Candidate neighbours of each query among the fitted rows, and the edges' probabilities.

        Both of shape (n_queries, n_candidates); places without a candidate hold -1.
        """


@dataclass(frozen=True)
class Induction:
    """A fitted network that takes in new rows.

    Attributes
    ----------
    network, weights
        The network, and its fitted weights as tensors.
    edges : DrawsGraphs
        Graphs of the fitted rows. If it has a method ``attach`` (see `AttachesRows`), the edges
        of a new row are drawn with the probabilities this gives. Otherwise those of the
        k-nearest-neighbour graph are certain.
    features : ndarray or CSR array
        The fitted rows.
    class_frequencies : ndarray, shape (n_classes,)
        What is predicted for rows far from everything.
    far : float
        Distance to the nearest fitted row beyond which a row is far; see `far_distance`.
    reach : ndarray, shape (n_fitted,)
        How far the `k` nearest rows of each fitted row are; see `reaches`.
    k, metric
        How neighbours are found.
    n_samples : int
        Graphs that class probabilities are averaged over.
    seed : int
        Of these graphs: the same ones at every call, so that equal rows get equal answers.
    unit : float
        What the network sees rows in units of; see `edgewise.problem.row_unit`.
    """

    network: Network
    weights: Sequence[Tensor]
    edges: DrawsGraphs
    features: Any
    class_frequencies: NDArray[np.float64]
    far: float
    reach: NDArray[np.float64]
    k: int
    metric: Metric
    n_samples: int
    seed: int
    unit: float = 1.0

    def is_far(self, rows: Any) -> NDArray[np.bool_]:
        """Which rows are far from all fitted rows."""
        _, distances = nearest_neighbours(rows, self.features, 1, self.metric)
        beyond: NDArray[np.bool_] = distances[:, 0] > self.far
        if self.metric == "cosine":
            # An angle does not tell how long a row is, and the network sees that. Beyond this
            # length it is farther from each fitted row than any of these is from zero.
            beyond |= row_norms(rows) > FAR_FACTOR * row_norms(self.features).max()
        return beyond

    @torch.no_grad()
    def probabilities(self, rows: Any) -> NDArray[np.float64]:
        """Class probabilities of new rows, averaged over graphs; shape (n_rows, n_classes)."""
        mean = np.tile(self.class_frequencies, (rows.shape[0], 1))
        near = np.flatnonzero(~self.is_far(rows))
        if not len(near):
            return mean
        rows = rows[near]
        device, dtype = self.weights[0].device, self.weights[0].dtype
        attached = self._attach(rows)
        table = as_features(_stack(self.features, rows) / self.unit, dtype, device)
        rng = np.random.default_rng(self.seed)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for _ in range(self.n_samples):
            graph = self.edges.draw(rng)
            new, neighbours = attached.draw(rng)
            extended = extend(graph, new, neighbours, len(near))
            logits = self.network.logits(self.weights, table, extended)[graph.n_nodes :]
            total = total + torch.softmax(logits.to(torch.float64), dim=1)
        mean[near] = (total / self.n_samples).cpu().numpy()
        return mean

    def _attach(self, rows: Any) -> _Attached:
        if isinstance(self.edges, AttachesRows):
            neighbours, probability = self.edges.attach(rows, self.features)
            new, place = np.nonzero(neighbours >= 0)
            return _Attached(new, neighbours[new, place], probability[new, place], place)
        k = min(self.k, self.features.shape[0])
        nearest, _ = nearest_neighbours(rows, self.features, k, self.metric)
        found = []
        block = max(1, BLOCK_VALUES // self.features.shape[0])
        for start in range(0, rows.shape[0], block):
            part = slice(start, start + block)
            near = pairwise_distances(rows[part], self.features, self.metric) < self.reach
            new, place = np.nonzero(nearest[part] >= 0)
            near[new, nearest[part][new, place]] = True
            new, neighbour = np.nonzero(near)
            found.append((new + start, neighbour))
        new, neighbour = (np.concatenate(side) for side in zip(*found, strict=True))
        return _Attached(new, neighbour, np.ones(len(new)), np.zeros(len(new), np.int64))


class _Attached(NamedTuple):
    """Possible edges of new rows, and how likely they are.

    The e-th joins the new row ``rows[e]`` and the fitted row ``cols[e]``, and is number
    ``place[e]`` in the list of that new row's.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    probability: NDArray[np.float64]
    place: NDArray[np.int64]

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        # One number for a place, shared by all new rows: they never meet, and so no row's
        # prediction depends on what else is asked.
        chance = rng.random(self.place.max(initial=0) + 1)[self.place]
        drawn = chance < self.probability
        return self.rows[drawn], self.cols[drawn]


def _stack(fitted: Any, new: Any) -> Any:
    if isinstance(fitted, np.ndarray):
        return np.concatenate([fitted, new])
    return sparse.vstack([fitted, new], format="csr")


def extend(graph: Graph, rows: NDArray[np.int64], cols: NDArray[np.int64], n_new: int) -> Graph:
    """A graph with `n_new` further nodes, the e-th edge from new node ``rows[e]`` to ``cols[e]``.

    New nodes follow the old ones, which do not hear from them. So the operator is not symmetric:
    use it to evaluate a network, not to differentiate through.

    Parameters
    ----------
    graph : Graph
    rows, cols : ndarray of int64
        Each edge once. Rows count from 0, the first new node.
    n_new : int

    Examples
    --------
    >>> import numpy as np, torch
    >>> from edgewise.graph.pairs import Pairs
    >>> graph = Graph.from_pairs(Pairs.fold([0], [1], 2), n_nodes=2)
    >>> (extend(graph, np.array([0]), np.array([1]), n_new=1) @ torch.eye(3)).detach()
    tensor([[0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.4082, 0.5000]])
    """
    scale = graph.scale
    own = 1.0 / (1.0 + np.bincount(rows, minlength=n_new))  # 1 / d~_v
    joined = 1.0 / np.sqrt(scale.cpu().numpy().astype(np.float64) ** -2 + 1.0)
    entries = sparse.csr_array(
        (np.sqrt(own)[rows] * joined[cols], (rows, cols)), shape=(n_new, graph.n_nodes)
    )
    operator = _Extended(
        graph.operator,
        csr_tensor(entries, scale.dtype, scale.device),
        torch.from_numpy(own).to(scale)[:, None],
    )
    return Graph(operator, torch.cat([scale, torch.from_numpy(np.sqrt(own)).to(scale)]))


class _Extended:
    """``[[Â, 0], [messages, diag(own)]]``."""

    def __init__(self, fitted: Any, messages: Tensor, own: Tensor) -> None:
        self._fitted = fitted
        self._messages = messages
        self._own = own

    def __matmul__(self, dense: Tensor) -> Tensor:
        n_fitted = self._messages.shape[1]
        old, new = dense[:n_fitted], dense[n_fitted:]
        return torch.cat([self._fitted @ old, self._messages @ old + self._own * new])


def class_frequencies(labels: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Share of each class among the labelled rows (labels of others are negative).

    Examples
    --------
    >>> class_frequencies(np.array([0, -1, 1, 0, -1, 0]), n_classes=2)
    array([0.75, 0.25])
    """
    counts = np.bincount(labels[labels >= 0], minlength=n_classes)
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def far_distance(features: Any, metric: Metric) -> float:
    """The distance to its nearest fitted row from which on a row is far from everything.

    Twice the 95 % quantile of the distances between fitted rows and their nearest neighbours:
    copies apart, which would say that any distance is large, and rows without neighbours. Under
    the cosine metric at most 1: a row with nothing in common with any other is far. Infinite if
    there is nothing to compare with.

    Examples
    --------
    >>> far_distance(np.array([[0.0], [1.0], [2.0], [3.0], [3.0]]), "euclidean")
    2.0
    """
    n_rows = features.shape[0]
    asked = np.unique(np.linspace(0, n_rows - 1, min(n_rows, FAR_ROWS)).astype(np.int64))
    # Enough neighbours to look past a row itself and a few copies of it.
    _, distances = nearest_neighbours(features[asked], features, min(8, n_rows), metric)
    distances[distances <= SAME] = np.inf
    nearest = distances.min(axis=1)
    usual = nearest[np.isfinite(nearest)]
    far = FAR_FACTOR * float(np.quantile(usual, FAR_QUANTILE)) if len(usual) else np.inf
    return min(far, 1.0 - SAME) if metric == "cosine" else far


def reaches(features: Any, k: int, metric: Metric) -> NDArray[np.float64]:
    """How far the k-th nearest of the other rows is, for each row.

    Whatever is nearer would be a neighbour of it in the k-nearest-neighbour graph. A row of
    zeros has no neighbours under the cosine metric, and gets none: its reach is 0.

    Examples
    --------
    >>> reaches(np.array([[0.0], [1.0], [3.0]]), 1, "euclidean")
    array([1., 1., 2.])
    """
    _, distances = neighbours_within(features, min(k, features.shape[0] - 1), metric)
    return np.where(np.isinf(distances[:, 0]), 0.0, distances[:, -1])
