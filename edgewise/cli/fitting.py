"""What the fit of a data set and that of a table share: watching it, and its figures."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.cli.machine import peak_rss_mb, threads_in_use
from edgewise.cli.output import notes
from edgewise.team import join_team

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Watching:
    """What is kept of a fit while it runs, and said of it.

    Attributes
    ----------
    profile : bool
        Whether to say where the time went.
    checkpoint : Path or None
        File to keep the state in, and to go on from.
    tensorboard : Path or None
        Folder for TensorBoard.
    """

    profile: bool = False
    checkpoint: Path | None = None
    tensorboard: Path | None = None


def watched_fit(
    title: str,
    parameters: Mapping[str, Any],
    seed: int,
    arguments: Mapping[str, Any],
    watching: Watching,
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
    watching : Watching
    callbacks : sequence of Callback
        Further ones.
    """
    from edgewise.estimator import LDSClassifier
    from edgewise.graph.construct import knn_pairs
    from edgewise.graph.sharded import agreed
    from edgewise.inputs import adjacency_pairs
    from edgewise.report.profile import CycleClock, profiled
    from edgewise.report.tensorboard import TensorBoardLog

    team = join_team()
    classifier = LDSClassifier(**parameters, random_state=seed)
    watch = _display(title, classifier)
    clock = CycleClock()
    given = dict(arguments)
    with ExitStack() as around:
        watchers: list[Callback] = [clock, watch, *callbacks]
        if watching.tensorboard is not None:
            watchers.append(around.enter_context(TensorBoardLog(watching.tensorboard)))
        classifier.set_params(callbacks=watchers)
        measured = around.enter_context(profiled() if watching.profile else nullcontext())
        around.enter_context(watch)
        started = time.perf_counter()
        graph = given.get("graph")
        if graph is None:
            # What the classifier would do itself; here, because edges.csv says what was there.
            graph = knn_pairs(given["X"], classifier.k, metric=classifier.metric)
            graph = graph if team is None else agreed(team, graph)
            given["graph"] = graph if classifier.edges == "free" else None
        initial, _ = adjacency_pairs(graph, given["X"].shape[0])
        classifier.fit(**given, checkpoint=watching.checkpoint)
        seconds = time.perf_counter() - started
    if measured is not None:
        updates = int(sum(record["outer_updates"] for record in classifier.history_))
        notes().print(measured.table(updates))
    interrupted = watch.progress is not None and watch.progress.interrupted
    return Fitted(classifier, initial, seconds, clock.median(), interrupted)


def _display(title: str, classifier: LDSClassifier) -> LiveProgress:
    from edgewise.learn_similarity import SimilaritySchedule
    from edgewise.report.progress import LiveProgress

    if classifier.edges == "similarity":  # goes through a fixed number of stages
        return LiveProgress(None, title, notes(), max_iterations=len(SimilaritySchedule().stages()))
    most = classifier.max_outer_iterations
    return LiveProgress(classifier.patience, title, notes(), max_iterations=most)


def baseline(
    fitted: Fitted, arguments: Mapping[str, Any], truth: NDArray[Any], test: NDArray[np.int64]
) -> dict[str, Any]:
    """The same network on the graph that the fit started from, given all labels that it had.

    Parameters
    ----------
    fitted : Fitted
    arguments : mapping
        Those of the fit.
    truth : ndarray
        Labels of all rows.
    test : ndarray of int64
        The rows to judge by.

    Returns
    -------
    dict
        ``baseline``, for ``metrics.json``; empty without rows to judge by.
    """
    if not len(test):
        return {}
    from edgewise.baselines import make_method

    classifier = fitted.classifier
    shared: dict[str, Any] = {
        "learning_rate": classifier.inner_learning_rate,
        "hidden_units": classifier.hidden_units,
        "refit": True,
        "random_state": classifier.random_state,
    }
    if arguments.get("graph") is None:
        method = "knn-gcn"
        shared |= {"k": classifier.k, "metric": classifier.metric}
    else:
        method = "gcn"
    parts = {name: getattr(classifier.split_, name) for name in ("validation", "early_stopping")}
    fixed = make_method(method, **shared).fit(
        arguments["X"], arguments["y"], arguments.get("graph"), **parts
    )
    right = fixed.transduction_[test] == truth[test]
    return {
        "baseline": {
            "method": method,
            "labels": len(classifier.split_.train) + sum(map(len, parts.values())),
            "test_accuracy": float(right.mean()),
        }
    }


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
        **_of_each_process(),
    }


def _of_each_process() -> dict[str, Any]:
    """What several processes took and were told; nothing where there is one."""
    team = join_team()
    if team is None:
        return {}
    import numpy as np

    own = np.array([peak_rss_mb() or np.nan, team.received])
    peaks, received = zip(*(part.tolist() for part in team.gather(own)), strict=True)
    return {
        "processes": team.size,
        "peak_rss_mb_of_each": list(peaks),
        "received_bytes_of_each": [int(count) for count in received],
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
    if "processes" in metrics:
        received = max(metrics["received_bytes_of_each"]) / 1e6
        lines["processes"] = (
            f"{metrics['processes']}, each with {max(metrics['peak_rss_mb_of_each']):.0f} MB at "
            f"most, and {received:.1f} MB received from others"
        )
    if labels["test"]:
        accuracy = f"{metrics['test_accuracy']:.1%} of {labels['test']:,} rows"
        lines = {"test accuracy": accuracy, **lines}
    if fixed := metrics.get("baseline"):
        lines["on the fixed graph"] = (
            f"{fixed['test_accuracy']:.1%} ({fixed['method']}, fitted to all {fixed['labels']} "
            "labels); `edgewise compare` tells whether the difference means anything"
        )
    table = Table.grid(padding=(0, 2))
    table.add_row(metrics["method"], heading)
    for name, value in lines.items():
        table.add_row(name, value)
    results().print(table, markup=False)
