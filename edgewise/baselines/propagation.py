"""Label propagation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.semi_supervised import LabelPropagation
from sklearn.utils._param_validation import StrOptions

from edgewise.baselines.base import (
    COUNT,
    POSITIVE,
    Baseline,
    Learner,
    SearchSpace,
    class_frequencies,
    kernel_gamma,
)
from edgewise.memory import require_memory
from edgewise.problem import Problem, Split


@dataclass(kw_only=True, eq=False, repr=False)
class LPClassifier(Baseline):
    """Label propagation (Zhu and Ghahramani, 2002), by scikit-learn.

    Rows that no label reaches get the class frequencies of the training rows.

    Parameters
    ----------
    kernel : {"rbf", "knn"}, default="rbf"
        Gaussian kernel, of n_rows × n_rows memory, or nearest neighbours.
    k : int, default=10
        Neighbours a row, with ``kernel="knn"``.
    gamma_scale : float, default=10.0
        With ``kernel="rbf"``, which is ``exp(-gamma |x - x'|^2)``: gamma is `gamma_scale` /
        (n_features Var(X)).
    max_iter : int, default=30
        Rounds of propagation, if it does not converge before. With few labels the fixed point is
        often worse than what is known after some rounds: it drifts to the largest class.
    refit, random_state
        See `Baseline`.

    Attributes
    ----------
    n_iter_ : int
    converged_ : bool

    Examples
    --------
    >>> from edgewise.baselines import LPClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [0.3], [1.0], [1.1], [1.2]], [0, 0, 0, -1, 1, 1, 1]
    >>> LPClassifier(random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 0, 1, 1, 1])
    """

    kernel: Literal["rbf", "knn"] = field(default="rbf", kw_only=False)
    k: int = 10
    gamma_scale: float = 10.0
    max_iter: int = 30

    search_space: ClassVar[SearchSpace] = {
        "kernel": ("rbf", "knn"),
        "k": tuple(range(2, 21)),
        "gamma_scale": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
        "max_iter": (3, 30, 1000),
    }
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        **Baseline._parameter_constraints,
        "kernel": [StrOptions({"rbf", "knn"})],
        "k": COUNT,
        "gamma_scale": POSITIVE,
        "max_iter": COUNT,
    }

    def _learner(self, problem: Problem, seed: int) -> Learner:
        if self.kernel == "knn" and self.k > problem.n_nodes:
            raise ValueError(
                f"k={self.k} is too large: X has only {problem.n_nodes} rows. Choose a smaller k."
            )
        if self.kernel == "rbf":
            require_memory(
                2 * 8 * problem.n_nodes**2,  # scikit-learn divides it by its sums into a second one
                f"the Gaussian kernel of {problem.n_nodes} rows",
                "Use kernel='knn', which is linear in the rows.",
            )

        def learn(split: Split) -> NDArray[np.float64]:
            known = np.full_like(problem.labels, -1)
            known[split.train] = problem.labels[split.train]
            model = LabelPropagation(
                kernel=self.kernel,
                n_neighbors=self.k,
                gamma=kernel_gamma(problem.features, self.gamma_scale),
                max_iter=self.max_iter,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # told by converged_
                model.fit(problem.features, known)
            self.n_iter_ = max(1, model.n_iter_)
            self.converged_ = model.n_iter_ < self.max_iter
            return _completed(model, problem, split)

        return learn


def _completed(model: Any, problem: Problem, split: Split) -> NDArray[np.float64]:
    """The propagated distributions, and the prior where nothing arrived."""
    probabilities = np.zeros((problem.n_nodes, problem.n_classes))
    probabilities[:, model.classes_] = np.nan_to_num(model.label_distributions_)
    total = probabilities.sum(axis=1, keepdims=True)
    prior = class_frequencies(problem.labels[split.train], problem.n_classes)
    return np.where(total > 0, probabilities / np.where(total > 0, total, 1.0), prior)
