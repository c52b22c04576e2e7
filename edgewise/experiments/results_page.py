"""The page of all results, and the files beside it: each number beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from edgewise.experiments import figures, plans
from edgewise.experiments.plans import COMPARISONS, PLANS, TRACES, GridName, settings
from edgewise.experiments.progress import format_time
from edgewise.experiments.protocol import Labels, Record, canonical
from edgewise.experiments.statistics import verdict
from edgewise.experiments.tables import (
    COLUMNS,
    NOT_RUN,
    ROWS,
    Book,
    Entry,
    Table,
    load_reasons,
)
from edgewise.experiments.traces import load_trace
from edgewise.files import write_atomically

_FIGURES = {"edges": figures.edges, "tau": figures.tau}
_TRACE_FIGURES = {
    "probabilities": figures.probabilities,
    "histograms": figures.histograms,
    "misclassified": figures.histograms,
    "embeddings": figures.embeddings,
}
_CAPTIONS = {
    "edges": "Figure 2, left and centre: GCN, GCN-RND and LDS with a share of the given edges. "
    "Dashed: accuracy on the rows that chose the parameters (for LDS: early stopping).",
    "tau": "Figure 2, right: LDS on Citeseer for different tau.",
    "probabilities": "Figure 3: LDS on Cora from 25 % of the edges. The example nodes are the "
    "first of their role with three true neighbours or more. Same, other and unknown class go by "
    "the labels that the method may see, true neighbours apart.",
    "histograms": "Figure 4: the learned edge probabilities of the same nodes. Here classes are "
    "the true ones of all nodes; ≈ 0 is less than 1e-6, and mostly exactly 0.",
    "misclassified": "Figure 5: the same for three Citeseer test nodes that kNN-GCN gets wrong and "
    "kNN-LDS right. They are picked by their test labels, as in the paper: the first three. That "
    "illustrates, and chooses no parameter.",
    "embeddings": "Figure 6: t-SNE of the last hidden layer on the test nodes of Citeseer.",
}


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes
    ----------
    paths : list of Path
    tables : list of Table, those that were asked for
    missing : list of str, a sentence for each figure that could not be drawn
    """

    paths: list[Path]
    tables: list[Table]
    missing: list[str]


def publish(
    what: str,
    records: Sequence[Record],
    folder: Path,
    *,
    grid: GridName = "reduced",
    labels: Labels = "paper",
) -> Published:
    """Write tables, figures and, for "all", the page, from records and traces alone.

    Parameters
    ----------
    what : str, one of `plans.EVERYTHING`
    records : sequence of Record
    folder : Path, of the results; reasons.json and traces are read from it
    grid : {"full", "reduced", "default"}, the grid whose runs are shown
    labels : {"paper", "equal"}

    Returns
    -------
    Published

    Examples
    --------
    >>> import tempfile
    >>> published = publish("edges", [], Path(tempfile.mkdtemp()))
    >>> [path.name for path in published.paths][:2], published.missing
    (['edges.md', 'edges.csv'], ['edges: no figure yet, as nothing is recorded'])
    """
    reasons = load_reasons(folder / "reasons.json")
    books: dict[Labels, Book] = {
        "paper": Book(records, grid, "paper", reasons),
        "equal": Book(records, grid, "equal", reasons),
    }
    out = Published([], [], [])
    for name, budget in _wanted(what, labels):
        tables = books[budget].tables(name)
        out.tables.extend(tables if what != "all" else [])
        for table in tables:
            out.paths.extend(table.write(folder / "tables"))
        if name in _FIGURES:
            suffix = "-equal" if budget == "equal" else ""
            _keep(out, _FIGURES[name](books[budget]), folder, name + suffix, "nothing is recorded")
    for name in TRACES if what == "all" else {what} & set(TRACES):
        trace = load_trace(name, folder / "traces")
        figure = None if trace is None else _TRACE_FIGURES[name](trace)
        _keep(out, figure, folder, name, "its trace was not made")
    if what in ("datasets", "all"):
        table = datasets_table()
        out.tables.extend([table] if what == "datasets" else [])
        out.paths.extend(table.write(folder / "tables"))
    if what == "all":
        page = folder / "README.md"
        write_atomically(page, write_page(books["paper"], books["equal"], folder).encode())
        out.paths.append(page)
    return out


def _wanted(what: str, labels: Labels) -> list[tuple[str, Labels]]:
    """The tables to write."""
    if what == "all":
        return [*((name, "paper") for name in PLANS), *((name, "equal") for name in COMPARISONS)]
    if what == "equal":
        return [(name, "equal") for name in COMPARISONS]
    if what not in PLANS:
        return []
    return [(what, "paper"), (what, "equal")] if labels == "equal" else [(what, "paper")]


def _keep(out: Published, figure: Figure | None, folder: Path, name: str, why: str) -> None:
    if figure is None:
        out.missing.append(f"{name}: no figure yet, as {why}")
    else:
        out.paths.extend(figures.save(figure, folder / "figures", name))


def datasets_table() -> Table:
    """The statistics of the data sets, counted on the data that are at hand.

    Returns
    -------
    Table

    Examples
    --------
    >>> datasets_table().rows[0][:5]
    ['wine', '178', '13', '3', '–']
    """
    from edgewise.datasets import describe, load, statistics

    rows = []
    for entry in describe():
        name = entry.statistics.name
        if not entry.at_hand:
            rows.append([name, "not at hand", *["–"] * 6, entry.about])
            continue
        counted = statistics(load(name))
        split = f"{counted.train} / {counted.validation} / {counted.early_stopping}"
        rows.append(
            [
                name,
                f"{counted.nodes:,}",
                f"{counted.features:,}",
                str(counted.classes),
                "–" if counted.edges is None else f"{counted.edges:,}",
                split,
                f"{counted.test:,}",
                f"{counted.label_rate:.3f}",
                entry.about,
            ]
        )
    header = ["data set", "nodes", "features", "classes", "edges",
              "train / validation / early stopping", "test",
              "label rate", "what it is"]  # fmt: skip
    return Table("datasets", "Data sets, as counted", header, rows)


def write_page(paper_book: Book, equal_book: Book, folder: Path) -> str:
    """Return the page of all results in Markdown.

    Parameters
    ----------
    paper_book, equal_book : Book, at the paper's label budget and at an equal one
    folder : Path, of the results, in which figures are looked for

    Returns
    -------
    str
    """
    parts = [
        _head(paper_book),
        _summary(paper_book),
        _differences(paper_book),
        *(table.markdown() for table in paper_book.tables("table1")),
        *(table.markdown() for table in paper_book.tables("edges")),
        _figure("edges", folder),
        paper_book.tau().markdown(),
        _figure("tau", folder),
        paper_book.edge_counts().markdown(),
        "## Figures 3 to 6: what LDS learns",
        *(_figure(name, folder) for name in TRACES),
        "## Equal label budget\n\nLDS fits its graph on half of the validation labels; in the "
        "paper the other methods only choose parameters with them. Here everybody is fitted in the "
        "end on all of them.\n\nParameters are chosen with as many labels as LDS has when its are: "
        "a setting is fitted on the training and validation rows, and judged on the early-stopping "
        "rows.",
        *_graph_verdicts(equal_book),
        *(equal_book.tables(name)[0].markdown() for name in ("table1", "edges")),
        paper_book.random_splits().markdown(),
        equal_book.random_splits().markdown(),
        datasets_table().markdown(),
        _failures(paper_book),
        _grids(paper_book.grid),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _head(book: Book) -> str:
    return f"""# The paper, reproduced

Every number of "Learning Discrete Structures for Graph Neural Networks" (Franceschi, Niepert,
Pontil, He; ICML 2019) that is at hand, beside ours. Made by `edgewise reproduce all
--grid {book.grid}` from the records in [records](records), one line a run; the same command runs
what is missing. How it works: [docs/reproduce.md](../docs/reproduce.md).

Parameters are chosen for each seed by validation accuracy, for LDS by early-stopping accuracy
(LDS uses the validation labels to fit its graph); equal accuracies by the smaller loss. Test
accuracy enters no choice. `not run`: nothing is recorded yet.
"""


def _summary(book: Book) -> str:
    """How many published numbers are met, and what it took."""
    verdicts = [found for what in ("table1", "edges") for found in book.verdicts(what)]
    words = Counter(found.word for _, _, found in verdicts)
    unfinished = sum(bool(entry.test and entry.missing) for entry, _, _ in verdicts)
    total = words.total()
    run = total - words[NOT_RUN]
    lines = [
        "## In short",
        "",
        f"- Of {total} published accuracies {run} have a number of ours: {words['agrees']} agree "
        f"(no significant difference), {words['higher']} of ours are higher, {words['lower']} "
        f"lower, {words['not testable']} have no spread to test by."
        + (f" {unfinished} of ours are of cells that are not finished." if unfinished else ""),
        f"- Runs recorded: {len(book.records):,}, "
        f"{format_time(sum(r.seconds for r in book.records))} of one thread in all"
        f"{_circumstances(book.records)}.",
    ]
    return "\n".join(lines)


def _circumstances(records: Sequence[Record]) -> str:
    versions = Counter(canonical(dict(record.versions)) for record in records if record.versions)
    if not versions:
        return ""
    latest = max((r for r in records if r.versions), key=lambda record: record.finished)
    named = ", ".join(f"{package} {version}" for package, version in latest.versions.items())
    threads = sorted({str(r.host_threads) for r in records if r.host_threads})
    return f"; last with {named}, on machines of {' or '.join(threads)} threads"


def _figure(name: str, folder: Path) -> str:
    if not (folder / "figures" / f"{name}.png").exists():
        return f"*{_CAPTIONS[name]}* Not drawn yet: `edgewise reproduce {name}`."
    return f"![{name}](figures/{name}.png)\n\n*{_CAPTIONS[name]}* ([SVG](figures/{name}.svg))"


def _graph_verdicts(book: Book) -> list[str]:
    """Did learning a graph help? A sentence for each data set."""
    lines = []
    for dataset in COLUMNS:
        found = {m: book.entry("table1", m, dataset) for m in ROWS}
        learned = {m: e.test for m, e in found.items() if "lds" in m and _is_complete(e)}
        rivals = {m: e.test for m, e in found.items() if "lds" not in m and _is_complete(e)}
        if learned and rivals:
            lines.append(f"- {dataset}: {verdict(learned, rivals, labels='equal')}")
    return ["\n".join(["Did learning a graph help, without a given one?", "", *lines])] * bool(
        lines
    )


def _is_complete(entry: Entry) -> bool:
    return len(entry.test) == entry.seeds


def _differences(book: Book) -> str:
    """The cells that differ from the paper's once all seeds are there, and why."""
    lines = ["## Where ours and the paper's differ", ""]
    for what in ("edges", "table1"):
        for entry, published, found in book.verdicts(what):
            if not found.asks_for_a_reason or not _is_complete(entry):
                continue
            place = f"{entry.cell.dataset}, {entry.cell.method}"
            if what == "edges":
                place += f", {entry.variant.get('keep_edges', 1):.0%} of the edges"
            reason = book.reason(what, entry) or "no reason found yet"
            lines.append(
                f"- {place}: {entry.text()} against {published.mean:g} "
                f"({found.difference:+.1f}): {reason}"
            )
    return "\n".join(lines) if len(lines) > 2 else ""


def _failures(book: Book) -> str:
    reasons = Counter(
        (r.run.method, r.run.dataset, r.reason) for r in book.records if r.status == "failed"
    )
    if not reasons:
        return ""
    lines = [
        f"- {method} on {dataset}, {count} runs: {reason}"
        for (method, dataset, reason), count in sorted(reasons.items(), key=str)
    ]
    return "\n".join(["## Runs that failed", "", *lines])


def _grids(grid: GridName) -> str:
    """What was searched, method by method."""
    rows = []
    for method in dict.fromkeys((*plans.EDGES_METHODS, *ROWS)):
        datasets = plans.CITATION if method in plans.EDGES_METHODS else plans.TABLE1_DATASETS
        same: dict[str, list[str]] = {}
        for dataset in datasets:
            same.setdefault(_described(settings(method, dataset, grid)), []).append(dataset)
        for text, names in same.items():
            rows.append([method, "all" if len(same) == 1 else ", ".join(names), text])
    note = (
        "The paper's grid is `--grid full`. The reduced one waits 5 outer iterations for a better "
        "early-stopping accuracy, where `patience` is listed, and not 20. For `tau`, tau is varied "
        "and not chosen; reduced, at the first inner learning rate alone."
    )
    header = ["method", "data sets", "parameters tried"]
    return Table("grids", f"The {grid} grid", header, rows, [note]).markdown()


def _described(tried: Sequence[dict[str, Any]]) -> str:
    """A list of settings as values for each parameter; unions are told apart."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for parameters in tried:
        groups.setdefault(tuple(parameters), []).append(parameters)
    texts = []
    for names, group in groups.items():
        texts.append("; ".join(f"{name} {_values(p[name] for p in group)}" for name in names))
    return " or ".join(texts) or "defaults"


def _values(values: Iterable[Any]) -> str:
    texts = [str(value) for value in dict.fromkeys(values)]
    return f"= {texts[0]}" if len(texts) == 1 else f"∈ {{{', '.join(texts)}}}"
