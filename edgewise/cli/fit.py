"""``edgewise fit``: learn a graph for a data set, and say how well it went."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.folder import FILES, write_run
from edgewise.cli.machine import limit_threads, peak_rss_mb, threads_in_use
from edgewise.cli.output import notes, print_json, results

if TYPE_CHECKING:
    from edgewise.datasets import Dataset
    from edgewise.estimator import LDSClassifier
    from edgewise.graph.pairs import Pairs
    from edgewise.report.progress import LiveProgress

UNROLL_ALL = "full"


class Metric(str, Enum):
    """Metrics of the initial graph."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"


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


@dataclass(frozen=True)
class Fitted:
    """A fitted classifier, and what it cost."""

    classifier: LDSClassifier
    initial: Pairs  # the graph it started from
    seconds: float
    interrupted: bool


def fit(
    source: Annotated[str, typer.Argument(help="Name of a data set; `edgewise datasets` lists.")],
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
    max_outer_iterations: Annotated[int, typer.Option(help="The most there can be.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the split, the kept edges and the fit.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for metrics.json, history.csv, predictions.csv and edges.csv.",
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
        int | None, typer.Option(help="Threads to compute with.", show_default="all", min=1)
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
        "tau": None if tau == UNROLL_ALL else tau,
        "outer_learning_rate": outer_lr,
        "inner_learning_rate": inner_lr,
        "patience": patience,
        "max_outer_iterations": max_outer_iterations,
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # now, rather than fail after a long fit
    with limit_threads(threads):
        task = _task(source, keep_edges, no_graph, seed, parameters)
        fitted = _fitted(task, profile, checkpoint)
        metrics = _metrics(task, fitted)
    if out is not None:
        write_run(out, task, fitted, metrics, top_edges, edge_threshold)
    if json:
        print_json(metrics)
    else:
        _print_summary(metrics)
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


def _fitted(task: Task, profile: bool, checkpoint: Path | None) -> Fitted:
    from edgewise.estimator import LDSClassifier
    from edgewise.graph.construct import knn_pairs
    from edgewise.report.profile import profiled
    from edgewise.report.progress import LiveProgress

    dataset = task.dataset
    watch = LiveProgress(task.parameters["patience"], f"{task.method} on {dataset.name}")
    classifier = LDSClassifier(**task.parameters, random_state=task.seed, callbacks=[watch])
    with ExitStack() as around:
        measured = around.enter_context(profiled() if profile else nullcontext())
        around.enter_context(watch)
        started = time.perf_counter()
        initial = task.given
        if initial is None:
            # What the classifier would do itself; here, because edges.csv says what was there.
            initial = knn_pairs(dataset.features, classifier.k, metric=classifier.metric)
        classifier.fit(
            dataset.features,
            dataset.masked_labels(),
            initial,
            validation=dataset.split.validation,
            early_stopping=dataset.split.early_stopping,
            checkpoint=checkpoint,
        )
        seconds = time.perf_counter() - started
    if measured is not None:
        updates = int(sum(record["outer_updates"] for record in classifier.history_))
        notes().print(measured.table(updates))
    return Fitted(classifier, initial, seconds, _warn_if_interrupted(watch, classifier))


def _warn_if_interrupted(watch: LiveProgress, classifier: LDSClassifier) -> bool:
    interrupted = watch.progress is not None and watch.progress.interrupted
    if interrupted:
        notes().print(
            f"edgewise: interrupted; kept the best model so far, of outer iteration "
            f"{classifier.best_iteration_} of {classifier.n_iter_}",
            soft_wrap=True,
        )
    return interrupted


def _metrics(task: Task, fitted: Fitted) -> dict[str, Any]:
    from edgewise import __version__

    classifier, dataset = fitted.classifier, task.dataset
    history = classifier.history_
    best = history[classifier.best_iteration_ - 1]
    updates = int(sum(record["outer_updates"] for record in history))
    right = classifier.transduction_ == dataset.labels
    return {
        "dataset": dataset.name,
        "method": task.method,
        "seed": task.seed,
        "keep_edges": task.keep_edges,
        "parameters": _parameters(task, classifier),
        "labels": {
            "train": len(dataset.split.train),
            "validation": len(dataset.split.validation),
            "early_stopping": len(dataset.split.early_stopping),
            "test": len(dataset.test),
        },
        "test_accuracy": float(right[dataset.test].mean()),
        **{
            f"{part}_{what}": best[f"{part}_{what}"]
            for part in ("early_stopping", "validation", "train")
            for what in ("accuracy", "loss")
        },
        "initial_edges": fitted.initial.n_pairs,
        "expected_edges": classifier.edges_.expected_edges(),
        "outer_iterations": classifier.n_iter_,
        "best_iteration": classifier.best_iteration_,
        "outer_updates": updates,
        "inner_steps": int(sum(record["inner_steps"] for record in history)),
        "seconds": fitted.seconds,
        # A whole cycle: tau inner steps, hypergradient, update, sampler, and its share of the
        # evaluation that ends an outer iteration.
        "seconds_per_update": sum(record["seconds"] for record in history) / updates,
        "peak_rss_mb": peak_rss_mb(),
        "threads": threads_in_use(),
        "interrupted": fitted.interrupted,
        "edgewise_version": __version__,
    }


def _parameters(task: Task, classifier: LDSClassifier) -> dict[str, Any]:
    """The arguments that had a say."""
    silent = {"callbacks", "random_state", "network"}
    if task.given is not None:
        silent |= {"k", "metric"}
    return {name: value for name, value in classifier.get_params().items() if name not in silent}


def _print_summary(metrics: dict[str, Any]) -> None:
    labels = metrics["labels"]
    lines = {
        "test accuracy": f"{metrics['test_accuracy']:.1%} of {labels['test']:,} rows",
        "early-stopping accuracy": f"{metrics['early_stopping_accuracy']:.1%} "
        f"(loss {metrics['early_stopping_loss']:.3f})",
        "labels used": f"{labels['train']} to train, {labels['validation']} to fit the edges, "
        f"{labels['early_stopping']} to stop",
        "edges": f"{metrics['initial_edges']:,} to start from, "
        f"{metrics['expected_edges']:,.1f} expected now",
        "outer iterations": f"{metrics['outer_iterations']} (best: {metrics['best_iteration']}), "
        f"{metrics['outer_updates']:,} updates of the edges",
        "time": f"{metrics['seconds']:.1f} s, {1e3 * metrics['seconds_per_update']:.0f} ms an "
        f"update, {metrics['threads']} thread(s), {metrics['peak_rss_mb']:.0f} MB at most",
    }
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_row(f"{metrics['method']}", f"{metrics['dataset']}, seed {metrics['seed']}")
    for name, value in lines.items():
        table.add_row(name, value)
    results().print(table)
