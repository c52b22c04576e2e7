"""Semi-supervised embedding: its penalty by hand, its derivative, its use of the graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from edgewise.baselines import SemiEmbClassifier
from edgewise.baselines.embedding import EmbeddingObjective, embedding_penalty
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import FixedMatrix, Graph
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective


def ends(*pairs):
    return tuple(torch.tensor(side) for side in zip(*pairs, strict=True))


def roughness_of(pairs, n_nodes, dtype=torch.float64):
    """The mean over the pairs, as a quadratic form, written out pair by pair."""
    form = np.zeros((n_nodes, n_nodes))
    for i, j in pairs:
        form[[i, j], [i, j]] += 1.0 / len(pairs)
        form[[i, j], [j, i]] -= 1.0 / len(pairs)
    return FixedMatrix.from_scipy(sparse.csr_array(form), dtype, torch.device("cpu"))


def test_penalty_by_hand():
    hidden = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [0.3, 0.4]], dtype=torch.float64)
    near = roughness_of([(0, 1), (0, 2)], 4)  # squared distances 25 and 1
    far = ends((0, 3), (0, 1), (0, 2))  # distances 0.5, 5 and 1, beyond a margin of 1.5 or not
    expected = (25.0 + 1.0) / 2 + (1.0**2 + 0.0 + 0.5**2) / 3
    assert embedding_penalty(hidden, near, far, margin=1.5).item() == pytest.approx(expected)


def test_penalty_has_a_derivative_where_rows_coincide():
    hidden = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    penalty = embedding_penalty(hidden, roughness_of([(0, 1)], 3), ends((0, 2), (1, 2)), margin=2.0)
    assert penalty.item() == 4.0
    (gradient,) = torch.autograd.grad(penalty, hidden)
    assert torch.equal(gradient, torch.zeros_like(hidden))


def test_penalty_without_pairs_is_zero():
    nothing = (torch.empty(0, dtype=torch.int64),) * 2
    hidden = torch.ones(2, 2, dtype=torch.float64)
    assert embedding_penalty(hidden, roughness_of([], 2), nothing, margin=1.0).item() == 0.0


def objective_and_weights(embedding_weight):
    rng = np.random.default_rng(0)
    nothing = np.empty(0, np.int64)
    problem = Problem(
        rng.normal(size=(12, 3)),
        np.arange(12) % 2,
        np.array([0, 1]),
        Split(np.arange(6), nothing, nothing),
    )
    pairs = Pairs.fold(np.arange(11), np.arange(1, 12), 12)
    network = GCN(4, dropout=0.0)
    options = {"embedding_weight": embedding_weight, "margin": 1.0, "dtype": torch.float64}
    objective = EmbeddingObjective(problem, network, pairs, **options)
    plain = Objective(problem, network, dtype=torch.float64)
    flat = objective.initial_weights(torch.Generator().manual_seed(0))
    graph = Graph.from_pairs(Pairs(nothing, nothing), 12, dtype=torch.float64)
    return objective, plain, objective.unflatten(flat), graph


def test_inner_loss_adds_the_penalty_of_neighbours_and_strangers():
    objective, plain, weights, graph = objective_and_weights(0.5)
    loss = objective.inner(weights, graph, torch.Generator().manual_seed(1))
    hidden = objective.network.hidden(weights, objective.features, graph)
    near = roughness_of(list(zip(range(11), range(1, 12), strict=True)), 12)
    far = objective._strangers(torch.Generator().manual_seed(1))
    penalty = embedding_penalty(hidden, near, far, margin=1.0)
    expected = plain.inner(weights, graph, torch.Generator()) + 0.5 * penalty
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert penalty.item() > 0.01


def test_strangers_are_no_neighbours_and_not_oneself():
    objective, *_ = objective_and_weights(1.0)
    noise = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(300):
        rows, cols = objective._strangers(noise)
        gap = (rows - cols).abs()
        assert (gap > 1).all()
        seen.update(zip(rows.tolist(), cols.tolist(), strict=True))
    assert len(seen) == 12 * 11 - 22  # every ordered pair of others, on a path


def test_training_lowers_the_penalty():
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 2
    X = rng.normal(size=(60, 5)) + codes[:, None]
    settings = {"metric": "euclidean", "learning_rate": 0.02, "max_steps": 100, "random_state": 0}
    near = roughness_of(list(zip(*knn_pairs(X, 3), strict=True)), 60, torch.float32)
    everyone = torch.triu_indices(60, 60, 1)
    penalties = []
    for weight in (0.0, 10.0):
        model = SemiEmbClassifier(3, embedding_weight=weight, patience=100, **settings)
        model.fit(X, np.where(np.arange(60) < 30, codes, -1))
        first = model._weights[0]
        scaled = torch.tensor(X / np.sqrt((X**2).sum(axis=1).mean()), dtype=first.dtype)
        hidden = torch.relu(scaled @ first)
        penalties.append(embedding_penalty(hidden, near, everyone, margin=1.0).item())
    assert penalties[1] < 0.8 * penalties[0]
