"""Manifold regularisation against its linear system."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics.pairwise import rbf_kernel

from edgewise.baselines import ManiRegClassifier
from edgewise.baselines.manifold import laplacian
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs


def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) * [1.0, 5.0, 0.2]
    y = np.where(np.arange(40) < 30, np.argmax(X + rng.normal(size=X.shape), axis=1), -1)
    masks = {"validation": np.arange(12, 20), "early_stopping": np.arange(20, 30)}
    return X, y, masks


def objective(W, X, y, rows, pairs, ridge, smoothness):
    """The docstring's objective, term by term."""
    total = 0.0
    for i in rows:
        target = np.where(np.arange(W.shape[1]) == y[i], 1.0, -1.0)
        total += np.sum((X[i] @ W - target) ** 2) / len(rows)
    total += ridge * np.sum(W[:-1] ** 2)
    for i, j in zip(*pairs, strict=True):
        total += smoothness * np.sum((X[i] @ W - X[j] @ W) ** 2) / pairs.n_pairs
    return total


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_weights_solve_the_linear_system(form, refit):
    X, y, masks = problem()
    model = ManiRegClassifier(
        4, kernel="linear", metric="euclidean", ridge=0.3, smoothness=2.0, refit=refit
    ).fit(form(X), y, **masks)
    rows = np.arange(30) if refit else np.arange(12)
    table = np.hstack([X / np.sqrt((X**2).sum(axis=1).mean()), np.ones((40, 1))])
    pairs = knn_pairs(X, 4)
    differences = table[pairs.rows] - table[pairs.cols]
    left = (
        table[rows].T @ table[rows] / len(rows)
        + 0.3 * np.diag([1.0, 1.0, 1.0, 0.0])
        + 2.0 * differences.T @ differences / pairs.n_pairs
    )
    targets = 2.0 * np.eye(3)[y[rows]] - 1.0
    assert_allclose(left @ model.coef_, table[rows].T @ targets / len(rows), atol=1e-12)
    assert_allclose(model.label_distributions_, softmax(table @ model.coef_, axis=1))


def test_weights_minimise_the_objective():
    X, y, masks = problem()
    model = ManiRegClassifier(4, kernel="linear", metric="euclidean", ridge=0.3, smoothness=2.0)
    model.fit(X, y, **masks)
    table = np.hstack([X / np.sqrt((X**2).sum(axis=1).mean()), np.ones((40, 1))])
    arguments = (table, y, np.arange(12), knn_pairs(X, 4), 0.3, 2.0)
    least = objective(model.coef_, *arguments)
    rng = np.random.default_rng(1)
    for _ in range(20):
        assert objective(model.coef_ + 1e-3 * rng.normal(size=(4, 3)), *arguments) > least


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_kernel_weights_are_a_stationary_point(form, refit):
    X, y, masks = problem()
    model = ManiRegClassifier(4, metric="euclidean", ridge=0.3, smoothness=2.0, refit=refit)
    model.fit(form(X), y, **masks)
    rows = np.arange(30) if refit else np.arange(12)
    K = rbf_kernel(X, gamma=1 / (3 * X.var())) + 1.0
    pairs = knn_pairs(X, 4)
    f = K @ model.coef_
    # Half the derivative of the objective by the weights, |f|^2 being their product with f.
    residual = np.zeros((40, 3))
    residual[rows] = (f[rows] - (2.0 * np.eye(3)[y[rows]] - 1.0)) / len(rows)
    difference = np.zeros((pairs.n_pairs, 40))
    difference[np.arange(pairs.n_pairs), pairs.rows] = 1.0
    difference[np.arange(pairs.n_pairs), pairs.cols] = -1.0
    slope = K @ (residual + 2.0 * difference.T @ difference @ f / pairs.n_pairs) + 0.3 * f
    assert_allclose(slope, 0.0, atol=1e-10)
    assert_allclose(model.label_distributions_, softmax(f, axis=1))
    nearby = rbf_kernel(X + 0.1, X, gamma=1 / (3 * X.var())) + 1.0
    assert_allclose(model.predict_proba(form(X + 0.1)), softmax(nearby @ model.coef_, axis=1))


def test_laplacian_is_the_sum_of_squared_differences():
    pairs = Pairs.fold([0, 1, 1], [1, 2, 3], n_nodes=5)
    f = np.array([1.0, 4.0, 2.0, 4.5, 9.0])
    assert f @ (laplacian(pairs, 5) @ f) == pytest.approx(9.0 + 4.0 + 0.25)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_strong_smoothness_gives_neighbours_one_answer(kernel):
    X, y, masks = problem()
    weak, strong = (
        ManiRegClassifier(4, kernel=kernel, metric="euclidean", smoothness=s).fit(X, y, **masks)
        for s in (0.0, 1e6)
    )
    spread = [np.ptp(model.label_distributions_, axis=0).max() for model in (weak, strong)]
    assert spread[1] < 1e-4 < 0.1 < spread[0]
