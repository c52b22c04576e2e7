from __future__ import annotations

import pickle

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from edgewise.graph import distribution
from edgewise.graph.distribution import BLOCK, DenseEdges
from edgewise.graph.pairs import Pairs

DTYPES = [torch.float32, torch.float64]


class DenseGradient:
    """A gradient with everything written out: ``G_ij + G_ji`` plus ``r_i + r_j``."""

    def __init__(self, G, shift):
        self.G = G
        self.shift = shift

    def band(self, start, stop):
        return (self.G + self.G.T)[start:stop, start:].copy()

    def whole(self):
        return self.G + self.G.T + self.shift[:, None] + self.shift


def all_pairs(n_nodes):
    return Pairs(*(index.astype(np.int64) for index in np.triu_indices(n_nodes, 1)))


def with_probabilities(theta, dtype=torch.float64):
    """Edges with the strict upper triangle of `theta`."""
    pairs = all_pairs(len(theta))
    return DenseEdges(len(theta), pairs, theta[pairs.rows, pairs.cols], dtype=dtype)


def matrix_of(edges):
    rows, cols = np.indices((edges.n_nodes, edges.n_nodes))
    return edges.probability(rows, cols)


def some_theta(n_nodes, seed=0):
    """Symmetric, with every kind of probability."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)), 1)
    upper[rng.random(upper.shape) < 0.3] = 0.0
    upper[np.triu(rng.random(upper.shape) < 0.1, 1)] = 1.0
    return upper + upper.T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_nodes", [1, 2, 3, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
def test_a_given_graph_is_certain(n_nodes, dtype):
    rng = np.random.default_rng(n_nodes)
    pairs = Pairs.fold(*rng.integers(0, n_nodes, (2, 2 * n_nodes)), n_nodes)
    edges = DenseEdges(n_nodes, pairs, dtype=dtype)
    expected = np.zeros((n_nodes, n_nodes))
    expected[pairs.rows, pairs.cols] = expected[pairs.cols, pairs.rows] = 1.0
    assert_array_equal(matrix_of(edges), expected)
    assert edges.expected_edges() == pairs.n_pairs
    for seed in range(3):
        drawn = edges.sample(np.random.default_rng(seed))
        assert_array_equal(drawn.rows, pairs.rows)
        assert_array_equal(drawn.cols, pairs.cols)
    graph = edges.draw(np.random.default_rng(0))
    assert graph.scale.dtype == dtype
    assert_allclose(graph.scale, (1.0 + expected.sum(axis=1)) ** -0.5, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_initial_probabilities(dtype):
    theta = some_theta(30)
    edges = with_probabilities(theta, dtype)
    assert_allclose(matrix_of(edges), theta, rtol=1e-6)
    assert edges.expected_edges() == pytest.approx(theta.sum() / 2.0, rel=1e-6)
    assert matrix_of(edges).dtype == (np.float32 if dtype == torch.float32 else np.float64)


def test_probability_of_single_pairs_and_loops():
    edges = with_probabilities(some_theta(6))
    assert edges.probability(2, 2) == 0.0
    assert edges.probability(4, 1) == edges.probability(1, 4) == some_theta(6)[1, 4]
    assert edges.probability([[0, 1]], [[3, 3]]).shape == (1, 2)


@pytest.mark.parametrize(
    ("rows", "cols", "culprit"),
    [([0], [6], 6), ([0, -1], [1, 2], -1), (3, 6, 6), ([7], [7], 7)],
)
def test_probability_of_a_node_that_does_not_exist(rows, cols, culprit):
    with pytest.raises(IndexError, match=f"node {culprit}: nodes are numbered 0 to 5"):
        with_probabilities(some_theta(6)).probability(rows, cols)


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_are_independent_bernoullis(dtype):
    theta = some_theta(70, seed=3)  # rows of more than one block
    pairs, n_draws = all_pairs(70), 2000
    edges = with_probabilities(theta, dtype)
    probability = edges.probability(pairs.rows, pairs.cols).astype(float)
    rng = np.random.default_rng(5)
    counts = np.zeros((70, 70), int)
    sizes = []
    for _ in range(n_draws):
        drawn = edges.sample(rng)
        assert np.all(drawn.rows < drawn.cols)
        counts[drawn.rows, drawn.cols] += 1
        sizes.append(drawn.n_pairs)
    counts = counts[pairs.rows, pairs.cols]
    assert np.all(counts[probability == 0.0] == 0)
    assert np.all(counts[probability == 1.0] == n_draws)
    # Two-sided exact tests, each at a thousandth over the number of pairs.
    level = 1e-3 / pairs.n_pairs
    assert 2.0 * stats.binom.sf(counts - 1, n_draws, probability).min() > level
    assert 2.0 * stats.binom.cdf(counts, n_draws, probability).min() > level
    variance = (probability * (1.0 - probability)).sum()
    assert abs(np.mean(sizes) - probability.sum()) < 3.3 * np.sqrt(variance / n_draws)
    assert abs(np.var(sizes) - variance) < 3.3 * variance * np.sqrt(2.0 / n_draws)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("band_entries", [1, 100, 500, 2**18])
def test_descent_is_projected_on_every_pair_whatever_the_bands(dtype, band_entries, monkeypatch):
    monkeypatch.setattr(distribution, "BAND_ENTRIES", band_entries)
    n_nodes, rate = BLOCK + 6, 0.2
    real = np.float32 if dtype == torch.float32 else np.float64
    rng = np.random.default_rng(6)
    theta = some_theta(n_nodes)
    edges = with_probabilities(theta, dtype)
    for _ in range(3):
        gradient = DenseGradient(
            rng.normal(size=(n_nodes, n_nodes)).astype(real), rng.normal(size=n_nodes).astype(real)
        )
        edges.descend(gradient, rate)
        theta = np.clip(theta - rate * gradient.whole(), 0.0, 1.0)
        np.fill_diagonal(theta, 0.0)
        assert_allclose(matrix_of(edges), theta, atol=20 * np.finfo(real).eps)
        # The sampler has taken notice.
        assert edges.expected_edges() == pytest.approx(theta.sum() / 2.0, rel=1e-5)
    assert {0.0, 1.0} <= set(theta[np.triu_indices(n_nodes, 1)])


def test_a_descent_shows_in_the_next_samples():
    n_nodes = 20
    edges = DenseEdges(n_nodes, all_pairs(n_nodes))
    everything = DenseGradient(np.ones((n_nodes, n_nodes), np.float32), np.zeros(20, np.float32))
    edges.descend(everything, 0.5)
    assert edges.sample(np.random.default_rng(0)).n_pairs == 0
    shift = np.zeros(n_nodes, np.float32)
    shift[4] = -1.0
    edges.descend(DenseGradient(np.zeros((n_nodes, n_nodes), np.float32), shift), 1.0)
    drawn = edges.sample(np.random.default_rng(0))
    assert drawn.n_pairs == n_nodes - 1
    assert np.all((drawn.rows == 4) | (drawn.cols == 4))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.sampled_from(DTYPES), st.data())
def test_probabilities_stay_probabilities(n_nodes, dtype, data):
    real = np.float32 if dtype == torch.float32 else np.float64
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    edges = with_probabilities(some_theta(n_nodes, seed), dtype)
    for _ in range(data.draw(st.integers(1, 4))):
        size = 10.0 ** data.draw(st.integers(-12, 30))
        G = (size * rng.normal(size=(n_nodes, n_nodes))).astype(real)
        shift = (size * rng.normal(size=n_nodes)).astype(real)
        edges.descend(DenseGradient(G, shift), data.draw(st.floats(0.0, 1e3)))
        theta = matrix_of(edges)
        assert np.all((theta >= 0.0) & (theta <= 1.0))
        assert_array_equal(theta, theta.T)
        assert np.all(np.diag(theta) == 0.0)
        assert 0.0 <= edges.expected_edges() <= n_nodes * (n_nodes - 1) / 2
        drawn = edges.sample(rng)
        probability = edges.probability(drawn.rows, drawn.cols)
        assert np.all(probability > 0.0)


def test_above_is_strict_and_in_order():
    theta = np.zeros((4, 4))
    theta[0, 3], theta[0, 1], theta[2, 3], theta[1, 2] = 0.25, 0.5, 1.0, 0.75
    edges = with_probabilities(theta)
    pairs, probability = edges.above(0.25)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0, 1, 2], [1, 2, 3])
    assert probability.tolist() == [0.5, 0.75, 1.0]
    assert edges.above(1.0)[0].n_pairs == 0
    assert edges.above(0.0)[0].n_pairs == 4


def test_top_edges_by_falling_probability_and_at_ties_in_order():
    theta = np.zeros((4, 4))
    theta[0, 3], theta[0, 1], theta[2, 3], theta[1, 2] = 0.5, 0.5, 1.0, 0.25
    pairs, probability = with_probabilities(theta).top_edges(3)
    assert set(zip(pairs.rows, pairs.cols, strict=True)) == {(2, 3), (0, 1), (0, 3)}
    assert sorted(probability) == [0.5, 0.5, 1.0]
    assert with_probabilities(theta).top_edges(100)[0].n_pairs == 4


@pytest.mark.parametrize("threshold", [0.0, 0.6])
def test_exports_agree(threshold):
    theta = some_theta(12)
    edges = with_probabilities(theta)
    kept = np.where(theta > threshold, theta, 0.0)
    assert_array_equal(edges.to_scipy(threshold).toarray(), kept)

    graph = edges.to_networkx(threshold)
    assert list(graph.nodes) == list(range(12)), "isolated nodes too"
    assert_array_equal(networkx.to_numpy_array(graph, weight="probability"), kept)

    frame = edges.to_pandas(threshold)
    assert list(frame.columns) == ["source", "target", "probability"]
    assert frame["probability"].is_monotonic_decreasing
    again = np.zeros((12, 12))
    again[frame["source"], frame["target"]] = frame["probability"]
    assert_array_equal(again + again.T, kept)


@pytest.mark.parametrize("twin_of", [lambda e: e.copy(), lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_are_equal_and_independent(twin_of):
    theta = some_theta(BLOCK + 3)
    edges = with_probabilities(theta)
    twin = twin_of(edges)
    seed = np.random.default_rng(1).integers(1000)
    for one, two in zip(
        edges.sample(np.random.default_rng(seed)),
        twin.sample(np.random.default_rng(seed)),
        strict=True,
    ):
        assert_array_equal(one, two)
    zeros = np.zeros((BLOCK + 3, BLOCK + 3))
    edges.descend(DenseGradient(zeros, np.full(BLOCK + 3, 1.0)), 1.0)
    assert edges.expected_edges() == 0.0
    assert_array_equal(matrix_of(twin), theta)
    assert twin.expected_edges() == pytest.approx(theta.sum() / 2.0)
    twin.descend(DenseGradient(zeros, np.full(BLOCK + 3, -1.0)), 1.0)
    assert edges.expected_edges() == 0.0
    assert twin.sample(np.random.default_rng(0)).n_pairs == all_pairs(BLOCK + 3).n_pairs
