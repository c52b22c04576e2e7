"""Comparisons: a table that can be trusted, failures included, and a verdict that can be "no"."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.baselines import get_method
from edgewise.experiments import Outcome, Run, Store
from edgewise.experiments import compare as module
from edgewise.experiments.compare import compare, default_methods, learns_graph

FAST_LDS = {"patience": 1, "max_outer_iterations": 1, "max_inner_steps": 8, "n_samples": 2}


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, list[float]]], list[Run]]:
    """Replaces the fits: each method has the given test accuracy on each seed; None fails."""

    def prepare(scores: dict[str, list[float]]) -> list[Run]:
        runs: list[Run] = []

        def execute(run: Run) -> Outcome:
            runs.append(run)
            test = scores[run.method][run.seed]
            if math.isnan(test):
                raise ValueError(f"{run.method} cannot, with seed {run.seed}")
            part = "early_stopping" if "lds" in run.method else "validation"
            edges = 100.0 + run.seed if "lds" in run.method else None
            details = {"fit_seconds": 2.0 + run.seed, "initial_edges": 90}
            return Outcome({part: 0.5, "test": test}, {}, edges, details)

        monkeypatch.setattr(module, "execute", execute)
        return runs

    return prepare


def test_the_best_and_its_equals_are_marked(scored: Any) -> None:
    scored(
        {
            "knn-lds": [0.95, 0.96, 0.97, 0.96],
            "knn-gcn": [0.96, 0.95, 0.96, 0.97],
            "rf": [0.80, 0.81, 0.82, 0.80],
        }
    )
    found = compare("wine", methods=["rf", "knn-gcn", "knn-lds"], seeds=4, progress=False)
    assert [(line.method, line.best) for line in found.methods] == [
        ("rf", False),
        ("knn-gcn", True),
        ("knn-lds", True),
    ]
    assert found.verdict is not None
    assert found.verdict.outcome == "no evidence"
    assert found.verdict.rival == "knn-gcn"
    assert found.conclusion.startswith("no evidence that a learned graph helps")
    lds = found.methods[2]
    assert lds.cell == "96.0 ± 0.8"
    assert (lds.seconds, lds.initial_edges, lds.expected_edges) == (3.5, 90, 101.5)
    assert (lds.edges, found.methods[1].edges) == (101.5, 90)


@pytest.mark.parametrize(("gain", "outcome"), [(0.03, "better"), (-0.03, "worse")])
def test_the_verdict_follows_the_scores(scored: Any, gain: float, outcome: str) -> None:
    rival = [0.90, 0.91, 0.92, 0.90, 0.91]
    noise = [0.001, -0.001, 0.002, 0.0, -0.002]
    scored({"lp": rival, "knn-lds": [r + gain + n for r, n in zip(rival, noise, strict=True)]})
    found = compare("wine", methods=["lp", "knn-lds"], labels="equal", progress=False)
    assert found.verdict is not None
    assert found.verdict.outcome == outcome
    assert "at label budget equal" in found.conclusion


def test_a_failing_method_is_a_cell_with_a_reason_and_others_go_on(scored: Any) -> None:
    nan = math.nan
    scored(
        {
            "rf": [0.8, 0.9, 0.7],
            "gcn": [nan, nan, nan],
            # It would be the best, on the seeds that it survived.
            "knn-lds": [nan, 0.99, 0.99],
            "lp": [0.7, 0.9, 0.8],
        }
    )
    found = compare("wine", methods=["rf", "gcn", "knn-lds", "lp"], seeds=3, progress=False)
    by_name = {line.method: line for line in found.methods}
    assert [line.status for line in found.methods] == ["ok", "failed", "partly failed", "ok"]
    assert by_name["gcn"].cell == "failed"
    assert by_name["knn-lds"].cell == "99.0 ± 0.0 (1 of 3 failed)"
    assert not by_name["knn-lds"].best
    assert by_name["rf"].best
    assert [(f.method, f.seed) for f in found.failures] == [
        ("gcn", 0),
        ("gcn", 1),
        ("gcn", 2),
        ("knn-lds", 0),
    ]
    assert found.failures[3].reason == "ValueError: knn-lds cannot, with seed 0"
    assert found.verdict is None
    assert "no method that learns a graph finished on every seed" in found.conclusion
    assert "(left out, because of failures: gcn, knn-lds)" in found.conclusion
    assert "knn-lds, seed 0: ValueError" in str(found)


def test_without_a_rival_there_is_no_verdict(scored: Any) -> None:
    scored({"knn-lds": [0.9, 0.9]})
    found = compare("wine", methods=["knn-lds"], seeds=2, progress=False)
    assert found.verdict is None
    assert "no method that does without learning one" in found.conclusion


def test_tuning_reports_the_chosen_run_not_the_best_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(run: Run) -> Outcome:
        c = run.parameters["C"]
        accuracies = {"validation": c / 10, "test": 1 - c / 10 + run.seed / 1000}
        return Outcome(accuracies, details={"fit_seconds": 1.0})

    monkeypatch.setattr(module, "execute", execute)
    found = compare(
        "wine",
        methods=["logreg"],
        seeds=2,
        tune=True,
        search_spaces={"logreg": {"C": (1, 5, 3)}},
        progress=False,
    )
    (line,) = found.methods
    assert line.parameters == {0: {"C": 5}, 1: {"C": 5}}
    assert line.accuracies == {0: 0.5, 1: 0.501}
    assert line.settings == 3
    assert found.tuned


def test_real_methods_on_a_users_rows(blobs: Any, tmp_path: Path) -> None:
    X, y = blobs
    names = np.array(["no", "yes", None], dtype=object)[y]
    options: dict[str, Any] = {
        "methods": ["logreg", "gcn", "soft-knn-gcn", "knn-lds"],
        "seeds": (1, 2),
        "parameters": {"knn-lds": {"k": 3, **FAST_LDS}},
        "name": "blobs",
        "store": tmp_path,
        "progress": False,
    }
    found = compare(X, names, **options)
    assert [line.status for line in found.methods] == ["ok", "failed", "ok", "ok"]
    assert all(line.mean > 0.6 for line in found.methods if line.status == "ok")
    assert found.failures[0].reason.startswith("ValueError: gcn needs a graph")
    budget = found.budget
    assert (budget.train, budget.validation, budget.early_stopping, budget.test) == (12, 12, 12, 12)
    assert "36 labels" in str(budget)
    assert found.methods[3].parameters == {seed: {"k": 3, **FAST_LDS} for seed in (1, 2)}
    assert found.verdict is not None
    frame = found.to_pandas()
    assert list(frame["method"]) == options["methods"]
    assert frame["seed_1"].notna().tolist() == [True, False, True, True]
    n_records = len(Store(tmp_path))
    again = compare(X, names, **options)
    assert len(Store(tmp_path)) == n_records == 8
    assert str(again) == str(found)


def test_a_users_graph_reaches_the_methods(blobs: Any) -> None:
    X, y = blobs
    graph = [(row, row + 1) for row in range(59) if row != 29]
    found = compare(X, y, graph, methods=["gcn"], seeds=1, progress=False)
    (line,) = found.methods
    assert line.status == "ok"
    assert line.edges == 58
    assert line.std != line.std  # one seed has no deviation
    assert "±" not in line.cell


def test_two_processes_find_the_same(blobs: Any) -> None:
    X, y = blobs
    found = [
        compare(X, y, methods=["logreg", "lp"], seeds=2, jobs=jobs, progress=False)
        for jobs in (1, 2)
    ]
    assert str(found[0]) == str(found[1])


def test_defaults_hold_the_honest_rival_and_fit_the_data() -> None:
    for has_graph in (False, True):
        chosen = default_methods(has_graph)
        assert "soft-knn-gcn" in chosen
        assert any(learns_graph(method) for method in chosen)
        needs = [get_method(method).needs_graph for method in chosen]
        assert any(needs) == has_graph


def test_the_budget_says_who_used_which_labels(scored: Any) -> None:
    scored({"rf": [0.9]})
    paper = str(compare("wine", methods=["rf"], seeds=1, progress=False).budget)
    assert "the same 30 labels, and is judged on 148 others" in paper
    assert "except with LDS, which also fits its edges on 10 of these" in paper
    equal = str(compare("wine", methods=["rf"], seeds=1, labels="equal", progress=False).budget)
    assert "final fit of every method is on all 30" in equal


def test_mistakes_of_the_caller_end_it_before_anything_runs(scored: Any, blobs: Any) -> None:
    runs = scored({"rf": [0.9]})
    X, y = blobs
    for message, arguments, options in [
        (r"there is no method 'rff'.*'rf'", ("wine",), {"methods": ["rf", "rff"]}),
        ("there is no data set 'wien'", ("wien",), {}),
        ("methods is empty", ("wine",), {"methods": []}),
        ("seeds must be", ("wine",), {"seeds": 0}),
        ("seeds must be", ("wine",), {"seeds": [1, 1]}),
        ("'lp', which is not compared", ("wine",), {"methods": ["rf"], "parameters": {"lp": {}}}),
        ("rf has no parameter 'n'", ("wine",), {"methods": ["rf"], "parameters": {"rf": {"n": 3}}}),
        ("'k' parameter", ("wine",), {"methods": ["lp"], "parameters": {"lp": {"k": 0}}}),
        ("'refit' is no", ("wine",), {"methods": ["lp"], "parameters": {"lp": {"refit": True}}}),
        ("taken for the name of a data set", ("wine", y), {}),
        ("y is missing", (X,), {}),
        ("variant is for named data sets", (X, y), {"variant": {"keep_edges": 0.5}}),
        ("wine has none", ("wine",), {"variant": {"keep_edges": 0.5}}),
        ("labels must be 'paper' or 'equal'", ("wine",), {"labels": "all"}),
    ]:
        with pytest.raises(ValueError, match=message):
            compare(*arguments, **options, progress=False)
    with pytest.raises(TypeError, match="methods must be a list of names"):
        compare("wine", methods="rf", progress=False)
    assert runs == []
