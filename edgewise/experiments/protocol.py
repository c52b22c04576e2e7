"""What a run is, what is recorded of it, and how hyperparameters are chosen: never by test."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

Labels: TypeAlias = Literal["paper", "equal"]
Criterion: TypeAlias = Literal["validation", "early_stopping"]

# What a variant means when it says nothing: all given edges, the published split. Naming the
# default must not make a second key of the same run.
_VARIANT_DEFAULTS: Mapping[str, Any] = {"keep_edges": 1, "split": "public"}


class Settings(Mapping[str, Any]):
    """An immutable, hashable mapping of names to JSON values, compared by canonical JSON.

    ``1`` and ``1.0`` are the same setting, as they are the same number; ``True`` is not ``1``.

    Parameters
    ----------
    values : mapping of str to None, bool, int, float, str, or lists and mappings of these

    Examples
    --------
    >>> Settings({"tau": 5, "eta": 1.0}) == Settings({"eta": 1, "tau": 5})
    True
    >>> Settings({"tau": 5, "eta": 1.0}).text
    '{"eta":1,"tau":5}'
    """

    __slots__ = ("_values", "text")

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = {name: _plain(value, name) for name, value in (values or {}).items()}
        self.text = canonical(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Settings) else NotImplemented

    def __repr__(self) -> str:
        return f"Settings({self.text})"


def canonical(value: Any) -> str:
    """Write a JSON value in the one form that keys and checksums are made of.

    Parameters
    ----------
    value : JSON value

    Returns
    -------
    str, with sorted names, no spaces, and whole numbers written without a decimal point

    Examples
    --------
    >>> canonical({"b": 2.0, "a": [True, None]})
    '{"a":[true,null],"b":2}'
    """
    return json.dumps(_integral(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _integral(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _integral(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return value


def _plain(value: Any, name: str) -> Any:
    """Bring a value to plain JSON types, or name the culprit."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name!r} is {value}: a run is described by finite numbers only")
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, name) for item in value]
    raise TypeError(
        f"{name!r} is a {type(value).__name__}: use None, bool, int, float, str, "
        "or lists and mappings of these, so that the run can be written as JSON"
    )


@dataclass(frozen=True)
class Run:
    """One fit to be made: everything that decides its result, and nothing else.

    Parameters
    ----------
    method : str, as in ``edgewise.make_method``
    dataset : str
    parameters : mapping, the arguments of the method
    seed : int
    labels : {"paper", "equal"}, the label budget
    variant : mapping, how the data differ from the published protocol, e.g.
        ``{"keep_edges": 0.5}`` or ``{"split": "random"}``

    Examples
    --------
    >>> run = Run("lds", "cora", {"tau": 5}, seed=0, variant={"keep_edges": 0.5})
    >>> run.key
    'e1d2bc17b7a3ff75'
    >>> run == Run("lds", "cora", {"tau": 5.0}, seed=0, variant={"keep_edges": 0.5})
    True
    """

    method: str
    dataset: str
    parameters: Mapping[str, Any] = field(default_factory=Settings)
    seed: int = 0
    labels: Labels = "paper"
    variant: Mapping[str, Any] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name in ("method", "dataset"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"{name} must be a non-empty string, got {getattr(self, name)!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, (int, np.integer)):
            raise TypeError(f"seed must be a whole number, got {self.seed!r}")
        if self.labels not in ("paper", "equal"):
            raise ValueError(f"labels must be 'paper' or 'equal', got {self.labels!r}")
        variant = {
            name: value
            for name, value in self.variant.items()
            if value is not None and _VARIANT_DEFAULTS.get(name) != value
        }
        # A frozen dataclass is filled in through object.__setattr__.
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "parameters", Settings(self.parameters))
        object.__setattr__(self, "variant", Settings(variant))

    def describe(self) -> dict[str, Any]:
        """Return the fields as plain JSON values.

        Examples
        --------
        >>> Run("rf", "wine", seed=1).describe()["labels"]
        'paper'
        """
        return {
            "method": self.method,
            "dataset": self.dataset,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "labels": self.labels,
            "variant": dict(self.variant),
        }

    @property
    def key(self) -> str:
        """The run's name in the store: a hash of its canonical JSON."""
        return hashlib.sha256(canonical(self.describe()).encode()).hexdigest()[:16]

    @property
    def cell(self) -> Cell:
        """The cell of a results table to which the run belongs."""
        return Cell(self.method, self.dataset, self.labels, canonical(dict(self.variant)))


class Cell(NamedTuple):
    """A cell of a results table: what remains of a run without parameters and seed."""

    method: str
    dataset: str
    labels: Labels
    variant: str  # canonical JSON, so that a cell can be a dictionary's key


@dataclass(frozen=True)
class Outcome:
    """What executing a run gives back; the runner adds time, memory, versions and status.

    Parameters
    ----------
    accuracies : mapping of part ("train", "validation", "early_stopping", "test", ...) to fraction
    losses : mapping of part to mean cross-entropy; not finite means unknown
    expected_edges : float or None
    details : mapping, a few more numbers (outer iterations, updates); no arrays

    Examples
    --------
    >>> Outcome({"validation": 0.9, "test": 0.875}).accuracies["test"]
    0.875
    """

    accuracies: Mapping[str, float]
    losses: Mapping[str, float] = field(default_factory=dict)
    expected_edges: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """A finished run: what came out, how long it took, and with what.

    Parameters
    ----------
    run : Run
    status : {"ok", "failed"}
    reason : str or None, why it failed
    accuracies, losses : mapping of part to number
    expected_edges : float or None
    details : mapping
    seconds : float
    peak_memory_mb : float or None
    versions : mapping of package to version
    threads : int, threads used by the run
    host_threads : int or None, threads of the machine
    finished : str, UTC, ISO 8601

    Examples
    --------
    >>> record = Record(Run("rf", "wine"), accuracies={"test": 0.93})
    >>> record.status, record.accuracies["test"]
    ('ok', 0.93)
    """

    run: Run
    status: Literal["ok", "failed"] = "ok"
    reason: str | None = None
    accuracies: Mapping[str, float | None] = field(default_factory=dict)
    losses: Mapping[str, float | None] = field(default_factory=dict)
    expected_edges: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_mb: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    host_threads: int | None = None
    finished: str = ""

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.run.key


@dataclass(frozen=True)
class Candidate:
    """All that a choice of hyperparameters may look at. There is no test field to look at.

    ``accuracy`` and ``loss`` are those of the one part that decides for this method.

    Examples
    --------
    >>> from dataclasses import fields
    >>> [f.name for f in fields(Candidate)]
    ['cell', 'seed', 'parameters', 'key', 'accuracy', 'loss']
    """

    cell: Cell
    seed: int
    parameters: Settings
    key: str
    accuracy: float
    loss: float  # infinite where unknown, so that a known loss wins a tie


@dataclass(frozen=True)
class Choice:
    """The hyperparameters chosen for one cell.

    Attributes
    ----------
    cell : Cell
    criterion : {"validation", "early_stopping"}, the part that decided
    parameters : dict of seed to Settings
    keys : dict of seed to the key of the chosen record
    considered : int, how many settings were compared

    Examples
    --------
    >>> records = [Record(Run("rf", "wine", {"n": n}), accuracies={"validation": n / 10, "test": 0})
    ...            for n in (3, 7, 5)]
    >>> dict(choose(records)[records[0].run.cell].parameters[0])
    {'n': 7}
    """

    cell: Cell
    criterion: Criterion
    parameters: dict[int, Settings]
    keys: dict[int, str]
    considered: int


def criterion_of(method: str) -> Criterion:
    """Tell which part chooses the hyperparameters of a method.

    The LDS family fits its graph to the validation labels, so only early stopping is left.

    Parameters
    ----------
    method : str

    Returns
    -------
    "early_stopping" for the LDS family, else "validation"

    Examples
    --------
    >>> criterion_of("knn-lds-dense"), criterion_of("knn-gcn")
    ('early_stopping', 'validation')
    """
    return "early_stopping" if "lds" in method.split("-") else "validation"


def trial_labels(method: str, labels: Labels) -> Labels:
    """Tell at which label budget the settings of a method are tried, for runs at another.

    The budget itself, so that a setting is judged with about as many labels as it will have in the
    end. LDS learns from training and validation rows and is judged on the early-stopping rows at
    either budget, so that its trials at the paper's say it all.

    Parameters
    ----------
    method : str
    labels : {"paper", "equal"}

    Returns
    -------
    {"paper", "equal"}

    Examples
    --------
    >>> trial_labels("knn-gcn", "equal"), trial_labels("knn-lds", "equal")
    ('equal', 'paper')
    """
    return "paper" if criterion_of(method) == "early_stopping" else labels


def strip(record: Record) -> Candidate:
    """Reduce a record to what a choice may see.

    Parameters
    ----------
    record : Record, finished with status "ok"

    Returns
    -------
    Candidate

    Examples
    --------
    >>> strip(Record(Run("rf", "wine"), accuracies={"validation": 0.9, "test": 0.8})).accuracy
    0.9
    """
    part = criterion_of(record.run.method)
    accuracy = record.accuracies.get(part)
    if accuracy is None:
        raise ValueError(
            f"record {record.key} of {record.run.method} on {record.run.dataset} has no {part} "
            "accuracy, which chooses its hyperparameters; repeat the run with that part"
        )
    loss = record.losses.get(part)
    if loss is None or not math.isfinite(loss):
        loss = math.inf
    run = record.run
    return Candidate(run.cell, run.seed, Settings(run.parameters), record.key, accuracy, loss)


def choose(
    records: Iterable[Record], *, per: Literal["seed", "cell"] = "seed"
) -> dict[Cell, Choice]:
    """Choose the hyperparameters of every cell by validation, or early-stopping, accuracy.

    Equal accuracies are decided by the smaller loss on the same part, then by the settings'
    canonical text, so that the order of the records means nothing. Failed records are left out.

    Parameters
    ----------
    records : iterable of Record
    per : "seed" chooses for each seed by itself, as the paper does; "cell" chooses one setting by
        its mean over the seeds, among the settings that were run on the most seeds (a setting with
        one lucky seed must not win).

    Returns
    -------
    dict of Cell to Choice

    Examples
    --------
    >>> records = [Record(Run("knn-lds", "wine", {"tau": tau}),
    ...                   accuracies={"early_stopping": 1.0}, losses={"early_stopping": loss})
    ...            for tau, loss in ((5, 0.2), (16, 0.1))]
    >>> [dict(choice.parameters[0]) for choice in choose(records).values()]
    [{'tau': 16}]
    """
    if per not in ("seed", "cell"):
        raise ValueError(f"per must be 'seed' or 'cell', got {per!r}")
    # From here on there are candidates only: nothing below can know a test accuracy.
    cells: dict[Cell, list[Candidate]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            candidate = strip(record)
            cells[candidate.cell].append(candidate)
    pick = _best_per_seed if per == "seed" else _best_over_seeds
    return {cell: _as_choice(cell, pick(found), found) for cell, found in cells.items()}


def _as_choice(cell: Cell, best: Sequence[Candidate], found: Sequence[Candidate]) -> Choice:
    ordered = sorted(best, key=lambda candidate: candidate.seed)
    return Choice(
        cell=cell,
        criterion=criterion_of(cell.method),
        parameters={candidate.seed: candidate.parameters for candidate in ordered},
        keys={candidate.seed: candidate.key for candidate in ordered},
        considered=len({candidate.parameters for candidate in found}),
    )


def _best_per_seed(candidates: Sequence[Candidate]) -> list[Candidate]:
    seeds: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        seeds[candidate.seed].append(candidate)
    return [
        min(group, key=lambda c: (-c.accuracy, c.loss, c.parameters.text))
        for group in seeds.values()
    ]


def _best_over_seeds(candidates: Sequence[Candidate]) -> list[Candidate]:
    settings: dict[Settings, dict[int, Candidate]] = defaultdict(dict)
    for candidate in candidates:
        settings[candidate.parameters][candidate.seed] = candidate
    most = max(len(seeds) for seeds in settings.values())

    def rank(parameters: Settings) -> tuple[float, float, str]:
        # fsum: equal means stay equal whatever the order of the seeds.
        group = settings[parameters].values()
        accuracy = math.fsum(c.accuracy for c in group) / most
        return -accuracy, math.fsum(c.loss for c in group) / most, parameters.text

    best = min((p for p, seeds in settings.items() if len(seeds) == most), key=rank)
    return list(settings[best].values())
