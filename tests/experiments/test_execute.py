"""Executing runs: the same parts for every method, and test labels that no fit receives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from edgewise.baselines import get_method
from edgewise.datasets import load
from edgewise.estimator import LDSClassifier, TransductiveClassifier
from edgewise.experiments import execute as module
from edgewise.experiments.execute import Exam, all_classes, evaluate, execute, load_variant
from edgewise.experiments.protocol import Run, criterion_of
from edgewise.graph.pairs import Pairs
from edgewise.inputs import EdgewiseWarning
from edgewise.problem import Problem

FAST_LDS = {"patience": 1, "max_outer_iterations": 1, "max_inner_steps": 12, "n_samples": 2}


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each fit was given, in the order of the calls."""
    seen: list[dict[str, Any]] = []

    def record(kind: Any) -> None:
        original = kind.fit

        def recording(self: Any, X: Any, y: Any, graph: Any = None, **parts: Any) -> Any:
            seen.append({"y": np.array(y), "graph": graph, **parts})
            return original(self, X, y, graph, **parts)

        monkeypatch.setattr(kind, "fit", recording)

    record(TransductiveClassifier)
    if "fit" in vars(LDSClassifier):
        record(LDSClassifier)
    return seen


@pytest.fixture
def wine_problem() -> tuple[Problem, Exam]:
    wine = load("wine", seed=3)
    ring = Pairs.fold(np.arange(178), (np.arange(178) + 1) % 178, 178)
    return replace(wine, pairs=ring).to_problem(), Exam.of(wine)


@pytest.mark.parametrize("labels", ["paper", "equal"])
@pytest.mark.parametrize("method", ["logreg", "soft-knn-gcn", "knn-lds"])
def test_no_fit_receives_a_label_of_a_test_row(
    method: str, labels: Any, fits: list[dict[str, Any]]
) -> None:
    wine = load("wine", seed=3)
    execute(Run(method, "wine", FAST_LDS if "lds" in method else {}, seed=3, labels=labels))
    (given,) = fits
    assert (given["y"][wine.test] == -1).all()
    assert sorted(np.flatnonzero(given["y"] >= 0)) == sorted(
        np.concatenate([wine.split.train, wine.split.validation, wine.split.early_stopping])
    )


@pytest.mark.parametrize("method", ["logreg", "knn-gcn", "knn-lds"])
def test_other_test_labels_change_the_test_score_and_nothing_else(
    method: str, wine_problem: tuple[Problem, Exam]
) -> None:
    problem, exam = wine_problem
    run = Run(method, "wine", FAST_LDS if "lds" in method else {}, seed=3)
    wrong = Exam(exam.rows, (exam.labels + 1) % 3)
    one, other = evaluate(run, problem, exam), evaluate(run, problem, wrong)
    assert one.accuracies["test"] > 0.6 > 0.4 > other.accuracies["test"]
    for part in ("train", "validation", "early_stopping"):
        assert one.accuracies[part] == other.accuracies[part]
        assert one.losses[part] == other.losses[part]
    assert one.expected_edges == other.expected_edges


def test_every_method_is_given_the_same_parts(
    fits: list[dict[str, Any]], wine_problem: tuple[Problem, Exam]
) -> None:
    problem, exam = wine_problem
    for method in ("rf", "lp", "gcn", "knn-lds"):
        evaluate(Run(method, "wine", FAST_LDS if "lds" in method else {}), problem, exam)
    for given in fits:
        np.testing.assert_array_equal(given["validation"], problem.split.validation)
        np.testing.assert_array_equal(given["early_stopping"], problem.split.early_stopping)
        np.testing.assert_array_equal(given["y"], problem.labels)


def test_only_methods_that_need_a_graph_get_it(
    fits: list[dict[str, Any]], wine_problem: tuple[Problem, Exam]
) -> None:
    problem, exam = wine_problem
    for method in ("gcn", "gcn-rnd", "lds", "knn-gcn", "ffnn", "knn-lds"):
        evaluate(Run(method, "wine", FAST_LDS if "lds" in method else {}), problem, exam)
    assert [given["graph"] is not None for given in fits] == [True] * 3 + [False] * 3


def test_weights_of_a_graph_reach_the_method(
    fits: list[dict[str, Any]], wine_problem: tuple[Problem, Exam]
) -> None:
    problem, exam = wine_problem
    assert problem.pairs is not None
    weights = np.linspace(0.1, 1.0, problem.pairs.n_pairs)
    outcome = evaluate(Run("gcn", "wine"), replace(problem, weights=weights), exam)
    given = fits[0]["graph"].toarray()
    np.testing.assert_allclose(given[problem.pairs.rows, problem.pairs.cols], weights)
    np.testing.assert_array_equal(given, given.T)
    assert outcome.details["initial_edges"] == 178


@pytest.mark.parametrize("method", ["logreg", "knn-gcn", "knn-lds"])
def test_the_score_that_chooses_is_the_same_at_both_budgets_for_lds_alone(method: str) -> None:
    parameters = FAST_LDS if "lds" in method else {}
    paper = execute(Run(method, "wine", parameters, labels="paper"))
    equal = execute(Run(method, "wine", parameters, labels="equal"))
    part = criterion_of(method)
    assert (paper.losses[part] == equal.losses[part]) is ("lds" in method)
    assert (paper.details["labels_fitted"], equal.details["labels_fitted"]) == (10, 30)
    # The final fit is another one.
    assert paper.losses["test"] != equal.losses["test"]


def test_at_equal_budget_a_setting_is_judged_with_the_validation_rows_learned_from(
    wine_problem: tuple[Problem, Exam],
) -> None:
    problem, exam = wine_problem
    outcome = evaluate(Run("logreg", "wine", {"C": 100.0}, seed=3, labels="equal"), problem, exam)
    split = problem.split
    model = LogisticRegression(C=100.0, max_iter=1000)
    train = np.union1d(split.train, split.validation)
    model.fit(problem.features[train], problem.labels[train])
    held_out = split.early_stopping
    right = model.predict(problem.features[held_out]) == problem.labels[held_out]
    assert outcome.accuracies["validation"] == right.mean()


def test_where_the_final_fit_saw_the_stopping_rows_no_score_on_them_is_claimed() -> None:
    assert "early_stopping" in execute(Run("rf", "wine")).accuracies
    assert "early_stopping" not in execute(Run("rf", "wine", labels="equal")).accuracies


def test_scores_are_what_they_say(wine_problem: tuple[Problem, Exam]) -> None:
    problem, exam = wine_problem
    outcome = evaluate(Run("logreg", "wine", {"C": 100.0}, seed=3), problem, exam)
    model = get_method("logreg").factory(C=100.0)
    model.fit(
        problem.features,
        problem.labels,
        validation=problem.split.validation,
        early_stopping=problem.split.early_stopping,
    )
    right = model.transduction_[exam.rows] == exam.labels
    assert outcome.accuracies["test"] == right.mean()
    held_out = np.union1d(problem.split.validation, problem.split.early_stopping)
    right = model.transduction_[held_out] == problem.labels[held_out]
    assert outcome.accuracies["validation"] == right.mean()
    assert outcome.expected_edges is None
    assert "initial_edges" not in outcome.details


def test_every_graph_has_its_edges_counted() -> None:
    outcome = execute(Run("dense-gcn", "wine", {"max_steps": 2}))
    assert outcome.details["initial_edges"] == 178 * 177 / 2


def test_lds_reports_its_edges_and_its_effort() -> None:
    outcome = execute(Run("knn-lds", "wine", {"k": 5, **FAST_LDS}))
    assert outcome.expected_edges is not None
    assert outcome.expected_edges > 100
    details = outcome.details
    assert details["iterations"] == details["best_iteration"] == 1
    assert details["inner_steps"] == 12
    assert details["outer_updates"] == 2
    assert 178 * 5 / 2 <= details["initial_edges"] <= 178 * 5


def test_an_interrupted_fit_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """LDS itself would return the best model so far, and the run would count as done."""
    finished = 0

    def interrupt(self: Any, edges: Any, progress: Any) -> None:
        nonlocal finished
        kept(self, edges, progress)
        finished += 1
        raise KeyboardInterrupt

    kept = module._Watch.after_iteration
    monkeypatch.setattr(module._Watch, "after_iteration", interrupt)
    with pytest.warns(EdgewiseWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        execute(Run("knn-lds", "wine", {**FAST_LDS, "max_outer_iterations": 5}))
    assert finished == 1


def test_a_class_without_visible_labels_gets_probability_zero(
    wine_problem: tuple[Problem, Exam],
) -> None:
    problem, exam = wine_problem
    masked = np.where(problem.labels == 1, -1, problem.labels)
    split = problem.split
    kept = [rows[masked[rows] >= 0] for rows in (split.train, split.validation)]
    rest = split.early_stopping[masked[split.early_stopping] >= 0]
    smaller = replace(problem, labels=masked, split=type(split)(*kept, rest))
    outcome = evaluate(Run("logreg", "wine"), smaller, exam)
    share_of_class_1 = (exam.labels == 1).mean()
    assert 0.4 < outcome.accuracies["test"] <= 1 - share_of_class_1
    model = get_method("logreg").factory().fit(problem.features, masked)
    assert (all_classes(model, 3)[:, 1] == 0).all()


def test_decided_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="'refit' is no parameter of a run: the label budget"):
        execute(Run("rf", "wine", {"refit": True}))
    with pytest.raises(ValueError, match=r"'random_state'.*the seed"):
        execute(Run("rf", "wine", {"random_state": 1}))


def test_variants_of_citation_graphs(data_folder: object) -> None:
    whole = load_variant("cora", 0, {})
    half = load_variant("cora", 0, {"keep_edges": 0.5})
    again = load_variant("cora", 0, {"keep_edges": 0.5})
    other = load_variant("cora", 1, {"keep_edges": 0.5})
    assert whole.pairs is not None
    assert half.pairs is not None
    assert half.pairs.n_pairs == round(whole.pairs.n_pairs / 2)
    np.testing.assert_array_equal(half.pairs.rows, again.pairs.rows)  # type: ignore[union-attr]
    assert (half.pairs.cols != other.pairs.cols).any()  # type: ignore[union-attr]
    np.testing.assert_array_equal(half.test, whole.test)
    random = load_variant("cora", 4, {"split": "random"})
    np.testing.assert_array_equal(random.test, load("cora", seed=4, random_split=4).test)
    numbered = load_variant("cora", 0, {"random_split": 4})
    np.testing.assert_array_equal(random.test, numbered.test)
    assert (random.test != whole.test).any()


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown variant 'keep_edge'; known are keep_edges"):
        execute(Run("rf", "wine", variant={"keep_edge": 0.5}))
    with pytest.raises(ValueError, match="must be 'public' or 'random'"):
        execute(Run("rf", "wine", variant={"split": "own"}))
