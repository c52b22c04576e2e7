"""Choosing hyperparameters: what decides, what never does, and going on where it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgewise
from edgewise.experiments import Outcome, Record, Run, Store
from edgewise.experiments.protocol import Settings, criterion_of, strip
from edgewise.experiments.tune import (
    GridSearch,
    ModelSearch,
    Search,
    make_search,
    trials_table,
    tune,
    tune_runs,
)
from edgewise.experiments.user_data import FixedSplit, UserData
from edgewise.problem import Split

SPACE = {"C": (0.01, 1.0, 100.0)}
FAST_LDS = {"patience": 1, "max_outer_iterations": 1, "max_inner_steps": 8, "n_samples": 2}
Execute = Callable[[Run], Outcome]


def counting(execute: Execute) -> tuple[Execute, list[Run]]:
    runs: list[Run] = []

    def counted(run: Run) -> Outcome:
        runs.append(run)
        return execute(run)

    return counted, runs


fractions = st.integers(0, 10).map(lambda tenths: tenths / 10)


@given(
    scores=st.lists(st.tuples(fractions, fractions), min_size=1, max_size=6),
    tests=st.lists(fractions, min_size=12, max_size=12),
    method=st.sampled_from(["logreg", "knn-lds"]),
    budget=st.sampled_from([3, None]),
)
def test_test_accuracy_never_enters_a_choice(
    tmp_path_factory: pytest.TempPathFactory,
    scores: list[tuple[float, float]],
    tests: list[float],
    method: str,
    budget: int | None,
) -> None:
    """Whatever the test accuracies, the same settings are tried, and the same one is chosen."""
    part = "early_stopping" if method == "knn-lds" else "validation"
    space = {method: {"place": list(range(len(scores)))}}

    def chosen(test_of: list[float]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        def execute(run: Run) -> Outcome:
            place = run.parameters["place"]
            accuracy, loss = scores[place]
            test = test_of[place]
            return Outcome({part: accuracy, "test": test}, {part: loss, "test": 1 - test})

        store = Store(tmp_path_factory.mktemp("store"))
        [tuned] = tune_runs(
            [Run(method, "d")], execute, store, search_spaces=space, budget=budget, progress=False
        )
        return (
            dict(tuned.record.run.parameters),
            [dict(trial.run.parameters) for trial in tuned.trials],
        )

    assert chosen(tests) == chosen([1 - test for test in tests]) == chosen(tests[::-1])


@pytest.mark.parametrize("budget", [None, 2])
def test_the_chosen_runs_own_test_accuracy_is_reported(tmp_path: Path, budget: int | None) -> None:
    def execute(run: Run) -> Outcome:
        c = run.parameters["C"]
        return Outcome({"validation": c / 200 + run.seed / 10, "test": 1 - c / 100})

    bases = [Run("logreg", "d", seed=seed) for seed in (0, 1)]
    tuned = tune_runs(
        bases,
        execute,
        Store(tmp_path),
        search_spaces={"logreg": SPACE},
        budget=budget,
        progress=False,
    )
    assert [one.base for one in tuned] == bases
    for one in tuned:
        best = max(trial.run.parameters["C"] for trial in one.trials)
        assert one.record.run.parameters["C"] == best
        assert one.record.accuracies["test"] == 1 - best / 100


@pytest.mark.parametrize(
    ("method", "tried"),
    [("logreg", ["equal"] * 3), ("knn-lds", ["paper"] * 3 + ["equal"])],
)
def test_at_budget_equal_settings_are_tried_there_except_those_of_lds(
    tmp_path: Path, method: str, tried: list[str]
) -> None:
    execute, runs = counting(lambda run: Outcome({criterion_of(method): run.parameters["C"] / 200}))
    base = Run(method, "d", {"max_iter": 50}, labels="equal", variant={"keep_edges": 0.5})
    [tuned] = tune_runs(
        [base], execute, Store(tmp_path), search_spaces={method: SPACE}, progress=False
    )
    assert [run.labels for run in runs] == tried
    final = tuned.record.run
    assert final == replace(base, parameters={"max_iter": 50, "C": 100.0})
    assert len(tuned.trials) == 3


def test_fixed_parameters_are_not_searched(tmp_path: Path) -> None:
    execute, runs = counting(lambda run: Outcome({"validation": 0.5}))
    base = Run("rbf-svm", "d", {"C": 7.0})
    tune_runs([base], execute, Store(tmp_path), progress=False)
    assert {run.parameters["C"] for run in runs} == {7}
    assert len(runs) == len(edgewise.baselines.RBFSVMClassifier.search_space["gamma_scale"])


@pytest.mark.parametrize("budget", [None, 6])
def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path, budget: int | None) -> None:
    space = {"logreg": {"C": list(range(1, 10))}}

    def good(run: Run) -> Outcome:
        return Outcome({"validation": 1 / run.parameters["C"]})

    def search(execute: Execute, folder: Path) -> list[Record]:
        [tuned] = tune_runs(
            [Run("logreg", "d")],
            execute,
            Store(folder),
            search_spaces=space,
            budget=budget,
            progress=False,
        )
        return list(tuned.trials)

    whole, all_runs = counting(good)
    expected = [trial.run for trial in search(whole, tmp_path / "whole")]

    calls = 0

    def interrupted(run: Run) -> Outcome:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return good(run)

    with pytest.raises(KeyboardInterrupt):
        search(interrupted, tmp_path / "cut")
    rest, rest_runs = counting(good)
    assert [trial.run for trial in search(rest, tmp_path / "cut")] == expected
    assert len(rest_runs) == len(all_runs) - 4
    nothing, no_runs = counting(good)
    search(nothing, tmp_path / "cut")
    assert no_runs == []


@pytest.mark.parametrize("budget", [None, 4])
def test_failed_settings_are_passed_over(tmp_path: Path, budget: int | None) -> None:
    def execute(run: Run) -> Outcome:
        if run.parameters["C"] % 2:
            raise ValueError("odd")
        return Outcome({"validation": 0.1 * run.parameters["C"]})

    [tuned] = tune_runs(
        [Run("logreg", "d")],
        execute,
        Store(tmp_path),
        search_spaces={"logreg": {"C": [1, 2, 3, 4, 5]}},
        budget=budget,
        progress=False,
    )
    assert tuned.record.status == "ok"
    assert {trial.status for trial in tuned.trials} == {"ok", "failed"}


def test_where_all_settings_fail_the_result_is_a_failed_record(tmp_path: Path) -> None:
    def fail(run: Run) -> Outcome:
        raise ValueError("never")

    execute, runs = counting(fail)
    [tuned] = tune_runs(
        [Run("logreg", "d", labels="equal")],
        execute,
        Store(tmp_path),
        search_spaces={"logreg": SPACE},
        progress=False,
    )
    assert tuned.record.status == "failed"
    assert tuned.record.reason == "ValueError: never"
    assert len(runs) == 3


# ------------------------------------------------------------------------------------ searches


def drive(search: Search, value: Callable[[Settings], float | None]) -> list[Settings]:
    """Run a search to its end; returns the settings tried."""
    tried: list[Settings] = []
    while batch := search.ask():
        tried += batch
        results = {}
        for settings in batch:
            accuracy = value(settings)
            record = Record(Run("logreg", "d", settings), accuracies={"validation": accuracy})
            results[settings] = None if accuracy is None else strip(record)
        search.tell(results)
    return tried


def test_a_grid_has_all_combinations_once() -> None:
    tried = drive(GridSearch({"a": (1, 2, 3), "b": ("x", None)}), lambda s: 0.5)
    assert {(s["a"], s["b"]) for s in tried} == {(a, b) for a in (1, 2, 3) for b in ("x", None)}
    assert len(tried) == 6


def test_an_empty_space_has_one_setting() -> None:
    assert [dict(settings) for settings in drive(GridSearch({}), lambda s: 0.5)] == [{}]


def test_optuna_tries_different_settings_within_its_budget() -> None:
    space = {"a": tuple(range(40)), "b": ("x", "y", None, True)}
    tried = drive(make_search(space, budget=20, seed=1), lambda s: s["a"] / 40)
    assert len(tried) == len(set(tried)) == 20
    assert tried == drive(make_search(space, budget=20, seed=1), lambda s: s["a"] / 40)
    assert tried != drive(make_search(space, budget=20, seed=2), lambda s: s["a"] / 40)


def test_optuna_learns_from_what_it_is_told() -> None:
    space = {"a": tuple(range(1000))}
    tried = [s["a"] for s in drive(ModelSearch(space, 60, 0), lambda s: s["a"] / 1000)]
    assert np.mean(tried[-20:]) > np.mean(tried[:10]) + 200
    tried = [s["a"] for s in drive(ModelSearch(space, 60, 0), lambda s: 1 - s["a"] / 1000)]
    assert np.mean(tried[-20:]) < np.mean(tried[:10]) - 200


def test_optuna_survives_failures() -> None:
    tried = drive(ModelSearch({"a": tuple(range(100))}, 20, 0), lambda s: None)
    assert len(tried) == 20


def test_optuna_ends_where_nothing_new_is_left() -> None:
    tried = drive(ModelSearch({"a": (1, 2, 3)}, 50, 0), lambda s: 0.5)
    assert {s["a"] for s in tried} <= {1, 2, 3}
    assert len(tried) == len(set(tried))


def test_bad_search_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="search space of 'k' must be a list of values"):
        make_search({"k": "cosine"})
    with pytest.raises(ValueError, match="search space of 'k' must be a list"):
        make_search({"k": ()})
    with pytest.raises(ValueError, match="budget must be a positive number"):
        make_search({"k": (1,)}, budget=0)


# ---------------------------------------------------------------------------------------- tune


def test_tune_returns_a_fitted_estimator_and_all_trials(blobs: Any) -> None:
    X, y = blobs
    tuned = tune("logreg", X, y, search_space=SPACE, progress=False)
    assert tuned.best_params_["C"] in SPACE["C"]
    assert tuned.best_estimator_.get_params()["C"] == tuned.best_params_["C"]
    assert tuned.criterion_ == "validation"
    assert tuned.best_score_ == tuned.best_estimator_.validation_score_.accuracy
    assert len(tuned.trials) == 3
    assert tuned.trials["accuracy"].is_monotonic_decreasing
    assert dict(tuned.trials.iloc[0][["C"]]) == tuned.best_params_
    assert (tuned.trials["status"] == "ok").all()
    assert "best of 3 settings" in str(tuned)


def test_tune_chooses_the_lds_family_by_early_stopping(blobs: Any) -> None:
    X, y = blobs
    tuned = tune("knn-lds", X, y, search_space={"k": (3, 5)}, parameters=FAST_LDS, progress=False)
    assert tuned.criterion_ == "early_stopping"
    assert tuned.best_params_ == {**FAST_LDS, "k": tuned.best_params_["k"]}
    assert tuned.best_score_ == tuned.best_estimator_.validation_score_.accuracy


def test_tune_accepts_given_parts_names_of_classes_and_a_graph(blobs: Any) -> None:
    X, y = blobs
    names = np.array(["no", "yes", ""], dtype=object)[y]
    labelled = np.flatnonzero(y >= 0)
    validation, stopping = labelled[::4], labelled[1::4]
    edges = [(row, row + 1) for row in range(59)]
    tuned = tune(
        "gcn",
        X,
        names,
        edges,
        validation=validation,
        early_stopping=stopping,
        labels="equal",
        search_space={"learning_rate": (0.01, 0.02)},
        progress=False,
    )
    np.testing.assert_array_equal(tuned.split_.validation, validation)
    assert set(tuned.best_estimator_.predict(X)) == {"no", "yes"}
    assert tuned.best_estimator_.get_params()["refit"] is True


def test_tune_resumes_from_a_folder_but_not_with_other_data(
    blobs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs
    calls = 0
    original = FixedSplit.__call__

    def counted(self: FixedSplit, run: Run) -> Outcome:
        nonlocal calls
        calls += 1
        return original(self, run)

    monkeypatch.setattr(FixedSplit, "__call__", counted)

    def search(X: Any, y: Any, **options: Any) -> Any:
        return tune("logreg", X, y, search_space=SPACE, store=tmp_path, progress=False, **options)

    first = search(X, y)
    assert calls == 3
    again = search(X, y)
    assert calls == 3
    assert first.best_params_ == again.best_params_
    search(X + 1.0, y)
    assert calls == 6
    search(X, np.where(np.arange(60) == 7, 1, y))
    assert calls == 9
    search(X, y, validation=np.flatnonzero(y >= 0)[::3])
    assert calls == 12


def test_tune_in_two_processes_finds_the_same(blobs: Any) -> None:
    X, y = blobs
    one = tune("logreg", X, y, search_space=SPACE, progress=False)
    two = tune("logreg", X, y, search_space=SPACE, progress=False, jobs=2)
    assert one.best_params_ == two.best_params_
    columns = ["C", "accuracy", "loss"]
    assert one.trials[columns].equals(two.trials[columns])


def test_tune_says_why_everything_failed(blobs: Any) -> None:
    X, y = blobs
    with pytest.raises(ValueError, match=r"gcn failed with all 2 settings.*gcn needs a graph"):
        tune("gcn", X, y, search_space={"learning_rate": (0.01, 0.02)}, progress=False)


def test_equal_trials_stand_in_a_fixed_order() -> None:
    def record(c: float, loss: float, status: Any = "ok") -> Record:
        return Record(
            Run("logreg", "d", {"C": c}),
            status=status,
            accuracies={"validation": 0.5},
            losses={"validation": loss},
        )

    records = [record(1, 0.3), record(2, 0.2), record(3, 0.1, "failed"), record(4, float("nan"))]
    for order in (records, records[::-1]):
        assert list(trials_table(order)["C"]) == [2, 1, 4, 3]


def test_a_fixed_split_hides_all_other_labels(blobs: Any) -> None:
    X, y = blobs
    data = UserData.of(X, y)
    labelled = np.flatnonzero(y >= 0)
    split = Split(labelled[:20], labelled[20:30], labelled[30:40])
    problem = data.problem(split)
    np.testing.assert_array_equal(np.flatnonzero(problem.labels >= 0), labelled[:40])
    assert FixedSplit(data, split).name != FixedSplit(data, Split(*[labelled[:9]] * 3)).name
