"""``edgewise compare``: does learning a graph help on these data?"""

from __future__ import annotations

import json as json_format
import math
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.fit_table import TableFit, is_table, leak_warnings, read_content, say
from edgewise.cli.machine import check_jobs
from edgewise.cli.output import plain, print_json, results
from edgewise.files import require_folder, staged

if TYPE_CHECKING:
    from edgewise.experiments.compare import ComparisonResult, MethodResult

FILES = ("comparison.json", "comparison.csv", "records")


class Labels(str, Enum):
    """Label budgets."""

    PAPER = "paper"
    EQUAL = "equal"


def _assignment(text: str) -> tuple[str, str, Any]:
    """``method.parameter=value``, the value in JSON, or a word."""
    path, equals, value = text.partition("=")
    method, dot, parameter = path.partition(".")
    if not (equals and dot and method and parameter):
        raise typer.BadParameter(f"{text!r} is not of the form METHOD.PARAMETER=VALUE")
    try:
        return method, parameter, json_format.loads(value)
    except json_format.JSONDecodeError:
        return method, parameter, value


def compare(
    source: Annotated[
        str,
        typer.Argument(
            help="Name of a data set (`edgewise datasets` lists), or a file with a table."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Of a table: the column with the classes, empty where unknown.", metavar="COLUMN"
        ),
    ] = None,
    row_id: Annotated[
        str | None,
        typer.Option("--id", help="Of a table: the column that names the rows.", metavar="COLUMN"),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Of a table: leave a column out; can be repeated.", metavar="COLUMN"),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a table: take a column for categories; can be repeated.", metavar="COLUMN"
        ),
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Of a table: the known part of the graph, as CSV, Parquet, GraphML or NPZ.",
        ),
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(
            "--test-fraction",
            "--test-share",
            help="Of a table: share of the labelled rows to judge by.",
            show_default="0.25",
            min=0.01,
            max=0.9,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between; `edgewise methods` lists.",
            show_default="an honest choice",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Splits to compare on.", min=1)] = 5,
    labels: Annotated[
        Labels,
        typer.Option(help="paper: train on the training labels. equal: on all, whatever method."),
    ] = Labels.PAPER,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose parameters, for each seed, by validation.")
    ] = False,
    budget: Annotated[
        int | None,
        typer.Option(help="With --tune: settings a method may try.", show_default="120", min=1),
    ] = None,
    keep: Annotated[
        list[Any] | None,
        typer.Option(
            "--set",
            parser=_assignment,
            metavar="METHOD.PARAMETER=VALUE",
            help="Keep a parameter fixed; can be repeated.",
        ),
    ] = None,
    keep_edges: Annotated[
        float | None,
        typer.Option(help="Keep this share of the given edges, drawn by the seed.", min=0, max=1),
    ] = None,
    random_splits: Annotated[
        bool, typer.Option("--random-splits", help="In place of the public split, one a seed.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(help="Processes at a time; -1: one a processor.", callback=check_jobs)
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"Folder for {', '.join(FILES)}. Called again, it goes on where it was.",
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Compare methods on the same splits and labels, and say whether learning a graph helped."""
    from edgewise.experiments.compare import compare as compare_methods

    table = TableFit(Path(source), target, row_id, drop or [], categorical or [], graph, test_share)
    if budget is not None and not tune:
        raise typer.BadParameter("--budget is about --tune: add that, or leave it out")
    data = _content(table) if is_table(table) else {"source": source}
    if out is not None:
        require_folder(out)  # now, rather than fail after a long run
    found = compare_methods(
        **data,
        methods=None if methods is None else [name.strip() for name in methods.split(",")],
        seeds=seeds,
        labels=labels.value,
        tune=tune,
        budget=budget,
        parameters=_grouped(keep or []),
        variant=_variant(keep_edges, random_splits),
        test_share=0.25 if test_share is None else test_share,
        jobs=jobs,
        store=None if out is None else out / "records",
    )
    if out is not None:
        _write(out, found)
    if json:
        print_json(found.to_dict())
    else:
        _print(found)
        if out is not None:
            results().print(f"written to {out}: {', '.join(FILES)}", soft_wrap=True)
    if all(result.status == "failed" for result in found.methods):
        raise typer.Exit(1)


def _content(table: TableFit) -> dict[str, Any]:
    """The features, labels and graph of a table, as `compare` takes them."""
    from edgewise.io.graphs import read_graph

    content = read_content(table)
    graph = None if table.graph is None else read_graph(table.graph, content.ids)
    say([*content.notes, *leak_warnings(content, content.labels)])
    return {
        "source": content.features,
        "y": content.labels,
        "graph": graph,
        "name": table.path.name,
    }


def _grouped(assignments: list[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    grouped: dict[str, dict[str, Any]] = {}
    for method, parameter, value in assignments:
        grouped.setdefault(method, {})[parameter] = value
    return grouped


def _variant(keep_edges: float | None, random_splits: bool) -> dict[str, Any]:
    variant: dict[str, Any] = {} if keep_edges is None else {"keep_edges": keep_edges}
    return {**variant, "split": "random"} if random_splits else variant


def _write(folder: Path, found: ComparisonResult) -> None:
    text = json_format.dumps(plain(found.to_dict()), indent=2)
    with staged(folder) as stage:
        (stage / "comparison.json").write_text(text + "\n")
        found.to_pandas().to_csv(stage / "comparison.csv", index=False)


def _print(found: ComparisonResult) -> None:
    from rich import box
    from rich.table import Table

    how = "parameters chosen for each seed" if found.tuned else "default parameters"
    title = f"Test accuracy on {found.source}, mean ± sd over {len(found.seeds)} seed(s), {how}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    columns = ["accuracy, %", "seconds a fit", "edges"]
    for name in [*columns, "settings tried"] if found.tuned else columns:
        table.add_column(name, justify="right")
    for result in sorted(found.methods, key=_rank):
        cells = [result.method, _accuracy(result), _seconds(result.seconds), _edges(result)]
        table.add_row(*cells, *([str(result.settings)] if found.tuned else []))
    console = results()
    console.print(title, soft_wrap=True)
    console.print(table)
    if any(result.best for result in found.methods):
        console.print("* best, or not significantly different from it (paired t-test, 0.05)")
    console.print(str(found.budget), soft_wrap=True)
    for failure in found.failures:
        text = f"failed: {failure.method}, seed {failure.seed}: {failure.reason}"
        console.print(text, soft_wrap=True, markup=False)
    console.print(f"\n{found.conclusion}", soft_wrap=True)


def _rank(result: MethodResult) -> float:
    return math.inf if math.isnan(result.mean) else -result.mean


def _accuracy(result: MethodResult) -> str:
    # Where nothing can be printed in bold, the star remains.
    return f"[bold]{result.cell}*[/bold]" if result.best else f"{result.cell} "


def _seconds(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds:.1f}"


def _edges(result: MethodResult) -> str:
    """Edges of the graph, and where they were learned, from how many to how many."""
    if result.edges is None:
        return "-"
    if result.learns_graph and result.initial_edges is not None:
        return f"{result.initial_edges:,.0f} → {result.edges:,.0f}"
    return f"{result.edges:,.0f}"
