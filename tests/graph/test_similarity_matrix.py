"""The dense similarity matrix: its graph, its gradient, its descent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from edgewise.bilevel.lowrank import LowRank
from edgewise.graph import distribution
from edgewise.graph.construct import random_pairs
from edgewise.graph.similarity_matrix import SimilarityMatrix

N = 23
PAIRS = random_pairs(N, n_pairs=60, rng=np.random.default_rng(0))
WEIGHTS = np.random.default_rng(1).random(60)


def full(pairs=PAIRS, weights=WEIGHTS):
    A = np.zeros((N, N))
    A[pairs.rows, pairs.cols] = A[pairs.cols, pairs.rows] = weights
    return A


def similarity():
    return SimilarityMatrix(N, PAIRS, WEIGHTS, dtype=torch.float64)


def loss_of(operator, H, W):
    return ((operator @ torch.tanh(operator @ H)) @ W).square().sum()


def gradient_and_reference():
    """The derivative by the matrix: through the tape, and by autograd on a dense matrix."""
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    H = torch.from_numpy(rng.normal(size=(N, 3))).requires_grad_()
    W = torch.from_numpy(rng.normal(size=(3, 2)))
    graph = similarity().draw(rng)
    with graph.recording() as tape:
        torch.autograd.grad(loss_of(graph, H, W), [H, graph.anchor])
    A = torch.from_numpy(full()).requires_grad_()
    loop = A + torch.eye(N, dtype=torch.float64)
    scale = loop.sum(dim=1).rsqrt()
    (dense,) = torch.autograd.grad(loss_of(scale[:, None] * loop * scale, H, W), A)
    return LowRank.from_tape(graph, tape), (dense + dense.T).numpy()


def test_graph_is_the_normalised_matrix():
    A = full() + np.eye(N)
    scale = A.sum(axis=1) ** -0.5
    graph = similarity().draw(np.random.default_rng(0))
    product = (graph @ torch.eye(N, dtype=torch.float64)).detach()
    assert_allclose(product, scale[:, None] * A * scale, atol=1e-15)


@pytest.mark.parametrize("band_entries", [1, 7 * N, 10**6])
def test_descends_along_the_derivative_and_stays_symmetric(band_entries, monkeypatch):
    monkeypatch.setattr(distribution, "BAND_ENTRIES", band_entries)
    gradient, reference = gradient_and_reference()
    edges = similarity()
    edges.descend(gradient, 0.1)
    expected = np.clip(full() - 0.1 * reference, 0.0, 1.0)
    np.fill_diagonal(expected, 0.0)
    rows, cols = np.indices((N, N))
    found = edges.probability(rows, cols)
    assert_allclose(found, expected, atol=1e-13)
    assert_array_equal(found, found.T)
    assert edges.expected_edges() == pytest.approx(expected.sum() / 2)
    # The step must have moved some entries into the open interval, and clipped others.
    assert ((expected > 0) & (expected < 1)).any()
    assert (full() - 0.1 * reference < 0).any()


def test_sample_above_and_copy():
    edges = similarity()
    assert_array_equal(edges.sample(np.random.default_rng(0)), PAIRS)
    pairs, values = edges.above(0.4)
    assert_array_equal(values, WEIGHTS[WEIGHTS > 0.4])
    assert_array_equal(pairs.rows, PAIRS.rows[WEIGHTS > 0.4])
    twin = edges.copy()
    gradient, _ = gradient_and_reference()
    edges.descend(gradient, 0.1)
    assert_array_equal(twin.probability(*PAIRS), WEIGHTS)
    assert not np.array_equal(edges.probability(*PAIRS), WEIGHTS)
