from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.datasets.splits import (
    allocate,
    halve,
    random_public_sizes,
    stratified_parts,
    stratified_split,
)


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=8), data=st.data())
def test_allocate_takes_what_was_asked_and_leaves_nobody_out(counts, data):
    available = np.array(counts)
    size = data.draw(st.integers(1, int(available.sum())))
    shares = available / available.sum()
    taken = allocate(size, shares, available)
    assert taken.sum() == size
    assert (taken <= available).all()
    assert (taken >= 0).all()
    if size >= len(counts):
        assert (taken >= 1).all()
        spread = np.abs(taken - size * shares)
        # within one of the quota, but for those who gave a row to a class left out
        assert (spread[taken > 1] < len(counts)).all()
    if (size * shares >= 1).all():
        assert (np.abs(taken - size * shares) < 1).all()


def test_allocate_prefers_the_largest_remainder():
    quotas = np.array([4.6, 3.3, 2.1])
    taken = allocate(10, quotas / 10, np.array([46, 33, 21]))
    assert taken.tolist() == [5, 3, 2]


def test_allocate_passes_on_what_a_class_cannot_give():
    taken = allocate(10, np.array([0.5, 0.3, 0.2]), np.array([1, 20, 20]))
    assert taken.tolist() == [1, 5, 4]


def test_allocate_refuses_more_than_there_is():
    with pytest.raises(ValueError, match="only 3 labelled rows are left"):
        allocate(4, np.array([0.5, 0.5]), np.array([1, 2]))


@pytest.mark.parametrize("seed", range(5))
def test_parts_are_disjoint_complete_sorted_and_stratified(seed):
    labels = np.repeat([0, 1, 2, -1], [59, 71, 48, 20])
    np.random.default_rng(seed).shuffle(labels)
    parts = stratified_parts(labels, [10, 10, 10], np.random.default_rng(seed))
    everything = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(everything), np.flatnonzero(labels >= 0))
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    for part in parts[:3]:
        np.testing.assert_array_equal(np.bincount(labels[part], minlength=3), [3, 4, 3])


def test_a_class_of_two_rows_is_in_two_parts():
    labels = np.array([0] * 40 + [1] * 2)
    parts = stratified_parts(labels, [5, 5, 5], np.random.default_rng(0))
    assert [int((labels[part] == 1).sum()) for part in parts] == [1, 1, 0, 0]


def test_every_row_of_a_class_can_be_drawn():
    labels = np.repeat([0, 1], [6, 6])
    drawn = {int(row) for seed in range(60) for row in stratified_split(labels, 2, seed)[0].train}
    assert drawn == set(range(12))


def test_the_seed_is_the_split():
    labels = np.repeat([0, 1, 2], 50)
    (first, first_test), (again, again_test) = (stratified_split(labels, 10, 3) for _ in range(2))
    other, _ = stratified_split(labels, 10, 4)
    np.testing.assert_array_equal(first.train, again.train)
    np.testing.assert_array_equal(first_test, again_test)
    assert first.train.tolist() != other.train.tolist()
    assert len(first_test) == 120


def test_halves_share_the_validation_rows_and_nothing_else():
    train, validation = np.arange(140), np.arange(140, 640)
    split = halve(train, validation, seed=0)
    np.testing.assert_array_equal(split.train, train)
    assert len(split.validation) == len(split.early_stopping) == 250
    both = np.concatenate([split.validation, split.early_stopping])
    np.testing.assert_array_equal(np.sort(both), validation)
    assert (np.diff(split.validation) > 0).all()
    assert halve(train, validation, seed=1).validation.tolist() != split.validation.tolist()


def test_random_split_has_the_public_sizes():
    labels = np.random.default_rng(0).integers(-1, 4, size=3000)
    train, validation, test = random_public_sizes(labels, 7)
    assert np.bincount(labels[train]).tolist() == [20, 20, 20, 20]
    assert (len(validation), len(test)) == (500, 1000)
    together = np.concatenate([train, validation, test])
    assert len(np.unique(together)) == len(together)
    assert (labels[together] >= 0).all()
    np.testing.assert_array_equal(train, random_public_sizes(labels, 7)[0])
    assert test.tolist() != random_public_sizes(labels, 8)[2].tolist()
