"""The page of all results: complete with any part of the records, and true to them."""

from __future__ import annotations

import json
import re

import pytest

from edgewise.experiments import plans
from edgewise.experiments.plans import GridName, Selection, equal_runs, plan, settings
from edgewise.experiments.protocol import Record, Run, criterion_of
from edgewise.experiments.results_page import _described, datasets_table, publish
from edgewise.experiments.tables import Book


def recorded(run: Run, test: float, **fields: object) -> Record:
    return Record(run, accuracies={criterion_of(run.method): 0.5, "test": test}, **fields)


@pytest.fixture
def records():
    """Wine is done for two methods, at both budgets; Cora for LDS; one run of Cancer failed."""
    selection = Selection(datasets=("wine",), methods=("logreg", "knn-lds"))
    table1 = plan("table1", selection)
    better = {"logreg": 0.80, "knn-lds": 0.90}
    done = [recorded(run, better[run.method] + run.seed / 200, seconds=2.0) for run in table1]
    steps = {"logreg": 250, "knn-lds": 300}  # the difference must vary, or there is no t-test
    done += [
        recorded(run, better[run.method] + run.seed / steps[run.method])
        for run in equal_runs(table1, done).runs
    ]
    edges = plan("edges", Selection(datasets=("cora",), methods=("lds",)))
    done += [
        recorded(run, 0.7 + run.seed / 100, expected_edges=4500.0, details={"initial_edges": 2639})
        for run in edges
    ]
    failed = Run("rbf-gcn", "cancer", settings("rbf-gcn", "cancer")[0])
    return [*done, Record(failed, status="failed", reason="MemoryError: no room")]


def test_the_page_puts_each_number_beside_the_papers(records, tmp_path):
    (tmp_path / "reasons.json").write_text(
        json.dumps({"table1": {"logreg": {"wine": "a reason that is known"}}})
    )
    published = publish("all", records, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| wine | logreg | 81.0 (0.8) | 92.1 | -11.1 | <0.001 | lower | a reason that" in page
    assert "- wine, logreg: 81.0 (0.8) against 92.1 (-11.1): a reason that is known" in page
    assert "- wine, knn-lds: 91.0 (0.8) against 97.3 (-6.3): no reason found yet" in page
    assert "- wine: learned graph (knn-lds) beat the best alternative (logreg) by" in page
    assert "- rbf-gcn on cancer, 1 runs: MemoryError: no room" in page
    assert "Of 99 published accuracies 6 have a number of ours" in page
    assert "![edges](figures/edges.png)" in page
    assert "Not drawn yet: `edgewise reproduce tau`" in page
    assert "k ∈ {10, 20}" in page
    assert "tau = 5" in page
    assert "cells that are not finished" not in page
    assert published.tables == []  # they are on the page
    assert "tau: no figure yet, as nothing is recorded" in published.missing
    assert "embeddings: no figure yet, as its trace was not made" in published.missing


def test_a_difference_is_not_told_before_all_seeds_are_there(records, tmp_path):
    few = [r for r in records if r.run.method != "logreg" or r.run.seed < 3]
    publish("all", few, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| wine | logreg | 80.5 (0.5)\\* | 92.1 |" in page
    assert "- wine, logreg:" not in page
    assert "- wine, knn-lds:" in page


def test_all_files_of_the_page_are_there_and_its_links_lead_somewhere(records, tmp_path):
    published = publish("all", records, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in published.paths}
    assert {
        "README.md",
        "tables/table1.md",
        "tables/table1-equal.csv",
        "figures/edges.svg",
    } <= names
    assert all(path.stat().st_size for path in published.paths)
    page = (tmp_path / "README.md").read_text()
    (tmp_path / "records").mkdir()
    for link in re.findall(r"\]\((?!\.\./)([^)]+)\)", page):
        assert (tmp_path / link).exists(), link


def test_an_empty_store_makes_a_page_too(tmp_path):
    publish("all", [], tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "Of 99 published accuracies 0 have a number of ours" in page
    assert "Did learning a graph help" not in page
    assert "Where ours and the paper's differ" not in page
    assert "Runs that failed" not in page


def test_the_verdict_on_learning_a_graph_waits_for_all_seeds(records, tmp_path):
    short = [r for r in records if not (r.run.labels == "equal" and r.run.seed == 4)]
    short = [r for r in short if r.run.dataset != "cora" or r.run.seed]
    publish("all", short, tmp_path)
    assert "4 of ours are of cells that are not finished" in (tmp_path / "README.md").read_text()
    assert "Did learning a graph help" not in (tmp_path / "README.md").read_text()


def test_the_page_is_the_same_again(records, tmp_path):
    publish("all", records, tmp_path)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    publish("all", records[::-1], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == first


@pytest.mark.parametrize(
    ("what", "labels", "names"),
    [
        ("table1", "paper", ["table1", "table1-beside-paper"]),
        ("edges", "equal", ["edges", "edges-beside-paper", "edges-equal"]),
        ("equal", "paper", ["table1-equal", "edges-equal", "random-splits-equal"]),
        ("datasets", "paper", ["datasets"]),
        ("embeddings", "paper", []),
    ],
)
def test_one_thing_asked_for_is_one_thing_written(what, labels, names, records, tmp_path):
    published = publish(what, records, tmp_path, labels=labels)
    assert sorted(table.name for table in published.tables) == sorted(names)
    assert not (tmp_path / "README.md").exists()


def test_statistics_are_counted_and_missing_data_said_to_be_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = {row[0]: row[1:] for row in datasets_table().rows}
    assert rows["digits"][:6] == ["1,797", "64", "10", "–", "50 / 50 / 50", "1,647"]
    assert rows["cora"][0] == "not at hand"


@pytest.mark.parametrize("grid", ["full", "reduced", "default"])
def test_the_described_grid_holds_every_setting(grid: GridName):
    for method in (*plans.EDGES_METHODS, *plans.TABLE1_METHODS):
        tried = settings(method, "cora", grid)
        text = _described(tried)
        assert "{=" not in text
        assert "{∈" not in text
        for parameters in tried:
            for name, value in parameters.items():
                assert re.search(rf"{name} (= |∈ {{[^}}]*\b){re.escape(str(value))}", text)
        assert text or grid == "default"


def test_books_of_the_page_look_at_their_own_grid(records):
    assert Book(records).entry("table1", "logreg", "wine").test
    assert not Book(records, "default").entry("table1", "logreg", "wine").test
