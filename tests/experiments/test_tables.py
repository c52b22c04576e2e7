"""Tables: which record stands in a cell, what is bold, what is said beside the published number."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import random

import pytest

from edgewise.experiments import plans
from edgewise.experiments.paper import Published
from edgewise.experiments.plans import Selection, equal_runs, plan
from edgewise.experiments.protocol import Record, Run, criterion_of
from edgewise.experiments.tables import (
    NOT_RUN,
    Book,
    Table,
    bold,
    collect,
    collect_equal,
    compare,
    load_reasons,
    published_for,
)


def recorded(run, test, chosen_by=0.5, **fields):
    accuracies = {criterion_of(run.method): chosen_by, "test": test}
    return Record(run, accuracies=accuracies, **fields)


def finished(method, values):
    """Records of a method whose seeds have the given test accuracies."""
    return [recorded(Run(method, "wine", seed=s), value) for s, value in enumerate(values)]


def entry_of(records, planned=None):
    (entry,) = collect(planned or [record.run for record in records], records).values()
    return entry


def test_a_cell_shows_the_record_that_validation_chose():
    runs = [Run("rf", "wine", {"max_depth": depth}, seed) for depth in (3, 10) for seed in (0, 1)]
    # depth 3 is better by validation, depth 10 by test
    records = [
        recorded(run, test=0.6 + run.parameters["max_depth"] / 100,
                 chosen_by=1 - run.parameters["max_depth"] / 100)
        for run in runs
    ]  # fmt: skip
    entry = entry_of(records)
    assert entry.test == {0: 0.63, 1: 0.63}
    assert entry.stopping == {0: 0.97, 1: 0.97}
    assert (entry.settings, entry.seeds, entry.missing) == (2, 2, 0)
    assert entry.text() == "63.0 (0.0)"


def test_test_accuracies_do_not_change_which_records_the_tables_show():
    """From the records to the table, by the very path that writes it."""
    rng = random.Random(0)
    selection = Selection(seeds=2, datasets=("wine", "cancer"), methods=("rf", "knn-lds"))
    tuned = plan("table1", selection)
    records = [recorded(run, rng.random(), rng.choice([0.7, 0.8])) for run in tuned]
    at_equal_budget = equal_runs(tuned, records).runs
    records += [recorded(run, rng.random(), rng.choice([0.7, 0.8])) for run in at_equal_budget]
    altered = [
        dataclasses.replace(
            r,
            accuracies={**r.accuracies, "test": rng.random()},
            losses={"test": rng.random()},
        )
        for r in records
    ]
    for labels in ("paper", "equal"):
        for first, second in zip(
            Book(records, labels=labels).entries("table1").values(),
            Book(altered, labels=labels).entries("table1").values(),
            strict=True,
        ):
            assert first.cell == second.cell
            assert {s: r.key for s, r in first.chosen.items()} == {
                s: r.key for s, r in second.chosen.items()
            }
    assert Book(records).table1().rows != Book(altered).table1().rows


def test_records_of_another_grid_are_left_aside():
    run, other = Run("rf", "wine", {"max_depth": 3}), Run("rf", "wine", {"max_depth": 99})
    entry = entry_of([recorded(run, 0.6), recorded(other, 0.9, chosen_by=1.0)], planned=[run])
    assert entry.test == {0: 0.6}


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([], NOT_RUN),
        (["ok"], "90.0\\*"),
        (["ok", "ok"], "90.0 (0.0)"),
        (["ok", "failed"], "90.0"),
        (["failed"], NOT_RUN),
        (["failed", "failed"], "failed"),
    ],
)
def test_a_cell_says_what_is_there(records, text):
    planned = [Run("rf", "wine", seed=seed) for seed in (0, 1)]
    made = [
        recorded(run, 0.9)
        if status == "ok"
        else Record(run, status="failed", reason="out of memory")
        for run, status in zip(planned, records, strict=False)
    ]
    entry = entry_of(made, planned)
    assert entry.text() == text
    assert entry.failures == (("out of memory",) if "failed" in records else ())


def test_bold_are_the_best_and_those_not_told_from_it():
    groups = {
        "rf": [0.90, 0.91, 0.92, 0.90, 0.91],
        "lp": [0.91, 0.90, 0.91, 0.91, 0.90],
        "knn-gcn": [0.80, 0.82, 0.81, 0.80, 0.83],
    }
    entries = {name: entry_of(finished(name, values)) for name, values in groups.items()}
    assert bold(entries) == {"rf", "lp"}
    assert entries["rf"].text(bold=True) == "**90.8 (0.8)**"


@pytest.mark.parametrize(
    ("values", "published", "word"),
    [
        ([0.93, 0.94, 0.95], Published(94.0, 1.0), "agrees"),
        ([0.93, 0.94, 0.95], Published(90.0, 0.5), "higher"),
        ([0.93, 0.94, 0.95], Published(98.0, 0.5), "lower"),
        ([0.93, 0.94, 0.95], Published(98.0), "lower"),  # deviation not at hand
        ([0.93], Published(98.0, 0.5), "not testable"),
        ([], Published(98.0), NOT_RUN),
    ],
)
def test_verdict_on_a_published_number(values, published, word):
    entry = entry_of(finished("rf", values), planned=[Run("rf", "wine", seed=s) for s in range(3)])
    assert compare(entry, published).word == word


def test_published_numbers_belong_to_the_papers_label_budget_and_cells():
    half = Run("lds", "cora", variant={"keep_edges": 0.5})
    assert published_for("edges", half.cell) == (78.98, 0.6, 5)
    assert published_for("edges", Run("lds", "cora").cell).mean == 84.08
    assert published_for("edges", Run("gcn", "cora").cell) is None
    assert published_for("edges", dataclasses.replace(half, labels="equal").cell) is None
    assert published_for("random-splits", Run("lds", "cora").cell) is None
    assert published_for("table1", Run("soft-knn-gcn", "wine").cell) is None


def wine_books(reasons=None):
    """One method on one data set, complete at the paper's budget, one seed at the equal one."""
    tuned = plan("table1", Selection(datasets=("wine",), methods=("logreg",)))
    records = [
        recorded(run, 0.80 + run.seed / 100, chosen_by=run.parameters["C"] / 1000) for run in tuned
    ]
    for run in equal_runs(tuned, records).runs:
        if run.seed == 0:
            best = run.parameters["C"] == 10
            records.append(recorded(run, 0.88 if best else 0.7, chosen_by=0.9 if best else 0.8))
    return (
        Book(records, reasons=reasons),
        Book(records, labels="equal"),
    )


def test_table1_has_the_papers_layout_and_says_what_was_not_run():
    table = wine_books()[0].table1()
    assert table.header[:3] == ["method", "wine", "cancer"]
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert rows["logreg"]["wine"] == "**82.0 (1.6)**"
    assert rows["rf"]["wine"] == NOT_RUN
    assert {row["fma"] for row in rows.values()} == {""}
    assert any("342 MB" in note for note in table.notes)
    assert not any("Not all planned" in note for note in table.notes)
    assert "Grid: reduced." in table.notes


def test_table1_at_equal_budget_is_of_settings_chosen_anew_and_marked_while_incomplete():
    table = wine_books()[1].table1()
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert table.name == "table1-equal"
    assert rows["logreg"]["wine"] == "**88.0**\\*"
    assert any("Equal label budget" in note for note in table.notes)
    line = next(r for r in table.records if (r["method"], r["dataset"]) == ("logreg", "wine"))
    assert (line["labels"], line["seeds"], line["seeds_planned"]) == ("equal", 1, 5)
    assert line["runs_missing"] == 4 * 5
    assert '"C":10}' in line["chosen"]


def test_equal_budget_before_anything_is_chosen():
    tuned = plan("table1", Selection(datasets=("wine",), methods=("logreg", "knn-lds")))
    both = collect_equal(tuned, [])
    assert {cell.labels for cell in both} == {"equal"}
    assert {entry.text() for entry in both.values()} == {NOT_RUN}
    # Of logreg every setting is missing, of LDS the chosen one of each seed.
    missing = {cell.method: entry.missing for cell, entry in both.items()}
    assert missing == {"logreg": 5 * 5, "knn-lds": 5}


def test_beside_the_paper_differences_have_their_reason():
    reasons = {"table1": {"logreg": {"wine": "a made-up reason"}}}
    book, equal = wine_books(reasons)
    tables = {table.name: table for table in book.tables("table1")}
    table = tables["table1-beside-paper"]
    rows = {(row[0], row[1]): row for row in table.rows}
    assert list(rows) == [("wine", "logreg")]  # what was not run is in the CSV file alone
    assert len(table.records) == 13 * 7  # neither fma20, knn-lds-dense nor soft-knn-gcn
    assert "90 published numbers have none of ours yet." in table.notes
    _, _, ours, theirs, difference, p, word, reason = rows["wine", "logreg"]
    assert (ours, theirs, difference, word) == ("82.0 (1.6)", "92.1", "-10.1", "lower")
    assert p == "<0.001"
    assert reason == "a made-up reason"
    assert [table.name for table in equal.tables("table1")] == ["table1-equal"]


def test_what_is_far_off_asks_for_a_reason_even_where_nothing_can_be_tested():
    always = entry_of(finished("lp", [0.402] * 5))
    assert compare(always, Published(23.2)).word == "not testable"
    assert compare(always, Published(23.2)).asks_for_a_reason
    assert not compare(always, Published(40.0)).asks_for_a_reason
    nearly = entry_of(finished("lp", [0.401, 0.402, 0.403]))
    assert compare(nearly, Published(41.0, 0.1)).asks_for_a_reason
    assert not compare(entry_of([], [Run("lp", "wine")]), Published(41.0)).asks_for_a_reason


def test_edges_table_and_its_reasons_by_share():
    records = [
        recorded(run, 0.5 + 0.1 * run.variant.get("keep_edges", 1) + run.seed / 500)
        for run in plan("edges", Selection(datasets=("cora",)))
    ]
    book = Book(records, reasons={"edges": {"lds": {"cora 0.5": "half the edges"}}})
    table, beside = book.tables("edges")
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["cora", "lds"] == [f"**{x} (0.3)**" for x in (52.9, 55.4, 57.9, 60.4)]
    assert rows["citeseer", "gcn"] == [NOT_RUN] * 4
    reasons = {(row[0], row[2]): row[-1] for row in beside.rows}
    assert reasons["cora", "50%"] == "half the edges"
    assert reasons["cora", "25%"] == ""


def test_edge_counts_beside_the_paper():
    runs = plan("edge-counts", Selection(datasets=("cora",)))
    records = [
        recorded(run, 0.8, details={"initial_edges": 2639}, expected_edges=4500.0 + run.seed)
        for run in runs
        if run.variant.get("keep_edges") == 0.5
    ]
    table = Book(records).edge_counts()
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["cora", "50%"] == ["2,639", "4,502.0 (1.6)", "4,513.9"]
    assert rows["cora", "25%"] == [NOT_RUN, NOT_RUN, "–"]


def test_tau_is_not_chosen_between():
    records = [
        # A large tau looks best by early stopping; each row must still show its own.
        recorded(run, 0.6 + run.parameters["tau"] / 100, chosen_by=run.parameters["tau"] / 20)
        for run in plan("tau", Selection(seeds=5))
    ]
    table = Book(records).tau()
    assert {row[0]: row[1] for row in table.rows} == {
        "0": "60.0 (0.0)",
        "1": "61.0 (0.0)",
        "5": "65.0 (0.0)",
        "20": "80.0 (0.0)",
    }


def test_random_splits_say_how_lds_does_against_gcn():
    records = [
        recorded(run, (0.82 if run.method == "lds" else 0.80) + run.seed % 3 / 100)
        for run in plan("random-splits", Selection(datasets=("cora",)))
        if run.method != "lds" or run.seed < 8
    ]
    table = Book(records).random_splits()
    assert ["cora", "gcn", "80.9 (0.9)", "10"] in table.rows
    (note,) = [note for note in table.notes if note.startswith("cora")]
    assert "lds minus gcn is +2.0 points" in note
    assert "paired over 8 splits" in note
    assert not any(note.startswith("citeseer") for note in table.notes)


@pytest.mark.parametrize("what", plans.PLANS)
@pytest.mark.parametrize("grid", ["reduced", "default"])
def test_an_empty_store_makes_tables_of_cells_not_run(what, grid):
    first, *beside = Book([], grid).tables(what)
    assert NOT_RUN in first.markdown()
    for table in (first, *beside):
        parsed = list(csv.DictReader(io.StringIO(table.csv())))
        assert parsed
        assert not any(float(line.get("seeds") or 0) for line in parsed)


def test_markdown_rows_have_as_many_cells_as_the_header(tmp_path):
    table = Table("fruit", "Fruit", ("name", "n"), [("apple", "2")], ["A note."])
    lines = table.markdown().splitlines()
    assert lines[2:5] == ["| name | n |", "|---|---|", "| apple | 2 |"]
    paths = table.write(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["fruit.md", "fruit.csv"]
    assert paths[1].read_text() == "name,n\napple,2\n"


def test_csv_lines_hold_all_columns_of_all_records():
    table = Table("t", "T", ("a",), [], records=[{"a": 1}, {"a": 2, "b": "x, y"}])
    assert table.csv() == 'a,b\n1,\n2,"x, y"\n'


def test_reasons_are_read_from_their_file_and_a_broken_one_is_named(tmp_path):
    path = tmp_path / "reasons.json"
    assert load_reasons(path) == {}
    path.write_text(json.dumps({"table1": {"lp": {"citeseer": "why"}}}))
    assert load_reasons(path)["table1"]["lp"]["citeseer"] == "why"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"reasons\.json is not JSON.*mend it"):
        load_reasons(path)
