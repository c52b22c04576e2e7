"""LDS as the tables name it: where each variant starts, and what it learns."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from edgewise import LDSClassifier
from edgewise.baselines import DenseKNNLDSClassifier, GraphLDSClassifier, KNNLDSClassifier
from edgewise.graph.construct import knn_pairs
from edgewise.graph.similarity_matrix import SimilarityMatrix
from edgewise.learn import Callback

FAST = {"max_outer_iterations": 1, "max_inner_steps": 15, "random_state": 0}
EDGES = np.array([[0, 1], [1, 2], [2, 3], [4, 5]])


def data():
    rng = np.random.default_rng(0)
    codes = np.arange(24) % 2
    return rng.normal(size=(24, 3)) + 2.0 * codes[:, None], np.where(np.arange(24) < 18, codes, -1)


class Start(Callback):
    """Keeps what the edges were like after the first update at a rate of nearly zero."""

    def after_update(self, edges, progress):
        if not hasattr(self, "pairs"):
            self.pairs, _ = edges.above(0.5)


def start_of(kind, graph=None, **params):
    X, y = data()
    start = Start()
    kind(outer_learning_rate=1e-9, callbacks=[start], **params, **FAST).fit(X, y, graph)
    return start.pairs


def test_each_variant_starts_where_its_name_says():
    X, _ = data()
    nearest = knn_pairs(X.astype(np.float32), 3, metric="euclidean")
    settings = {"k": 3, "metric": "euclidean"}
    assert_array_equal(np.stack(start_of(GraphLDSClassifier, EDGES), axis=1), EDGES)
    assert_array_equal(start_of(KNNLDSClassifier, EDGES, **settings), nearest)
    assert_array_equal(start_of(DenseKNNLDSClassifier, EDGES, **settings), nearest)


def test_graph_and_knn_variants_are_lds_itself():
    X, y = data()
    plain = LDSClassifier(3, **FAST)
    assert_array_equal(
        GraphLDSClassifier(3, **FAST).fit(X, y, EDGES).label_distributions_,
        plain.fit(X, y, EDGES).label_distributions_,
    )
    assert_array_equal(
        KNNLDSClassifier(3, **FAST).fit(X, y).label_distributions_,
        plain.fit(X, y).label_distributions_,
    )


def test_dense_variant_learns_similarities_that_are_no_longer_zero_or_one():
    X, y = data()
    edges = DenseKNNLDSClassifier(3, **FAST).fit(X, y).edges_
    assert isinstance(edges, SimilarityMatrix)
    _, values = edges.above(0.0)
    assert ((values > 0.01) & (values < 0.99)).any()


def test_score_for_tuning_is_that_of_the_early_stopping_rows():
    X, y = data()
    masks = {"validation": np.arange(6, 12), "early_stopping": np.arange(12, 18)}
    model = KNNLDSClassifier(3, **FAST).fit(X, y, **masks)
    accuracy = np.mean(model.transduction_[12:18] == y[12:18])
    assert model.validation_score_.accuracy == accuracy
    assert model.validation_score_.loss == model.history_[0]["early_stopping_loss"]
