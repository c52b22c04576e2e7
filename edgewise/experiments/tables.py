"""Tables of results: what is recorded, beside what the paper says."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from edgewise.experiments import paper, plans
from edgewise.experiments.paper import Published
from edgewise.experiments.plans import GridName, Selection
from edgewise.experiments.protocol import Cell, Labels, Record, Run, canonical, choose, criterion_of
from edgewise.experiments.statistics import (
    best_methods,
    format_mean_std,
    mean_std,
    paired_interval,
    paired_test,
    welch_test,
)
from edgewise.files import write_atomically

ALPHA = 0.05
NOT_RUN = "not run"
NOTABLE = 3.0  # points, from which on a difference asks for a reason, tested or not


@dataclass(frozen=True)
class Entry:
    """What is recorded of one cell of a table.

    Attributes
    ----------
    cell : Cell
    chosen : mapping of seed to the record that validation, or early stopping, chose
    seeds : int, planned
    missing : int, planned runs that are not recorded
    failures : tuple of str, the different reasons
    settings : int, compared for a seed
    """

    cell: Cell
    chosen: Mapping[int, Record]
    seeds: int
    missing: int
    failures: tuple[str, ...]
    settings: int

    @property
    def test(self) -> dict[int, float]:
        """Test accuracy of each seed."""
        return self.part("test")

    @property
    def stopping(self) -> dict[int, float]:
        """Accuracy of each seed on the rows that decided."""
        return self.part(criterion_of(self.cell.method))

    @property
    def variant(self) -> dict[str, Any]:
        """How the data differ from the published protocol."""
        found: dict[str, Any] = json.loads(self.cell.variant)
        return found

    def part(self, name: str) -> dict[int, float]:
        """Accuracy of each seed on a part of the rows."""
        found = {seed: record.accuracies.get(name) for seed, record in self.chosen.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def text(self, *, bold: bool = False, digits: int = 1) -> str:
        """Mean and deviation in percent; a star where not all planned runs are there."""
        if not self.test:
            return "failed" if self.failures and not self.missing else NOT_RUN
        text = format_mean_std(list(self.test.values()), digits=digits)
        return (f"**{text}**" if bold else text) + ("\\*" if self.missing else "")


def collect(planned: Iterable[Run], records: Iterable[Record]) -> dict[Cell, Entry]:
    """Put together what is recorded of planned runs, choosing the parameters of each cell.

    Records of other runs, say of another grid, are left aside.

    Parameters
    ----------
    planned : iterable of Run
    records : iterable of Record

    Returns
    -------
    dict of Cell to Entry, for every planned cell

    Examples
    --------
    >>> planned = [Run("rf", "wine", {"max_depth": depth}) for depth in (3, 10)]
    >>> done = [Record(planned[0], accuracies={"validation": 0.9, "test": 0.8})]
    >>> (entry,) = collect(planned, done).values()
    >>> entry.text(), entry.missing
    ('80.0\\\\*', 1)
    """
    groups: dict[Cell, dict[str, Run]] = {}
    for run in planned:
        groups.setdefault(run.cell, {})[run.key] = run
    wanted = {key for group in groups.values() for key in group}
    known = {record.key: record for record in records if record.key in wanted}
    choices = choose(known.values())
    entries = {}
    for cell, group in groups.items():
        found = [known[key] for key in group if key in known]
        keys = choices[cell].keys if cell in choices else {}
        entries[cell] = Entry(
            cell=cell,
            chosen={seed: known[key] for seed, key in keys.items()},
            seeds=len({run.seed for run in group.values()}),
            missing=len(group) - len(found),
            failures=tuple(dict.fromkeys(r.reason or "" for r in found if r.status == "failed")),
            settings=len({canonical(dict(run.parameters)) for run in group.values()}),
        )
    return entries


def collect_equal(planned: Sequence[Run], records: Sequence[Record]) -> dict[Cell, Entry]:
    """Put together what is recorded at equal label budget of planned runs; see `equal_runs`.

    Parameters
    ----------
    planned : sequence of Run, at the paper's label budget
    records : sequence of Record

    Returns
    -------
    dict of Cell to Entry
    """
    found = collect(plans.equal_runs(planned, records).runs, records)
    tuned = collect(planned, records)
    entries = {}
    for cell, entry in tuned.items():
        equal = cell._replace(labels="equal")
        made = found.get(equal, replace(entry, cell=equal, chosen={}, missing=0, failures=()))
        missing = made.missing + entry.seeds - (made.seeds if equal in found else 0)
        entries[equal] = replace(made, seeds=entry.seeds, missing=missing, settings=entry.settings)
    return entries


def bold(entries: Mapping[str, Entry]) -> set[str]:
    """Return the best, and those not significantly different from it by a paired t-test.

    Parameters
    ----------
    entries : mapping of method to Entry, of one data set

    Returns
    -------
    set of str

    Examples
    --------
    >>> records = [Record(Run(method, "wine"), accuracies={"validation": 0.5, "test": test})
    ...            for method, test in (("rf", 0.9), ("lp", 0.8))]
    >>> found = collect([record.run for record in records], records)
    >>> bold({cell.method: entry for cell, entry in found.items()})
    {'rf'}
    """
    return best_methods({name: entry.test for name, entry in entries.items()}, alpha=ALPHA)


class Verdict(NamedTuple):
    """Our number against the published one; percentages and points."""

    difference: float
    p_value: float
    word: str  # "agrees", "higher", "lower", "not testable" or "not run"

    @property
    def asks_for_a_reason(self) -> bool:
        """Whether the numbers differ significantly, or by more than `NOTABLE` points anyway.

        Where nothing is left to chance, as with a solver on the one public split, there is no test.
        """
        return self.word in ("higher", "lower") or abs(self.difference) > NOTABLE


def compare(entry: Entry, published: Published) -> Verdict:
    """Compare a cell with the published number, by Welch's test at 0.05.

    Parameters
    ----------
    entry : Entry
    published : Published

    Returns
    -------
    Verdict

    Examples
    --------
    >>> records = [Record(Run("rf", "wine", seed=seed), accuracies={"validation": 1, "test": test})
    ...            for seed, test in enumerate((0.93, 0.94, 0.95))]
    >>> (entry,) = collect([record.run for record in records], records).values()
    >>> compare(entry, Published(93.7, 0.5)).word, compare(entry, Published(90.0, 0.5)).word
    ('agrees', 'higher')
    """
    values = [100 * value for value in entry.test.values()]
    if not values:
        return Verdict(math.nan, math.nan, NOT_RUN)
    difference = mean_std(values)[0] - published.mean
    p_value = welch_test(values, published).p_value
    if math.isnan(p_value):
        return Verdict(difference, p_value, "not testable")
    word = "agrees" if p_value >= ALPHA else "higher" if difference > 0 else "lower"
    return Verdict(difference, p_value, word)


@dataclass(frozen=True)
class Table:
    """A table for people (Markdown) and for programs (CSV).

    Attributes
    ----------
    name : str, of its files
    title : str
    header : sequence of str
    rows : sequence of sequences of str
    notes : sequence of str, sentences under the table
    records : sequence of dict, one CSV line each, with all numbers unrounded

    Examples
    --------
    >>> print(Table("t", "Fruit", ("name", "n"), [("apple", "2")]).markdown())
    ## Fruit
    <BLANKLINE>
    | name | n |
    |---|---|
    | apple | 2 |
    <BLANKLINE>
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Any]] = field(default=())

    def markdown(self) -> str:
        """The table in Markdown, with its title and notes."""
        lines = [f"## {self.title}", "", _row(self.header), "|" + "---|" * len(self.header)]
        lines += [_row(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The records as CSV; where there are none, the rows."""
        text = io.StringIO()
        if not self.records:
            csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
            return text.getvalue()
        names = list(dict.fromkeys(name for record in self.records for name in record))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write both forms into a folder; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.md", folder / f"{self.name}.csv"]
        for path, text in zip(paths, (self.markdown(), self.csv()), strict=True):
            write_atomically(path, text.encode())
        return paths


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


#: Why a number differs: table -> method -> data set (and variant) -> sentence.
Reasons = Mapping[str, Mapping[str, Mapping[str, str]]]


class Book:
    """All tables of one grid and label budget, made of the records of a store.

    Parameters
    ----------
    records : iterable of Record
    grid : {"full", "reduced", "default"}
    labels : {"paper", "equal"}
    reasons : mapping, optional
        Why numbers differ: table -> method -> column -> sentence.

    Examples
    --------
    >>> book = Book([])
    >>> book.table1().rows[0][:2]
    ['logreg', 'not run']
    """

    def __init__(
        self,
        records: Iterable[Record],
        grid: GridName = "reduced",
        labels: Labels = "paper",
        reasons: Reasons | None = None,
    ) -> None:
        self.records = list(records)
        self.grid: GridName = grid
        self.labels: Labels = labels
        self.reasons = reasons or {}
        self._entries: dict[str, dict[Cell, Entry]] = {}

    def entries(self, what: str) -> dict[Cell, Entry]:
        """The cells of a plan, at the label budget of the book."""
        if what not in self._entries:
            everything = Selection(datasets=ALL_DATASETS, grid=self.grid)
            planned = plans.plan(what, everything)
            gather = collect_equal if self.labels == "equal" else collect
            self._entries[what] = gather(planned, self.records)
        return self._entries[what]

    def entry(self, what: str, method: str, dataset: str, **variant: Any) -> Entry:
        """One cell of a plan."""
        run = Run(method, dataset, labels=self.labels, variant=variant)
        return self.entries(what)[run.cell]

    def tables(self, what: str) -> list[Table]:
        """The tables of a plan: our numbers, and, where the paper has some, both side by side."""
        made = {
            "table1": self.table1,
            "edges": self.edges,
            "tau": self.tau,
            "edge-counts": self.edge_counts,
            "random-splits": self.random_splits,
        }[what]()
        if not any(published_for(what, cell) for cell in self.entries(what)):
            return [made]
        return [made, self.beside_paper(what)]

    def table1(self) -> Table:
        """Table 1: every method that needs no graph, on every data set."""
        marks = {
            dataset: bold({m: self.entry("table1", m, dataset) for m in ROWS})
            for dataset in COLUMNS
        }
        rows = [
            [m, *(self.entry("table1", m, d).text(bold=m in marks[d]) for d in COLUMNS)]
            for m in ROWS
        ]
        rows = [[cell if d != "fma" or cell != NOT_RUN else "" for d, cell in
                 zip(("", *COLUMNS), row, strict=True)] for row in rows]  # fmt: skip
        return self._table(
            "table1",
            "Table 1: test accuracy without a given graph, %",
            ["method", *COLUMNS],
            rows,
            [BOLD, "The column `fma` stays empty without the data set's 140 official features, a "
             "342 MB archive; `fma20` holds the same tracks with 20 features, and so other "
             "numbers. `soft-knn-gcn` is not in the paper."],
        )  # fmt: skip

    def edges(self) -> Table:
        """Figure 2 and the appendix table: only a share of the given edges is known."""
        rows = []
        for dataset in plans.CITATION:
            found = {
                (m, share): self.entry("edges", m, dataset, keep_edges=share)
                for m in plans.EDGES_METHODS
                for share in plans.KEPT_EDGES
            }
            marks = {
                share: bold({m: found[m, share] for m in plans.EDGES_METHODS})
                for share in plans.KEPT_EDGES
            }
            for m in plans.EDGES_METHODS:
                cells = [found[m, s].text(bold=m in marks[s]) for s in plans.KEPT_EDGES]
                rows.append([dataset, m, *cells])
        header = ["data set", "method", *(f"{share:.0%} of edges" for share in plans.KEPT_EDGES)]
        title = "Figure 2: test accuracy with a share of the edges, %"
        return self._table("edges", title, header, rows, [BOLD])

    def tau(self) -> Table:
        """Figure 2, right: the number of steps that the hypergradient looks back."""
        records = self.tau_entries()
        rows = [
            [str(tau), *(records[tau, share].text() for share in plans.KEPT_EDGES)]
            for tau in plans.TAUS
        ]
        header = ["tau", *(f"{share:.0%} of edges" for share in plans.KEPT_EDGES)]
        title = "Figure 2, right: test accuracy of LDS on Citeseer by tau, %"
        note = "tau = 0 alternates between weights and edges."
        return self._table("tau", title, header, rows, [note], records=[
            _record(entry, None, {"tau": tau}) for (tau, _), entry in records.items()
        ])  # fmt: skip

    def tau_entries(self) -> dict[tuple[int, float], Entry]:
        """The cells of the study of tau, by tau and share of edges: tau is not chosen there."""
        planned = plans.plan("tau", Selection(grid=self.grid))
        return {
            (tau, entry.variant.get("keep_edges", 1.0)): entry
            for tau in plans.TAUS
            for entry in collect(
                (run for run in planned if run.parameters["tau"] == tau), self.records
            ).values()
        }

    def edge_counts(self) -> Table:
        """Table 2: how many edges LDS starts from, and how many it expects in the end."""
        rows, records = [], []
        for dataset in plans.CITATION:
            for share in plans.KEPT_EDGES:
                entry = self.entry("edge-counts", "lds", dataset, keep_edges=share)
                chosen = entry.chosen.values()
                before = [float(r.details["initial_edges"]) for r in chosen]
                after = [r.expected_edges for r in chosen if r.expected_edges is not None]
                published = paper.LDS_EXPECTED_EDGES.get(dataset, {}).get(share)
                rows.append(
                    [
                        dataset,
                        f"{share:.0%}",
                        f"{mean_std(before)[0]:,.0f}" if before else NOT_RUN,
                        (_count(after) if after else NOT_RUN)
                        + ("\\*" if after and entry.missing else ""),
                        "–" if published is None else f"{published:,.1f}",
                    ]
                )
                records.append(
                    {
                        "dataset": dataset,
                        "keep_edges": share,
                        "seeds": len(after),
                        "initial_edges": mean_std(before)[0],
                        "expected_edges": mean_std(after)[0],
                        "expected_edges_std": mean_std(after)[1],
                        "paper": published,
                    }
                )
        header = ["data set", "edges kept", "initial", "expected after learning", "paper"]
        title = "Table 2: number of edges before and after learning (LDS)"
        return self._table("edge-counts", title, header, rows, [], records=records)

    def random_splits(self) -> Table:
        """LDS and GCN on random splits, which the paper does not have."""
        rows, notes = [], [BOLD]
        for dataset in plans.CITATION:
            found = {
                m: self.entry("random-splits", m, dataset, split="random")
                for m in plans.EDGES_METHODS
            }
            marks = bold(found)
            rows += [
                [dataset, m, e.text(bold=m in marks), str(len(e.test))] for m, e in found.items()
            ]
            notes.append(_paired(found["lds"], found["gcn"]))
        header = ["data set", "method", "test accuracy, %", "splits"]
        title = "Ten random splits: test accuracy with all given edges, %"
        return self._table("random-splits", title, header, rows, [note for note in notes if note])

    def beside_paper(self, what: str) -> Table:
        """Each published number, ours, the difference, the verdict, and the reason if known.

        Numbers without one of ours are in the CSV file alone.
        """
        rows, records = [], []
        for entry, published, found in self.verdicts(what):
            reason = self.reason(what, entry) if found.asks_for_a_reason else ""
            records.append({**_record(entry, published), "reason": reason})
            if found.word == NOT_RUN:
                continue
            rows.append(
                [
                    entry.cell.dataset,
                    entry.cell.method,
                    *(f"{share:.0%}" for share in _share(what, entry)),
                    entry.text(),
                    f"{published.mean:g}"
                    + ("" if published.std is None else f" ({published.std:g})"),
                    "–" if math.isnan(found.difference) else f"{found.difference:+.1f}",
                    "–" if math.isnan(found.p_value) else _p(found.p_value),
                    found.word,
                    reason,
                ]
            )
        share = ["edges kept"] if what == "edges" else []
        header = ["data set", "method", *share, "ours", "paper", "difference", "p", "verdict",
                  "reason"]  # fmt: skip
        title = f"{_TITLES.get(what, what)}, beside the paper"
        left = len(records) - len(rows)
        notes = [WELCH, *([f"{left} published numbers have none of ours yet."] if left else [])]
        return self._table(f"{what}-beside-paper", title, header, rows, notes, records=records)

    def verdicts(self, what: str) -> list[tuple[Entry, Published, Verdict]]:
        """Every cell that the paper has a number for, that number, and how ours compares."""
        return [
            (entry, published, compare(entry, published))
            for entry in self.entries(what).values()
            if (published := published_for(what, entry.cell)) is not None
        ]

    def reason(self, what: str, entry: Entry) -> str:
        """Why a number differs from the paper's, as far as it is known."""
        column = " ".join([entry.cell.dataset, *(f"{share:g}" for share in _share(what, entry))])
        return self.reasons.get(what, {}).get(entry.cell.method, {}).get(column, "")

    def _table(
        self,
        name: str,
        title: str,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        notes: Sequence[str],
        *,
        records: Sequence[Mapping[str, Any]] | None = None,
    ) -> Table:
        if records is None:
            records = [
                _record(entry, published_for(name, entry.cell))
                for entry in self.entries(name).values()
            ]
        if self.labels == "equal":
            name, title = f"{name}-equal", f"{title}, at equal label budget"
            notes = [*notes, EQUAL]
        starred = any("\\*" in cell for row in rows for cell in row)
        notes = [*notes, *([STAR] if starred else []), f"Grid: {self.grid}."]
        return Table(name, title, header, rows, notes, records)


ALL_DATASETS = (*plans.TABLE1_DATASETS, "fma")
# Rows and columns as in the paper, then what is not in it.
ROWS = (*paper.TABLE1, "knn-lds-dense", "soft-knn-gcn")
COLUMNS = (*paper.DATASETS, "fma20")
BOLD = (
    "Mean (standard deviation) over the seeds. Bold: the best, and those that a paired t-test over "
    "the seeds does not tell from it at 0.05."
)
STAR = "\\* Not all planned runs are there yet."
WELCH = (
    "Verdict: Welch's test at 0.05 between our seeds and the published mean and standard "
    "deviation of 5 seeds. Where the paper's deviation is not at hand, ours is taken for it."
)
EQUAL = (
    "Equal label budget: every method is fitted in the end on all labels. Before that, it learns "
    "from those of training and validation, and early stopping chooses its parameters."
)
_TITLES = {"table1": "Table 1", "edges": "Figure 2, LDS"}


def published_for(what: str, cell: Cell) -> Published | None:
    """The published accuracy of a cell, in percent; None where the paper, or our source, has none.

    Examples
    --------
    >>> published_for("table1", Run("knn-lds", "wine").cell).mean
    97.3
    >>> published_for("table1", Run("knn-lds", "wine", labels="equal").cell) is None
    True
    """
    if cell.labels != "paper":
        return None
    if what == "table1":
        return paper.TABLE1.get(cell.method, {}).get(cell.dataset)
    if what == "edges" and cell.method == "lds":
        share = json.loads(cell.variant).get("keep_edges", 1.0)
        return paper.LDS_KEPT_EDGES.get(cell.dataset, {}).get(share)
    return None


def _count(values: Sequence[float]) -> str:
    mean, std = mean_std(values)
    return f"{mean:,.1f}" if math.isnan(std) else f"{mean:,.1f} ({std:,.1f})"


def _share(what: str, entry: Entry) -> list[float]:
    return [float(entry.variant.get("keep_edges", 1))] if what == "edges" else []


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _record(
    entry: Entry, published: Published | None, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All of a cell, unrounded but for the eye: percentages with two decimals."""
    mean, std = mean_std([100 * value for value in entry.test.values()])
    stopping, stopping_std = mean_std([100 * value for value in entry.stopping.values()])
    record: dict[str, Any] = {
        "dataset": entry.cell.dataset,
        "method": entry.cell.method,
        "labels": entry.cell.labels,
        "variant": entry.cell.variant,
        **(more or {}),
        "seeds": len(entry.test),
        "seeds_planned": entry.seeds,
        "runs_missing": entry.missing,
        "settings": entry.settings,
        "test": mean,
        "test_std": std,
        "chosen_by": criterion_of(entry.cell.method),
        "chosen_by_accuracy": stopping,
        "chosen_by_accuracy_std": stopping_std,
        "chosen": "; ".join(
            f"{seed}: {canonical(dict(r.run.parameters))}" for seed, r in entry.chosen.items()
        ),
    }
    if published is not None:
        found = compare(entry, published)
        record |= {
            "paper": published.mean,
            "paper_std": published.std,
            "difference": found.difference,
            "p_value": found.p_value,
            "verdict": found.word,
        }
    return {name: _tidy(value) for name, value in record.items()}


def _tidy(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else float(f"{value:.4g}")


def _paired(learned: Entry, rival: Entry) -> str:
    """Say how LDS does against a rival over the splits that both have."""
    seeds = sorted(set(learned.test) & set(rival.test))
    if len(seeds) < 2:
        return ""
    a, b = [learned.test[s] for s in seeds], [rival.test[s] for s in seeds]
    estimate, low, high = (100 * float(x) for x in paired_interval(a, b))
    return (
        f"{learned.cell.dataset}: {learned.cell.method} minus {rival.cell.method} is "
        f"{estimate:+.1f} points (95 % CI {low:.1f}..{high:.1f}, paired over {len(seeds)} splits, "
        f"p = {_p(paired_test(a, b).p_value)})."
    )


def load_reasons(path: Path) -> Reasons:
    """Read why numbers differ from the paper's; without such a file nothing is known.

    Parameters
    ----------
    path : Path, of a JSON file: table -> method -> data set (for "edges": and share) -> sentence

    Returns
    -------
    mapping

    Examples
    --------
    >>> load_reasons(Path("nowhere.json"))
    {}
    """
    if not path.exists():
        return {}
    try:
        found: Reasons = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}; mend it") from None
    return found
