"""The written-out derivatives against automatic differentiation of the same network."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse

from edgewise.bilevel.losses import Losses
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective

N, N_FEATURES, N_CLASSES = 30, 7, 4
SPLIT = Split(np.array([1, 4, 20, 29]), np.array([0, 5, 6, 7, 28]), np.array([2]))


def an_objective(*, dropout=0.5, form=np.asarray, dtype=torch.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, N_FEATURES)) * (rng.random((N, N_FEATURES)) < 0.6)
    problem = Problem(form(X), rng.integers(0, N_CLASSES, N), np.arange(N_CLASSES), SPLIT)
    return Objective(problem, GCN(5, dropout), weight_decay=0.03, dtype=dtype)


def a_graph(dtype=torch.float64):
    """With weights, and with isolated nodes, a labelled one among them."""
    rng = np.random.default_rng(1)
    drawn = np.triu(rng.random((N, N)) < 0.12, 1)
    drawn[:, 26:] = False
    pairs = Pairs.fold(*np.nonzero(drawn), N)
    weights = rng.uniform(0.2, 2.0, pairs.n_pairs)
    return Graph.from_pairs(pairs, N, weights=weights, dtype=dtype)


def start(objective):
    return objective.initial_weights(torch.Generator().manual_seed(3)) * 2.0


def noise():
    return torch.Generator().manual_seed(4)


def everywhere(gradient):
    return gradient.at_pairs(*np.triu_indices(N, 1))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
class TestAgainstAutomaticDifferentiation:
    def test_inner_gradient(self, dropout, form):
        objective, graph = an_objective(dropout=dropout, form=form), a_graph()
        flat = start(objective)
        loss, gradient = objective.inner_gradient(flat, graph, noise())
        expected_loss, expected = Losses.inner_gradient(objective, flat, graph, noise())
        assert loss == pytest.approx(expected_loss, rel=1e-14)
        assert_allclose(gradient, expected, atol=1e-14)

    def test_outer_gradient(self, dropout, form):
        objective, graph = an_objective(dropout=dropout, form=form), a_graph()
        flat = start(objective)
        loss, found = objective.outer_gradient(flat, graph)
        expected_loss, expected = Losses.outer_gradient(objective, flat, graph)
        assert loss == pytest.approx(expected_loss, rel=1e-14)
        assert_allclose(found.weights, expected.weights, atol=1e-14)
        assert_allclose(everywhere(found.edges), everywhere(expected.edges), atol=1e-14)

    def test_second_order(self, dropout, form):
        objective, graph = an_objective(dropout=dropout, form=form), a_graph()
        flat = start(objective)
        direction = torch.randn(flat.shape, generator=noise(), dtype=flat.dtype)
        inner = objective.linearise_inner(flat, graph, noise())
        traced = Losses.linearise_inner(objective, flat, graph, noise())
        assert_allclose(inner.gradient, traced.gradient, atol=1e-14)
        found, expected = inner.along(direction), traced.along(direction)
        assert_allclose(found.weights, expected.weights, atol=1e-13)
        assert_allclose(everywhere(found.edges), everywhere(expected.edges), atol=1e-13)
        assert found.edges.rank == 2 * (5 + N_CLASSES)


def test_only_the_plain_network_on_a_sparse_graph_is_written_out():
    class Mine(GCN):
        def logits(self, weights, features, graph, noise=None):
            return 2.0 * super().logits(weights, features, graph, noise)

    plain, dense = an_objective(), Graph.complete(N, dtype=torch.float64)
    mine = an_objective()
    mine.network = Mine(5, 0.5)
    flat = start(plain)
    for objective, graph in ((plain, dense), (mine, a_graph())):
        found = objective.inner_gradient(flat, graph, noise())[0]
        expected = objective.inner(objective.unflatten(flat), graph, noise()).item()
        assert found == pytest.approx(expected, rel=1e-14)


def test_huge_logits_stay_finite():
    objective, graph = an_objective(dtype=torch.float32), a_graph(torch.float32)
    loss, gradient = objective.inner_gradient(1e4 * start(objective), graph, noise())
    assert np.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_network_shows(value):
    """Nothing silently wrong: what is not a number stays none."""
    objective, graph = an_objective(dropout=0.0), a_graph()
    flat = torch.full_like(start(objective), value)
    loss, gradient = objective.inner_gradient(flat, graph, noise())
    assert not np.isfinite(loss) or not torch.isfinite(gradient).all()
