"""scikit-learn's classifiers of single rows: they see neither unlabelled rows nor a graph."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from edgewise.baselines.base import (
    COUNT,
    POSITIVE,
    Baseline,
    Learner,
    SearchSpace,
    kernel_gamma,
)
from edgewise.problem import Problem, Split

_C_GRID = tuple(float(10.0**e) for e in range(-3, 7))
GAMMA_GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class SupervisedBaseline(Baseline):
    """One of scikit-learn's classifiers, fitted on labelled rows; predicts any row."""

    def _learner(self, problem: Problem, seed: int) -> Learner:
        def learn(split: Split) -> NDArray[np.float64]:
            labels = problem.labels[split.train]
            # None of them can be fitted to a single class.
            lone = len(np.unique(labels)) == 1
            model = DummyClassifier() if lone else self._model(problem.features, seed)
            self.model_ = model.fit(problem.features[split.train], labels)
            return self._probabilities(problem.features)

        return learn

    @abstractmethod
    def _model(self, features: Any, seed: int) -> Any:
        """The classifier, not yet fitted."""

    def _probabilities(self, features: Any) -> NDArray[np.float64]:
        """Class probabilities; 0 for classes without a training row."""
        known = self.model_.predict_proba(features)
        probabilities = np.zeros((features.shape[0], len(self.classes_)))
        probabilities[:, self.model_.classes_] = known
        return probabilities

    def _predict_unseen(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._probabilities(features)


@dataclass(kw_only=True, eq=False, repr=False)
class LogRegClassifier(SupervisedBaseline):
    """Logistic regression on the labelled rows.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the regularisation.
    refit, random_state
        See `Baseline`.

    Examples
    --------
    >>> from edgewise.baselines import LogRegClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1]
    >>> LogRegClassifier(100.0).fit(X, y).predict([[0.3], [0.9]])
    array([0, 1])
    """

    C: float = field(default=1.0, kw_only=False)

    search_space: ClassVar[SearchSpace] = {"C": _C_GRID}
    _parameter_constraints = {**Baseline._parameter_constraints, "C": POSITIVE}  # noqa: RUF012

    def _model(self, features: Any, seed: int) -> Any:
        # Raw columns and large C need many more steps than scikit-learn's 100; each is cheap.
        return LogisticRegression(C=self.C, max_iter=10_000)


class _SupportVectorBaseline(SupervisedBaseline):
    """Probabilities are the softmax of the decision function: monotone in the margin, no more.

    Platt's scaling would have to be cross-validated within a handful of labelled rows, and can
    contradict the machine's own prediction; this cannot.
    """

    def _probabilities(self, features: Any) -> NDArray[np.float64]:
        if isinstance(self.model_, DummyClassifier):
            return super()._probabilities(features)
        decision = self.model_.decision_function(features)
        if decision.ndim == 1:
            decision = np.stack([-decision, decision], axis=1)
        scores = np.full((features.shape[0], len(self.classes_)), -np.inf)
        scores[:, self.model_.classes_] = decision
        probabilities: NDArray[np.float64] = softmax(scores, axis=1)
        return probabilities


@dataclass(kw_only=True, eq=False, repr=False)
class LinearSVMClassifier(_SupportVectorBaseline):
    """Linear support vector machine on the labelled rows.

    Class probabilities are the softmax of its decision function.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the regularisation.
    refit, random_state
        See `Baseline`.

    Examples
    --------
    >>> from edgewise.baselines import LinearSVMClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1]
    >>> LinearSVMClassifier(100.0).fit(X, y).predict([[0.3], [0.9]])
    array([0, 1])
    """

    C: float = field(default=1.0, kw_only=False)

    search_space: ClassVar[SearchSpace] = {"C": _C_GRID}
    _parameter_constraints = {**Baseline._parameter_constraints, "C": POSITIVE}  # noqa: RUF012

    def _model(self, features: Any, seed: int) -> Any:
        # With ties broken by the decision function, its largest entry is what SVC predicts.
        return SVC(kernel="linear", C=self.C, break_ties=True)


@dataclass(kw_only=True, eq=False, repr=False)
class RBFSVMClassifier(_SupportVectorBaseline):
    """Support vector machine with a Gaussian kernel on the labelled rows.

    Class probabilities are the softmax of its decision function.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the regularisation.
    gamma_scale : float, default=1.0
        The kernel is ``exp(-gamma |x - x'|^2)``, gamma = `gamma_scale` / (n_features Var(X)).
    refit, random_state
        See `Baseline`.

    Examples
    --------
    >>> from edgewise.baselines import RBFSVMClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1]
    >>> RBFSVMClassifier(100.0).fit(X, y).predict([[0.3], [0.9]])
    array([0, 1])
    """

    C: float = field(default=1.0, kw_only=False)
    gamma_scale: float = 1.0

    search_space: ClassVar[SearchSpace] = {"C": _C_GRID, "gamma_scale": GAMMA_GRID}
    _parameter_constraints = {  # noqa: RUF012
        **Baseline._parameter_constraints,
        "C": POSITIVE,
        "gamma_scale": POSITIVE,
    }

    def _model(self, features: Any, seed: int) -> Any:
        gamma = kernel_gamma(features, self.gamma_scale)
        return SVC(kernel="rbf", C=self.C, gamma=gamma, break_ties=True)


@dataclass(kw_only=True, eq=False, repr=False)
class RFClassifier(SupervisedBaseline):
    """Random forest on the labelled rows.

    Parameters
    ----------
    n_estimators : int, default=300
        Number of trees.
    max_features : {"sqrt", "log2"} or float, default="sqrt"
        Features that a split may choose from.
    max_depth : int or None, default=None
    refit, random_state
        See `Baseline`.

    Examples
    --------
    >>> from edgewise.baselines import RFClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1]
    >>> RFClassifier(50, refit=True, random_state=0).fit(X, y).predict([[0.3], [0.9]])
    array([0, 1])
    """

    n_estimators: int = field(default=300, kw_only=False)
    max_features: str | float = "sqrt"
    max_depth: int | None = None

    search_space: ClassVar[SearchSpace] = {
        "n_estimators": (30, 100, 300),
        "max_features": ("sqrt", "log2", 0.3),
        "max_depth": (None, 3, 10),
    }
    _parameter_constraints = {  # noqa: RUF012
        **Baseline._parameter_constraints,
        "n_estimators": COUNT,
        "max_features": RandomForestClassifier._parameter_constraints["max_features"],
        "max_depth": [*COUNT, None],
    }

    def _model(self, features: Any, seed: int) -> Any:
        return RandomForestClassifier(
            self.n_estimators,
            max_features=self.max_features,
            max_depth=self.max_depth,
            random_state=seed,
        )
