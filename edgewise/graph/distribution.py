"""The outer variable: a probability for every edge of a graph that nobody has seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from edgewise.graph import kernels
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.graph.sampling import BernoulliSampler
from edgewise.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

# Variables to a block of the sampler: few blocks to search, few variables to scan in one.
BLOCK = 32
# Entries of the gradient that are held at a time: 4 MB in float32, so that what the matrix product
# writes is still in the cache when the update reads it.
BAND_ENTRIES = 2**20


class EdgeGradient(Protocol):
    """Derivative of a loss by the adjacency of an undirected graph (`edgewise.bilevel.LowRank`)."""

    shift: NDArray[Any]

    def row_bounds(self) -> NDArray[Any]: ...

    def tile(self, rows: NDArray[np.int64], start: int, stop: int) -> NDArray[Any]: ...

    def band(self, start: int, stop: int) -> NDArray[Any]: ...

    def at_pairs(self, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[Any]: ...


class EdgeDistribution(ABC):
    """Independent edges between `n_nodes` nodes, each pair with a probability of its own.

    Attributes
    ----------
    n_nodes : int
    dtype : torch.dtype
        Of the probabilities, and of the graphs drawn.
    device : torch.device
        Where drawn graphs live. The probabilities themselves stay in the memory of the host.
    """

    n_nodes: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def sample(self, rng: np.random.Generator | int) -> Pairs:
        """The edges of one graph, from a generator or from a seed."""

    @abstractmethod
    def expected_edges(self) -> float:
        """Expected number of (undirected) edges."""

    @abstractmethod
    def probability(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[Any]:
        """Probabilities of the edges {rows[e], cols[e]}; a node is no neighbour of itself."""

    @abstractmethod
    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        """One step of projected gradient descent."""

    @abstractmethod
    def above(self, threshold: float) -> tuple[Pairs, NDArray[Any]]:
        """The pairs whose probability is greater than `threshold`, and their probabilities."""

    @abstractmethod
    def copy(self) -> EdgeDistribution:
        """A copy that later steps leave alone."""

    def snapshot(self) -> Snapshot:
        """The state as plain data; see `edgewise.snapshot`."""
        raise TypeError(
            f"a {type(self).__name__} can be neither saved nor checkpointed: give the class the "
            "methods snapshot and restore (see edgewise.snapshot)."
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Take the state of another one with as many nodes; ValueError if it can be none."""
        raise TypeError(f"a {type(self).__name__} cannot be restored: give it a method restore.")

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        n_nodes: int,
        features: Any,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> Self:
        """A distribution of edges between the rows of `features` from its state alone."""
        made = cls._without_state(n_nodes, features, dtype, torch.device(device))
        made.restore(snapshot)
        return made

    @classmethod
    def _without_state(
        cls, n_nodes: int, features: Any, dtype: torch.dtype, device: torch.device
    ) -> Self:
        """All that is no part of the state; features, where edges are a function of them."""
        made = object.__new__(cls)
        made.n_nodes = n_nodes
        made.dtype = dtype
        made.device = device
        return made

    def draw(self, rng: np.random.Generator) -> Graph:
        """One sampled graph, ready to multiply by."""
        return Graph.from_pairs(
            self.sample(rng), self.n_nodes, dtype=self.dtype, device=self.device
        )

    def draw_around(
        self,
        rng: np.random.Generator,
        rows: NDArray[np.int64],
        hops: int,
        *,
        for_edges: bool,
    ) -> Graph:
        """As much of one sampled graph as matters to a function of some rows' neighbourhoods.

        In what is returned (see `Graph.nodes`) all is as in the whole graph for nodes that are at
        most `hops` edges away from `rows`; with `for_edges`, also for those that derivatives by
        the probabilities ask for. The whole graph is always right, if not cheap.

        Parameters
        ----------
        rng : numpy.random.Generator
        rows : ndarray of int64
        hops : int
        for_edges : bool
        """
        return self.draw(rng)

    def top_edges(self, count: int) -> tuple[Pairs, NDArray[Any]]:
        """The `count` most probable edges, by falling probability, and their probabilities."""
        pairs, probability = self.above(0.0)
        order = np.argsort(-probability, kind="stable")[:count]
        return Pairs(pairs.rows[order], pairs.cols[order]), probability[order]

    def to_scipy(self, threshold: float = 0.0) -> Any:
        """Symmetric SciPy CSR array of the probabilities above `threshold`."""
        from scipy.sparse import coo_array

        (rows, cols), probability = self.above(threshold)
        both = (np.concatenate([rows, cols]), np.concatenate([cols, rows]))
        shape = (self.n_nodes, self.n_nodes)
        return coo_array((np.concatenate([probability] * 2), both), shape=shape).tocsr()

    def to_networkx(self, threshold: float = 0.0) -> Any:
        """NetworkX graph of all nodes, with the ``probability`` of each edge above `threshold`."""
        import networkx

        pairs, probability = self.above(threshold)
        graph: networkx.Graph[int] = networkx.Graph()
        graph.add_nodes_from(range(self.n_nodes))
        graph.add_weighted_edges_from(
            zip(pairs.rows.tolist(), pairs.cols.tolist(), probability.tolist(), strict=True),
            weight="probability",
        )
        return graph

    def to_pyg(self, threshold: float = 0.0) -> Any:
        """PyTorch Geometric `Data` with ``edge_index``, both ways, and ``edge_weight``.

        The weights are the probabilities, those above `threshold`.
        """
        try:
            from torch_geometric.data import Data
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "to_pyg needs PyTorch Geometric: pip install 'edgewise[pyg]'."
            ) from None
        entries = self.to_scipy(threshold).tocoo()
        return Data(
            edge_index=torch.from_numpy(np.stack(entries.coords).astype(np.int64)),
            edge_weight=torch.from_numpy(entries.data),
            num_nodes=self.n_nodes,
        )

    def to_pandas(self, threshold: float = 0.0) -> Any:
        """Frame with columns ``source``, ``target``, ``probability``, by falling probability."""
        import pandas as pd

        (rows, cols), probability = self.above(threshold)
        frame = pd.DataFrame({"source": rows, "target": cols, "probability": probability})
        return frame.sort_values("probability", ascending=False, kind="stable", ignore_index=True)


def bands(n_nodes: int) -> Iterator[tuple[int, int]]:
    """Rows start..stop-1 that a gradient is computed for at a time.

    Examples
    --------
    >>> list(bands(2000))
    [(0, 524), (524, 1048), (1048, 1572), (1572, 2000)]
    """
    n_rows = max(1, BAND_ENTRIES // max(1, n_nodes))
    for start in range(0, n_nodes, n_rows):
        yield start, min(start + n_rows, n_nodes)


def real_type(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    """NumPy's type of probabilities for a torch one.

    Examples
    --------
    >>> real_type(torch.float64).__name__
    'float64'
    """
    return np.float64 if dtype == torch.float64 else np.float32


def check_probabilities(values: NDArray[Any], count: int, dtype: torch.dtype) -> None:
    """Refuse what cannot be the probabilities of `count` pairs in a snapshot."""
    # Written so that NaN fails as well.
    proper = values.shape == (count,) and bool(((values >= 0) & (values <= 1)).all())
    if not proper or values.dtype != real_type(dtype):
        raise ValueError(
            f"a snapshot must hold {count} probabilities of type {real_type(dtype).__name__} "
            "between 0 and 1."
        )


class DenseEdges(EdgeDistribution):
    """A free probability for every pair of nodes: N (N - 1) / 2 numbers.

    Parameters
    ----------
    n_nodes : int
    pairs : Pairs
        The initial graph: these edges are certain, all others impossible.
    weights : ndarray, optional
        Initial probabilities of the pairs, where they are not certain.
    dtype : torch.dtype, default=torch.float32
    device : str, default="cpu"

    Examples
    --------
    >>> edges = DenseEdges(4, Pairs.fold([0, 2], [1, 3], n_nodes=4))
    >>> edges.expected_edges()
    2.0
    >>> edges.probability([0, 0], [1, 2])
    array([1., 0.], dtype=float32)
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
        self._theta = np.zeros(self._row_lengths().sum(), real_type(dtype))
        self._lay_out()
        initial = 1.0 if weights is None else weights
        self._theta[self._position(pairs.rows, pairs.cols)] = initial

    def _row_lengths(self) -> NDArray[np.int64]:
        """How many probabilities each row of the strict upper triangle consists of."""
        return np.arange(self.n_nodes - 1, -1, -1, dtype=np.int64)

    def _lay_out(self) -> None:
        # Row i of the strict upper triangle lies at _offsets[i].._offsets[i + 1], and consists of
        # whole blocks, so that a row can be updated and summed up again on its own.
        lengths = self._row_lengths()
        self._offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._row_blocks = np.concatenate([[0], np.cumsum(-(-lengths // BLOCK))])
        self.__dict__.pop("_sampler", None)  # that of other probabilities

    @cached_property
    def _sampler(self) -> BernoulliSampler:
        """Made when it is asked for: a copy that is only kept needs none."""
        return BernoulliSampler(self._theta, self._block_bounds())

    def _block_bounds(self) -> NDArray[np.int64]:
        block_rows = np.repeat(np.arange(self.n_nodes), np.diff(self._row_blocks))
        within = np.arange(self._row_blocks[-1]) - self._row_blocks[block_rows]
        starts = self._offsets[block_rows] + BLOCK * within
        return np.append(starts, self._offsets[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("n_nodes", "dtype", "device", "_theta")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lay_out()

    def _position(self, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._offsets[rows] + cols - rows - 1

    def _pairs(self, positions: NDArray[np.int64]) -> Pairs:
        return Pairs(*kernels.unpack(positions, self._offsets))

    def sample(self, rng: np.random.Generator | int) -> Pairs:
        return self._pairs(self._sampler.draw(np.random.default_rng(rng)))

    def expected_edges(self) -> float:
        return self._sampler.expected()

    def probability(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[Any]:
        first, second = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
        self._check_nodes(first, second)
        low, high = np.minimum(first, second), np.maximum(first, second)
        proper = low != high
        values = np.zeros(proper.shape, self._theta.dtype)
        values[proper] = self._theta[self._position(low[proper], high[proper])]
        return values

    def _check_nodes(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
        nodes = np.concatenate([first.ravel(), second.ravel()])
        unknown = nodes[(nodes < 0) | (nodes >= self.n_nodes)]
        if len(unknown):  # its place would be that of another pair
            raise IndexError(
                f"no pair with node {unknown[0]}: nodes are numbered 0 to {self.n_nodes - 1}"
            )

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        for start, stop in bands(self.n_nodes):
            if self._offsets[start] == self._offsets[stop]:
                continue  # no probabilities to change: rows of another process, or the last one
            kernels.descend_rows(
                self._theta,
                self._offsets,
                start,
                gradient.band(start, stop),
                gradient.shift,
                rate,
            )
            self._sampler.sum_blocks(self._row_blocks[start], self._row_blocks[stop])
        self._index()

    def _index(self) -> None:
        self._sampler.index()

    def above(self, threshold: float) -> tuple[Pairs, NDArray[Any]]:
        positions = np.flatnonzero(np.greater(self._theta, threshold))
        return self._pairs(positions), self._theta[positions]

    def copy(self) -> DenseEdges:
        twin = object.__new__(type(self))
        twin.__setstate__({**self.__getstate__(), "_theta": self._theta.copy()})
        return twin

    def snapshot(self) -> Snapshot:
        # Bits and not values: a negative zero is kept as well.
        bits = self._theta.view(np.uint64 if self._theta.itemsize == 8 else np.uint32)
        positions = np.flatnonzero(bits)
        if 3 * len(positions) > len(bits):  # a position takes up to two probabilities' room
            return Snapshot({}, {"theta": self._theta.copy()})
        return Snapshot({}, {"positions": positions, "theta": self._theta[positions]})

    def restore(self, snapshot: Snapshot) -> None:
        values = snapshot.arrays["theta"]
        n_pairs = int(self._row_lengths().sum())
        positions = snapshot.arrays.get("positions")
        if positions is None:
            check_probabilities(values, n_pairs, self.dtype)
            self._theta = values.copy()
        else:
            check_probabilities(values, len(positions), self.dtype)
            ends = np.concatenate([[-1], positions, [n_pairs]])
            if positions.dtype != np.int64 or not (np.diff(ends) > 0).all():
                raise ValueError(f"a snapshot's positions must rise from 0 to {n_pairs - 1}.")
            self._theta = np.zeros(n_pairs, values.dtype)
            self._theta[positions] = values
        self._lay_out()
