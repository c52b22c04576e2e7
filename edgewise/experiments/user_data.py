"""The user's own table in place of a named data set: the same runs, the same separation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.datasets.splits import stratified_parts
from edgewise.experiments.execute import Exam, evaluate
from edgewise.experiments.protocol import Outcome, Run
from edgewise.graph.pairs import Pairs
from edgewise.inputs import adjacency_pairs, check_features, encode_labels
from edgewise.problem import Problem, Split

_LEAST_LABELS = 8  # two rows for each of the four parts


@dataclass(frozen=True, eq=False)
class UserData:
    """Features, partly known labels, and perhaps a graph, checked and encoded.

    Attributes
    ----------
    features : ndarray or scipy CSR array
    codes : ndarray of int64, class numbers; -1 where the label is unknown
    classes : ndarray
    pairs, weights : the given graph; None without one
    """

    features: Any
    codes: NDArray[np.int64]
    classes: NDArray[Any]
    pairs: Pairs | None = None
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, X: Any, y: Any, graph: Any = None) -> UserData:
        """Check what a user gives; see `LDSClassifier.fit` for what that may be.

        Examples
        --------
        >>> UserData.of([[0.0], [1.0], [2.0]], ["a", "b", ""]).codes
        array([ 0,  1, -1])
        """
        features = check_features(X)
        codes, classes = encode_labels(y, features.shape[0])
        pairs, weights = (
            (None, None) if graph is None else adjacency_pairs(graph, features.shape[0])
        )
        return cls(features, codes, classes, pairs, weights)

    @cached_property
    def name(self) -> str:
        """A name for the content: other data never get the stored results of these."""
        digest = hashlib.sha256()
        sparse = not isinstance(self.features, np.ndarray)
        parts = ("indptr", "indices", "data") if sparse else ()
        arrays = [getattr(self.features, part) for part in parts] or [self.features]
        arrays += [self.codes, *(self.pairs or ())]
        arrays += [] if self.weights is None else [self.weights]
        for array in arrays:
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return f"table-{digest.hexdigest()[:12]}"

    def problem(self, split: Split) -> Problem:
        """What a method is given: the labels of the split's rows, and no others."""
        seen = np.concatenate([split.train, split.validation, split.early_stopping])
        masked = np.full_like(self.codes, -1)
        masked[seen] = self.codes[seen]
        return Problem(self.features, masked, self.classes, split, self.pairs, self.weights)

    def divide(self, seed: int, test_share: float) -> tuple[Problem, Exam]:
        """Hold out some labelled rows, and share out the others: three equal parts, stratified.

        Examples
        --------
        >>> data = UserData.of(np.arange(20.0)[:, None], [0, 1] * 8 + [-1] * 4)
        >>> problem, exam = data.divide(seed=0, test_share=0.25)
        >>> len(exam.rows), len(problem.split.train), len(problem.split.validation)
        (4, 4, 4)
        """
        self.check_divisible(test_share)
        known = int((self.codes >= 0).sum())
        n_test = max(round(test_share * known), 2)
        third = (known - n_test) // 3
        # The last part is what is left over, so that every label has a role.
        test, validation, early_stopping, train = stratified_parts(
            self.codes, [n_test, third, third], np.random.default_rng(seed)
        )
        problem = self.problem(Split(train, validation, early_stopping))
        return problem, Exam(test, self.codes[test])

    def check_divisible(self, test_share: float) -> None:
        """Raise an error that says why, where the labels do not suffice for a comparison."""
        if not 0 < test_share < 1:
            raise ValueError(f"test_share must lie between 0 and 1, got {test_share}")
        known = int((self.codes >= 0).sum())
        if known < _LEAST_LABELS or len(self.classes) < 2:
            raise ValueError(
                f"a comparison needs at least {_LEAST_LABELS} labelled rows of two classes or "
                f"more, but y has {known} of {len(self.classes)}; label more rows"
            )
        if known - max(round(test_share * known), 2) < 6:
            raise ValueError(
                f"test_share={test_share} leaves too few of the {known} labelled rows to learn "
                "from: choose a smaller share, or label more rows"
            )


@dataclass(frozen=True)
class FixedSplit:
    """Executes runs on a table whose labelled rows have their roles already; nothing is judged."""

    data: UserData
    split: Split

    @property
    def name(self) -> str:
        """A name for the data and the roles of their rows."""
        digest = hashlib.sha256()
        for rows in (self.split.train, self.split.validation, self.split.early_stopping):
            digest.update(f"{len(rows)}".encode() + rows.tobytes())
        return f"{self.data.name}-{digest.hexdigest()[:8]}"

    def __call__(self, run: Run) -> Outcome:
        return evaluate(run, self.data.problem(self.split), None)


@dataclass(frozen=True)
class RandomSplits:
    """Executes runs on a table whose labelled rows get their roles from the run's seed."""

    data: UserData
    test_share: float

    @property
    def name(self) -> str:
        """A name for the data and the way they are divided."""
        return f"{self.data.name}-test{self.test_share:g}"

    def __call__(self, run: Run) -> Outcome:
        problem, exam = self.data.divide(run.seed, self.test_share)
        return evaluate(run, problem, exam)
