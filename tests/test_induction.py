"""New rows: what they hear, what nobody hears of them, and when they are too far for either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from edgewise import LDSClassifier
from edgewise.graph.construct import knn_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.induction import Induction, class_frequencies, extend, far_distance, reaches
from edgewise.nn.gcn import GCN
from edgewise.nn.network import Network


def dense(graph: Graph) -> np.ndarray:
    return (graph @ torch.eye(graph.n_nodes, dtype=torch.float64)).detach().numpy()


def normalised(adjacency: np.ndarray) -> np.ndarray:
    with_loops = adjacency + np.eye(len(adjacency))
    scale = with_loops.sum(axis=1) ** -0.5
    return scale[:, None] * with_loops * scale


@given(st.integers(0, 10_000))
def test_extended_graph_has_the_row_of_each_node_had_it_joined_alone(seed):
    rng = np.random.default_rng(seed)
    n_fitted, n_new = 6, 3
    adjacency = np.triu(rng.random((n_fitted, n_fitted)) < 0.4, 1)
    adjacency = (adjacency + adjacency.T).astype(float)
    attached = rng.random((n_new, n_fitted)) < 0.5
    graph = Graph.from_pairs(
        Pairs.fold(*adjacency.nonzero(), n_fitted), n_fitted, dtype=torch.float64
    )

    extended = dense(extend(graph, *attached.nonzero(), n_new))

    np.testing.assert_array_equal(extended[:n_fitted, :n_fitted], dense(graph))
    assert not extended[:n_fitted, n_fitted:].any()
    for new, neighbours in enumerate(attached.astype(float)):
        alone = np.block([[adjacency, neighbours[:, None]], [neighbours, 0.0]])
        expected = np.zeros(n_fitted + n_new)
        expected[[*range(n_fitted), n_fitted + new]] = normalised(alone)[-1]
        np.testing.assert_allclose(extended[n_fitted + new], expected, atol=1e-15)


class OneProduct(Network):
    """``Â (X W)``: what a node gets depends on its own row of Â alone."""

    def initial_weights(self, n_features, n_classes, generator):
        return [torch.randn(n_features, n_classes, generator=generator, dtype=torch.float64)]

    def logits(self, weights, features, graph, noise=None):
        return graph @ (features @ weights[0])

    def penalty(self, weights):
        return weights[0].square().sum()


class FeaturesFirst(OneProduct):
    """``(Â X) W``: meets the graph with the features themselves."""

    def logits(self, weights, features, graph, noise=None):
        return (graph @ features) @ weights[0]


def induction(features, edges=None, network=None, **changes):
    n_rows = len(features)
    weight = torch.randn(features.shape[1], 3, generator=torch.Generator().manual_seed(1))
    everything = Induction(
        network=network or OneProduct(),
        weights=[weight.double()],
        edges=edges
        or DenseEdges(n_rows, Pairs.fold([0, 1, 2], [1, 2, 3], n_rows), dtype=torch.float64),
        features=features,
        class_frequencies=np.array([0.5, 0.25, 0.25]),
        far=far_distance(features, "euclidean"),
        reach=np.zeros(n_rows),
        k=2,
        metric="euclidean",
        n_samples=4,
        seed=0,
    )
    return replace(everything, **changes)


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 4))


@pytest.mark.parametrize("network", [OneProduct(), FeaturesFirst()])
def test_one_product_sees_what_it_would_see_had_the_row_joined(table, network):
    row = table[:1] + 0.01
    model = induction(table, network=network)
    nearest = np.argsort(((table - row) ** 2).sum(axis=1))[:2]
    joined = Pairs.fold([0, 1, 2, *nearest], [1, 2, 3, 20, 20], 21)
    graph = Graph.from_pairs(joined, 21, dtype=torch.float64)
    features = torch.from_numpy(np.vstack([table, row]))
    with torch.no_grad():
        expected = torch.softmax(network.logits(model.weights, features, graph), dim=1)[-1]

    np.testing.assert_allclose(model.probabilities(row)[0], expected, rtol=1e-12)


def test_a_new_row_does_not_depend_on_the_others(table):
    uncertain = DenseEdges(
        20, Pairs.fold([0, 1, 2], [1, 2, 3], 20), np.full(3, 0.5), dtype=torch.float64
    )
    model = induction(table, uncertain)
    new = table[:6] + 0.05
    together = model.probabilities(new)
    np.testing.assert_array_equal(together, model.probabilities(new))
    for row in range(6):
        np.testing.assert_allclose(model.probabilities(new[[row]])[0], together[row], rtol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_row_is_attached_as_in_the_neighbour_graph_with_it(table, metric):
    model = induction(table, k=3, metric=metric, reach=reaches(table, 3, metric))
    new = np.random.default_rng(1).normal(size=(6, 4))
    attached = model._attach(new)
    for row in range(6):
        rows, cols = knn_pairs(np.vstack([table, new[row]]), 3, metric=metric)
        assert attached.cols[attached.rows == row].tolist() == rows[cols == 20].tolist()


def test_rows_without_direction_reach_nobody():
    features = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert reaches(features, 1, "cosine").tolist()[0] == 0.0
    assert reaches(features, 5, "euclidean").tolist() == [2**0.5, 1.0, 2**0.5]


class Attaching(DenseEdges):
    """A distribution that says itself how new rows are attached."""

    probability_of_new = 1.0

    def attach(self, queries, features):
        from edgewise.graph.construct import nearest_neighbours

        indices, _ = nearest_neighbours(queries, features, 3, "euclidean")
        indices[:, 2] = -1
        return indices, np.full(indices.shape, self.probability_of_new)


def test_a_distribution_may_say_how_likely_the_edges_of_a_new_row_are(table):
    new = table[:5] + 0.05
    edges = Attaching(20, Pairs.fold([0, 1, 2], [1, 2, 3], 20), dtype=torch.float64)
    certain = induction(table, edges).probabilities(new)
    np.testing.assert_allclose(certain, induction(table).probabilities(new), rtol=1e-12)

    edges.probability_of_new = 0.0
    model = induction(table, edges)
    alone = torch.softmax(torch.from_numpy(new) @ model.weights[0], dim=1)
    np.testing.assert_allclose(model.probabilities(new), alone, rtol=1e-12)

    edges.probability_of_new = 0.5
    mixed = induction(table, edges, n_samples=64).probabilities(new)
    assert (np.abs(mixed - certain).max(axis=1) > 1e-3).all()
    assert (np.abs(mixed - alone.numpy()).max(axis=1) > 1e-3).all()


def test_far_rows_get_the_class_frequencies(table):
    model = induction(table)
    new = np.vstack([table[0] + 0.05, table[0] + 100.0])
    np.testing.assert_array_equal(model.is_far(new), [False, True])
    probabilities = model.probabilities(new)
    np.testing.assert_array_equal(probabilities[1], model.class_frequencies)
    assert not np.allclose(probabilities[0], model.class_frequencies)
    np.testing.assert_array_equal(model.probabilities(new[1:]), probabilities[1:])


def test_more_neighbours_than_rows(table):
    assert np.isfinite(induction(table[:4], k=10).probabilities(table[4:6] * 0.1)).all()


def test_copies_do_not_make_everything_far():
    distinct = np.arange(10.0)[:, None]
    copies = np.repeat(distinct, 4, axis=0)
    assert far_distance(copies, "euclidean") == far_distance(distinct, "euclidean") == 2.0


def test_nothing_is_far_where_nothing_tells_what_is_usual():
    assert far_distance(np.ones((30, 2)), "euclidean") == np.inf


def test_under_cosine_a_row_with_nothing_in_common_is_far():
    features = np.eye(6)[:, :3][[0, 1, 2, 0, 1, 2]] + 0.0
    far = far_distance(features, "cosine")
    assert 0.5 < far < 1.0


@given(st.lists(st.integers(-1, 3), min_size=1).filter(lambda codes: max(codes) >= 0))
def test_class_frequencies_are_those_of_labelled_rows(codes):
    frequencies = class_frequencies(np.array(codes), 4)
    labelled = [code for code in codes if code >= 0]
    assert frequencies.tolist() == [labelled.count(c) / len(labelled) for c in range(4)]


# ------------------------------------------------------------------------- in the classifier


def blobs(seed, n_rows=80, spread=0.6):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_rows)
    centres = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
    return np.abs(centres[truth] + spread * rng.normal(size=(n_rows, 3))), truth


@pytest.fixture(scope="module")
def fitted():
    X, truth = blobs(0)
    y = np.where(np.arange(80) < 24, truth, -1)
    return LDSClassifier(5, patience=2, max_inner_steps=60, random_state=0).fit(X, y), X


def test_new_rows_of_known_kinds_are_recognised(fitted):
    classifier, _ = fitted
    X, truth = blobs(1, 200)
    assert (classifier.predict(X) == truth).mean() > 0.9
    assert classifier.novelty(X).mean() < 0.1


def test_fitted_rows_keep_their_predictions_beside_new_ones(fitted):
    classifier, X = fitted
    mixed = np.vstack([X[3:10], blobs(2, 5)[0]])
    probabilities = classifier.predict_proba(mixed)
    np.testing.assert_array_equal(probabilities[:7], classifier.label_distributions_[3:10])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(probabilities, classifier.predict_proba(mixed))


def test_a_sparse_table_gives_the_same_as_a_dense_one(fitted):
    classifier, X = fitted
    mixed = np.vstack([X[3:10], blobs(2, 5)[0]])
    np.testing.assert_array_equal(
        classifier.predict_proba(sparse.csr_array(mixed)), classifier.predict_proba(mixed)
    )


def test_stored_zeros_do_not_make_a_fitted_row_new():
    X, truth = blobs(0, 40)
    X[X < 1.0] = 0.0
    y = np.where(np.arange(40) < 15, truth, -1)
    classifier = LDSClassifier(5, patience=1, max_outer_iterations=1, random_state=0)
    classifier.fit(sparse.csr_array(X), y)
    rows, cols = np.indices(X[5:8].shape)
    padded = sparse.csr_array((X[5:8].ravel(), (rows.ravel(), cols.ravel())))
    np.testing.assert_array_equal(
        classifier.predict_proba(padded), classifier.label_distributions_[5:8]
    )
    assert np.isfinite(classifier.predict_proba(sparse.csr_array(blobs(3, 6)[0]))).all()


def test_a_row_unlike_all_others_is_novel_and_gets_the_class_frequencies(fitted):
    classifier, X = fitted
    longest = np.linalg.norm(X, axis=1).max() / np.linalg.norm(X[0])
    strange = np.vstack(
        [X[:1], 1.99 * longest * X[:1], -X[:1], np.zeros((1, 3)), 2.01 * longest * X[:1]]
    )
    np.testing.assert_array_equal(classifier.novelty(strange), [False, False, True, True, True])
    labelled = blobs(0)[1][:24]
    expected = np.bincount(labelled) / 24
    probabilities = classifier.predict_proba(strange)
    np.testing.assert_allclose(probabilities[2:], np.tile(expected, (3, 1)))
    alike = sparse.csr_array(strange)
    np.testing.assert_array_equal(classifier.novelty(alike), classifier.novelty(strange))


@pytest.mark.parametrize("options", [{"refit": True}, {"dtype": "float64"}, {"network": GCN(4)}])
def test_options_reach_new_rows(options):
    X, truth = blobs(0)
    y = np.where(np.arange(80) < 24, truth, -1)
    classifier = LDSClassifier(
        5, patience=1, max_outer_iterations=2, max_inner_steps=60, random_state=0, **options
    ).fit(X, y)
    new, expected = blobs(1)
    assert (classifier.predict(new) == expected).mean() > 0.85
