"""What all baselines share: whose labels they see, and by which score they are judged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from edgewise.estimator import TransductiveClassifier
from edgewise.problem import Problem, Split
from edgewise.train import score

#: Values to try of each tuned parameter.
SearchSpace: TypeAlias = Mapping[str, tuple[Any, ...]]
Metric: TypeAlias = Literal["euclidean", "cosine"]
#: Learns from the training rows of a split, perhaps stops on its early-stopping rows, and returns
#: class probabilities of all rows.
Learner: TypeAlias = Callable[[Split], NDArray[np.float64]]

NO_ROWS = np.empty(0, np.int64)

COUNT: list[Any] = [Interval(Integral, 1, None, closed="left")]
POSITIVE: list[Any] = [Interval(Real, 0, None, closed="neither")]
NON_NEGATIVE: list[Any] = [Interval(Real, 0, None, closed="left")]
METRICS: list[Any] = [StrOptions({"cosine", "euclidean"})]
# The paper's space for every method that needs a kNN graph.
KNN_SPACE: SearchSpace = {"k": tuple(range(2, 21)), "metric": ("euclidean", "cosine")}


# scikit-learn reads parameters from the signature of __init__. A dataclass writes just such an
# __init__, parameters of base classes included, so that shared ones are declared once.
@dataclass(kw_only=True, eq=False, repr=False)
class Baseline(TransductiveClassifier):
    """A classifier that learns no graph.

    It is fitted on the training rows. The validation and early-stopping rows, which LDS needs to
    fit and to judge its graph, are here held out together: they tell when to stop, where there is
    something to stop, and give `validation_score_`.

    Parameters
    ----------
    refit : bool, default=False
        Whether to make as much of the labels as LDS does: the validation rows are learned from
        too, the early-stopping rows alone are held out to judge that, and the final fit is on all
        labelled rows. `validation_score_` is from before the final fit.
    random_state : int, RandomState instance or None, default=None
    """

    refit: bool = False
    random_state: int | np.random.RandomState | None = None

    search_space: ClassVar[SearchSpace] = {}
    needs_graph: ClassVar[bool] = False
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        "refit": ["boolean"],
        "random_state": ["random_state"],
    }

    def _solve(self, problem: Problem, seed: int) -> NDArray[np.float64]:
        learn = self._learner(problem, seed)
        train, held_out = self._judged_by(problem.split)
        probabilities = learn(Split(train, NO_ROWS, held_out))
        self.validation_score_ = score(probabilities, problem.labels, held_out)
        if self.refit:
            probabilities = learn(Split(np.flatnonzero(problem.labels >= 0), NO_ROWS, NO_ROWS))
        return probabilities

    def _judged_by(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows to learn from, and those to judge that by."""
        if self.refit:
            return np.union1d(split.train, split.validation), split.early_stopping
        return split.train, np.union1d(split.validation, split.early_stopping)

    @abstractmethod
    def _learner(self, problem: Problem, seed: int) -> Learner:
        """What does not depend on the split is computed here, once."""


def class_frequencies(labels: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Share of each class among the labels: the guess for a row of which nothing is known."""
    shares: NDArray[np.float64] = np.bincount(labels, minlength=n_classes) / len(labels)
    return shares


def kernel_gamma(features: Any, gamma_scale: float) -> float:
    """The Gaussian kernel's gamma: `gamma_scale` / (n_features Var(X)), without unit.

    The factor is that of scikit-learn's ``gamma="scale"``. A typical pair of rows has a squared
    distance of twice n_features Var(X), if the columns have similar means.
    """
    mean = float(features.mean())
    square = float((features * features).mean())
    variance = square - mean**2
    # Of constant features nothing but rounding errors is left.
    if variance <= 1e-12 * max(square, 1e-300):
        variance = 1.0
    return gamma_scale / (int(features.shape[1]) * variance)
