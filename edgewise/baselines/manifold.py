"""Manifold regularisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve
from scipy.special import softmax
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils._param_validation import StrOptions

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
    kernel_gamma,
)
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs
from edgewise.memory import require_memory
from edgewise.problem import Problem, Split


@dataclass(kw_only=True, eq=False, repr=False)
class ManiRegClassifier(Baseline):
    """Manifold regularisation (Belkin, Niyogi and Sindhwani, 2006): Laplacian least squares.

    With targets +1 for a row's class and -1 for the others, a function f of the rows minimises::

        mean over training rows of |f(x) - y|^2  +  ridge |f|^2
            + smoothness * mean over neighbours i, j of |f(x_i) - f(x_j)|^2

    With a linear kernel, f is linear in the rows, scaled to a mean squared norm of 1, and has an
    intercept that |f| does not count: one linear system of n_features + 1 equations. With a
    Gaussian kernel, to which 1 is added for the intercept, f is a combination of the kernel at all
    rows: a system of n_rows equations. Either is solved directly, so that memory grows with the
    square of its size. Each class is one column (one against the rest); class probabilities are
    the softmax of f.

    Parameters
    ----------
    k : int, default=10
        Neighbours a row.
    metric : {"cosine", "euclidean"}, default="cosine"
    kernel : {"rbf", "linear"}, default="rbf"
    gamma_scale : float, default=1.0
        With ``kernel="rbf"``, which is ``exp(-gamma |x - x'|^2)``: gamma is `gamma_scale` /
        (n_features Var(X)).
    ridge : float, default=0.001
    smoothness : float, default=10.0
    refit, random_state
        See `Baseline`.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features + 1, n_classes) or (n_rows, n_classes)
        Weights of the features and the intercept, or of the kernel at each row.

    Examples
    --------
    >>> from edgewise.baselines import ManiRegClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [0.3], [1.0], [1.1], [1.2]], [0, 0, 0, -1, 1, 1, 1]
    >>> ManiRegClassifier(2, metric="euclidean", random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 0, 1, 1, 1])
    """

    k: int = field(default=10, kw_only=False)
    metric: Metric = "cosine"
    kernel: Literal["rbf", "linear"] = "rbf"
    gamma_scale: float = 1.0
    ridge: float = 0.001
    smoothness: float = 10.0

    search_space: ClassVar[SearchSpace] = {
        **KNN_SPACE,
        "kernel": ("rbf", "linear"),
        "gamma_scale": (0.1, 0.3, 1.0, 3.0),
        "ridge": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "smoothness": (0.01, 0.1, 1.0, 10.0, 100.0),
    }
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        **Baseline._parameter_constraints,
        "k": COUNT,
        "metric": METRICS,
        "kernel": [StrOptions({"rbf", "linear"})],
        "gamma_scale": POSITIVE,
        "ridge": POSITIVE,
        "smoothness": NON_NEGATIVE,
    }

    def _learner(self, problem: Problem, seed: int) -> Learner:
        size = problem.n_nodes if self.kernel == "rbf" else int(problem.features.shape[1]) + 1
        require_memory(
            4 * 8 * size**2,  # kernel, penalty, their sum, and its factors
            f"a linear system of {size} equations",
            "Use kernel='linear' with fewer features (sklearn.decomposition.TruncatedSVD).",
        )
        pairs = knn_pairs(problem.features, self.k, metric=self.metric)
        rough = (self.smoothness / max(1, pairs.n_pairs)) * laplacian(pairs, problem.n_nodes)
        return (
            self._kernel(problem, rough) if self.kernel == "rbf" else self._linear(problem, rough)
        )

    def _linear(self, problem: Problem, rough: Any) -> Learner:
        squares = problem.features * problem.features
        # Rows of nothing but zeros have no scale.
        self._scale = float(np.sqrt(squares.sum() / problem.n_nodes)) or 1.0
        table = self._extended(problem.features)
        penalty = gram(table, rough) + self.ridge * np.eye(table.shape[1])
        penalty[-1, -1] -= self.ridge

        def learn(split: Split) -> NDArray[np.float64]:
            rows, n_rows = table[split.train], len(split.train)
            left = gram(rows) / n_rows + penalty
            self.coef_ = solve(left, rows.T @ _targets(problem, split) / n_rows, assume_a="pos")
            return softmax_rows(table @ self.coef_)

        return learn

    def _kernel(self, problem: Problem, rough: Any) -> Learner:
        self._gamma = kernel_gamma(problem.features, self.gamma_scale)
        self._rows = problem.features
        kernel = self._kernel_to(problem.features)
        penalty = rough @ kernel
        penalty.flat[:: problem.n_nodes + 1] += self.ridge

        def learn(split: Split) -> NDArray[np.float64]:
            rows, n_rows = split.train, len(split.train)
            left = penalty.copy()
            left[rows] += kernel[rows] / n_rows
            right = np.zeros((problem.n_nodes, problem.n_classes))
            right[rows] = _targets(problem, split) / n_rows
            self.coef_ = solve(left, right, overwrite_a=True)
            return softmax_rows(kernel @ self.coef_)

        return learn

    def _extended(self, features: Any) -> Any:
        """Rows in units of their root mean square, and a column of ones."""
        ones = np.ones((features.shape[0], 1))
        if isinstance(features, np.ndarray):
            return np.hstack([features / self._scale, ones])
        return sparse.hstack([features / self._scale, sparse.csr_array(ones)], format="csr")

    def _kernel_to(self, features: Any) -> NDArray[np.float64]:
        kernel: NDArray[np.float64] = rbf_kernel(features, self._rows, gamma=self._gamma)
        kernel += 1.0
        return kernel

    def _predict_unseen(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        basis = self._kernel_to(features) if self.kernel == "rbf" else self._extended(features)
        return softmax_rows(basis @ self.coef_)


def softmax_rows(scores: Any) -> NDArray[np.float64]:
    """Class probabilities from one score a class."""
    probabilities: NDArray[np.float64] = softmax(scores, axis=1)
    return probabilities


def _targets(problem: Problem, split: Split) -> NDArray[np.float64]:
    targets = np.full((len(split.train), problem.n_classes), -1.0)
    targets[np.arange(len(split.train)), problem.labels[split.train]] = 1.0
    return targets


def laplacian(pairs: Pairs, n_nodes: int) -> Any:
    """``D - A``, of which ``f' (D - A) f`` is the sum over the pairs of ``(f_i - f_j)^2``."""
    both = (np.concatenate([pairs.rows, pairs.cols]), np.concatenate([pairs.cols, pairs.rows]))
    adjacency = sparse.csr_array((np.ones(2 * pairs.n_pairs), both), shape=(n_nodes, n_nodes))
    return sparse.diags_array(adjacency.sum(axis=1)).tocsr() - adjacency


def gram(table: Any, middle: Any = None) -> NDArray[np.float64]:
    """``X' M X``, dense; ``X' X`` without M."""
    product: Any = table.T @ (table if middle is None else middle @ table)
    return product if isinstance(product, np.ndarray) else np.asarray(product.toarray())
