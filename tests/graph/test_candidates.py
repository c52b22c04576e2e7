"""Probabilities on fixed candidate pairs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from edgewise.graph.candidates import CandidateEdges, cosine_similarities, logistic_probabilities
from edgewise.graph.construct import random_pairs
from edgewise.graph.pairs import Pairs

N = 40
PAIRS = random_pairs(N, n_pairs=200, rng=np.random.default_rng(0))
THETA = np.random.default_rng(1).random(200)


def candidates(theta=THETA):
    return CandidateEdges(N, PAIRS, theta, dtype=torch.float64)


class FullGradient:
    """A gradient of which every entry is written down."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.shift = np.zeros(len(matrix))

    def at_pairs(self, rows, cols):
        return self.matrix[rows, cols] + self.matrix[cols, rows]


def test_draws_each_candidate_with_its_probability():
    edges, rng = candidates(), np.random.default_rng(2)
    key = {pair: e for e, pair in enumerate(zip(*(a.tolist() for a in PAIRS), strict=True))}
    counts = np.zeros(200)
    n_draws = 2000
    for _ in range(n_draws):
        drawn = edges.sample(rng)
        for pair in zip(drawn.rows.tolist(), drawn.cols.tolist(), strict=True):
            counts[key[pair]] += 1
    deviation = (counts / n_draws - THETA) / np.sqrt(THETA * (1 - THETA) / n_draws + 1e-9)
    assert np.abs(deviation).max() < 4.5
    assert edges.expected_edges() == pytest.approx(THETA.sum())


def test_probability_of_candidates_of_others_and_of_oneself():
    edges = candidates()
    assert_array_equal(edges.probability(PAIRS.rows, PAIRS.cols), THETA)
    assert_array_equal(edges.probability(PAIRS.cols, PAIRS.rows), THETA)
    absent = np.ones((N, N), bool)
    absent[PAIRS.rows, PAIRS.cols] = absent[PAIRS.cols, PAIRS.rows] = False
    assert not edges.probability(*np.nonzero(absent)).any()


def test_descent_is_projected_and_samples_follow():
    edges = candidates()
    matrix = np.random.default_rng(3).normal(size=(N, N))
    edges.descend(FullGradient(matrix), 0.3)
    slope = matrix[PAIRS.rows, PAIRS.cols] + matrix[PAIRS.cols, PAIRS.rows]
    expected = np.clip(THETA - 0.3 * slope, 0.0, 1.0)
    assert_allclose(edges.probability(*PAIRS), expected, atol=1e-15)
    assert edges.expected_edges() == pytest.approx(expected.sum())
    certain = {pair for pair, p in zip(zip(*PAIRS, strict=True), expected, strict=True) if p == 1}
    drawn = set(zip(*edges.sample(np.random.default_rng(0)), strict=True))
    assert certain
    assert certain <= drawn


def test_copies_go_their_own_way():
    edges = candidates()
    for twin in (edges.copy(), pickle.loads(pickle.dumps(edges))):
        edges.descend(FullGradient(np.full((N, N), 5.0)), 1.0)
        assert edges.expected_edges() == 0.0
        assert twin.expected_edges() == pytest.approx(THETA.sum())
        assert_array_equal(
            twin.sample(np.random.default_rng(5)), candidates().sample(np.random.default_rng(5))
        )
        edges = candidates()


def test_above_keeps_the_order_of_pairs():
    pairs, theta = candidates().above(0.5)
    assert_array_equal(pairs, Pairs(PAIRS.rows[THETA > 0.5], PAIRS.cols[THETA > 0.5]))
    assert_array_equal(theta, THETA[THETA > 0.5])


def test_no_candidates_at_all():
    nothing = np.empty(0, np.int64)
    edges = CandidateEdges(3, Pairs(nothing, nothing), np.empty(0))
    assert edges.expected_edges() == 0.0
    assert edges.sample(np.random.default_rng(0)).n_pairs == 0
    assert_array_equal(edges.probability([0, 1], [1, 2]), [0.0, 0.0])


@pytest.mark.parametrize(
    ("theta", "message"), [([0.5], "one for each pair"), (np.full(200, 1.5), "between 0 and 1")]
)
def test_impossible_probabilities_are_refused(theta, message):
    with pytest.raises(ValueError, match=message):
        candidates(theta)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_cosines_of_pairs(form):
    X = np.random.default_rng(0).normal(size=(N, 5))
    X[3] = 0.0
    unit = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    expected = (unit @ unit.T)[PAIRS.rows, PAIRS.cols]
    assert_allclose(cosine_similarities(form(X), PAIRS), expected, atol=1e-14)


@pytest.mark.parametrize("expected_edges", [0.01, 3.0, 99.0, 199.99])
@pytest.mark.parametrize("scale", [0.1, 20.0, 1e4])
def test_logistic_probabilities_sum_as_asked(expected_edges, scale):
    similarity = np.random.default_rng(0).random(200)
    theta = logistic_probabilities(similarity, scale=scale, expected_edges=expected_edges)
    assert theta.sum() == pytest.approx(expected_edges, rel=1e-6)
    order = np.argsort(similarity)
    assert (np.diff(theta[order]) >= 0).all()


@pytest.mark.parametrize("expected_edges", [0.0, 200.0, 300.0])
def test_impossible_sums_are_refused(expected_edges):
    with pytest.raises(ValueError, match="200 candidate pairs: ask for a smaller degree"):
        logistic_probabilities(np.ones(200), scale=1.0, expected_edges=expected_edges)
