"""Choosing hyperparameters by labelled rows that had no part in the fit, and by nothing else."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edgewise.baselines import get_method, make_method
from edgewise.estimator import TransductiveClassifier
from edgewise.experiments.protocol import (
    Candidate,
    Criterion,
    Labels,
    Record,
    Run,
    Settings,
    choose,
    criterion_of,
    strip,
    trial_labels,
)
from edgewise.experiments.runner import run_all
from edgewise.experiments.store import Store
from edgewise.experiments.user_data import FixedSplit, UserData
from edgewise.experiments.workers import Execute
from edgewise.inputs import split_labelled
from edgewise.problem import Split

if TYPE_CHECKING:
    import pandas as pd

#: Values to try of each parameter.
Space: TypeAlias = Mapping[str, Sequence[Any]]

# All combinations are tried where there are at most so many; else so many that Optuna proposes.
BUDGET = 120
# Settings that are proposed at a time. It does not depend on the number of processes, so that the
# same settings are tried whatever the machine; and then, on a repetition, found in the store.
_BATCH = 8
# Of the loss in what Optuna maximises: below the step of an accuracy on up to 10,000 rows.
_LOSS_SHARE = 1e-4


class Search(ABC):
    """Proposes settings and hears how good they were. It hears of candidates: never of tests."""

    @abstractmethod
    def ask(self) -> list[Settings]:
        """The next settings to try; none when the search is over."""

    @abstractmethod
    def tell(self, results: Mapping[Settings, Candidate | None]) -> None:
        """How good the settings asked for last were; None for those that failed."""


class GridSearch(Search):
    """All combinations of the values.

    Examples
    --------
    >>> search = GridSearch({"k": (5, 10), "metric": ("cosine",)})
    >>> [dict(settings) for settings in search.ask()]
    [{'k': 5, 'metric': 'cosine'}, {'k': 10, 'metric': 'cosine'}]
    >>> search.ask()
    []
    """

    def __init__(self, space: Space) -> None:
        combinations = product(*space.values())
        self._left = [Settings(dict(zip(space, values, strict=True))) for values in combinations]

    def ask(self) -> list[Settings]:
        asked, self._left = self._left, []
        return asked

    def tell(self, results: Mapping[Settings, Candidate | None]) -> None:
        """Nothing that is heard changes a grid."""


class ModelSearch(Search):
    """Optuna's tree-structured Parzen estimator, for more combinations than can be tried.

    Parameters
    ----------
    space : mapping of parameter to values; numbers in rising order are searched as ordered
    budget : int, settings to try
    seed : int

    Examples
    --------
    >>> search = ModelSearch({"C": tuple(range(1, 1000))}, budget=3, seed=0)
    >>> len(search.ask())
    3
    """

    def __init__(self, space: Space, budget: int, seed: int) -> None:
        import optuna

        self._space = {name: tuple(values) for name, values in space.items()}
        self._distributions = {name: _distribution(values) for name, values in self._space.items()}
        self._failed = optuna.trial.TrialState.FAIL
        self._left = budget
        self._known: dict[Settings, Candidate | None] = {}
        self._asked: list[tuple[Any, Settings]] = []
        with _quiet_optuna():
            # Trials of a batch are not yet judged when the next is proposed: "constant liar" takes
            # them for bad, which keeps the proposals apart.
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            self._study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self) -> list[Settings]:
        fresh: dict[Settings, None] = {}
        for _ in range(10 * _BATCH):
            if len(fresh) >= min(_BATCH, self._left):
                break
            with _quiet_optuna():
                trial = self._study.ask(self._distributions)
            settings = Settings(
                {name: values[trial.params[name]] for name, values in self._space.items()}
            )
            if settings in self._known:
                self._judge(trial, settings)  # proposed again: known at once, and free
            else:
                self._asked.append((trial, settings))
                fresh[settings] = None
        self._left -= len(fresh)
        return list(fresh)

    def tell(self, results: Mapping[Settings, Candidate | None]) -> None:
        self._known.update(results)
        for trial, settings in self._asked:
            self._judge(trial, settings)
        self._asked = []

    def _judge(self, trial: Any, settings: Settings) -> None:
        candidate = self._known[settings]
        with _quiet_optuna():
            if candidate is None:
                self._study.tell(trial, state=self._failed)
            else:
                self._study.tell(trial, _value(candidate))


def _value(candidate: Candidate) -> float:
    """Accuracy, and among equals the loss, as one number: where there are ties to learn from."""
    loss = candidate.loss
    return candidate.accuracy - _LOSS_SHARE * (loss / (1.0 + loss) if math.isfinite(loss) else 1.0)


def _distribution(values: Sequence[Any]) -> Any:
    """Positions among the values: a range where their order means something."""
    import optuna

    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if numbers and list(values) == sorted(values) and len(values) > 1:
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(tuple(range(len(values))))


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """No line of log for each trial, no warning that a parameter is experimental."""
    import warnings

    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def make_search(space: Space, *, budget: int | None = None, seed: int = 0) -> Search:
    """A grid where it has at most `budget` settings, else Optuna with that many.

    Parameters
    ----------
    space : mapping of parameter to the values to try
    budget : int, optional, 120 by default
    seed : int, of Optuna's sampler

    Returns
    -------
    Search

    Examples
    --------
    >>> type(make_search({"k": (5, 10, 20)})).__name__
    'GridSearch'
    >>> type(make_search({"k": (5, 10, 20)}, budget=2)).__name__
    'ModelSearch'
    """
    limit = BUDGET if budget is None else budget
    if limit < 1:
        raise ValueError(f"budget must be a positive number of settings, got {budget}")
    for name, values in space.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(
                f"the search space of {name!r} must be a list of values to try, got {values!r}"
            )
    if math.prod(len(values) for values in space.values()) <= limit:
        return GridSearch(space)
    return ModelSearch(space, limit, seed)


@dataclass(frozen=True)
class TunedRun:
    """A run with its hyperparameters chosen.

    Attributes
    ----------
    base : Run, as it was asked for
    record : Record of the run with the chosen parameters; failed where all settings failed
    trials : tuple of the records of all settings tried
    """

    base: Run
    record: Record
    trials: tuple[Record, ...]


def tune_runs(
    bases: Iterable[Run],
    execute: Execute,
    store: Store,
    *,
    search_spaces: Mapping[str, Space] | None = None,
    budget: int | None = None,
    **options: Any,
) -> list[TunedRun]:
    """Tune each of some runs by itself: every method, on every data set, for every seed.

    Settings are tried at the run's label budget; for LDS always at "paper", see
    `protocol.trial_labels`. The best by validation (LDS: early-stopping) accuracy is taken, or,
    where it was tried at another budget, executed.

    Parameters
    ----------
    bases : iterable of Run; their parameters are kept fixed
    execute : callable from Run to Outcome
    store : Store; what it holds is not computed again
    search_spaces : mapping of method to search space, where it is not the method's own
    budget : int, optional, settings to try for each run; see `make_search`
    **options
        Of `run_all`: jobs, backend, progress, ...

    Returns
    -------
    list of TunedRun, in the order of `bases`

    Examples
    --------
    >>> from edgewise.experiments import Outcome
    >>> def execute(run):
    ...     accuracy = run.parameters["C"] / 10
    ...     return Outcome({"validation": accuracy, "test": 1 - accuracy})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [tuned] = tune_runs([Run("logreg", "wine")], execute, Store(folder),
    ...                         search_spaces={"logreg": {"C": (1, 5, 2)}})
    >>> dict(tuned.record.run.parameters), tuned.record.accuracies["test"], len(tuned.trials)
    ({'C': 5}, 0.5, 3)
    """
    runs = list(bases)
    searches = [
        make_search(_space(run, search_spaces or {}), budget=budget, seed=run.seed) for run in runs
    ]
    trials: list[list[Record]] = [[] for _ in runs]
    while True:
        asked = [search.ask() for search in searches]
        wanted = [
            {settings: _trial(run, settings) for settings in proposed}
            for run, proposed in zip(runs, asked, strict=True)
        ]
        if not any(wanted):
            break
        # One call for all, so that all processes have something to do.
        run_all([run for group in wanted for run in group.values()], execute, store, **options)
        for search, group, tried in zip(searches, wanted, trials, strict=True):
            records = {settings: _recorded(store, run) for settings, run in group.items()}
            tried.extend(records.values())
            search.tell({s: _candidate(record) for s, record in records.items()})
    final = [_chosen(run, tried) for run, tried in zip(runs, trials, strict=True)]
    # The chosen trial is the result, but for LDS at budget "equal"; what all failed at is not
    # tried again.
    tried_keys = {record.key for tried in trials for record in tried}
    run_all([run for run in final if run.key not in tried_keys], execute, store, **options)
    return [
        TunedRun(base, _recorded(store, run), tuple(tried))
        for base, run, tried in zip(runs, final, trials, strict=True)
    ]


def _space(run: Run, search_spaces: Mapping[str, Space]) -> Space:
    """What is searched for a run: what it does not hold fixed."""
    space = search_spaces.get(run.method)
    if space is None:
        space = get_method(run.method).search_space
    return {name: values for name, values in space.items() if name not in run.parameters}


def _trial(base: Run, settings: Settings) -> Run:
    labels = trial_labels(base.method, base.labels)
    return replace(base, parameters={**base.parameters, **settings}, labels=labels)


def _recorded(store: Store, run: Run) -> Record:
    record = store.get(run)
    assert record is not None  # run_all records every run, failed ones too
    return record


def _candidate(record: Record) -> Candidate | None:
    return strip(record) if record.status == "ok" else None


def _chosen(base: Run, trials: Sequence[Record]) -> Run:
    """The run with the best parameters; where everything failed, the first of those that did."""
    choices = list(choose(trials).values())
    if not choices:
        return trials[0].run
    parameters = choices[0].parameters[base.seed]
    return replace(base, parameters=parameters)


@dataclass(frozen=True)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    method : str
    best_params_ : dict
    best_score_ : float, the accuracy that chose
    criterion_ : {"validation", "early_stopping"}, the rows it is on; see `tune`
    best_estimator_ : TransductiveClassifier, fitted with the best parameters
    trials : pandas.DataFrame
        A line for each setting tried, best first: its parameters, then accuracy, loss, seconds,
        status and the reason of a failure.
    split_ : Split, the roles of the labelled rows, the same in all trials
    """

    method: str
    best_params_: dict[str, Any]
    best_score_: float
    criterion_: Criterion
    best_estimator_: TransductiveClassifier
    trials: pd.DataFrame
    split_: Split

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.best_params_.items())
        part = self.criterion_.replace("_", "-")
        return (
            f"{self.method}: {chosen or 'defaults'} ({part} accuracy {self.best_score_:.1%}, "
            f"best of {len(self.trials)} settings)"
        )


def tune(
    method: str,
    X: Any,
    y: Any,
    graph: Any = None,
    *,
    validation: Any = None,
    early_stopping: Any = None,
    search_space: Space | None = None,
    budget: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    labels: Labels = "paper",
    jobs: int = 1,
    store: Store | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    random_state: int = 0,
) -> Tuned:
    """Choose the parameters of a method, and fit it with them.

    The score that chooses is the accuracy on labelled rows that had no part in the fit: the
    early-stopping rows for the LDS family, which fits its graph to the validation rows; for all
    others the same rows with ``labels="equal"``, where they learn from the validation rows too,
    and else the validation and early-stopping rows together. Equal accuracies are decided by the
    loss on these rows. Keep rows that you mean to judge the result by out of `y` altogether.

    Parameters
    ----------
    method : str, one of `list_methods`
    X, y, graph, validation, early_stopping
        As in `LDSClassifier.fit`. Where the parts are not given they are drawn, once for all
        trials.
    search_space : mapping of parameter to a list of values, optional
        In place of the method's own.
    budget : int, optional
        Settings to try, 120 by default. All combinations if there are no more; else Optuna's
        tree-structured Parzen estimator proposes.
    parameters : mapping, optional
        Kept fixed, as ``{"patience": 5}``.
    labels : {"paper", "equal"}
        Whether `best_estimator_` is fitted on the training rows, or once more on all labelled ones.
    jobs : int
        Processes at a time; -1 for one a processor.
    store : Store or path, optional
        Folder for the results. Interrupted and called again with the same data, the search goes on
        where it was.
    progress : bool, optional
        A progress bar on stderr; by default on a terminal only.
    random_state : int

    Returns
    -------
    Tuned

    Examples
    --------
    >>> import edgewise
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> y[::3] = -1
    >>> tuned = edgewise.tune("logreg", X, y, search_space={"C": [0.001, 1.0]})
    >>> tuned.best_params_, tuned.criterion_
    ({'C': 1.0}, 'validation')
    >>> tuned.best_estimator_.predict(X).shape
    (150,)
    """
    data = UserData.of(X, y, graph)
    rng = np.random.default_rng(random_state)
    split = split_labelled(
        data.codes, validation=validation, early_stopping=early_stopping, rng=rng
    )
    task = FixedSplit(data, split)
    budgeted = trial_labels(method, labels)
    base = Run(method, task.name, parameters or {}, seed=random_state, labels=budgeted)
    spaces = None if search_space is None else {method: search_space}
    with open_store(store) as records:
        [tuned] = tune_runs(
            [base],
            task,
            records,
            search_spaces=spaces,
            budget=budget,
            jobs=jobs,
            progress=progress,
            retry_failed=True,
        )
    if tuned.record.status == "failed":
        raise ValueError(
            f"{method} failed with all {len(tuned.trials)} settings; with the first of them: "
            f"{tuned.record.reason}"
        )
    best = dict(tuned.record.run.parameters)
    model = make_method(method, **best, refit=labels == "equal", random_state=random_state)
    model.fit(X, y, graph, validation=split.validation, early_stopping=split.early_stopping)
    chosen = strip(tuned.record)
    table = trials_table(tuned.trials)
    return Tuned(method, best, chosen.accuracy, criterion_of(method), model, table, split)


def trials_table(trials: Iterable[Record]) -> pd.DataFrame:
    """A line for each trial, best first, failed ones last.

    Parameters
    ----------
    trials : iterable of Record

    Returns
    -------
    pandas.DataFrame

    Examples
    --------
    >>> records = [Record(Run("rf", "wine", {"max_depth": d}), accuracies={"validation": d / 10})
    ...            for d in (3, 5)]
    >>> trials_table(records)[["max_depth", "accuracy", "status"]]
       max_depth  accuracy status
    0          5       0.5     ok
    1          3       0.3     ok
    """
    import pandas as pd

    scored = [(record, _candidate(record)) for record in trials]
    good = [pair for pair in scored if pair[1] is not None]
    good.sort(key=lambda pair: (-pair[1].accuracy, pair[1].loss, pair[1].parameters.text))  # type: ignore[union-attr]
    lines = [
        {
            **record.run.parameters,
            "accuracy": math.nan if candidate is None else candidate.accuracy,
            "loss": math.nan if candidate is None else candidate.loss,
            "seconds": record.seconds,
            "status": record.status,
            "reason": record.reason or "",
        }
        for record, candidate in [*good, *(pair for pair in scored if pair[1] is None)]
    ]
    return pd.DataFrame(lines)


@contextlib.contextmanager
def open_store(store: Store | str | os.PathLike[str] | None) -> Iterator[Store]:
    """A store, the store of a folder, or one that lasts as long as the block.

    Examples
    --------
    >>> with open_store(None) as store:
    ...     len(store)
    0
    """
    if isinstance(store, Store):
        yield store
    elif store is not None:
        yield Store(Path(store))
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Store(folder)
