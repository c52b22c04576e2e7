"""Manifold regularisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve
from scipy.special import softmax

from edgewise.baselines.base import (
    COUNT,
    KNN_SPACE,
    METRICS,
    NON_NEGATIVE,
    POSITIVE,
    Baseline,
    Learner,
    Metric,
    SearchSpace,
)
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs
from edgewise.memory import require_memory
from edgewise.problem import Problem, Split


@dataclass(kw_only=True, eq=False, repr=False)
class ManiRegClassifier(Baseline):
    """Manifold regularisation (Belkin, Niyogi and Sindhwani, 2006): linear Laplacian least squares.

    With targets +1 for a row's class and -1 for the others, on rows x scaled to a mean squared
    norm of 1 and extended by a constant, the weights minimise::

        mean over training rows of |x W - y|^2  +  ridge |W without the intercept|^2
            + smoothness * mean over neighbours i, j of |x_i W - x_j W|^2

    which is one symmetric linear system of n_features + 1 equations, solved directly: memory grows
    with the square of the number of features. Each class is one column (one against the rest).
    Class probabilities are the softmax of the columns' outputs.

    Parameters
    ----------
    k : int, default=10
        Neighbours a row.
    metric : {"cosine", "euclidean"}, default="cosine"
    ridge : float, default=0.01
    smoothness : float, default=1.0
    refit, random_state
        See `Baseline`.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features + 1, n_classes)
        W; the last row is the intercept.

    Examples
    --------
    >>> from edgewise.baselines import ManiRegClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [0.3], [1.0], [1.1], [1.2]], [0, 0, 0, -1, 1, 1, 1]
    >>> ManiRegClassifier(2, metric="euclidean", random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 0, 1, 1, 1])
    """

    k: int = field(default=10, kw_only=False)
    metric: Metric = "cosine"
    ridge: float = 0.01
    smoothness: float = 1.0

    search_space: ClassVar[SearchSpace] = {
        **KNN_SPACE,
        "ridge": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "smoothness": (0.01, 0.1, 1.0, 10.0, 100.0),
    }
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        **Baseline._parameter_constraints,
        "k": COUNT,
        "metric": METRICS,
        "ridge": POSITIVE,
        "smoothness": NON_NEGATIVE,
    }

    def _learner(self, problem: Problem, seed: int) -> Learner:
        n_features = int(problem.features.shape[1])
        require_memory(
            4 * 8 * n_features**2,  # penalty, fit, their sum, and its factor
            f"a linear system of {n_features} features",
            "Reduce them, for example with sklearn.decomposition.TruncatedSVD.",
        )
        pairs = knn_pairs(problem.features, self.k, metric=self.metric)
        squares = problem.features * problem.features
        # Rows of nothing but zeros have no scale.
        self._scale = float(np.sqrt(squares.sum() / problem.n_nodes)) or 1.0
        table = self._extended(problem.features)
        rough = gram(table, laplacian(pairs, problem.n_nodes)) / max(1, pairs.n_pairs)
        penalty = self.smoothness * rough + self.ridge * np.eye(len(rough))
        penalty[-1, -1] -= self.ridge

        def learn(split: Split) -> NDArray[np.float64]:
            rows = table[split.train]
            targets = -np.ones((len(split.train), problem.n_classes))
            targets[np.arange(len(split.train)), problem.labels[split.train]] = 1.0
            fit = gram(rows) / len(split.train)
            self.coef_ = solve(fit + penalty, (rows.T @ targets) / len(split.train), assume_a="pos")
            return self._probabilities(table)

        return learn

    def _extended(self, features: Any) -> Any:
        """Rows in units of their root mean square, and a column of ones."""
        ones = np.ones((features.shape[0], 1))
        if isinstance(features, np.ndarray):
            return np.hstack([features / self._scale, ones])
        return sparse.hstack([features / self._scale, sparse.csr_array(ones)], format="csr")

    def _probabilities(self, table: Any) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = softmax(table @ self.coef_, axis=1)
        return probabilities

    def _predict_unseen(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._probabilities(self._extended(features))


def laplacian(pairs: Pairs, n_nodes: int) -> Any:
    """``D - A``, of which ``f' (D - A) f`` is the sum over the pairs of ``(f_i - f_j)^2``."""
    both = (np.concatenate([pairs.rows, pairs.cols]), np.concatenate([pairs.cols, pairs.rows]))
    adjacency = sparse.csr_array((np.ones(2 * pairs.n_pairs), both), shape=(n_nodes, n_nodes))
    return sparse.diags_array(adjacency.sum(axis=1)).tocsr() - adjacency


def gram(table: Any, middle: Any = None) -> NDArray[np.float64]:
    """``X' M X``, dense; ``X' X`` without M."""
    product: Any = table.T @ (table if middle is None else middle @ table)
    return product if isinstance(product, np.ndarray) else np.asarray(product.toarray())
