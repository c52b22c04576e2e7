"""Methods by name."""

from __future__ import annotations

import pytest

from edgewise.baselines import KNNGCNClassifier, get_method, list_methods, make_method
from edgewise.estimator import TransductiveClassifier


def test_list_tells_what_each_method_is():
    methods = list_methods()
    assert len({method.name for method in methods}) == len(methods) == 18
    for method in methods:
        assert 10 < len(method.description) < 80
        assert "\n" not in method.description
        assert method.tuned == tuple(method.search_space)
        assert isinstance(make_method(method.name), TransductiveClassifier)


def test_papers_search_spaces():
    knn = get_method("knn-gcn").search_space
    assert knn["k"] == tuple(range(2, 21))
    assert set(knn["metric"]) == {"euclidean", "cosine"}
    assert knn["learning_rate"] == (0.005, 0.01, 0.02)
    for name in ("knn-lds", "knn-lds-dense"):
        space = get_method(name).search_space
        assert (space["k"], space["tau"]) == ((10, 20), (5, 16))
        assert space["outer_learning_rate"] == (1.0, 0.1)
    assert get_method("lds").search_space["tau"] == (1, 5, 20)


def test_parameters_reach_the_estimator():
    model = make_method("knn-gcn", k=3, metric="euclidean")
    assert isinstance(model, KNNGCNClassifier)
    assert (model.k, model.metric) == (3, "euclidean")


def test_unknown_names_are_met_with_the_nearest():
    with pytest.raises(ValueError, match=r"no method 'knn_gcn'; did you mean 'knn-gcn'"):
        make_method("knn_gcn")
    with pytest.raises(ValueError, match=r"no method 'xyzzy'; known are logreg, linear-svm"):
        make_method("xyzzy")
    with pytest.raises(TypeError, match=r"knn-gcn has no parameter 'metrics'.*'metric'"):
        make_method("knn-gcn", metrics="cosine")
