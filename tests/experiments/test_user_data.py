"""A user's rows: names by content, and splits that hide what is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from edgewise.experiments.execute import execute
from edgewise.experiments.protocol import Run
from edgewise.experiments.user_data import RandomSplits, UserData


@given(
    counts=st.lists(st.integers(2, 30), min_size=2, max_size=5).filter(lambda c: sum(c) >= 12),
    unlabelled=st.integers(0, 10),
    share=st.floats(0.1, 0.5),
    seed=st.integers(0, 1000),
)
def test_every_label_has_one_role_and_the_judged_ones_are_hidden(
    counts: list[int], unlabelled: int, share: float, seed: int
) -> None:
    y = np.repeat([*range(len(counts)), -1], [*counts, unlabelled])
    data = UserData.of(np.arange(float(len(y)))[:, None], y)
    problem, exam = data.divide(seed, share)
    split = problem.split
    parts = [split.train, split.validation, split.early_stopping, exam.rows]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.flatnonzero(y >= 0))
    assert (problem.labels[exam.rows] == -1).all()
    np.testing.assert_array_equal(exam.labels, y[exam.rows])
    seen = np.concatenate(parts[:3])
    np.testing.assert_array_equal(problem.labels[seen], y[seen])
    assert all(len(part) >= 2 for part in parts)
    sizes = [len(part) for part in parts[:3]]
    assert max(sizes) - min(sizes) <= 2
    again, same = data.divide(seed, share)
    np.testing.assert_array_equal(same.rows, exam.rows)
    np.testing.assert_array_equal(again.split.train, split.train)


def test_splits_differ_by_seed(blobs: Any) -> None:
    data = UserData.of(*blobs)
    assert (data.divide(0, 0.25)[1].rows != data.divide(1, 0.25)[1].rows).any()


def test_names_are_of_the_content(blobs: Any) -> None:
    X, y = blobs
    data = UserData.of(X, y)
    edges = [(0, 1), (1, 2)]
    others = [
        UserData.of(X + 1, y),
        UserData.of(X, np.where(np.arange(60) == 3, 1, y)),
        UserData.of(sparse.csr_array(X), y),
        UserData.of(X, y, edges),
        UserData.of(X, y, [*edges, (4, 5)]),
        replace(UserData.of(X, y, edges), weights=np.array([0.1, 0.2])),
    ]
    assert data.name == UserData.of(X.tolist(), y.tolist()).name
    assert len({data.name, *(other.name for other in others)}) == 7


def test_a_run_on_a_users_rows_is_like_one_on_a_named_data_set(blobs: Any) -> None:
    splits = RandomSplits(UserData.of(*blobs), 0.25)
    outcome = splits(Run("logreg", splits.name, seed=2))
    named = execute(Run("logreg", "wine"))
    assert set(outcome.accuracies) == set(named.accuracies)
    assert outcome.accuracies["test"] > 0.6
    assert outcome.details["labels_seen"] == 36


def test_too_few_labels_are_refused() -> None:
    X = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match=r"at least 8 labelled rows.*y has 4 of 2"):
        UserData.of(X, [0, 1, 0, 1] + [-1] * 16).divide(0, 0.25)
    with pytest.raises(ValueError, match="y has 20 of 1"):
        UserData.of(X, [0] * 20).divide(0, 0.25)
    with pytest.raises(ValueError, match=r"test_share=0\.9 leaves too few of the 20"):
        UserData.of(X, [0, 1] * 10).divide(0, 0.9)
    with pytest.raises(ValueError, match="test_share must lie between 0 and 1, got 1"):
        UserData.of(X, [0, 1] * 10).divide(0, 1.0)
