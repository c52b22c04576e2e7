"""What graph each GCN baseline meets, and that all share one training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import rbf_kernel

from edgewise.baselines import (
    DenseGCNClassifier,
    FFNNClassifier,
    GCNClassifier,
    KNNGCNClassifier,
    RandomEdgesGCNClassifier,
    RBFGCNClassifier,
    SoftKNNGCNClassifier,
    SparseGCNClassifier,
)
from edgewise.baselines.networks import Graphs
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.problem import Problem, Split

FAST = {"dtype": "float64", "max_steps": 25, "learning_rate": 0.05, "random_state": 0}
N = 30


def data():
    rng = np.random.default_rng(0)
    codes = np.arange(N) % 3
    X = np.eye(3)[codes] + 0.4 * rng.normal(size=(N, 3))
    return X, np.where(np.arange(N) < 24, codes, -1), codes


def problem(X, pairs=None, weights=None):
    nothing = np.empty(0, np.int64)
    return Problem(
        X, np.zeros(len(X), np.int64), np.arange(2), Split(*[nothing] * 3), pairs, weights
    )


def matrix(graph):
    return (graph @ torch.eye(graph.n_nodes, dtype=torch.float64)).detach().numpy()


def normalised(A):
    A = A + np.eye(len(A))
    scale = A.sum(axis=1) ** -0.5
    return scale[:, None] * A * scale


class OnExplicitGraph(FFNNClassifier):
    """The same network on a graph of which every entry is written down."""

    def _graphs(self, problem, rng):
        graph = Graph.from_dense(torch.as_tensor(self.adjacency(problem)))
        return Graphs(lambda: graph)


@pytest.mark.parametrize("edge_weight", [None, 1.0, 0.2])
def test_dense_gcn_equals_the_explicit_complete_graph_through_the_whole_training(edge_weight):
    class OnCompleteGraph(OnExplicitGraph):
        def adjacency(self, problem):
            weight = 1.0 / (N - 1) if edge_weight is None else edge_weight
            return weight * (np.ones((N, N)) - np.eye(N))

    X, y, _ = data()
    implicit = DenseGCNClassifier(edge_weight, **FAST).fit(X, y)
    explicit = OnCompleteGraph(**FAST).fit(X, y)
    assert implicit.n_steps_ == explicit.n_steps_ > 5
    assert_allclose(implicit.label_distributions_, explicit.label_distributions_, atol=1e-10)


def test_complete_graph_with_weight_one_cannot_tell_rows_apart():
    X, y, _ = data()
    model = DenseGCNClassifier(1.0, **FAST).fit(X, y)
    assert np.ptp(model.label_distributions_, axis=0).max() < 1e-12


def test_rbf_gcn_is_on_the_kernel():
    X, _, _ = data()
    graph = RBFGCNClassifier(3.0, **FAST)._graphs(problem(X), np.random.default_rng(0)).draw()
    A = rbf_kernel(X, gamma=3.0 / (3 * X.var()))
    np.fill_diagonal(A, 0.0)
    assert_allclose(matrix(graph), normalised(A), atol=1e-12)


def test_network_without_a_graph_equals_isolated_rows():
    class OnNothing(OnExplicitGraph):
        def adjacency(self, problem):
            return np.zeros((N, N))

    X, y, _ = data()
    assert_allclose(
        FFNNClassifier(**FAST).fit(X, y).label_distributions_,
        OnNothing(**FAST).fit(X, y).label_distributions_,
        atol=1e-10,
    )


def test_knn_gcn_equals_gcn_given_that_graph():
    X, y, _ = data()
    pairs = knn_pairs(X, 4, metric="cosine")
    own = KNNGCNClassifier(4, **FAST).fit(X, y)
    given = GCNClassifier(**FAST).fit(X, y, np.stack(pairs, axis=1))
    assert_array_equal(own.label_distributions_, given.label_distributions_)


def test_gcn_uses_the_weights_of_the_given_graph():
    pairs, weights = Pairs.fold([0, 1], [1, 2], 4), np.array([0.25, 0.5])
    graphs = GCNClassifier(**FAST)._graphs(problem(np.eye(4), pairs, weights), None)
    A = np.zeros((4, 4))
    A[pairs.rows, pairs.cols] = A[pairs.cols, pairs.rows] = weights
    assert_allclose(matrix(graphs.draw()), normalised(A))


@pytest.mark.parametrize("weights", [None, np.array([0.5, 0.25, 0.75])])
def test_random_edges_come_on_top_and_anew_each_step(weights):
    pairs = Pairs.fold([0, 1, 2], [1, 2, 3], 20)
    model = RandomEdgesGCNClassifier(4.0, **FAST)
    graphs = model._graphs(problem(np.eye(20), pairs, weights), np.random.default_rng(0))
    drawn = []
    for _ in range(5):
        graph = graphs.draw()
        A = matrix(graph) / np.outer(graph.scale, graph.scale)
        np.fill_diagonal(A, 0.0)
        given = np.ones(3) if weights is None else weights
        assert_allclose(A[pairs.rows, pairs.cols], given)
        A[pairs.rows, pairs.cols] = A[pairs.cols, pairs.rows] = 0.0
        rest = np.triu(A)[np.triu(A) > 0]
        assert_allclose(rest, np.ones(12))
        drawn.append(A.tobytes())
    assert len(set(drawn)) == 5
    # Predictions are made without the noise.
    clean = GCNClassifier(**FAST)._graphs(problem(np.eye(20), pairs, weights), None)
    assert_allclose(matrix(graphs.predict_under()), matrix(clean.draw()))


def test_no_more_random_edges_than_there_is_room_for():
    pairs = Pairs.fold([0, 0], [1, 2], 4)
    model = RandomEdgesGCNClassifier(100.0, **FAST)
    graph = model._graphs(problem(np.eye(4), pairs), np.random.default_rng(0)).draw()
    assert_allclose(matrix(graph), np.full((4, 4), 0.25))


def test_sparse_gcn_has_the_expected_degree_and_keeps_its_graph():
    model = SparseGCNClassifier(6.0, **FAST)
    graphs = model._graphs(problem(np.zeros((400, 1))), np.random.default_rng(0))
    n_edges = (len(graphs.draw().operator.data) - 400) / 2
    assert abs(n_edges - 1200) < 5 * 1200**0.5
    assert graphs.draw() is graphs.draw()


def test_soft_graph_has_the_asked_degree_on_the_likest_pairs():
    X, y, _ = data()
    model = SoftKNNGCNClassifier(3.0, scale=15.0, n_candidates=8, **FAST).fit(X, y)
    assert model.edges_.expected_edges() == pytest.approx(3.0 * N / 2)
    pairs, theta = model.edges_.above(0.0)
    assert_array_equal(pairs, knn_pairs(X, 8, metric="cosine"))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosine = (unit[pairs.rows] * unit[pairs.cols]).sum(axis=1)
    logit = np.log(theta / (1 - theta))
    # A line of slope 15 in the similarity.
    assert_allclose(logit - 15.0 * cosine, (logit - 15.0 * cosine)[0], atol=1e-6)


def test_soft_graph_is_drawn_anew_and_predictions_are_means():
    X, _, _ = data()
    model = SoftKNNGCNClassifier(3.0, n_samples=5, **FAST)
    graphs = model._graphs(problem(X), np.random.default_rng(0))
    assert graphs.n_samples == 5
    assert len({matrix(graphs.draw()).tobytes() for _ in range(4)}) == 4


def test_impossible_degree_is_refused():
    X, y, _ = data()
    with pytest.raises(ValueError, match="smaller degree"):
        SoftKNNGCNClassifier(25.0, n_candidates=4, **FAST).fit(X, y)


def test_refit_takes_as_many_steps_as_were_best():
    X, y, codes = data()
    masks = {"validation": np.arange(9, 16), "early_stopping": np.arange(16, 24)}
    # Before the final fit it is as if the early-stopping rows alone were held out.
    alone = {"validation": np.arange(16, 20), "early_stopping": np.arange(20, 24)}
    plain = FFNNClassifier(patience=3, **FAST).fit(X, y, **alone)
    full = FFNNClassifier(patience=3, refit=True, **FAST).fit(X, y, **masks)
    assert full.n_steps_ == plain.n_steps_
    held_out = np.arange(16, 24)
    loss = [
        -np.log(m.label_distributions_[held_out, codes[held_out]]).mean() for m in (plain, full)
    ]
    assert loss[1] < loss[0]


def test_labels_of_held_out_rows_do_not_train():
    X, y, _ = data()
    masks = {"validation": np.arange(9, 16), "early_stopping": np.arange(16, 24)}
    turned = y.copy()
    turned[9:24] = (turned[9:24] + 1) % 3
    settings = {**FAST, "max_steps": 1}
    first, second = (FFNNClassifier(**settings).fit(X, labels, **masks) for labels in (y, turned))
    assert_array_equal(first.label_distributions_, second.label_distributions_)
    assert first.validation_score_ != second.validation_score_


@pytest.mark.parametrize("factor", [1.0, 37.0])
def test_large_values_are_rescaled_to_rows_of_unit_norm(factor):
    X, y, _ = data()
    X = factor * X / np.sqrt((X**2).sum(axis=1).mean())
    unit = FFNNClassifier(**FAST).fit(X / factor, y)
    model = FFNNClassifier(**FAST).fit(X, y)
    assert_allclose(model.label_distributions_, unit.label_distributions_, atol=1e-9)
    assert_allclose(model.predict_proba(2 * X), unit.predict_proba(2 * X / factor), atol=1e-9)
    raw = FFNNClassifier(rescale=False, **FAST).fit(X, y)
    assert np.allclose(raw.label_distributions_, unit.label_distributions_) == (factor == 1.0)


def test_small_values_stay():
    X, y, _ = data()
    X = 0.1 * X
    kept, raw = (FFNNClassifier(rescale=r, **FAST).fit(X, y) for r in (True, False))
    assert_array_equal(kept.label_distributions_, raw.label_distributions_)


@pytest.mark.parametrize(
    "model",
    [
        SparseGCNClassifier(4.0, **FAST),
        DenseGCNClassifier(**FAST),
        RBFGCNClassifier(0.1, **FAST),
        KNNGCNClassifier(3, **FAST),
        GCNClassifier(**FAST),
        RandomEdgesGCNClassifier(2.0, **FAST),
    ],
    ids=lambda model: type(model).__name__,
)
def test_edges_are_counted_as_they_are_drawn(model):
    X, y, _ = data()
    graphs = model._graphs(
        problem(X, Pairs.fold([0, 1, 2], [1, 2, 3], N)), np.random.default_rng(0)
    )
    drawn = matrix(graphs.draw()) != 0
    assert graphs.n_edges == np.triu(drawn, 1).sum() > 0
    fitted = model.fit(X, y, [[0, 1], [1, 2], [2, 3]])
    assert fitted.n_edges_ == pytest.approx(graphs.n_edges, rel=0.5)  # random ones are others


def test_without_a_graph_or_with_a_random_one_no_edges_are_counted():
    X, y, _ = data()
    assert FFNNClassifier(**FAST).fit(X, y).n_edges_ is None
    assert SoftKNNGCNClassifier(2.0, **FAST).fit(X, y).n_edges_ is None
