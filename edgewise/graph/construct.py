"""Graphs to start from: nearest neighbours, random pairs, kernels, and edges dropped or added."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_array

from edgewise.graph.pairs import Pairs

Metric = Literal["euclidean", "cosine"]

_BLOCK_VALUES = 2**20  # float64 values in one temporary: 8 MB
# Rows of a dense table up to which neighbours are searched for exactly: time is quadratic there.
EXACT_UP_TO = 30_000
# Neighbours a row that the approximate search keeps for each one wanted. Of the 10 nearest rows in
# 64 columns that are mostly noise it finds 61 % with 1, 93 % with 3, 97 % with 4.
_SPARE = 4
_LARGEST_VALUE = 1e150  # squares of larger values are infinite


class _Table(NamedTuple):
    """Rows prepared for a metric: unit length for cosine, as they are for euclidean."""

    rows: Any  # float64 ndarray or CSR array
    squared_norms: NDArray[np.float64]
    usable: NDArray[np.bool_]  # False for zero rows under cosine: they have no direction

    @property
    def n_rows(self) -> int:
        return len(self.squared_norms)

    @property
    def values_per_row(self) -> int:
        """Length of the longest sum in a scalar product, which bounds its rounding error."""
        if _is_sparse(self.rows):
            return int(np.diff(self.rows.indptr).max(initial=0))
        return int(self.rows.shape[1])


def nearest_neighbours(
    queries: Any, features: Any, k: int, metric: Metric = "euclidean"
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Exact k nearest rows of ``features`` for every row of ``queries``.

    Equal distances are ordered by index, so the answer depends on neither the block size nor
    the number of threads. No array of shape (n_queries, n_rows) is ever built.

    Parameters
    ----------
    queries : array-like or SciPy sparse of shape (n_queries, n_features)
    features : array-like or SciPy sparse of shape (n_rows, n_features)
    k : int
        Neighbours per query, at most ``n_rows``.
    metric : {"euclidean", "cosine"}
        The cosine distance is ``1 - cosine similarity``. A row of zeros has no direction: it is
        nobody's neighbour and has none.

    Returns
    -------
    indices : ndarray of int64, shape (n_queries, k)
        Nearest first. Where there are fewer than k neighbours (zero rows under cosine): -1.
    distances : ndarray of float64, shape (n_queries, k)
        Infinite where the index is -1.

    Examples
    --------
    >>> from edgewise.graph.construct import nearest_neighbours
    >>> indices, distances = nearest_neighbours([[0.9]], [[0.0], [1.0], [3.0]], k=2)
    >>> indices
    array([[1, 0]])
    >>> distances.round(1)
    array([[0.1, 0.9]])
    """
    known = _prepare(features, metric, "features")
    asked = _prepare(queries, metric, "queries")
    if asked.rows.shape[1] != known.rows.shape[1]:
        raise ValueError(
            f"queries has {asked.rows.shape[1]} columns but features has "
            f"{known.rows.shape[1]}: give both the same columns."
        )
    _check_k(k, known.n_rows, f"features has only {known.n_rows} rows")
    return _search(asked, known, k, metric, skip_self=False)


def knn_pairs(features: Any, k: int, *, metric: Metric = "euclidean") -> Pairs:
    """k-nearest-neighbour graph: i and j are joined if either is among the other's k nearest.

    A row is never its own neighbour, but a copy of it elsewhere in the table is. Equal
    distances are decided by the lower index.

    Under the cosine metric a row of zeros has no direction and so no similarity to anything.
    It is left isolated, rather than joined to k arbitrary rows; the network then predicts it
    from its own features and the prior alone.

    For how neighbours are found, see `neighbours_within`.

    Parameters
    ----------
    features : array-like or SciPy sparse of shape (n_rows, n_features)
    k : int
        Neighbours per row, at least 1 and less than the number of rows.
    metric : {"euclidean", "cosine"}

    Returns
    -------
    Pairs

    Examples
    --------
    >>> from edgewise.graph.construct import knn_pairs
    >>> knn_pairs([[0.0], [1.0], [5.0]], k=1)
    Pairs(rows=array([0, 1]), cols=array([1, 2]))
    """
    indices, _ = neighbours_within(features, k, metric)
    found = indices >= 0
    return Pairs.fold(np.nonzero(found)[0], indices[found], len(indices))


def neighbours_within(
    features: Any, k: int, metric: Metric = "euclidean"
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest other rows of every row, as from `nearest_neighbours`.

    Exact up to 30,000 rows, and for sparse tables. Beyond, approximate: by pynndescent, always to
    the same answer. Without pynndescent (``pip install 'edgewise[ann]'``) it stays exact, and takes
    time quadratic in the rows.

    Parameters
    ----------
    features : array-like or SciPy sparse of shape (n_rows, n_features)
    k : int
        At least 1 and less than the number of rows.
    metric : {"euclidean", "cosine"}

    Returns
    -------
    indices, distances : ndarray of shape (n_rows, k)

    Examples
    --------
    >>> from edgewise.graph.construct import neighbours_within
    >>> indices, distances = neighbours_within([[0.0], [1.0], [5.0]], k=1)
    >>> indices.ravel(), distances.ravel()
    (array([1, 0, 1]), array([1., 1., 4.]))
    """
    table = _prepare(features, metric, "features")
    n_rows = table.n_rows
    _check_k(k, n_rows - 1, f"each of the {n_rows} rows has only {n_rows - 1} others")
    if n_rows > EXACT_UP_TO and not _is_sparse(table.rows) and find_spec("pynndescent"):
        return _approximate(table, k, metric)
    return _search(table, table, k, metric, skip_self=True)


def random_pairs(
    n_nodes: int,
    *,
    n_pairs: int | None = None,
    expected_degree: float | None = None,
    rng: np.random.Generator,
) -> Pairs:
    """Erdos-Renyi graph, drawn exactly, in memory proportional to the nodes and pairs drawn.

    Parameters
    ----------
    n_nodes : int
    n_pairs : int, optional
        Draw exactly this many pairs, every such set with the same probability: G(n, m).
    expected_degree : float, optional
        Draw every pair independently with probability ``expected_degree / (n_nodes - 1)``:
        G(n, p). Give either this or ``n_pairs``.
    rng : numpy.random.Generator

    Returns
    -------
    Pairs

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise.graph.construct import random_pairs
    >>> random_pairs(100, n_pairs=250, rng=np.random.default_rng(0)).n_pairs
    250
    """
    if n_nodes < 0:
        raise ValueError(f"n_nodes={n_nodes} is negative: give a number of nodes.")
    if (n_pairs is None) == (expected_degree is None):
        raise ValueError("give exactly one of n_pairs and expected_degree.")
    if n_pairs is None:
        assert expected_degree is not None  # for the type checker: exactly one is None
        if not 0 <= expected_degree <= max(n_nodes - 1, 0):
            raise ValueError(
                f"expected_degree={expected_degree} is impossible: with {n_nodes} nodes it must "
                f"lie between 0 and {max(n_nodes - 1, 0)}."
            )
        probability = expected_degree / max(n_nodes - 1, 1)
        n_pairs = int(rng.binomial(_n_possible(n_nodes), probability))
    nothing = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    return add_random_pairs(nothing, n_nodes, n_pairs, rng)


def rbf_similarities(features: Any, gamma: float | None = None) -> NDArray[Any]:
    """Dense Gaussian kernel ``exp(-gamma * squared distance)``, with ones on its diagonal.

    Parameters
    ----------
    features : array-like or SciPy sparse of shape (n_rows, n_features)
    gamma : float, optional
        Positive; by default one over the number of columns.

    Returns
    -------
    ndarray of shape (n_rows, n_rows), in the floating type of ``features``

    Examples
    --------
    >>> from edgewise.graph.construct import rbf_similarities
    >>> rbf_similarities([[0.0], [1.0]], gamma=1.0).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """
    if gamma is not None and not 0 < gamma < np.inf:
        raise ValueError(f"gamma={gamma} must be positive and finite.")
    table = check_array(
        features, accept_sparse="csr", dtype=(np.float64, np.float32), input_name="features"
    )
    kernel: NDArray[Any] = rbf_kernel(table, gamma=gamma)
    return kernel


def keep_pairs(pairs: Pairs, share: float, rng: np.random.Generator) -> Pairs:
    """Keep exactly ``round(share * pairs.n_pairs)`` pairs, drawn without replacement.

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise.graph.construct import keep_pairs, random_pairs
    >>> rng = np.random.default_rng(0)
    >>> keep_pairs(random_pairs(50, n_pairs=100, rng=rng), 0.25, rng).n_pairs
    25
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share} must lie between 0 (keep nothing) and 1 (keep all).")
    kept = np.sort(rng.choice(pairs.n_pairs, size=round(share * pairs.n_pairs), replace=False))
    return Pairs(pairs.rows[kept], pairs.cols[kept])


def add_random_pairs(pairs: Pairs, n_nodes: int, n_added: int, rng: np.random.Generator) -> Pairs:
    """Add exactly ``n_added`` pairs, drawn uniformly from those that ``pairs`` does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise.graph.construct import add_random_pairs
    >>> from edgewise.graph.pairs import Pairs
    >>> path = Pairs.fold([0, 1], [1, 2], n_nodes=3)
    >>> add_random_pairs(path, 3, 1, np.random.default_rng(0))  # the only one that is missing
    Pairs(rows=array([0, 0, 1]), cols=array([1, 2, 2]))
    """
    n_absent = _n_possible(n_nodes) - pairs.n_pairs
    if not 0 <= n_added <= n_absent:
        raise ValueError(
            f"cannot add {n_added} pairs: {n_nodes} nodes that hold {pairs.n_pairs} pairs have "
            f"room for 0 to {n_absent} more."
        )
    # Pairs are numbered row by row; row i starts at first[i]. The r-th absent number is r plus
    # the count of present numbers below it, so drawing ranks needs neither rejection nor N x N.
    first = np.concatenate([[0], np.cumsum(np.arange(n_nodes - 1, -1, -1, dtype=np.int64))])
    present = first[pairs.rows] + pairs.cols - pairs.rows - 1
    ranks = _draw_distinct(n_absent, n_added, rng)
    added = ranks + np.searchsorted(present - np.arange(pairs.n_pairs), ranks, side="right")
    number = np.sort(np.concatenate([present, added]))
    rows = np.searchsorted(first, number, side="right") - 1
    return Pairs(rows, number - first[rows] + rows + 1)


def _n_possible(n_nodes: int) -> int:
    return n_nodes * (n_nodes - 1) // 2


def _draw_distinct(population: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Uniform set of ``size`` distinct integers below ``population``, in O(size) memory."""
    if 2 * size > population:
        return rng.permutation(population)[:size]
    # Draw with replacement until enough are distinct, then drop the surplus at random. Every
    # step treats all integers alike, so every set of the right size is equally probable.
    drawn = np.empty(0, np.int64)
    while len(drawn) < size:
        more = rng.integers(population, size=size - len(drawn) + 8)
        drawn = np.unique(np.concatenate([drawn, more]))
    return rng.permutation(drawn)[:size]


def _check_k(k: int, most: int, why: str) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise TypeError(f"k={k!r} must be an integer number of neighbours.")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1.")
    if k > most:
        raise ValueError(f"k={k} is too large: {why}. Choose k <= {most}.")


def _prepare(features: Any, metric: str, name: str) -> _Table:
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"metric={metric!r} is unknown: choose 'euclidean' or 'cosine'.")
    rows = check_array(features, accept_sparse="csr", dtype=np.float64, input_name=name)
    if _is_sparse(rows):
        rows = sparse.csr_array(rows)
    if metric == "cosine":
        rows = _unit_rows(rows)
    elif abs(rows).max() > _LARGEST_VALUE:
        raise ValueError(
            f"{name} holds a value of size {abs(rows).max():.3g}, whose square overflows: scale "
            "the columns, for example with sklearn.preprocessing.StandardScaler."
        )
    squared_norms = np.asarray((rows * rows).sum(axis=1), dtype=np.float64).ravel()
    usable = squared_norms > 0 if metric == "cosine" else np.ones(rows.shape[0], bool)
    return _Table(rows, squared_norms, usable)


def _is_sparse(rows: Any) -> bool:
    return bool(sparse.issparse(rows))


def _unit_rows(rows: Any) -> Any:
    """Rows scaled to length 1. Divided by their largest entry first: squares cannot overflow."""
    for norm in (_largest_entries, _lengths):
        scale = norm(rows)
        scale[scale == 0] = 1.0
        if _is_sparse(rows):
            rows = sparse.csr_array(
                (rows.data / np.repeat(scale, np.diff(rows.indptr)), rows.indices, rows.indptr),
                shape=rows.shape,
            )
        else:
            rows = rows / scale[:, None]
    return rows


def _largest_entries(rows: Any) -> NDArray[np.float64]:
    largest = abs(rows).max(axis=1)
    return np.array(largest.toarray() if _is_sparse(largest) else largest).ravel()


def _lengths(rows: Any) -> NDArray[np.float64]:
    return np.sqrt(np.array((rows * rows).sum(axis=1), dtype=np.float64).ravel())


def _search(
    asked: _Table, known: _Table, k: int, metric: str, *, skip_self: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Matrix products screen the candidates, direct arithmetic on them decides.

    ``|x|^2 + |y|^2 - 2 x.y`` is fast but rounded differently from block to block, so that
    copies of a row could come out unequal. Whatever lies within the rounding error of the k-th
    screened distance is therefore a candidate, and is measured again term by term.
    """
    indices = np.empty((asked.n_rows, k), np.int64)
    distances = np.empty((asked.n_rows, k))
    n_terms = max(asked.values_per_row, known.values_per_row) + 8
    # A screened value is off by at most n_terms * eps * (|x| + |y|)^2, which is no more than
    # 2 * n_terms * eps * (|x|^2 + |y|^2); two of them, the k-th and another, by twice that.
    largest = known.squared_norms.max(initial=0.0)
    slack = 4 * n_terms * np.finfo(np.float64).eps * (asked.squared_norms + largest)
    block = max(1, _BLOCK_VALUES // max(known.n_rows, 1))
    for start in range(0, asked.n_rows, block):
        part = slice(start, min(start + block, asked.n_rows))
        screened = _screen(asked, known, part)
        if skip_self:
            local = np.arange(part.stop - start)
            screened[local, local + start] = np.inf
        kth = np.partition(screened, k - 1, axis=1)[:, k - 1]
        near = (screened <= (kth + slack[part])[:, None]) & (screened < np.inf)
        local_rows, candidates = np.nonzero(near)
        exact = _measure(asked.rows, known.rows, local_rows + start, candidates, metric)
        indices[part], distances[part] = _best_of_each(
            local_rows, candidates, exact, (part.stop - start, k)
        )
    return indices, distances


def _approximate(
    table: _Table, k: int, metric: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """As `_search` of a table in itself, but by nearest-neighbour descent."""
    from pynndescent import NNDescent

    usable = np.flatnonzero(table.usable)
    # Unit rows are as near in one metric as in the other. One thread: with more, the answer would
    # depend on which one is faster.
    rows = table.rows[usable].astype(np.float32)
    n_found = min(_SPARE * k, len(usable) - 1) + 1
    # Its first call starts Numba's threads, and with that OpenMP's, which PyTorch shares.
    threads = torch.get_num_threads()
    found, _ = NNDescent(
        rows, metric="euclidean", n_neighbors=n_found, random_state=0, n_jobs=1
    ).neighbor_graph
    torch.set_num_threads(threads)
    own, place = np.nonzero((found >= 0) & (found != np.arange(len(usable))[:, None]))
    one, other = usable[own], usable[found[own, place]]
    exact = _measure(table.rows, table.rows, one, other, metric)
    return _best_of_each(one, other, exact, (table.n_rows, k))


def _best_of_each(
    rows: NDArray[np.int64],
    candidates: NDArray[np.int64],
    distances: NDArray[np.float64],
    shape: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest candidates of each row, by distance and then by number, padded with -1."""
    order = np.lexsort((candidates, distances, rows))
    sorted_rows = rows[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_rows, sorted_rows)
    best, place = order[rank < shape[1]], rank[rank < shape[1]]
    indices = np.full(shape, -1, dtype=np.int64)
    nearest = np.full(shape, np.inf)
    indices[rows[best], place] = candidates[best]
    nearest[rows[best], place] = distances[best]
    return indices, nearest


def _screen(asked: _Table, known: _Table, part: slice) -> NDArray[np.float64]:
    """Approximate squared distances of a block of queries to all rows; infinite if unusable."""
    products = asked.rows[part] @ known.rows.T
    if _is_sparse(products):
        products = products.toarray()
    screened = np.asarray(products, dtype=np.float64)
    screened *= -2
    screened += asked.squared_norms[part, None]
    screened += known.squared_norms
    screened[:, ~known.usable] = np.inf
    screened[~asked.usable[part]] = np.inf
    return screened


def _measure(
    queries: Any,
    features: Any,
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    metric: str,
) -> NDArray[np.float64]:
    """Distance of the query ``rows[e]`` to the row ``cols[e]``, for every e, term by term."""
    result = np.empty(len(rows))
    for part in _parts(len(rows), features.shape[1]):
        left, right = queries[rows[part]], features[cols[part]]
        terms = left * right if metric == "cosine" else (left - right) ** 2
        total = np.asarray(terms.sum(axis=1)).ravel()
        result[part] = np.clip(1 - total, 0, 2) if metric == "cosine" else np.sqrt(total)
    return result


def _parts(count: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK_VALUES // max(width, 1))
    return (slice(start, start + step) for start in range(0, count, step))
