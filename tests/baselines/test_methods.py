"""Every method through the same face."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from edgewise import memory
from edgewise.baselines import (
    GCNClassifier,
    GraphLDSClassifier,
    RandomEdgesGCNClassifier,
    get_method,
    list_methods,
    make_method,
)
from edgewise.graph.construct import knn_pairs

NETWORK = {"max_steps": 40, "learning_rate": 0.1, "patience": 10}
LDS = {"max_outer_iterations": 1, "max_inner_steps": 10, "tau": 10, "inner_learning_rate": 0.1}
#: Settings in which a method needs little time, and does well on a table of two blobs.
FAST = {
    "logreg": {},
    "linear-svm": {},
    "rbf-svm": {},
    "rf": {"n_estimators": 10},
    "ffnn": NETWORK,
    "lp": {},
    "manireg": {"k": 3, "metric": "euclidean"},
    "semiemb": {**NETWORK, "k": 3, "metric": "euclidean", "embedding_weight": 0.1},
    "sparse-gcn": {**NETWORK, "expected_degree": 0.2},
    "dense-gcn": NETWORK,
    "rbf-gcn": NETWORK,
    "knn-gcn": {**NETWORK, "k": 3, "metric": "euclidean"},
    "gcn": NETWORK,
    "gcn-rnd": {**NETWORK, "share": 0.1},
    "soft-knn-gcn": {**NETWORK, "expected_degree": 2.0, "n_samples": 2},
    "lds": LDS,
    "knn-lds": {**LDS, "k": 3, "metric": "euclidean"},
    "knn-lds-dense": {**LDS, "k": 3, "metric": "euclidean"},
}
NAMES = [method.name for method in list_methods()]


def blobs(n_rows=30, noise=0.3):
    rng = np.random.default_rng(0)
    codes = np.arange(n_rows) % 2
    # Two directions as well as two places, so that cosine similarity tells them apart.
    X = np.where(codes[:, None] == 0, [3.0, 0.5], [-0.5, 3.0])
    X = X + noise * rng.normal(size=(n_rows, 2))
    return X, codes


def graph_for(name, X):
    return np.stack(knn_pairs(X, 3), axis=1) if get_method(name).needs_graph else None


def test_all_methods_of_the_table_are_there():
    assert set(NAMES) == set(FAST)


@pytest.mark.parametrize("name", NAMES)
def test_one_face(name):
    X, codes = blobs()
    graph = graph_for(name, X)
    names = np.array(["oak", "elm"], dtype=object)
    y = names[codes]
    y[20:] = None
    model = make_method(name, **FAST[name], random_state=0)

    assert model.fit(X, y, graph) is model
    assert_array_equal(model.classes_, ["elm", "oak"])
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (30, 2)
    assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    assert (probabilities >= 0).all()
    assert_array_equal(model.predict(X), model.transduction_)
    assert_array_equal(model.transduction_, model.classes_[probabilities.argmax(axis=1)])
    assert np.mean(model.transduction_[20:] == names[codes[20:]]) >= 0.9
    assert model.validation_score_.accuracy >= 0.8
    assert np.isfinite(model.validation_score_.loss)

    again = clone(model).set_params(random_state=0)
    assert again.get_params() == model.get_params()
    assert_array_equal(again.fit(X, y, graph).predict_proba(X), probabilities)


@pytest.mark.parametrize("name", NAMES)
def test_sparse_rows_and_a_single_unlabelled_one(name):
    X, codes = blobs()
    graph = graph_for(name, X)
    X[np.abs(X) < 0.3] = 0.0
    y = codes.copy()
    y[7] = -1
    dense = make_method(name, **FAST[name], random_state=0).fit(X, y, graph)
    scarce = make_method(name, **FAST[name], random_state=0).fit(sparse.csr_array(X), y, graph)
    assert dense.transduction_[7] == codes[7]
    assert scarce.transduction_[7] == codes[7]
    assert_allclose(scarce.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_masks_are_respected_and_refitting_uses_all_labels(name):
    X, codes = blobs(noise=1.5)
    graph = graph_for(name, X)
    y = np.where(np.arange(30) < 20, codes, -1)
    masks = {"validation": np.arange(8, 14), "early_stopping": np.arange(14, 20)}
    plain = make_method(name, **FAST[name], random_state=0).fit(X, y, graph, **masks)
    full = make_method(name, **FAST[name], refit=True, random_state=0).fit(X, y, graph, **masks)
    assert not np.array_equal(full.label_distributions_, plain.label_distributions_)
    # What chooses hyperparameters is from before the final fit, with as many labels as LDS has.
    more = {"validation": np.arange(14, 15), "early_stopping": np.arange(15, 20)}
    twin = make_method(name, **FAST[name], random_state=0)
    twin.fit(X, y, graph, **(masks if "lds" in name else more))
    assert full.validation_score_ == twin.validation_score_
    held_out = np.arange(14, 20) if "lds" in name else np.arange(8, 20)
    accuracy = np.mean(plain.transduction_[held_out] == codes[held_out])
    assert plain.validation_score_.accuracy == pytest.approx(accuracy)


# LDS has a way of its own, tested with it.
INDUCTIVE = ["logreg", "linear-svm", "rbf-svm", "rf", "ffnn", "manireg", "semiemb"]
TRANSDUCTIVE = [name for name in NAMES if name not in INDUCTIVE and "lds" not in name]


@pytest.mark.parametrize("name", INDUCTIVE + TRANSDUCTIVE)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_that_took_no_part_in_the_fit(name, form):
    X, codes = blobs()
    model = make_method(name, **FAST[name], random_state=0)
    model.fit(form(X[:24]), codes[:24], graph_for(name, X[:24]))
    if name in INDUCTIVE:
        assert_array_equal(model.predict(form(X[24:])), codes[24:])
        # Seen rows among unseen ones keep the probabilities they had.
        both = model.predict_proba(form(X))
        assert_allclose(both[:24], model.label_distributions_)
    else:
        with pytest.raises(ValueError, match="did not take part in the fit"):
            model.predict(form(X[24:]))


@pytest.mark.parametrize("name", [m.name for m in list_methods() if m.needs_graph])
def test_missing_graph_is_named(name):
    X, y = blobs()
    with pytest.raises(ValueError, match=f"{name} needs a graph.*fit.X, y, graph.*use knn-"):
        make_method(name, **FAST[name]).fit(X, y)


@pytest.mark.parametrize("name", [m.name for m in list_methods() if not m.needs_graph])
def test_graph_that_is_not_needed_is_left_aside(name):
    X, y = blobs()
    y[20:] = -1
    without = make_method(name, **FAST[name], random_state=0).fit(X, y)
    beside = make_method(name, **FAST[name], random_state=0).fit(X, y, [[0, 1], [2, 3]])
    assert_array_equal(beside.label_distributions_, without.label_distributions_)


@pytest.mark.parametrize("name", NAMES)
def test_search_space_holds_valid_values_only(name):
    method = get_method(name)
    for parameter, values in method.search_space.items():
        assert len(values) > 1
        for value in values:
            make_method(name, **{parameter: value})._validate_params()


@pytest.mark.parametrize(
    ("name", "params", "remedy"),
    [
        ("rbf-gcn", {}, "Use knn-gcn"),
        ("lp", {}, "kernel='knn'"),
        ("manireg", {}, "kernel='linear'"),
        ("knn-lds-dense", {}, "storage='sparse'"),
    ],
)
def test_what_cannot_fit_is_refused_before_it_starts(name, params, remedy, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=remedy):
        make_method(name, **{**FAST[name], **params}).fit(*blobs())


class OnNeighbours:
    """Stands in for the graph that scikit-learn's checks do not give."""

    def _solve(self, problem, seed, *rest):
        k = min(3, problem.n_nodes - 1)
        pairs = knn_pairs(problem.features, k, metric="euclidean")
        return super()._solve(replace(problem, pairs=pairs), seed, *rest)


class GCNOnNeighbours(OnNeighbours, GCNClassifier):
    pass


class RandomEdgesGCNOnNeighbours(OnNeighbours, RandomEdgesGCNClassifier):
    pass


class LDSOnNeighbours(OnNeighbours, GraphLDSClassifier):
    pass


STAND_INS = {
    "gcn": GCNOnNeighbours,
    "gcn-rnd": RandomEdgesGCNOnNeighbours,
    "lds": LDSOnNeighbours,
}


def estimator(name):
    kind = STAND_INS.get(name)
    settings = {**FAST[name], "random_state": 0}
    return make_method(name, **settings) if kind is None else kind(**settings)


def exemptions(model):
    # Among the labels of this check is -1, which here, as in scikit-learn's own semi-supervised
    # classifiers, says that a row is unlabelled.
    exempt = {"check_classifiers_classes": "-1 means unlabelled"}
    if isinstance(model, tuple(type(estimator(name)) for name in TRANSDUCTIVE)):
        # These two predict rows that were no part of the fit, for which such a method has no place
        # in its graph: it refuses them with an error.
        exempt["check_classifiers_one_label"] = "predicts rows of the fit only"
        exempt["check_fit_idempotent"] = "predicts rows of the fit only"
    return exempt


@parametrize_with_checks([estimator(name) for name in NAMES], expected_failed_checks=exemptions)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        # The checks leave classes with too few rows for three parts, which is worth a warning.
        warnings.filterwarnings("ignore", category=UserWarning, module="edgewise")
        check(estimator)
