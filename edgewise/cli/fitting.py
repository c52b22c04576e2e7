"""What the fit of a data set and that of a table share: watching it, and its figures."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.cli.machine import peak_rss_mb, threads_in_use
from edgewise.cli.output import notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edgewise.estimator import LDSClassifier
    from edgewise.graph.pairs import Pairs
    from edgewise.learn import Callback
    from edgewise.report.progress import LiveProgress


@dataclass(frozen=True)
class Fitted:
    """A fitted classifier, and what it cost."""

    classifier: LDSClassifier
    initial: Pairs  # the graph it started from
    seconds: float
    seconds_per_update: float | None  # of a whole cycle; none where there was just one
    interrupted: bool


def watched_fit(
    title: str,
    parameters: Mapping[str, Any],
    seed: int,
    arguments: Mapping[str, Any],
    *,
    profile: bool = False,
    checkpoint: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fitted:
    """Fit a classifier, showing how it goes.

    Parameters
    ----------
    title : str
        For the display.
    parameters, seed
        Of the classifier.
    arguments : mapping
        Of its `fit`: ``X``, ``y``, and perhaps ``graph`` (pairs or an adjacency) and others.
    profile : bool
        Whether to say where the time went.
    checkpoint : Path, optional
    callbacks : sequence of Callback
        Further ones.
    """
    from edgewise.estimator import LDSClassifier
    from edgewise.graph.construct import knn_pairs
    from edgewise.inputs import adjacency_pairs
    from edgewise.report.profile import CycleClock, profiled
    from edgewise.report.progress import LiveProgress

    watch = LiveProgress(parameters["patience"], title)
    clock = CycleClock()
    classifier = LDSClassifier(
        **parameters, random_state=seed, callbacks=[clock, watch, *callbacks]
    )
    given = dict(arguments)
    with ExitStack() as around:
        measured = around.enter_context(profiled() if profile else nullcontext())
        around.enter_context(watch)
        started = time.perf_counter()
        if given.get("graph") is None:
            # What the classifier would do itself; here, because edges.csv says what was there.
            given["graph"] = knn_pairs(given["X"], classifier.k, metric=classifier.metric)
        initial, _ = adjacency_pairs(given["graph"], given["X"].shape[0])
        classifier.fit(**given, checkpoint=checkpoint)
        seconds = time.perf_counter() - started
    if measured is not None:
        updates = int(sum(record["outer_updates"] for record in classifier.history_))
        notes().print(measured.table(updates))
    interrupted = _warn_if_interrupted(watch, classifier)
    return Fitted(classifier, initial, seconds, clock.median(), interrupted)


def _warn_if_interrupted(watch: LiveProgress, classifier: LDSClassifier) -> bool:
    interrupted = watch.progress is not None and watch.progress.interrupted
    if interrupted:
        notes().print(
            f"edgewise: interrupted; kept the best model so far, of outer iteration "
            f"{classifier.best_iteration_} of {classifier.n_iter_}",
            soft_wrap=True,
        )
    return interrupted


def figures(fitted: Fitted) -> dict[str, Any]:
    """What a fit led to and what it cost, whatever it was fitted on."""
    from edgewise import __version__

    classifier = fitted.classifier
    history = classifier.history_
    best = history[classifier.best_iteration_ - 1]
    updates = int(sum(record["outer_updates"] for record in history))
    return {
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
        "seconds_per_update": fitted.seconds_per_update,
        "peak_rss_mb": peak_rss_mb(),
        "threads": threads_in_use(),
        "interrupted": fitted.interrupted,
        "edgewise_version": __version__,
    }


def parameters_of(classifier: LDSClassifier, *silent: str) -> dict[str, Any]:
    """The arguments that had a say."""
    leave_out = {"callbacks", "random_state", "network", *silent}
    return {name: value for name, value in classifier.get_params().items() if name not in leave_out}


def print_summary(metrics: Mapping[str, Any], heading: str) -> None:
    """The figures that matter, in a few lines."""
    from rich.table import Table

    from edgewise.cli.output import results

    labels = metrics["labels"]
    cycle = metrics["seconds_per_update"]
    an_update = "" if cycle is None else f", {1e3 * cycle:.0f} ms an update"
    lines = {
        "early-stopping accuracy": f"{metrics['early_stopping_accuracy']:.1%} "
        f"(loss {metrics['early_stopping_loss']:.3f})",
        "labels used": f"{labels['train']} to train, {labels['validation']} to fit the edges, "
        f"{labels['early_stopping']} to stop",
        "edges": f"{metrics['initial_edges']:,} to start from, "
        f"{metrics['expected_edges']:,.1f} expected now",
        "outer iterations": f"{metrics['outer_iterations']} (best: {metrics['best_iteration']}), "
        f"{metrics['outer_updates']:,} updates of the edges",
        "time": f"{metrics['seconds']:.1f} s{an_update}, {metrics['threads']} thread(s), "
        f"{metrics['peak_rss_mb']:.0f} MB at most",
    }
    if labels["test"]:
        accuracy = f"{metrics['test_accuracy']:.1%} of {labels['test']:,} rows"
        lines = {"test accuracy": accuracy, **lines}
    table = Table.grid(padding=(0, 2))
    table.add_row(metrics["method"], heading)
    for name, value in lines.items():
        table.add_row(name, value)
    results().print(table, markup=False)
