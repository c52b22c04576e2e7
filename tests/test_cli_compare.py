"""``edgewise compare`` and ``edgewise methods``: what they print, and what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from edgewise.baselines import list_methods
from edgewise.cli import main

FAST = [
    f"--set=knn-lds.{setting}"
    for setting in ("k=3", "patience=1", "max_outer_iterations=1", "max_inner_steps=8")
]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A CSV file of 60 rows, 45 of them with one of two classes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        np.concatenate([rng.normal(-1, 1, (30, 3)), rng.normal(1, 1, (30, 3))]),
        columns=["height", "weight", "width"],
    )
    frame["kind"] = np.repeat(["cat", "dog"], 30)
    frame.loc[::4, "kind"] = ""
    frame["answer"] = np.repeat([0.1, 0.9], 30) + rng.normal(0, 0.01, 60)
    file = tmp_path / "pets.csv"
    frame.to_csv(file, index=False)
    return file


def test_methods_are_listed(run: Callable[..., Ended]) -> None:
    ended = run("methods")
    assert ended.code == 0
    for method in list_methods():
        line = next(li for li in ended.out.splitlines() if li.startswith(f"{method.name} "))
        assert method.description in line
        assert ", ".join(method.tuned) in line
        assert ("needed" in line) == method.needs_graph


def test_methods_as_json(run: Callable[..., Ended]) -> None:
    listed = json.loads(run("methods", "--json").out)["methods"]
    assert [entry["name"] for entry in listed] == [method.name for method in list_methods()]
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["gcn"]["needs_graph"] is True
    assert by_name["knn-gcn"]["needs_graph"] is False
    assert by_name["knn-lds"]["tuned"]["k"] == [10, 20]
    assert by_name["rf"]["tuned"]["max_depth"] == [None, 3, 10]


def test_the_table_the_budget_the_failures_and_the_verdict(run: Callable[..., Ended]) -> None:
    ended = run("compare", "wine", "--methods", "logreg, gcn,knn-lds", "--seeds", "2", *FAST)
    assert ended.code == 0
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0] == "Test accuracy on wine, mean ± sd over 2 seed(s), default parameters"
    assert any(line.split()[:1] == ["gcn"] and "failed" in line for line in lines)
    assert any(line.split()[:1] == ["knn-lds"] and "→" in line for line in lines)
    assert sum("*" in line and "±" in line for line in lines) >= 1
    assert any(line.startswith("label budget 'paper': every method sees") for line in lines)
    assert sum(line.startswith("failed: gcn, seed") for line in lines) == 2
    assert "learned graph" in lines[-1]
    assert "(left out, because of failures: gcn)" in lines[-1]


def test_json_has_all_of_it(run: Callable[..., Ended], tmp_path: Path) -> None:
    ended = run(
        *("compare", "wine", "--methods", "logreg,gcn,knn-lds", "--seeds", "2"),
        *("--labels", "equal", "--json", "--out", str(tmp_path / "new"), *FAST),
    )
    assert ended.code == 0
    (line,) = ended.out.splitlines()
    found = json.loads(line)
    assert set(found) == {
        *("source", "label_budget", "seeds", "tuned", "methods"),
        *("failures", "verdict", "conclusion"),
    }
    assert (found["source"], found["seeds"], found["tuned"]) == ("wine", [0, 1], False)
    assert found["label_budget"] == {
        "labels": "equal",
        "train": 10,
        "validation": 10,
        "early_stopping": 10,
        "test": 148,
        "seen": 30,
    }
    logreg, gcn, lds = found["methods"]
    for entry in found["methods"]:
        assert set(entry) == {
            *("method", "learns_graph", "accuracies", "best", "seconds", "initial_edges"),
            *("expected_edges", "parameters", "settings", "mean", "std", "status"),
        }
    assert set(logreg["accuracies"]) == {"0", "1"}
    assert np.isclose(logreg["mean"], np.mean(list(logreg["accuracies"].values())))
    assert (gcn["mean"], gcn["status"], gcn["accuracies"]) == (None, "failed", {})
    assert lds["expected_edges"] > 0
    assert lds["parameters"]["1"]["k"] == 3
    assert [failure["seed"] for failure in found["failures"]] == [0, 1]
    verdict = found["verdict"]
    assert verdict["outcome"] in ("better", "worse", "no evidence")
    assert (verdict["learned"], verdict["rival"], verdict["seeds"]) == ("knn-lds", "logreg", 2)
    assert set(verdict["difference"]) == {"estimate", "low", "high"}
    # The folder holds the same, and what it takes to go on.
    folder = tmp_path / "new"
    assert json.loads((folder / "comparison.json").read_text()) == found
    frame = pd.read_csv(folder / "comparison.csv")
    assert list(frame["method"]) == ["logreg", "gcn", "knn-lds"]
    assert {path.stem for path in (folder / "records" / "wine").iterdir()} == set(frame["method"])


def test_called_again_it_goes_on(run: Callable[..., Ended], tmp_path: Path) -> None:
    arguments = ("compare", "wine", "--methods", "logreg", "--out", str(tmp_path))
    run(*arguments, "--seeds", "1")
    records = tmp_path / "records" / "wine" / "logreg.jsonl"
    (first,) = records.read_text().splitlines()
    ended = run(*arguments, "--seeds", "2")
    assert records.read_text().splitlines()[0] == first
    assert len(records.read_text().splitlines()) == 2
    assert "over 2 seed(s)" in ended.out


def test_tuning_says_how_many_settings(run: Callable[..., Ended]) -> None:
    ended = run("compare", "wine", "--methods", "linear-svm", "--seeds", "1", "--tune", "--json")
    (entry,) = json.loads(ended.out)["methods"]
    assert entry["settings"] == 10
    assert set(entry["parameters"]["0"]) == {"C"}
    ended = run("compare", "wine", "--methods=linear-svm", "--seeds=1", "--tune", "--budget=3")
    assert "settings tried" in ended.out
    assert "parameters chosen for each seed" in ended.out
    row = next(line for line in ended.out.splitlines() if line.strip().startswith("linear-svm"))
    assert row.split()[-1] == "3"


def test_where_all_fails_the_exit_code_says_so(run: Callable[..., Ended]) -> None:
    ended = run("compare", "wine", "--methods", "gcn", "--seeds", "1")
    assert ended.code == 1
    assert "gcn needs a graph" in ended.out


def test_a_table_from_a_file(run: Callable[..., Ended], table: Path) -> None:
    ended = run(
        *("compare", str(table), "--target", "kind", "--drop", "answer", "--json"),
        *("--methods", "logreg,lp", "--seeds", "2", "--test-share", "0.2"),
    )
    assert ended.code == 0
    assert "answer  dropped      left out as asked" in ended.err
    found = json.loads(ended.out)
    assert found["source"] == "pets.csv"
    assert found["label_budget"]["test"] == 9
    assert found["label_budget"]["seen"] == 36
    assert all(entry["mean"] > 0.6 for entry in found["methods"])


def test_a_known_graph_of_a_table(run: Callable[..., Ended], table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(table)
    frame["pet"] = [f"p{row}" for row in range(len(frame))]
    frame.to_csv(table, index=False)
    edges = pd.DataFrame({"source": frame["pet"][:30], "target": frame["pet"][30:].to_numpy()})
    edges.to_parquet(tmp_path / "edges.parquet")
    ended = run(
        *("compare", str(table), "--target=kind", "--id=pet", "--methods=gcn", "--seeds=1"),
        *("--categorical=width", f"--graph={tmp_path / 'edges.parquet'}", "--json"),
    )
    assert ended.code == 0
    (line,) = json.loads(ended.out)["methods"]
    assert (line["status"], line["initial_edges"]) == ("ok", 30)
    assert "width   categorical" in ended.err


def test_a_column_that_gives_the_answer_away_is_warned_of(
    run: Callable[..., Ended], table: Path
) -> None:
    ended = run("compare", str(table), "--target=kind", "--methods=logreg", "--seeds=1")
    assert "warning: 'answer' alone all but determines 'kind'" in ended.err


def test_mistakes_are_one_line(run: Callable[..., Ended], table: Path, tmp_path: Path) -> None:
    for message, arguments in [
        ("there is no method 'knn-gnc'; did you mean 'knn-gcn'", ["wine", "--methods=knn-gnc"]),
        ("there is no data set 'wien'", ["wien"]),
        ("--budget is about --tune", ["wine", "--budget=3"]),
        ("not of the form METHOD.PARAMETER=VALUE", ["wine", "--set=k=3"]),
        ("'rf', which is not compared", ["wine", "--methods=lp", "--set=rf.n_estimators=3"]),
        ("rf has no parameter 'trees'", ["wine", "--methods=rf", "--set=rf.trees=3"]),
        ("name the column with --target COLUMN", [str(table)]),
        ("no column 'kinds'. Did you mean 'kind'?", [str(table), "--target=kinds"]),
        ("does not exist", [str(tmp_path / "no.csv"), "--target=kind"]),
        ("--drop is about tables, and wine is a data set by name", ["wine", "--drop=x"]),
        ("keep_edges=0.5 is about a given graph", ["wine", "--keep-edges=0.5"]),
    ]:
        ended = run("compare", *arguments)
        assert ended.code == 2
        assert ended.out == ""
        assert message in ended.err
        assert ended.err.count("\n") == 1


def test_citation_graphs_take_variants(run: Callable[..., Ended], data_folder: Any) -> None:
    ended = run(
        *("compare", "cora", "--methods", "gcn", "--seeds", "1", "--json"),
        *("--keep-edges", "0.5", "--random-splits", "--set", "gcn.max_steps=3"),
    )
    (entry,) = json.loads(ended.out)["methods"]
    assert entry["initial_edges"] == 2639
    assert entry["parameters"]["0"] == {"max_steps": 3}
