from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewise.datasets import available, describe, load, statistics

SHIPPED = ("wine", "cancer", "digits")
ELSEWHERE = ("cora", "citeseer", "pubmed", "20news", "fma20")
NAMES = [*SHIPPED, *(pytest.param(name, marks=pytest.mark.data) for name in ELSEWHERE)]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def at_hand(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, shared_cache: Path
) -> str:
    """The name of a data set whose files, if it has any, are in EDGEWISE_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    if request.param in ELSEWHERE:
        request.getfixturevalue("data_folder")
    return str(request.param)


@pytest.mark.parametrize("at_hand", NAMES, indirect=True)
def test_listed_figures_are_the_real_ones(at_hand):
    listed = {line.statistics.name: line.statistics for line in describe()}
    assert statistics(load(at_hand)) == listed[at_hand]


@pytest.mark.parametrize("at_hand", NAMES, indirect=True)
def test_features_are_finite_and_roles_disjoint(at_hand):
    data = load(at_hand, seed=3)
    values = getattr(data.features, "data", data.features)
    assert data.features.dtype == np.float32
    assert np.isfinite(np.asarray(values)).all()
    roles = [data.split.train, data.split.validation, data.split.early_stopping, data.test]
    together = np.concatenate(roles)
    assert len(np.unique(together)) == len(together)
    assert (data.labels[together] >= 0).all()
    assert data.labels.max() < len(data.classes)
    for role in roles:
        assert role.dtype == np.int64
        assert np.unique(data.labels[role]).tolist() == list(range(len(data.classes)))


@pytest.mark.parametrize("at_hand", NAMES, indirect=True)
def test_no_label_of_another_row_reaches_a_method(at_hand):
    data = load(at_hand)
    problem = data.to_problem()
    seen = [problem.split.train, problem.split.validation, problem.split.early_stopping]
    visible = np.flatnonzero(problem.labels >= 0)
    np.testing.assert_array_equal(visible, np.sort(np.concatenate(seen)))
    np.testing.assert_array_equal(problem.labels[visible], data.labels[visible])
    assert (problem.labels[data.test] == -1).all()
    assert problem.pairs is data.pairs
    assert problem.n_nodes == data.n_nodes


@pytest.mark.data
def test_seed_halves_the_public_validation_rows_and_nothing_else(data_folder):
    first, second = load("citeseer", seed=0), load("citeseer", seed=1)
    np.testing.assert_array_equal(first.split.train, second.split.train)
    np.testing.assert_array_equal(first.test, second.test)
    halves = [np.union1d(d.split.validation, d.split.early_stopping) for d in (first, second)]
    np.testing.assert_array_equal(halves[0], np.arange(120, 620))
    np.testing.assert_array_equal(halves[1], halves[0])
    assert first.split.validation.tolist() != second.split.validation.tolist()


@pytest.mark.data
def test_random_split_keeps_the_sizes_and_never_tests_an_unlabelled_node(data_folder):
    public = load("citeseer")
    drawn = [load("citeseer", random_split=number) for number in (0, 1)]
    for data in drawn:
        assert statistics(data) == statistics(public)
        assert (data.labels[data.test] >= 0).all()
        assert np.bincount(data.labels[data.split.train]).tolist() == [20] * 6
        assert data.split.train.tolist() != public.split.train.tolist()
    assert drawn[0].test.tolist() != drawn[1].test.tolist()
    other_seed = load("citeseer", random_split=0, seed=5)
    np.testing.assert_array_equal(other_seed.test, drawn[0].test)
    assert other_seed.split.validation.tolist() != drawn[0].split.validation.tolist()


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="no data set 'iris'; known are wine, cancer"):
        load("iris")


def test_random_split_of_a_table_is_refused():
    with pytest.raises(ValueError, match="choose it with seed"):
        load("wine", random_split=1)


def test_describe_reads_nothing_and_tells_what_is_at_hand(folder):
    lines = describe()
    assert tuple(line.statistics.name for line in lines) == available()
    assert [line.statistics.name for line in lines if line.at_hand] == list(SHIPPED)
    empty = folder / "fma20" / "fma_small_mfccmean20.npz"
    empty.parent.mkdir()
    empty.touch()
    assert {line.statistics.name for line in describe() if line.at_hand} == {*SHIPPED, "fma20"}
