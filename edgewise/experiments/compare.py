"""Does a learned graph help on these data? Methods side by side, on the same splits and labels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.baselines import get_method
from edgewise.experiments.execute import check_parameters, execute, load_variant
from edgewise.experiments.protocol import Labels, Run, criterion_of
from edgewise.experiments.runner import run_all
from edgewise.experiments.statistics import Verdict, best_methods, mean_std, verdict
from edgewise.experiments.store import Store
from edgewise.experiments.tune import Space, TunedRun, open_store, tune_runs
from edgewise.experiments.user_data import RandomSplits, UserData
from edgewise.experiments.workers import Execute
from edgewise.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

# The honest rivals: without a graph, on a fixed one, and on a random one that nobody learned.
_WITHOUT_GRAPH = ("logreg", "rbf-svm", "rf", "ffnn", "lp", "knn-gcn", "soft-knn-gcn", "knn-lds")
_WITH_GRAPH = ("logreg", "rf", "ffnn", "knn-gcn", "soft-knn-gcn", "gcn", "gcn-rnd", "lds")


def learns_graph(method: str) -> bool:
    """Whether a method learns a graph.

    Examples
    --------
    >>> learns_graph("knn-lds"), learns_graph("knn-gcn")
    (True, False)
    """
    return criterion_of(method) == "early_stopping"


def default_methods(has_graph: bool) -> tuple[str, ...]:
    """The methods that are compared where none are named.

    Parameters
    ----------
    has_graph : bool, whether the data come with a graph

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> default_methods(has_graph=False)[-3:]
    ('knn-gcn', 'soft-knn-gcn', 'knn-lds')
    """
    return _WITH_GRAPH if has_graph else _WITHOUT_GRAPH


@dataclass(frozen=True)
class LabelBudget:
    """Which labels the methods used, and what for.

    Attributes
    ----------
    labels : {"paper", "equal"}
    train, validation, early_stopping, test : int, rows in each part, of the first seed
    """

    labels: Labels
    train: int
    validation: int
    early_stopping: int
    test: int

    @property
    def seen(self) -> int:
        """Labels that every method sees, whatever for."""
        return self.train + self.validation + self.early_stopping

    def __str__(self) -> str:
        shared = (
            f"label budget {self.labels!r}: every method sees the same {self.seen} labels, and is "
            f"judged on {self.test:,} others. "
        )
        if self.labels == "equal":
            return shared + (
                f"The final fit of every method is on all {self.seen}. Before it, "
                f"{self.train + self.validation} train (LDS fits its edges on {self.validation} of "
                f"these), and {self.early_stopping} tell when to stop and which parameters are "
                "best."
            )
        return shared + (
            f"{self.train} train; {self.validation + self.early_stopping} tell when to stop and "
            f"which parameters are best, and nothing more, except with LDS, which also fits its "
            f"edges on {self.validation} of these. Budget 'equal' lets every method train on all."
        )


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing."""

    method: str
    seed: int
    reason: str


@dataclass(frozen=True)
class MethodResult:
    """A line of the table.

    Attributes
    ----------
    method : str
    learns_graph : bool
    accuracies : dict of seed to test accuracy, of the seeds that succeeded
    best : bool, whether it is the best, or not significantly different from it; only methods that
        succeeded on all seeds are compared
    seconds : float, mean of one fit with the parameters used
    initial_edges : float or None, mean edges of the graph given or found
    expected_edges : float or None, mean expected edges of the random or learned graph
    parameters : dict of seed to the parameters that were not the defaults
    settings : int, settings tried for each seed; 1 without tuning
    failures : tuple of Failure
    """

    method: str
    learns_graph: bool
    accuracies: dict[int, float]
    best: bool
    seconds: float
    initial_edges: float | None
    expected_edges: float | None
    parameters: dict[int, dict[str, Any]]
    settings: int
    failures: tuple[Failure, ...]

    @property
    def mean(self) -> float:
        """Mean test accuracy, NaN without any."""
        return mean_std(list(self.accuracies.values()))[0]

    @property
    def std(self) -> float:
        """Standard deviation over the seeds, NaN for fewer than two."""
        return mean_std(list(self.accuracies.values()))[1]

    @property
    def edges(self) -> float | None:
        """Expected edges, or those of the fixed graph; None where there is no graph."""
        return self.initial_edges if self.expected_edges is None else self.expected_edges

    @property
    def status(self) -> str:
        """Whether it succeeded: "ok", "failed", or "partly failed"."""
        if not self.failures:
            return "ok"
        return "partly failed" if self.accuracies else "failed"

    @property
    def cell(self) -> str:
        """Accuracy in percent, as it stands in the table, failures included."""
        total = len(self.accuracies) + len(self.failures)
        if not self.accuracies:
            return "failed"
        text = f"{100 * self.mean:.1f}"
        if not math.isnan(self.std):
            text += f" ± {100 * self.std:.1f}"
        if self.failures:
            text += f" ({len(self.failures)} of {total} failed)"
        return text


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison found.

    Attributes
    ----------
    source : str, the data
    budget : LabelBudget
    seeds : tuple of int
    tuned : bool
    methods : tuple of MethodResult, in the order asked for
    verdict : Verdict or None
        Whether a learned graph beat the best alternative. None where one of the two sides has no
        method that succeeded on all seeds; `conclusion` then says so.
    """

    source: str
    budget: LabelBudget
    seeds: tuple[int, ...]
    tuned: bool
    methods: tuple[MethodResult, ...]
    verdict: Verdict | None = field(default=None)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Every run that failed, and why."""
        return tuple(failure for result in self.methods for failure in result.failures)

    @property
    def conclusion(self) -> str:
        """The answer in one sentence, and which methods had no part in it."""
        if self.verdict is not None:
            text = self.verdict.sentence
        else:
            complete = [result for result in self.methods if not result.failures]
            missing = (
                "learns a graph"
                if any(not result.learns_graph for result in complete)
                else "does without learning one"
            )
            text = f"no verdict on learned graphs: no method that {missing} finished on every seed"
        left_out = [result.method for result in self.methods if result.failures]
        if left_out:
            text += f" (left out, because of failures: {', '.join(left_out)})"
        return text

    def to_pandas(self) -> pd.DataFrame:
        """A line for each method; accuracies are fractions."""
        import pandas as pd

        lines = [
            {
                "method": result.method,
                "mean": result.mean,
                "std": result.std,
                "best": result.best,
                "seconds": result.seconds,
                "edges": math.nan if result.edges is None else result.edges,
                "settings": result.settings,
                "status": result.status,
                **{f"seed_{seed}": result.accuracies.get(seed, math.nan) for seed in self.seeds},
            }
            for result in self.methods
        ]
        return pd.DataFrame(lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it as nested dicts, for JSON; NaN stands for what is unknown."""
        return {
            "source": self.source,
            "label_budget": {**asdict(self.budget), "seen": self.budget.seen},
            "seeds": list(self.seeds),
            "tuned": self.tuned,
            "methods": [
                {
                    **{name: value for name, value in asdict(result).items() if name != "failures"},
                    "mean": result.mean,
                    "std": result.std,
                    "status": result.status,
                }
                for result in self.methods
            ],
            "failures": [asdict(failure) for failure in self.failures],
            "verdict": None if self.verdict is None else _verdict_dict(self.verdict),
            "conclusion": self.conclusion,
        }

    def __str__(self) -> str:
        width = max(len(result.method) for result in self.methods)
        lines = [
            f"{'*' if result.best else ' '} {result.method:{width}}  {result.cell}"
            for result in self.methods
        ]
        lines += [f"{f.method}, seed {f.seed}: {f.reason}" for f in self.failures]
        return "\n".join([f"test accuracy on {self.source}, %", *lines, self.conclusion])


def _verdict_dict(found: Verdict) -> dict[str, Any]:
    return {**asdict(found), "difference": found.difference._asdict()}


def compare(
    source: Any,
    y: Any = None,
    graph: Any = None,
    *,
    methods: Iterable[str] | None = None,
    seeds: int | Sequence[int] = 5,
    labels: Labels = "paper",
    tune: bool = False,
    budget: int | None = None,
    search_spaces: Mapping[str, Space] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    variant: Mapping[str, Any] | None = None,
    test_share: float = 0.25,
    name: str | None = None,
    jobs: int = 1,
    store: Store | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ComparisonResult:
    """Compare methods on the same splits and the same labels; does a learned graph help?

    A method that fails is reported with its reason, and the others go on.

    Parameters
    ----------
    source : str or array-like
        The name of a data set, with the splits of its protocol, one a seed; or the features of
        your own rows, then with `y` and perhaps `graph`.
    y, graph : optional
        As in `LDSClassifier.fit`. For each seed, `test_share` of the labelled rows are held out to
        be judged on; the others are shared out in three equal, stratified parts.
    methods : iterable of str, optional
        By default `default_methods`.
    seeds : int or sequence of int
        How many seeds, from 0, or which.
    labels : {"paper", "equal"}
        "paper": the final fit of each method is on the training rows; LDS fits its graph on the
        validation rows. "equal": the final fit of each method is on all labelled rows but the held
        out ones.
    tune : bool
        Whether the parameters of each method are chosen, for each seed, among those of its search
        space: see `tune_runs`. Otherwise all have their defaults.
    budget, search_spaces
        As in `tune_runs`.
    parameters : mapping of method to parameters, optional
        Kept fixed, as ``{"knn-lds": {"patience": 5}}``.
    variant : mapping, optional
        Of a named data set, as ``{"keep_edges": 0.5}``: see `execute`.
    test_share : float
    name : str, optional
        What to call your own rows in the result.
    jobs, store, progress
        As in `tune`.

    Returns
    -------
    ComparisonResult

    Examples
    --------
    >>> import edgewise
    >>> result = edgewise.compare("wine", methods=["logreg", "rf", "lp"], seeds=2)
    >>> [(line.method, line.status) for line in result.methods]
    [('logreg', 'ok'), ('rf', 'ok'), ('lp', 'ok')]
    >>> print(result.conclusion)
    no verdict on learned graphs: no method that learns a graph finished on every seed
    """
    numbers = _seeds(seeds)
    task = _task(source, y, graph, test_share, variant or {}, numbers[0], name)
    chosen = _methods(methods, task.problem.pairs is not None)
    fixed = dict(parameters or {})
    for method in {*fixed, *(search_spaces or {})} - set(chosen):
        raise ValueError(f"parameters are given for {method!r}, which is not compared")
    for method, given in fixed.items():
        check_parameters(method, given)  # a mistake of the caller is no failure of a method
    runs = [
        Run(method, task.dataset, fixed.get(method, {}), seed, labels, variant or {})
        for method in chosen
        for seed in numbers
    ]
    options: dict[str, Any] = {"jobs": jobs, "progress": progress, "retry_failed": True}
    with open_store(store) as records:
        if tune:
            done = tune_runs(
                runs, task.execute, records, search_spaces=search_spaces, budget=budget, **options
            )
        else:
            run_all(runs, task.execute, records, **options)
            done = [
                TunedRun(run, record, (record,)) for run in runs if (record := records.get(run))
            ]
    split = task.problem.split
    sizes = (len(split.train), len(split.validation), len(split.early_stopping), task.n_test)
    return _summarised(task.title, LabelBudget(labels, *sizes), numbers, tune, chosen, done)


@dataclass(frozen=True)
class _Task:
    """The data: what executes runs on them, and what the first seed makes of them."""

    title: str
    dataset: str
    execute: Execute
    problem: Problem
    n_test: int


def _task(
    source: Any,
    y: Any,
    graph: Any,
    test_share: float,
    variant: Mapping[str, Any],
    seed: int,
    name: str | None,
) -> _Task:
    if isinstance(source, str):
        if y is not None or graph is not None:
            raise ValueError(
                f"{source!r} is taken for the name of a data set, which has labels, and perhaps a "
                "graph, of its own: leave out y and graph, or give the features in place of a name"
            )
        # Loaded here to fail at once, not once for every run, if there is no such data set.
        dataset = load_variant(source, seed, variant)
        return _Task(source, source, execute, dataset.to_problem(), len(dataset.test))
    if y is None:
        raise ValueError("y is missing: give the labels of the rows, with -1 or None where unknown")
    if variant:
        raise ValueError("variant is for named data sets; change X, y and graph themselves instead")
    splits = RandomSplits(UserData.of(source, y, graph), test_share)
    problem, exam = splits.data.divide(seed, test_share)
    return _Task(name or "your rows", splits.name, splits, problem, len(exam.rows))


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    numbers = (
        tuple(range(int(seeds))) if isinstance(seeds, (int, np.integer)) else tuple(map(int, seeds))
    )
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds must be a positive number, or different numbers, got {seeds!r}")
    return numbers


def _methods(methods: Iterable[str] | None, has_graph: bool) -> tuple[str, ...]:
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names, got the string {methods!r}")
    chosen = default_methods(has_graph) if methods is None else tuple(dict.fromkeys(methods))
    if not chosen:
        raise ValueError("methods is empty: name at least one, or leave it out")
    for method in chosen:
        get_method(method)  # a name that does not exist is no failure of a method
    return chosen


def _summarised(
    title: str,
    budget: LabelBudget,
    seeds: tuple[int, ...],
    tuned: bool,
    methods: Sequence[str],
    done: Sequence[TunedRun],
) -> ComparisonResult:
    groups = {method: [run for run in done if run.base.method == method] for method in methods}
    scores = {method: _accuracies(group) for method, group in groups.items()}
    # Those that failed on some seeds are not compared: what they survived may be the easy ones.
    complete = {method: found for method, found in scores.items() if len(found) == len(seeds)}
    best = best_methods(complete)
    return ComparisonResult(
        source=title,
        budget=budget,
        seeds=seeds,
        tuned=tuned,
        methods=tuple(
            _line(method, group, scores[method], method in best) for method, group in groups.items()
        ),
        verdict=_verdict(complete, budget.labels),
    )


def _verdict(complete: Mapping[str, Mapping[int, float]], labels: str) -> Verdict | None:
    learned = {method: found for method, found in complete.items() if learns_graph(method)}
    rivals = {method: found for method, found in complete.items() if not learns_graph(method)}
    return verdict(learned, rivals, labels=labels) if learned and rivals else None


def _accuracies(group: Sequence[TunedRun]) -> dict[int, float]:
    return {
        run.base.seed: accuracy
        for run in group
        if run.record.status == "ok" and (accuracy := run.record.accuracies["test"]) is not None
    }


def _line(
    method: str, group: Sequence[TunedRun], accuracies: dict[int, float], best: bool
) -> MethodResult:
    good = [run.record for run in group if run.record.status == "ok"]
    return MethodResult(
        method=method,
        learns_graph=learns_graph(method),
        accuracies=accuracies,
        best=best,
        seconds=_mean([float(record.details["fit_seconds"]) for record in good]),
        initial_edges=_known_mean([record.details.get("initial_edges") for record in good]),
        expected_edges=_known_mean([record.expected_edges for record in good]),
        parameters={record.run.seed: dict(record.run.parameters) for record in good},
        settings=max(len(run.trials) for run in group),
        failures=tuple(_failures(method, group)),
    )


def _failures(method: str, group: Sequence[TunedRun]) -> Iterable[Failure]:
    for run in group:
        if run.record.status == "failed":
            yield Failure(method, run.base.seed, run.record.reason or "no reason given")


def _mean(values: Sequence[float]) -> float:
    return mean_std(values)[0]


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return _mean(known) if known else None
