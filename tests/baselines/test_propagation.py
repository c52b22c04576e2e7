"""Label propagation against scikit-learn's, and the rows it cannot reach."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.semi_supervised import LabelPropagation

from edgewise.baselines import LPClassifier

X, Y = load_iris(return_X_y=True)
TRAIN = np.arange(0, 150, 5)
MASKS = {"validation": np.arange(1, 150, 10), "early_stopping": np.arange(2, 150, 10)}


def labels():
    y = np.full(150, -1)
    for rows in (TRAIN, *MASKS.values()):
        y[rows] = Y[rows]
    return y


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "knn"])
def test_equals_scikit_learn(kernel, refit):
    y = labels()
    model = LPClassifier(kernel, k=8, gamma_scale=20.0, max_iter=1000, refit=refit).fit(
        X, y, **MASKS
    )
    known = y if refit else np.where(np.isin(np.arange(150), TRAIN), Y, -1)
    reference = LabelPropagation(kernel=kernel, n_neighbors=8, gamma=20.0 / (4 * X.var()))
    reference.fit(X, known)
    assert_allclose(model.label_distributions_, reference.label_distributions_, atol=1e-12)
    assert model.n_iter_ == reference.n_iter_
    assert model.converged_


def test_rows_that_no_label_reaches_get_the_class_frequencies():
    # Two rows at a distance where the kernel is exactly zero, and k too small to leave a cluster.
    far = np.vstack([X, [[1e6] * 4, [1e6 + 1] * 4]])
    y = np.append(labels(), [-1, -1])
    y[TRAIN[Y[TRAIN] == 2][3:]] = -1
    frequencies = np.bincount(Y[TRAIN[y[TRAIN] >= 0]]) / np.sum(y[TRAIN] >= 0)
    model = LPClassifier("knn", k=2).fit(far, y, **MASKS)
    assert_allclose(model.label_distributions_[-2:], [frequencies] * 2)
    assert_allclose(model.label_distributions_.sum(axis=1), 1.0)


def test_ending_early_is_told():
    model = LPClassifier("rbf", gamma_scale=1.0, max_iter=1).fit(X, labels(), **MASKS)
    assert (model.n_iter_, model.converged_) == (1, False)


def test_too_many_neighbours_are_refused():
    with pytest.raises(ValueError, match=r"k=7 is too large: X has only 6 rows"):
        LPClassifier("knn", k=7).fit(np.eye(6), [0, 0, 0, 1, 1, 1])


def test_constant_features_have_a_kernel_too():
    model = LPClassifier("rbf").fit(np.full((9, 2), 0.1), [0, 0, 0, 0, 0, 0, 1, 1, 1])
    assert_array_equal(model.transduction_[:6], 0)
