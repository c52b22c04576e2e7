from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse

from edgewise.graph import construct
from edgewise.graph.construct import (
    add_random_pairs,
    keep_pairs,
    knn_pairs,
    nearest_neighbours,
    random_pairs,
    rbf_similarities,
)
from edgewise.graph.pairs import Pairs

Matrix = NDArray[Any]
FORMATS = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "list": lambda X: np.asarray(X).tolist(),
    "float32": lambda X: np.asarray(X, np.float32),
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "coo_matrix": sparse.coo_matrix,
}
small_tables = st.integers(2, 12).flatmap(
    lambda n: st.integers(1, 3).flatmap(
        lambda d: st.lists(
            st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=n, max_size=n
        )
    )
)


def brute_force(X: Matrix, k: int) -> Pairs:
    """Euclidean oracle on integers, where squared distances are exact and ties are real."""
    squared = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2).astype(float)
    np.fill_diagonal(squared, np.inf)
    nearest = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return Pairs.fold(np.repeat(np.arange(len(X)), k), nearest.ravel(), len(X))


def same(left: Pairs, right: Pairs) -> bool:
    return left.rows.tolist() == right.rows.tolist() and left.cols.tolist() == right.cols.tolist()


def is_canonical(pairs: Pairs, n_nodes: int) -> bool:
    key = pairs.rows * n_nodes + pairs.cols
    in_range = np.all((pairs.rows >= 0) & (pairs.rows < pairs.cols) & (pairs.cols < n_nodes))
    return bool(in_range and np.all(np.diff(key) > 0)) and pairs.rows.dtype == np.int64


@given(table=small_tables, data=st.data())
@settings(deadline=None, max_examples=150)
def test_knn_pairs_equals_brute_force_with_ties_and_copies(table: Any, data: Any) -> None:
    X = np.array(table)
    k = data.draw(st.integers(1, len(X) - 1))
    assert same(knn_pairs(X, k), brute_force(X, k))
    assert same(knn_pairs(sparse.csr_array(X.astype(float)), k), brute_force(X, k))


@pytest.mark.parametrize("convert", FORMATS.values(), ids=FORMATS.keys())
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_every_input_format_gives_the_same_graph(convert: Any, metric: Any) -> None:
    X = np.random.default_rng(0).integers(0, 4, size=(40, 6)).astype(float)
    X[:, 0] += 1  # no zero rows
    assert same(knn_pairs(convert(X), 5, metric=metric), knn_pairs(X, 5, metric=metric))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_blocks_do_not_change_the_answer(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5))[rng.integers(60, size=120)]  # copies, so that ties abound
    whole = nearest_neighbours(X, X, 7, metric)
    monkeypatch.setattr(construct, "_BLOCK_VALUES", 500)
    blocks = nearest_neighbours(X, X, 7, metric)
    assert_array_equal(whole[0], blocks[0])
    assert_array_equal(whole[1], blocks[1])
    graph = knn_pairs(X, 7, metric=metric)
    monkeypatch.undo()
    assert same(graph, knn_pairs(X, 7, metric=metric))


def test_no_array_of_all_pairs_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(construct, "_BLOCK_VALUES", 1000)
    sizes: list[int] = []
    screen = construct._screen

    def spy(*args: Any) -> Matrix:
        block = screen(*args)
        sizes.append(block.size)
        return block

    monkeypatch.setattr(construct, "_screen", spy)
    knn_pairs(np.random.default_rng(0).normal(size=(200, 3)), 3)
    assert max(sizes) <= 1000
    assert sum(sizes) == 200 * 200


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_euclidean_distances_are_accurate_far_from_the_origin(offset: float) -> None:
    X = np.random.default_rng(2).normal(size=(50, 4)) + offset
    direct = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    indices, distances = nearest_neighbours(X, X, 6)
    assert_allclose(distances, np.sort(direct, axis=1)[:, :6], rtol=1e-12)
    assert_allclose(np.take_along_axis(direct, indices, 1), distances, rtol=1e-12)


def test_an_outlier_does_not_blur_the_others() -> None:
    X = np.array([[0.0], [1.0], [1.5], [1e9]])
    assert nearest_neighbours(X, X, 2)[0].tolist() == [[0, 1], [1, 2], [2, 1], [3, 2]]


@pytest.mark.parametrize("as_input", [np.asarray, sparse.csr_array])
def test_cosine_distances_against_the_definition(as_input: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 8)) * rng.integers(1, 100, size=(30, 1))
    Q = rng.normal(size=(9, 8))
    direct = 1 - (Q @ X.T) / np.outer(np.linalg.norm(Q, axis=1), np.linalg.norm(X, axis=1))
    indices, distances = nearest_neighbours(as_input(Q), as_input(X), 4, "cosine")
    assert_allclose(distances, np.sort(direct, axis=1)[:, :4], atol=1e-14)
    assert_array_equal(indices, np.argsort(direct, axis=1)[:, :4])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_cosine_ignores_length_even_where_squares_overflow(scale: float) -> None:
    X = np.array([[1.0, 0.0], [3.0, 0.1], [0.0, 2.0], [0.2, 5.0]]) * scale
    assert same(knn_pairs(X, 1, metric="cosine"), Pairs.fold([0, 2], [1, 3], 4))


@pytest.mark.parametrize("as_input", [np.asarray, sparse.csr_array])
def test_zero_rows_are_isolated_under_cosine(as_input: Any) -> None:
    X = as_input(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    assert same(knn_pairs(X, 3, metric="cosine"), Pairs.fold([0], [2], 4))
    indices, distances = nearest_neighbours(X, X, 3, "cosine")
    assert indices.tolist() == [[0, 2, -1], [-1] * 3, [2, 0, -1], [-1] * 3]
    assert not np.isnan(distances).any()
    assert_array_equal(np.isinf(distances), indices < 0)


def test_zero_rows_are_ordinary_points_under_euclidean() -> None:
    assert same(knn_pairs(np.array([[0.0], [0.0], [9.0]]), 1), Pairs.fold([0, 2], [1, 0], 3))


def test_copies_are_neighbours_but_a_row_is_not_its_own() -> None:
    X = np.ones((5, 2))
    # Every row is joined to its two lowest-numbered copies.
    expected = Pairs.fold([0, 0, 1, 2, 2, 3, 3, 4, 4], [1, 2, 2, 0, 1, 0, 1, 0, 1], 5)
    assert same(knn_pairs(X, 2), expected)
    assert same(knn_pairs(X, 2, metric="cosine"), expected)


def test_k_of_all_others_is_the_complete_graph() -> None:
    pairs = knn_pairs(np.random.default_rng(0).normal(size=(9, 2)), 8)
    assert pairs.rows.size == 9 * 8 // 2


def test_input_is_left_alone() -> None:
    X = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    X.setflags(write=False)
    S = sparse.csr_array(X)
    before = S.copy()
    knn_pairs(X, 1, metric="cosine")
    knn_pairs(S, 1, metric="cosine")
    assert_array_equal(S.toarray(), before.toarray())


@pytest.mark.parametrize(
    ("k", "metric", "error", "message"),
    [
        (0, "euclidean", ValueError, "k=0 must be at least 1"),
        (-3, "euclidean", ValueError, "k=-3 must be at least 1"),
        (4, "euclidean", ValueError, r"k=4 is too large: .*4 rows.*Choose k <= 3"),
        (1.5, "euclidean", TypeError, "k=1.5 must be an integer"),
        (True, "euclidean", TypeError, "k=True must be an integer"),
        (1, "hamming", ValueError, "metric='hamming' is unknown: choose 'euclidean' or 'cosine'"),
    ],
)
def test_knn_errors(k: Any, metric: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        knn_pairs(np.eye(4), k, metric=metric)


def test_neighbour_errors() -> None:
    with pytest.raises(ValueError, match="queries has 2 columns but features has 3"):
        nearest_neighbours(np.eye(2), np.eye(3), 1)
    with pytest.raises(ValueError, match=r"k=4 is too large.*only 3 rows.*k <= 3"):
        nearest_neighbours(np.eye(3), np.eye(3), 4)
    with pytest.raises(ValueError, match="Input features contains NaN"):
        knn_pairs([[np.nan], [1.0]], 1)
    with pytest.raises(ValueError, match=r"holds a value of size 1e\+200.*StandardScaler"):
        knn_pairs([[1e200], [1.0]], 1)


def test_nearest_neighbours_may_return_all_rows() -> None:
    assert nearest_neighbours([[2.0]], [[0.0], [2.0]], 2)[0].tolist() == [[1, 0]]


@pytest.mark.parametrize("n_pairs", [0, 1, 20, 44, 45])
def test_random_pairs_has_exactly_the_pairs_asked_for(n_pairs: int) -> None:
    pairs = random_pairs(10, n_pairs=n_pairs, rng=np.random.default_rng(n_pairs))
    assert pairs.rows.size == n_pairs
    assert is_canonical(pairs, 10)


@pytest.mark.parametrize("n_pairs", [2, 4])  # below and above half of the six pairs of K4
def test_random_pairs_are_uniform_over_sets(n_pairs: int) -> None:
    rng = np.random.default_rng(5)
    counts: dict[tuple[int, ...], int] = {}
    n_draws = 6000
    for _ in range(n_draws):
        pairs = random_pairs(4, n_pairs=n_pairs, rng=rng)
        key = tuple((pairs.rows * 4 + pairs.cols).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 15  # 6 choose 2 = 6 choose 4
    expected = n_draws / 15
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 36.1  # the 0.1 % point with 14 degrees of freedom


def test_expected_degree_draws_independent_pairs() -> None:
    rng = np.random.default_rng(6)
    counts = [random_pairs(50, expected_degree=7, rng=rng).rows.size for _ in range(2000)]
    p = 7 / 49
    mean, variance = 1225 * p, 1225 * p * (1 - p)
    assert abs(np.mean(counts) - mean) < 4 * np.sqrt(variance / 2000)
    assert 0.85 < np.var(counts) / variance < 1.15


def test_random_pairs_on_many_nodes_needs_little_memory() -> None:
    n_nodes = 300_000  # 4.5e10 possible pairs
    pairs = random_pairs(n_nodes, n_pairs=1000, rng=np.random.default_rng(7))
    assert pairs.rows.size == 1000
    assert is_canonical(pairs, n_nodes)
    assert abs(pairs.rows.mean() / n_nodes - 1 / 3) < 0.05  # E[min] of two uniforms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of n_pairs and expected_degree"),
        ({"n_pairs": 1, "expected_degree": 1.0}, "exactly one of"),
        ({"n_pairs": 11}, "cannot add 11 pairs: 5 nodes .* room for 0 to 10 more"),
        ({"n_pairs": -1}, "cannot add -1 pairs"),
        ({"expected_degree": 4.5}, r"expected_degree=4.5 is impossible: .* between 0 and 4"),
        ({"expected_degree": float("nan")}, "expected_degree=nan is impossible"),
    ],
)
def test_random_pairs_errors(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_pairs(5, rng=np.random.default_rng(0), **arguments)


def test_random_pairs_on_hardly_any_nodes() -> None:
    rng = np.random.default_rng(0)
    for n_nodes in (0, 1):
        assert random_pairs(n_nodes, expected_degree=0, rng=rng).rows.size == 0
    with pytest.raises(ValueError, match="n_nodes=-1 is negative"):
        random_pairs(-1, n_pairs=0, rng=rng)


@pytest.mark.parametrize("seed", range(3))
def test_every_draw_repeats_with_its_seed(seed: int) -> None:
    def draw() -> tuple[Pairs, Pairs, Pairs]:
        rng = np.random.default_rng(seed)
        start = random_pairs(30, n_pairs=60, rng=rng)
        return start, keep_pairs(start, 0.5, rng), add_random_pairs(start, 30, 9, rng)

    assert all(same(a, b) for a, b in zip(draw(), draw(), strict=True))


@given(n_nodes=st.integers(2, 15), share=st.floats(0, 1), seed=st.integers(0, 99), data=st.data())
@settings(deadline=None, max_examples=100)
def test_keeping_and_adding(n_nodes: int, share: float, seed: int, data: Any) -> None:
    rng = np.random.default_rng(seed)
    possible = n_nodes * (n_nodes - 1) // 2
    start = random_pairs(n_nodes, n_pairs=data.draw(st.integers(0, possible)), rng=rng)
    before = set(zip(start.rows.tolist(), start.cols.tolist(), strict=True))

    kept = keep_pairs(start, share, rng)
    assert kept.rows.size == round(share * len(before))
    assert is_canonical(kept, n_nodes)
    assert set(zip(kept.rows.tolist(), kept.cols.tolist(), strict=True)) <= before

    n_added = data.draw(st.integers(0, possible - len(before)))
    more = add_random_pairs(start, n_nodes, n_added, rng)
    assert more.rows.size == len(before) + n_added
    assert is_canonical(more, n_nodes)
    assert set(zip(more.rows.tolist(), more.cols.tolist(), strict=True)) >= before


def test_added_pairs_are_uniform_over_the_absent() -> None:
    path = Pairs.fold([0, 1], [1, 2], 4)
    rng = np.random.default_rng(8)
    counts = np.zeros((4, 4))
    for _ in range(4000):
        more = add_random_pairs(path, 4, 1, rng)
        counts[more.rows, more.cols] += 1
    absent = counts[[0, 0, 1, 2], [2, 3, 3, 3]]
    assert absent.sum() == 4000
    assert ((absent - 1000) ** 2 / 1000).sum() < 16.3  # the 0.1 % point, 3 degrees of freedom


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_share_out_of_range(share: float) -> None:
    with pytest.raises(ValueError, match=r"share=.* must lie between 0"):
        keep_pairs(Pairs.fold([0], [1], 2), share, np.random.default_rng(0))


@pytest.mark.parametrize("as_input", [np.asarray, sparse.csr_array, sparse.coo_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rbf_against_its_definition(as_input: Any, dtype: Any) -> None:
    X = np.random.default_rng(9).normal(size=(12, 3)).astype(dtype)
    direct = np.exp(-0.7 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    kernel = rbf_similarities(as_input(X), gamma=0.7)
    assert kernel.dtype == dtype
    assert_allclose(kernel, direct, rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert_allclose(rbf_similarities(X), rbf_similarities(X, gamma=1 / 3))


@pytest.mark.parametrize("gamma", [0.0, -1.0, float("nan"), float("inf")])
def test_rbf_rejects_a_meaningless_gamma(gamma: float) -> None:
    with pytest.raises(ValueError, match=r"gamma=.* must be positive and finite"):
        rbf_similarities(np.eye(2), gamma)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_approximate_neighbours_are_nearly_the_exact_ones(metric, monkeypatch):
    pytest.importorskip("pynndescent")
    rows = np.random.default_rng(0).normal(size=(400, 5))
    rows[7] = 0.0  # no direction: nobody's neighbour under the cosine metric
    wanted, distances = construct.neighbours_within(rows, 4, metric)
    monkeypatch.setattr(construct, "EXACT_UP_TO", 100)
    found, approximate = construct.neighbours_within(rows, 4, metric)
    assert (found == wanted).mean() > 0.99
    assert (found != np.arange(400)[:, None]).all()
    same = found == wanted
    np.testing.assert_array_equal(approximate[same], distances[same])
    assert (found[7] == -1).all() == (metric == "cosine")
    again, _ = construct.neighbours_within(rows, 4, metric)
    np.testing.assert_array_equal(found, again)


def test_the_approximate_search_leaves_the_number_of_threads_alone(monkeypatch):
    class Meddler:
        """Starts threads that PyTorch then uses as well, as the first search of all does."""

        def __init__(self, rows, *, n_neighbors, **others):
            torch.set_num_threads(3)
            found, distances = construct.nearest_neighbours(rows, rows, n_neighbors)
            self.neighbor_graph = found, distances

    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Meddler))
    monkeypatch.setattr(construct, "find_spec", lambda name: True)
    monkeypatch.setattr(construct, "EXACT_UP_TO", 10)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        construct.neighbours_within(np.random.default_rng(0).normal(size=(60, 5)), 3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_neighbours_stay_exact_without_pynndescent_and_for_sparse_rows(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    wanted, _ = construct.neighbours_within(rows, 3)
    monkeypatch.setattr(construct, "EXACT_UP_TO", 10)
    monkeypatch.setattr(construct, "_approximate", None)  # not to be called
    found, _ = construct.neighbours_within(sparse.csr_array(rows), 3)
    np.testing.assert_array_equal(found, wanted)
    monkeypatch.setattr(construct, "find_spec", lambda name: None)
    found, _ = construct.neighbours_within(rows, 3)
    np.testing.assert_array_equal(found, wanted)
