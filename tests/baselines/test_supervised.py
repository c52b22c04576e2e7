"""scikit-learn's classifiers behind the common face."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from edgewise.baselines import make_method
from edgewise.inputs import EdgewiseWarning

X, Y = load_iris(return_X_y=True)
TRAIN = np.arange(0, 150, 5)
MASKS = {"validation": np.arange(1, 150, 10), "early_stopping": np.arange(2, 150, 10)}


def labels():
    y = np.full(150, -1)
    for rows in (TRAIN, *MASKS.values()):
        y[rows] = Y[rows]
    return y


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize(
    ("name", "params", "reference"),
    [
        ("logreg", {"C": 3.0}, LogisticRegression(C=3.0, max_iter=10_000)),
        ("linear-svm", {"C": 3.0}, SVC(kernel="linear", C=3.0, break_ties=True)),
        ("rbf-svm", {"C": 3.0}, SVC(C=3.0, gamma=1 / (4 * X.var()), break_ties=True)),
    ],
)
def test_predicts_what_scikit_learn_predicts(name, params, reference, refit):
    y = labels()
    model = make_method(name, refit=refit, **params).fit(X, y, **MASKS)
    rows = np.flatnonzero(y >= 0) if refit else TRAIN
    reference.fit(X[rows], Y[rows])
    assert_array_equal(model.transduction_, reference.predict(X))
    fresh = X + 0.01
    assert_array_equal(model.predict(fresh), reference.predict(fresh))


def test_forest_is_that_of_the_seed_and_the_training_rows():
    model = make_method("rf", n_estimators=7, random_state=3).fit(X, labels(), **MASKS)
    seed = np.random.RandomState(3).randint(2**31 - 1)
    reference = RandomForestClassifier(7, random_state=seed).fit(X[TRAIN], Y[TRAIN])
    assert_allclose(model.label_distributions_, reference.predict_proba(X))


def test_two_classes_of_a_machine_have_the_odds_of_its_margin():
    y = np.where(labels() == 2, -1, labels())
    masks = {name: rows[Y[rows] < 2] for name, rows in MASKS.items()}
    model = make_method("linear-svm").fit(X, y, **masks)
    margin = model.model_.decision_function(X)
    assert_allclose(model.label_distributions_[:, 1], 1 / (1 + np.exp(-2 * margin)))


@pytest.mark.parametrize("name", ["logreg", "linear-svm", "rbf-svm", "rf", "lp", "manireg"])
def test_class_without_a_training_row_has_no_chance(name):
    y = np.where(np.isin(np.arange(150), TRAIN) & (Y == 2), -1, labels())
    with pytest.warns(EdgewiseWarning):
        model = make_method(name, random_state=0).fit(X, y, **MASKS)
    assert model.label_distributions_.shape == (150, 3)
    assert 2 not in model.transduction_


@pytest.mark.parametrize("name", ["logreg", "linear-svm", "rbf-svm", "rf"])
def test_lone_training_class_is_predicted_everywhere(name):
    y = np.where(np.isin(np.arange(150), TRAIN) & (Y != 1), -1, labels())
    with pytest.warns(EdgewiseWarning):
        model = make_method(name).fit(X, y, **MASKS)
    assert_array_equal(model.label_distributions_, np.tile([0.0, 1.0, 0.0], (150, 1)))
