"""Plans: what is run, in which order, and what waits for the choice of parameters."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from edgewise.baselines import get_method, list_methods, make_method
from edgewise.experiments import paper, plans
from edgewise.experiments.plans import PLANS, Selection, equal_runs, plan, settings, stages
from edgewise.experiments.protocol import Record, Run, criterion_of


def recorded(run, accuracy=0.5, **fields):
    accuracies = {criterion_of(run.method): accuracy, "test": 0.5}
    return Record(run, accuracies=accuracies, **fields)


@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("grid", ["full", "reduced", "default"])
def test_every_run_of_every_plan_can_be_made(what, grid):
    """A misspelt parameter would be noticed after hours, as a failed run."""
    runs = plan(what, Selection(seeds=1, grid=grid))
    assert len({run.key for run in runs}) == len(runs)
    for method in {run.method for run in runs}:
        known = inspect.signature(type(make_method(method))).parameters
        names = {name for run in runs if run.method == method for name in run.parameters}
        assert names <= set(known)
    for run in {run.method: run for run in runs}.values():
        make_method(run.method, **run.parameters)


def test_table1_holds_every_row_of_the_paper_and_the_honest_rival():
    methods = {run.method for run in plan("table1", Selection(seeds=1, grid="default"))}
    assert methods == {*paper.TABLE1, "knn-lds-dense", "soft-knn-gcn"}
    assert methods | {"gcn", "gcn-rnd", "lds"} == {method.name for method in list_methods()}


def test_the_full_grid_is_the_search_space_of_the_method():
    for method in list_methods():
        tried = settings(method.name, "cora", "full")
        assert {name: set(values) for name, values in method.search_space.items()} == {
            name: {parameters[name] for parameters in tried if name in parameters}
            for name in method.search_space
        }
    # k is not varied under the Gaussian kernel, nor its width where it is not used.
    assert len(settings("lp", "cora", "full")) == (19 + 6) * 3  # rounds of propagation
    linear = [p for p in settings("manireg", "cora", "full") if p["kernel"] == "linear"]
    assert linear
    assert not any("gamma_scale" in parameters for parameters in linear)


@pytest.mark.parametrize("dataset", plans.TABLE1_DATASETS)
def test_the_reduced_grid_stays_within_the_papers_but_for_the_patience(dataset):
    for name in plans.TABLE1_METHODS:
        space = get_method(name).search_space
        for parameters in settings(name, dataset, "reduced"):
            assert parameters.pop("patience", 5) == 5
            assert all(value in space[key] for key, value in parameters.items()), (name, parameters)


def test_the_most_informative_runs_come_first():
    first, second, *_, last = stages("all", Selection(seeds=2))
    edges = plan("edges", Selection(seeds=2))
    assert first.runs[: len(edges)] == edges
    table1 = [run.dataset for run in first.runs if run.method == "logreg"]
    assert list(dict.fromkeys(table1)) == ["wine", "cancer", "digits", "cora", "citeseer"]
    assert {run.method for run in second.runs} == {"lds"}
    assert {run.dataset for run in last.runs} == {"20news", "fma20"}


def test_edges_takes_four_shares_of_both_graphs():
    runs = plan("edges")
    assert {run.variant.get("keep_edges", 1) for run in runs} == {0.25, 0.5, 0.75, 1}
    assert {run.seed for run in runs} == set(range(5))
    assert {run.dataset for run in runs} == {"cora", "citeseer"}
    assert plan("edge-counts") == [run for run in runs if run.method == "lds"]


def test_tau_is_varied_and_nothing_else_reduced():
    runs = plan("tau", Selection(seeds=1))
    assert {run.parameters["tau"] for run in runs} == {0, 1, 5, 20}
    assert len({str({**run.parameters, "tau": 0}) for run in runs}) == 1
    # The runs with the usual tau are those of `edges`: nothing is run twice.
    usual = {run.key for run in runs if run.parameters["tau"] == 5}
    assert usual <= {run.key for run in plan("edges", Selection(seeds=1))}
    assert len(plan("tau", Selection(seeds=1, grid="full"))) == 4 * 4 * 6


def test_ten_random_splits_unless_told_otherwise():
    assert {run.seed for run in plan("random-splits")} == set(range(10))
    assert {run.seed for run in plan("random-splits", Selection(seeds=3))} == {0, 1, 2}


def test_a_selection_narrows_a_plan():
    selection = Selection(seeds=2, datasets=("wine",), methods=("rf", "lp"), grid="default")
    assert plan("table1", selection) == [
        Run(method, "wine", {}, seed) for method in ("rf", "lp") for seed in (0, 1)
    ]


def test_the_papers_fma_is_run_only_where_it_is_asked_for():
    assert "fma" not in {run.dataset for run in plan("table1", Selection(seeds=1))}
    (stage,) = stages("table1", Selection(seeds=1, datasets=("fma",), methods=("rf",)))
    assert {run.dataset for run in stage.runs} == {"fma"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table2",), "there is no 'table2'"),
        (("edges", Selection(datasets=("coar",))), "no data set 'coar'"),
        (("edges", Selection(methods=("gnc",))), "no method 'gnc'; did you mean 'gcn'"),
        (("edges", Selection(methods=("rf",))), "edges holds no runs of methods rf"),
        (("tau", Selection(), "equal"), "leave out labels='equal'"),
        (("edges", Selection(grid="huge")), "there is no grid 'huge'"),
    ],
)
def test_what_cannot_be_run_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        stages(*arguments)


def test_figures_of_single_fits_need_no_runs():
    assert [stages(what) for what in (*plans.TRACES, "datasets")] == [[]] * 5


def lds_runs(seeds=2):
    return [Run("lds", "cora", {"tau": tau}, seed) for tau in (3, 10) for seed in range(seeds)]


def test_at_equal_budget_all_settings_are_tried_anew():
    tuned = [Run("rf", "wine", {"max_depth": d}, seed) for d in (3, 10) for seed in (0, 1)]
    found = equal_runs(tuned, [recorded(tuned[0], 0.9)])
    assert set(found.runs) == {dataclasses.replace(run, labels="equal") for run in tuned}
    assert found.waiting == 0


def test_equal_budget_runs_of_lds_are_those_chosen_by_early_stopping_for_each_seed():
    tuned = lds_runs()
    good = {(3, 0): 0.9, (10, 0): 0.8, (3, 1): 0.7, (10, 1): 0.8}
    records = [recorded(run, good[run.parameters["tau"], run.seed]) for run in tuned]
    found = equal_runs(tuned, records)
    assert {(run.parameters["tau"], run.seed) for run in found.runs} == {(3, 0), (10, 1)}
    assert {run.labels for run in found.runs} == {"equal"}
    assert found.waiting == 0


def test_equal_budget_runs_wait_for_all_runs_of_their_seed_and_ignore_other_records():
    tuned = lds_runs()
    others = recorded(Run("lds", "cora", {"tau": None}), 1.0)
    done = [recorded(run) for run in tuned if run.seed == 0 or run.parameters["tau"] == 3]
    found = equal_runs(tuned, [*done, others])
    assert [run.seed for run in found.runs] == [0]
    assert found.waiting == 1


def test_failed_settings_are_not_chosen_and_do_not_hold_up_others():
    tuned = lds_runs(seeds=1)
    failed = dataclasses.replace(recorded(tuned[1], 1.0), status="failed", reason="no")
    (run,) = equal_runs(tuned, [recorded(tuned[0]), failed]).runs
    assert run.parameters["tau"] == 3
    both = [dataclasses.replace(recorded(run), status="failed", reason="no") for run in tuned]
    assert equal_runs(tuned, both) == ([], 0)


def test_no_test_accuracy_enters_the_choice_of_equal_budget_runs():
    tuned = lds_runs(seeds=1)
    records = [recorded(run, accuracy) for run, accuracy in zip(tuned, (0.6, 0.7), strict=True)]
    before = equal_runs(tuned, records)
    for swapped in ((0.0, 1.0), (1.0, 0.0)):
        changed = [
            dataclasses.replace(record, accuracies={**record.accuracies, "test": test})
            for record, test in zip(records, swapped, strict=True)
        ]
        assert equal_runs(tuned, changed) == before
