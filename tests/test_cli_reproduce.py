"""``edgewise reproduce``: runs what is missing, tells how far it is, writes what was asked for."""

from __future__ import annotations

import csv

import pytest

from edgewise.cli import main
from edgewise.experiments import execute as execution
from edgewise.experiments import plans, traces
from edgewise.experiments.protocol import Outcome
from edgewise.experiments.store import Store

LOGREG = ("table1", "--datasets", "wine", "--methods", "logreg")


@pytest.fixture
def reproduce(capsys, tmp_path):
    """Run the command on a result folder of its own; returns code, stdout and stderr."""

    def reproduce(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *arguments, "--results", str(tmp_path / "results")])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    reproduce.folder = tmp_path / "results"
    return reproduce


@pytest.fixture
def executed(monkeypatch):
    """Stand in for the execution of runs, and note them."""
    runs = []

    def execute(run):
        runs.append(run)
        if run.parameters.get("C") == 0.01 and run.labels == "paper":
            raise ValueError("C is too small for this test")
        accuracies = {"validation": 0.5, "early_stopping": 0.5, "test": 0.8 + run.seed / 100}
        return Outcome(accuracies, details={"initial_edges": 1})

    monkeypatch.setattr(execution, "execute", execute)
    return runs


def test_wine_from_nothing_to_the_table(reproduce):
    """Once for real, with nothing replaced."""
    code, out, err = reproduce(*LOGREG, "--seeds", "2", "--grid", "default")
    assert code == 0, err
    assert "2 runs computed, 0 were there, 0 failed" in err
    with (reproduce.folder / "tables" / "table1.csv").open() as file:
        lines = {(line["method"], line["dataset"]): line for line in csv.DictReader(file)}
    line = lines["logreg", "wine"]
    tests = [record.accuracies["test"] for record in Store(reproduce.folder / "records")]
    assert float(line["test"]) == pytest.approx(50 * sum(tests), abs=0.05)
    assert line["seeds"] == "2"
    assert "| logreg | **" in out


def test_only_what_is_missing_is_run(reproduce, executed):
    reproduce(*LOGREG, "--seeds", "1")
    assert len(executed) == 5
    code, _, err = reproduce(*LOGREG, "--seeds", "2")
    assert code == 0
    assert len(executed) == 10
    assert {run.seed for run in executed[5:]} == {1}
    assert "5 runs computed, 5 were there" in err


def test_failures_are_counted_explained_and_repeated_on_demand(reproduce, executed):
    code, _, err = reproduce(*LOGREG, "--seeds", "1")
    assert code == 0
    assert "1 x ValueError: C is too small for this test" in err
    reproduce(*LOGREG, "--seeds", "1")
    assert len(executed) == 5
    reproduce(*LOGREG, "--seeds", "1", "--retry-failed")
    assert len(executed) == 6


def test_status_counts_and_runs_nothing(reproduce, executed):
    reproduce(*LOGREG, "--seeds", "1")
    code, out, _ = reproduce(*LOGREG, "--status", "--labels", "equal")
    assert code == 0
    assert len(executed) == 5
    # Five settings, five seeds, two budgets; at the paper's, seed 0 is there, and one run failed.
    assert "4/50" in out


def test_status_names_the_runs_of_lds_that_wait_for_a_choice(reproduce, executed):
    code, out, _ = reproduce(
        *("edges", "--datasets", "cora", "--methods", "lds", "--seeds", "1"),
        *("--status", "--labels", "equal"),
    )
    assert code == 0
    assert executed == []
    assert "4 more runs at equal label budget are not counted" in out


def test_tables_only_runs_nothing(reproduce, executed):
    code, out, _ = reproduce("edges", "--tables-only")
    assert code == 0
    assert executed == []
    assert "not run" in out
    assert (reproduce.folder / "tables" / "edges.md").exists()


def test_equal_labels_tries_all_settings_anew(reproduce, executed):
    code, out, err = reproduce(*LOGREG, "--seeds", "1", "--labels", "equal")
    assert code == 0, err
    assert [run.labels for run in executed] == ["paper"] * 5 + ["equal"] * 5
    assert len({run.parameters for run in executed}) == 5
    assert "at equal label budget" in out


def test_data_that_cannot_be_had_are_left_out_and_named(reproduce, executed, monkeypatch, tmp_path):
    monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def refuse(url):
        raise OSError("no network")

    monkeypatch.setattr("edgewise.datasets.files._open_url", refuse)
    code, _, err = reproduce(
        "table1", "--datasets", "wine,cora", "--methods", "logreg", "--seeds", "1"
    )
    assert code == 0
    assert {run.dataset for run in executed} == {"wine"}
    assert "leaving out cora" in err


def test_a_trace_is_fitted_once_and_drawn_from_its_file(reproduce, monkeypatch):
    fitted = []

    def make():
        fitted.append(1)
        panel = {"method": "knn-lds", "test_accuracy": 0.5, "points": [[0, 0], [1, 1]]}
        return {"embeddings": {"labels": [0, 1], "classes": ["0", "1"], "panels": [panel]}}

    monkeypatch.setattr(traces, "MAKERS", {"embeddings": make})
    code, _, err = reproduce("embeddings", "--tables-only")
    assert code == 0
    assert "embeddings: no figure yet" in err
    for _ in range(2):
        assert reproduce("embeddings")[0] == 0
    assert len(fitted) == 1
    assert (reproduce.folder / "figures" / "embeddings.png").stat().st_size > 1000


def test_datasets_are_counted(reproduce):
    code, out, _ = reproduce("datasets")
    assert code == 0
    assert "| wine | 178 | 13 | 3 |" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table9",), "'table9'"),
        (("edges", "--methods", "gnc"), "did you mean 'gcn'"),
        (("edges", "--datasets", "wine"), "edges holds no runs"),
        (("tau", "--labels", "equal"), "leave out labels='equal'"),
        (("edges", "--jobs", "0"), "0 is neither a number of processes nor -1"),
    ],
)
def test_errors_are_one_line(reproduce, arguments, message):
    code, out, err = reproduce(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def test_everything_that_can_be_asked_for_has_a_name_on_the_command_line():
    from edgewise.cli.reproduce import What

    assert {what.value for what in What} == set(plans.EVERYTHING)
