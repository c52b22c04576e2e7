"""A free probability for few pairs, the few being chosen anew as the gradient asks for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgewise.graph import kernels
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import EdgeGradient
from edgewise.graph.pairs import Incidence, Pairs
from edgewise.graph.sampled import Graph
from edgewise.snapshot import Snapshot

# Entries of the gradient that one scan for new candidates multiplies out, at most; but so many
# rows in any case.
SCAN_ENTRIES = 2**25
SCAN_ROWS = 256
# Entries of the gradient that are held at a time: 2 MB in float32, which stay in the cache.
TILE_ROWS, TILE_COLS = 256, 2048


class GrowingEdges(CandidateEdges):
    """Free probabilities on a set of candidate pairs that follows the gradient.

    A step of descent touches the candidates only. Every `growth_interval` steps the pairs outside
    the set are scanned, in blocks and never all at once, for those whose probability the gradient
    raises most. They join, and others leave, so that at most `max_edges_per_node` pairs a node
    remain. With room for all pairs and an interval of 1 this is `DenseEdges`.

    Much of what LDS learns are very many pairs of very small probability. So it is drawn by lot who
    leaves, and those who stay stand for those who left: see `thinned`. From then on a candidate
    takes as many times the steps of the gradient as its probability was raised, its stake.

    Parameters
    ----------
    n_nodes : int
    pairs : Pairs
        The initial graph; its edges are certain, or as probable as `weights` says.
    weights : ndarray, optional
    max_edges_per_node : int, default=20
        Candidates a node, on average (a pair counts for both of its nodes).
    growth_interval : int, default=5
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
        growth_interval: int = 5,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        initial = np.ones(pairs.n_pairs) if weights is None else weights
        super().__init__(n_nodes, pairs, initial, dtype=dtype, device=device)
        self.max_edges_per_node = max_edges_per_node
        self.growth_interval = growth_interval
        self._steps = 0
        self._stakes = np.ones_like(self._theta)

    @property
    def capacity(self) -> int:
        """The greatest number of candidates."""
        return max(1, self.n_nodes * self.max_edges_per_node // 2)

    def __getstate__(self) -> dict[str, Any]:
        own = ("max_edges_per_node", "growth_interval", "_steps", "_stakes")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def snapshot(self) -> Snapshot:
        settings = {
            "max_edges_per_node": self.max_edges_per_node,
            "growth_interval": self.growth_interval,
            "steps": self._steps,
        }
        # The stakes are never changed in place.
        return Snapshot(settings, {**super().snapshot().arrays, "stakes": self._stakes})

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.max_edges_per_node = int(snapshot.settings["max_edges_per_node"])
        self.growth_interval = max(1, int(snapshot.settings["growth_interval"]))
        self._steps = int(snapshot.settings["steps"])
        stakes = snapshot.arrays["stakes"]
        if stakes.shape != self._theta.shape or not (np.isfinite(stakes) & (stakes >= 1)).all():
            raise ValueError("the stakes of the candidates must be numbers of at least 1, one each")
        self._stakes = stakes.astype(self._theta.dtype)

    def draw_around(
        self,
        rng: np.random.Generator,
        rows: NDArray[np.int64],
        hops: int,
        *,
        for_edges: bool,
    ) -> Graph:
        """As for any candidates; but whole, if the next step asks about the other pairs too."""
        if for_edges and self._grows_next:
            return self.draw(rng)
        return super().draw_around(rng, rows, hops, for_edges=for_edges)

    @property
    def _grows_next(self) -> bool:
        return self._steps % self.growth_interval == 0

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        super().descend(gradient, rate)
        if self._grows_next:
            found, slopes = self._wanted(gradient)
            # They were at probability 0, and take the same step.
            self._admit(found, np.clip(np.multiply(slopes, -rate), 0.0, 1.0))
        self._steps += 1

    def _slopes(self, gradient: EdgeGradient) -> NDArray[Any]:
        slopes: NDArray[Any] = super()._slopes(gradient) * self._stakes
        return slopes

    def _wanted(self, gradient: EdgeGradient) -> tuple[Pairs, NDArray[Any]]:
        """The pairs that the gradient asks for most, and their derivatives."""
        return most_negative(gradient, self.n_nodes, self.pairs, self.capacity)

    def _admit(self, found: Pairs, probabilities: NDArray[Any]) -> None:
        """Add candidates, then draw those to stay if there is no room for all."""
        real = self._theta.dtype
        theta = np.concatenate([self._theta, probabilities.astype(real)])
        stakes = np.concatenate([self._stakes, np.ones(found.n_pairs, real)])
        rows = np.concatenate([self.pairs.rows, found.rows])
        cols = np.concatenate([self.pairs.cols, found.cols])
        kept = np.flatnonzero(np.greater(theta, 0))
        kept = kept[np.argsort(rows[kept] * self.n_nodes + cols[kept])]
        # The same lot in every process that shares the work, and in a fit that is gone on with.
        place, factors = thinned(theta[kept], self.capacity, np.random.default_rng(self._steps))
        kept = kept[place]
        self._theta = np.minimum(theta[kept] * factors, 1.0).astype(real)
        self._stakes = (stakes[kept] * factors).astype(real)
        self.pairs = Pairs(rows[kept], cols[kept])
        self._lay_out()


def thinned(
    probabilities: NDArray[Any], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw at most `count` of some positive probabilities to stand for all of them.

    There is a threshold t for which the sum of ``min(1, p / t)`` is `count`. With this chance p
    stays, and is then raised to t if it was below. So each is on average over the lots what it was,
    and so is the expected number of edges among any pairs. Drawn systematically: one random
    number, and as many as the sum says stay.

    Parameters
    ----------
    probabilities : ndarray, all positive
    count : int
    rng : numpy.random.Generator

    Returns
    -------
    kept : ndarray of int64, sorted positions
    factors : ndarray of float64, by which each of these is to be multiplied

    Examples
    --------
    >>> kept, factors = thinned(np.array([0.9, 0.1, 0.1, 0.1]), 2, np.random.default_rng(0))
    >>> kept, factors
    (array([0, 2]), array([1., 3.]))
    """
    if len(probabilities) <= count:
        return np.arange(len(probabilities)), np.ones(len(probabilities))
    values = probabilities.astype(np.float64)
    falling = -np.sort(-values)
    # The m largest stay for certain; the threshold if so, and the first m for which it holds.
    rest = falling[::-1].cumsum()[::-1][:count]
    thresholds = rest / (count - np.arange(count))
    n_certain = int(np.argmax(falling[:count] <= thresholds))
    threshold = thresholds[n_certain]
    chances = np.minimum(values / threshold, 1.0)
    line = np.floor(chances.cumsum() + rng.random())
    kept = np.flatnonzero(np.diff(line, prepend=0.0))[:count]
    return kept, np.maximum(threshold / values[kept], 1.0)


class Selection:
    """The `count` most negative of many values, and the pairs they belong to.

    What cannot be among them is forgotten now and then, so memory is proportional to `count`. Of
    equal values the first pairs are taken, in whatever order they come.
    """

    def __init__(self, n_nodes: int, count: int, dtype: Any) -> None:
        self.below = 0.0  # only values below can be among the most negative
        self._n_nodes = n_nodes
        self.count = count
        self._found = [(np.empty(0, np.int64), np.empty(0, dtype))]
        self._size = 0

    def add(self, rows: NDArray[np.int64], cols: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Hand in negative values of pairs with rows < cols, each pair once."""
        self._found.append((rows * self._n_nodes + cols, values))
        self._size += len(values)
        if self._size > 2 * self.count:
            self._trim()

    def _trim(self) -> None:
        keys, values = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        if len(values) > self.count:
            best = lowest(values, self.count, keys)
            keys, values = keys[best], values[best]
            # Equal ones may still have smaller keys.
            self.below = float(np.nextafter(values.max(), values.dtype.type(0)))
        self._found, self._size = [(keys, values)], len(values)

    def result(self) -> tuple[Pairs, NDArray[Any]]:
        """The pairs, sorted, and their values."""
        self._trim()
        keys, values = self._found[0]
        order = np.argsort(keys)
        keys = keys[order]
        return Pairs(keys // self._n_nodes, keys % self._n_nodes), values[order]


def lowest(
    values: NDArray[Any], count: int, keys: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Positions of the `count` lowest values, in order; of equal ones, the first.

    Parameters
    ----------
    values : ndarray
    count : int
    keys : ndarray, optional
        By which one of equal values is the first, if not by their place.

    Examples
    --------
    >>> lowest(np.array([3.0, 1.0, 2.0, 2.0]), 2)
    array([1, 2])
    >>> lowest(np.array([3.0, 1.0, 2.0, 2.0]), 2, np.array([0, 1, 3, 2]))
    array([1, 3])
    """
    if len(values) <= count:
        return np.arange(len(values))
    bound = np.partition(values, count - 1)[count - 1]
    below, equal = np.flatnonzero(values < bound), np.flatnonzero(values == bound)
    if keys is not None:
        equal = equal[np.argsort(keys[equal])]
    return np.sort(np.concatenate([below, equal[: count - len(below)]]))


def most_negative(
    gradient: EdgeGradient,
    n_nodes: int,
    known: Pairs,
    count: int,
    columns: tuple[int, int] | None = None,
) -> tuple[Pairs, NDArray[Any]]:
    """The `count` pairs outside `known` with the most negative derivatives, and these.

    Only rows in which some factor of the gradient is not zero are multiplied out, tile by tile and
    never all at once. Of all other pairs ``{i, j}`` the derivative is ``r_i + r_j``, whose smallest
    values are found by sorting r. Exact up to `SCAN_ENTRIES` entries in rows of the
    first kind, or `SCAN_ROWS` rows. Of more, those with the largest bound on their entries are
    multiplied out. So a scan is linear in the nodes.

    Parameters
    ----------
    gradient : EdgeGradient
    n_nodes : int
    known : Pairs
    count : int
    columns : (start, stop), optional
        A part of the scan: that of these columns, from a multiple of `TILE_COLS` so that products
        round as in the whole. Stretches that cover all nodes find each pair once.

    Returns
    -------
    pairs : Pairs
        Of equal derivatives the first are taken; only negative ones are.
    derivatives : ndarray
    """
    columns = (0, n_nodes) if columns is None else columns
    selection = Selection(n_nodes, count, gradient.shift.dtype)
    bounds = gradient.row_bounds()
    touched = np.flatnonzero(bounds)
    n_rows = max(SCAN_ROWS, SCAN_ENTRIES // n_nodes)
    strongest = np.sort(touched[np.argsort(-bounds[touched], kind="stable")[:n_rows]])
    is_row = np.zeros(n_nodes, np.bool_)
    is_row[strongest] = True
    _scan(gradient, strongest, columns, is_row, Incidence(known, n_nodes), selection)
    _add_untouched(gradient, np.flatnonzero(bounds == 0), columns, known, selection)
    return selection.result()


def _scan(
    gradient: EdgeGradient,
    strongest: NDArray[np.int64],
    columns: tuple[int, int],
    is_row: NDArray[np.bool_],
    incidence: Incidence,
    selection: Selection,
) -> None:
    """Pairs of a row and a column; a pair of two rows in that of the smaller node."""
    for top in range(0, len(strongest), TILE_ROWS):
        rows = strongest[top : top + TILE_ROWS]
        for start in range(*columns, TILE_COLS):
            tile = gradient.tile(rows, start, min(start + TILE_COLS, columns[1]))
            kernels.exclude_neighbours(tile, rows, start, incidence.start, incidence.others)
            found = kernels.collect_from_tile(
                tile, gradient.shift, rows, start, is_row, selection.below
            )
            selection.add(*found)


def _add_untouched(
    gradient: EdgeGradient,
    nodes: NDArray[np.int64],
    owned: tuple[int, int],
    known: Pairs,
    selection: Selection,
) -> None:
    """Pairs of nodes that no factor knows anything about."""
    ascending = nodes[np.argsort(gradient.shift[nodes], kind="stable")]
    places = kernels.smallest_sums(
        gradient.shift[ascending], selection.below, selection.count + known.n_pairs
    )
    one, other = ascending[places[0]], ascending[places[1]]
    rows, cols = np.minimum(one, other), np.maximum(one, other)
    n_nodes = len(gradient.shift)
    new = (rows >= owned[0]) & (rows < owned[1])
    new &= ~np.isin(rows * n_nodes + cols, known.rows * n_nodes + known.cols)
    rows, cols = rows[new], cols[new]
    selection.add(rows, cols, gradient.shift[rows] + gradient.shift[cols])
