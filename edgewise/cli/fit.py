"""``edgewise fit``: learn a graph for a data set or a table, and say how well it went."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.fit_table import TableFit, is_table, print_table_summary
from edgewise.cli.fitting import (
    Fitted,
    Watching,
    baseline,
    figures,
    parameters_of,
    print_summary,
    watched_fit,
)
from edgewise.cli.folder import FILES, write_run
from edgewise.cli.machine import MAX_THREADS, limit_threads
from edgewise.cli.output import print_json, results
from edgewise.files import require_folder
from edgewise.team import leads, on_duty

if TYPE_CHECKING:
    from edgewise.datasets import Dataset
    from edgewise.graph.pairs import Pairs

UNROLL_ALL = "full"


class Metric(str, Enum):
    """Metrics of the initial graph."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"


class Edges(str, Enum):
    """What is learned of the edges."""

    FREE = "free"
    SIMILARITY = "similarity"


def _tau(text: str) -> int | str:
    """A number of steps, or the word for the whole inner problem."""
    if text == UNROLL_ALL:
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a number nor {UNROLL_ALL!r} (the whole inner problem)"
        ) from None


@dataclass(frozen=True)
class Task:
    """A data set, the graph to start from, and the arguments of the classifier.

    Attributes
    ----------
    given : Pairs or None
        What is given of the data set's graph; None for kNN-LDS.
    keep_edges : float
        The share of the data set's edges that this is.
    """

    dataset: Dataset
    given: Pairs | None
    keep_edges: float
    seed: int
    parameters: dict[str, Any]

    @property
    def method(self) -> str:
        return "knn-lds" if self.given is None else "lds"


def fit(
    source: Annotated[
        str,
        typer.Argument(
            help="A table (CSV, Parquet, Feather, NPZ, SVMlight), or the name of a data set; "
            "`edgewise datasets` lists."
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
    test_fraction: Annotated[
        float | None,
        typer.Option(
            help="Of a table: share of the labelled rows to hold out, and to judge by.",
            min=0.01,
            max=0.9,
        ),
    ] = None,
    keep_edges: Annotated[
        float | None,
        typer.Option(help="Keep this share of the given edges, drawn by the seed.", min=0, max=1),
    ] = None,
    no_graph: Annotated[
        bool, typer.Option("--no-graph", help="Start from neighbours instead of the given graph.")
    ] = False,
    k: Annotated[
        int | None,
        typer.Option(help="Neighbours in the graph to start from.", show_default="10", min=1),
    ] = None,
    metric: Annotated[
        Metric | None, typer.Option(help="How neighbours are found.", show_default="cosine")
    ] = None,
    edges: Annotated[
        Edges,
        typer.Option(
            help="free: a probability for each pair. similarity: few parameters of the rows' "
            "likeness, which over-fit less and know new rows as well; takes no graph."
        ),
    ] = Edges.FREE,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="In the end, fit the network once more, to all labels."),
    ] = False,
    tau: Annotated[
        Any,
        typer.Option(
            parser=_tau,
            metavar="STEPS",
            help="Inner steps between updates of the edges: a number, or 'full'.",
        ),
    ] = "5",
    outer_lr: Annotated[float, typer.Option(help="Learning rate of the edges (eta).")] = 1.0,
    inner_lr: Annotated[float, typer.Option(help="Learning rate of the weights.")] = 0.02,
    patience: Annotated[
        int, typer.Option(help="Outer iterations without improvement before the end.", min=1)
    ] = 20,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Labelled rows that a step looks at, with their neighbourhoods.",
            show_default="all",
            min=1,
        ),
    ] = None,
    max_outer_iterations: Annotated[int, typer.Option(help="The most there can be.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the split, the kept edges and the fit.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for metrics.json, predictions.csv, edges.csv and more; of a table also "
            "for the graph as GraphML and for the model.",
            file_okay=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Keep the state after each outer iteration in this file, and go on from it.",
            dir_okay=False,
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            help="Folder for TensorBoard, to watch losses, accuracies and edges (needs the extra "
            "'tracking').",
            file_okay=False,
        ),
    ] = None,
    top_edges: Annotated[
        int | None,
        typer.Option(
            help="How many edges go into edges.csv.", show_default="as many as are expected", min=0
        ),
    ] = None,
    edge_threshold: Annotated[
        float | None,
        typer.Option(help="Or: all edges more probable than this.", min=0, max=1),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time goes.")] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads to compute with.", show_default="all", min=1, max=MAX_THREADS),
    ] = None,
) -> None:
    """Learn a graph, and the network that uses it."""
    if top_edges is not None and edge_threshold is not None:
        raise typer.BadParameter("give either --top-edges or --edge-threshold, not both")
    if (top_edges is not None or edge_threshold is not None) and out is None:
        raise typer.BadParameter("--top-edges and --edge-threshold say what goes into --out DIR")
    chosen = {"k": k, "metric": metric.value if metric else None}
    parameters = {
        **{name: value for name, value in chosen.items() if value is not None},
        "edges": edges.value,
        "refit": refit,
        "tau": None if tau == UNROLL_ALL else tau,
        "outer_learning_rate": outer_lr,
        "inner_learning_rate": inner_lr,
        "patience": patience,
        "max_outer_iterations": max_outer_iterations,
        "batch_size": batch_size,
    }
    out = out if leads() else None
    watching = Watching(profile, checkpoint, tensorboard if leads() else None)
    if out is not None:
        require_folder(out)  # now, rather than fail after a long fit
    table = TableFit(
        Path(source), target, row_id, drop or [], categorical or [], graph, test_fraction
    )
    if is_table(table):
        if keep_edges is not None or no_graph:
            raise typer.BadParameter("--keep-edges and --no-graph are about data sets by name")
        with on_duty(), limit_threads(threads):
            metrics = table.run(parameters, seed, out, (top_edges, edge_threshold), watching)
        if json:
            print_json(metrics)
        else:
            print_table_summary(metrics, out)
        return
    with on_duty() as team, limit_threads(threads):
        # So that a data set is downloaded once.
        with nullcontext() if team is None else team.leader_first(source):
            task = _task(source, keep_edges, no_graph, seed, parameters)
        fitted = _fitted(task, watching)
        metrics = _metrics(task, fitted)
        if out is not None:  # of use to the report
            metrics |= baseline(fitted, _arguments(task), task.dataset.labels, task.dataset.test)
            write_run(out, task, fitted, metrics, top_edges, edge_threshold)
    if json:
        print_json(metrics)
    else:
        print_summary(metrics, f"{metrics['dataset']}, seed {metrics['seed']}")
        if out is not None:
            results().print(f"written to {out}: {', '.join(FILES)}")


def _task(
    source: str, keep_edges: float | None, no_graph: bool, seed: int, parameters: dict[str, Any]
) -> Task:
    from edgewise.experiments.execute import load_variant

    if no_graph and keep_edges is not None:
        raise typer.BadParameter("--keep-edges is about the given graph, but --no-graph drops it")
    share = 1.0 if keep_edges is None else keep_edges
    dataset = load_variant(source, seed, {"keep_edges": share})
    given = None if no_graph else dataset.pairs
    if given is not None and ("k" in parameters or "metric" in parameters):
        raise typer.BadParameter(
            f"{source} comes with a graph, so --k and --metric would change nothing; add "
            "--no-graph to start from nearest neighbours instead"
        )
    return Task(dataset, given, share, seed, parameters)


def _arguments(task: Task) -> dict[str, Any]:
    """What the classifier is fitted on."""
    dataset = task.dataset
    return {
        "X": dataset.features,
        "y": dataset.masked_labels(),
        "graph": task.given,
        "validation": dataset.split.validation,
        "early_stopping": dataset.split.early_stopping,
    }


def _fitted(task: Task, watching: Watching) -> Fitted:
    title = f"{task.method} on {task.dataset.name}"
    return watched_fit(title, task.parameters, task.seed, _arguments(task), watching)


def _metrics(task: Task, fitted: Fitted) -> dict[str, Any]:
    classifier, dataset = fitted.classifier, task.dataset
    silent = () if task.given is None else ("k", "metric")
    right = classifier.transduction_ == dataset.labels
    return {
        "dataset": dataset.name,
        "method": task.method,
        "seed": task.seed,
        "keep_edges": task.keep_edges,
        "parameters": parameters_of(classifier, *silent),
        "labels": {
            "train": len(dataset.split.train),
            "validation": len(dataset.split.validation),
            "early_stopping": len(dataset.split.early_stopping),
            "test": len(dataset.test),
        },
        "test_accuracy": float(right[dataset.test].mean()),
        **figures(fitted),
    }
