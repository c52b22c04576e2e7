"""Batches of labelled rows: on average over all parts, exactly what all rows give at once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from edgewise import LDSClassifier
from edgewise.batches import Draws, batches
from edgewise.bilevel.dynamics import SGD
from edgewise.bilevel.hypergradient import unrolled_hypergradient
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.construct import random_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.growing import GrowingEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Batch
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective

N_NODES = 60
SPLIT = Split(np.arange(5), np.arange(5, 12), np.arange(12, 16))


class ByAutograd(Objective):
    """A subclass, so that nothing is taken in closed form."""


def candidates(certain=45, others=30):
    """Certain edges, and candidates that are never drawn but have a derivative."""
    rng = np.random.default_rng(0)
    pairs = random_pairs(N_NODES, n_pairs=certain + others, rng=rng)
    theta = rng.permutation(np.repeat([1.0, 0.0], [certain, others]))
    return CandidateEdges(N_NODES, pairs, theta, dtype=torch.float64)


def objective(kind=Objective, sparse_features=False):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(N_NODES, 6))
    if sparse_features:
        features = sparse.csr_array(features * (rng.random(features.shape) < 0.4))
    labels = np.full(N_NODES, -1)
    labels[:16] = rng.integers(3, size=16)
    problem = Problem(features, labels, np.arange(3), SPLIT)
    return kind(problem, GCN(4, dropout=0.0), dtype=torch.float64)


def parts_of(rows, n_parts):
    return [Batch(part, n_parts) for part in np.array_split(rows, n_parts)]


def around(edges, batch, *, for_edges):
    graph = edges.draw_around(np.random.default_rng(0), batch.rows, 2, for_edges=for_edges)
    graph.batch = batch
    return graph


@pytest.mark.parametrize("sparse_features", [False, True])
@pytest.mark.parametrize("kind", [Objective, ByAutograd])
def test_inner_gradient_is_on_average_that_of_all_rows(kind, sparse_features):
    losses, edges = objective(kind, sparse_features), candidates()
    weights = losses.initial_weights(torch.Generator().manual_seed(0))
    noise = torch.Generator()
    whole = edges.draw(np.random.default_rng(0))
    loss, gradient = losses.inner_gradient(weights, whole, noise)
    parts = parts_of(SPLIT.train, 2)
    graphs = [around(edges, batch, for_edges=False) for batch in parts]
    assert all(graph.n_nodes < N_NODES for graph in graphs)
    found = [losses.inner_gradient(weights, graph, noise) for graph in graphs]
    assert np.mean([value for value, _ in found]) == pytest.approx(loss, rel=1e-12)
    mean = torch.stack([part for _, part in found]).mean(dim=0)
    assert_allclose(mean, gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [0, 2])
@pytest.mark.parametrize("kind", [Objective, ByAutograd])
def test_hypergradient_is_on_average_that_of_all_rows(kind, tau):
    # Gradient descent is linear in the gradient, so the mean over all ways to choose the batch of
    # each step must be exact.
    losses, edges, dynamics = objective(kind), candidates(), SGD(0.3)
    noise, rng = torch.Generator(), np.random.default_rng(0)
    states = [dynamics.start(losses.initial_weights(torch.Generator().manual_seed(3)))]
    for _ in range(tau):
        _, gradient = losses.inner_gradient(states[-1].weights, edges.draw(rng), noise)
        states.append(dynamics.step(states[-1], gradient))
    whole = unrolled_hypergradient(losses, dynamics, states, lambda: edges.draw(rng), noise)
    wanted = whole.edges.at_pairs(*edges.pairs)
    assert np.count_nonzero(wanted[edges.probability(*edges.pairs) == 0]) > 10
    outer = parts_of(SPLIT.validation, 3)
    inner = parts_of(SPLIT.train, 2)
    found, rates, nodes = [], [], []
    for first, *rest in product(outer, *[inner] * tau):
        graphs = iter([around(edges, batch, for_edges=True) for batch in rest])
        result = unrolled_hypergradient(
            losses, dynamics, states, graphs.__next__, noise,
            lambda batch=first: around(edges, batch, for_edges=True),
        )  # fmt: skip
        found.append(result.edges.at_pairs(*edges.pairs))
        rates.append(result.learning_rate)
        nodes.append(around(edges, first, for_edges=True).n_nodes)
    assert max(nodes) < N_NODES
    assert_allclose(np.mean(found, axis=0), wanted, rtol=0, atol=1e-10)
    assert np.mean(rates) == pytest.approx(whole.learning_rate, rel=1e-10)


def test_a_neighbourhood_ends_after_so_many_edges_and_knows_all_degrees():
    path = Pairs.fold(np.arange(9), np.arange(1, 10), n_nodes=10)
    edges = CandidateEdges(10, path, np.ones(9), dtype=torch.float64)
    rng = np.random.default_rng(0)
    part = edges.draw_around(rng, np.array([4]), 2, for_edges=False)
    assert_array_equal(part.nodes, [2, 3, 4, 5, 6])
    assert part.n_whole == 10
    whole = edges.draw(rng)
    assert_allclose(part.scale, whole.scale[part.nodes], rtol=1e-15)
    operator = whole.operator @ torch.eye(10, dtype=torch.float64)
    assert_allclose(
        part.operator @ torch.eye(5, dtype=torch.float64), operator[2:7, 2:7], rtol=1e-15
    )


def test_derivatives_by_edges_reach_along_candidates():
    path = Pairs.fold(np.arange(9), np.arange(1, 10), n_nodes=10)
    theta = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]  # 4: 3, 5; then 2 or 6 by a candidate
    edges = CandidateEdges(10, path, theta)
    rng = np.random.default_rng(0)
    near = edges.draw_around(rng, np.array([4]), 2, for_edges=False)
    assert_array_equal(near.nodes, [3, 4, 5])
    wide = edges.draw_around(rng, np.array([4]), 2, for_edges=True)
    assert_array_equal(wide.nodes, [2, 3, 4, 5, 6])


def test_edges_around_rows_are_drawn_with_their_probabilities():
    rng = np.random.default_rng(0)
    pairs = random_pairs(30, n_pairs=120, rng=rng)
    theta = rng.random(120)
    edges = CandidateEdges(30, pairs, theta, dtype=torch.float64)
    own = np.flatnonzero(pairs.rows == 3)
    n_draws, degree = 3000, []
    counts = np.zeros(30)
    for _ in range(n_draws):
        graph = edges.draw_around(rng, np.array([3]), 2, for_edges=False)
        dense = (graph.operator @ torch.eye(graph.n_nodes, dtype=torch.float64)).numpy()
        assert_allclose(dense, dense.T, rtol=1e-12)
        place = int(np.searchsorted(graph.nodes, 3))
        counts[graph.nodes[dense[place] > 0]] += 1
        degree.append(float(graph.scale[place]) ** -2 - 1.0)
    spread = 5 * np.sqrt(theta * (1 - theta) / n_draws)[own]
    assert (np.abs(counts[pairs.cols[own]] / n_draws - theta[own]) <= spread).all()
    at_three = theta[(pairs.rows == 3) | (pairs.cols == 3)]
    error = 5 * np.sqrt((at_three * (1 - at_three)).sum() / n_draws)
    assert np.mean(degree) == pytest.approx(at_three.sum(), abs=error)


def test_each_round_of_batches_sees_each_row_once():
    parts = batches(np.arange(10, 20), 4, np.random.default_rng(0))
    rounds = [[next(parts) for _ in range(3)] for _ in range(40)]
    for one in rounds:
        assert_array_equal(
            np.sort(np.concatenate([batch.rows for batch in one])), np.arange(10, 20)
        )
        assert all(batch.n_parts == 3 and len(batch.rows) <= 4 for batch in one)
    first_sizes = {len(one[0].rows) for one in rounds}
    assert first_sizes == {3, 4}  # the longer part is not always the first


def test_before_it_grows_the_gradient_is_that_by_all_pairs():
    pairs = random_pairs(N_NODES, n_pairs=70, rng=np.random.default_rng(0))
    edges = GrowingEdges(N_NODES, pairs, growth_interval=2, dtype=torch.float64)
    draws = Draws(edges, np.random.default_rng(0), SPLIT, batch_size=2, hops=2)
    start = SGD(0.1).start(torch.zeros(36, dtype=torch.float64))
    assert draws.n_parts == 3
    gradient = unrolled_hypergradient(
        objective(), SGD(0.1), [start], draws.outer, torch.Generator()
    ).edges
    for whole in (True, False, True):
        for draw in (draws.outer, draws.inner_for_edges):
            graph = draw()
            assert (graph.nodes is None) == whole
            assert len(graph.batch.rows) <= 2
        assert draws.inner().nodes is not None
        edges.descend(gradient, 0.0)


def test_without_batches_or_bounds_graphs_are_whole():
    edges = DenseEdges(N_NODES, candidates().pairs)
    plain = Draws(edges, np.random.default_rng(0), SPLIT)
    assert plain.n_parts == 1
    for draw in (plain.whole, plain.inner, plain.inner_for_edges, plain.outer):
        assert draw().batch is None
    for kind, hops in ((edges, 2), (candidates(), None)):
        draws = Draws(kind, np.random.default_rng(0), SPLIT, batch_size=3, hops=hops)
        assert draws.inner().nodes is None
        assert len(draws.inner().batch.rows) <= 3


@pytest.mark.parametrize("storage", ["sparse", "dense"])
def test_a_fit_in_batches_learns_and_repeats(storage, clusters):
    X, y, truth = clusters
    model = LDSClassifier(
        k=5, metric="euclidean", storage=storage, batch_size=2, patience=2, random_state=0
    )
    first = model.fit(X, y).label_distributions_
    assert (model.transduction_ == truth).mean() > 0.9
    assert_array_equal(first, model.fit(X, y).label_distributions_)


def test_a_checkpointed_fit_in_batches_goes_on_with_the_same_bits(clusters, tmp_path):
    X, y, _ = clusters
    options = {"k": 5, "storage": "sparse", "batch_size": 2, "random_state": 0, "patience": 9}
    whole = LDSClassifier(**options, max_outer_iterations=3).fit(X, y)
    LDSClassifier(**options, max_outer_iterations=1).fit(X, y, checkpoint=tmp_path / "half")
    rest = LDSClassifier(**options, max_outer_iterations=3).fit(X, y, checkpoint=tmp_path / "half")
    assert_array_equal(whole.label_distributions_, rest.label_distributions_)


def test_edges_from_features_take_no_batches(clusters):
    X, y, _ = clusters
    with pytest.raises(ValueError, match="batch_size=None"):
        LDSClassifier(k=5, edges="similarity", batch_size=2).fit(X, y)


@pytest.fixture
def clusters():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 40)
    X = rng.normal(size=(80, 2)) + 6.0 * truth[:, None] - 3.0
    y = np.full(80, -1)
    known = np.r_[0:8, 40:48]
    y[known] = truth[known]
    return X, y, truth
