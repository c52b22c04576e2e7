"""What `edgewise fit --out run/` left in a folder, read back to be reported on."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    from edgewise.io.columns import Column, TablePreprocessor

# Edges that are kept of a saved model, by falling probability.
MAX_EDGES = 60_000
# Free probabilities leave very many pairs just above zero, of which nothing can be seen.
LEAST_PROBABILITY = 0.01
PREFIX = "probability_"


class RunFolderError(ValueError):
    """A folder is not what a fit leaves; the message says which file, and what to do."""


@dataclass(frozen=True)
class Edges:
    """Edges between rows, by falling probability."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    probability: NDArray[np.float64]

    @property
    def n_edges(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class RunFiles:
    """All that is known of a run.

    Attributes
    ----------
    name : str
    metrics : dict
        Content of ``metrics.json``.
    history : list of dict
        A record for each outer iteration; empty where none were kept.
    ids : list of str
    roles : list of str
        "train", "validation", "early_stopping", "test" or "".
    classes : list of str
    labels : ndarray of int64
        Places among the classes; -1 where no label is known.
    predicted : ndarray of int64
    probabilities : ndarray, shape (n_rows, n_classes)
    edges : Edges
    features : ndarray or sparse array, optional
        As the network sees them; only where there is a saved model.
    feature_names : list of str, optional
    feature_columns : list of Column, optional
        Of a table, the column that each feature comes from.
    comparison : dict, optional
        Content of ``comparison.json``.
    problems : list of str
        What there is but could not be read.
    """

    name: str
    metrics: dict[str, Any]
    history: list[dict[str, Any]]
    ids: list[str]
    roles: list[str]
    classes: list[str]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    edges: Edges
    features: Any = None
    feature_names: list[str] | None = None
    feature_columns: list[Column] | None = None
    comparison: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    def rows_of(self, role: str) -> NDArray[np.int64]:
        """Rows in a role whose label is known."""
        chosen = [row for row, own in enumerate(self.roles) if own == role]
        rows = np.array(chosen, dtype=np.int64)
        return rows[self.labels[rows] >= 0]


def read_run(folder: Path) -> RunFiles:
    """Read the folder of a run.

    ``metrics.json`` and ``predictions.csv`` must be there. The rest is taken where it is: the
    record of the outer iterations from ``log.jsonl``, ``history.csv`` or the saved model; edges
    from the saved model, ``edges.parquet`` or ``edges.csv``.
    """
    metrics = _json(folder, "metrics.json")
    predictions = _predictions(folder)
    id_column = next(
        (name for name in ("id", "row") if name in predictions), predictions.columns[0]
    )
    ids = predictions[id_column].tolist()
    classes = [name[len(PREFIX) :] for name in _shares(predictions)]
    model, problems = _model(folder)
    if model is not None and len(model.label_distributions_) != len(ids):
        problems.append("The saved model is of another fit than predictions.csv, and is left out.")
        model = None
    probabilities = _probabilities(predictions, folder)
    roles = _column(predictions, "role") or [""] * len(ids)
    if model is not None and "role" not in predictions:
        for role in ("train", "validation", "early_stopping"):
            for row in getattr(model.split_, role):
                roles[row] = role
    table = None if model is None else _table(folder, model)
    history, damage = _history(folder, model)
    return RunFiles(
        name=str(metrics.get("dataset") or metrics.get("source") or folder.resolve().name),
        metrics=metrics,
        history=history,
        ids=ids,
        roles=roles,
        classes=classes,
        labels=_codes(_column(predictions, "label"), classes, len(ids)),
        predicted=probabilities.argmax(axis=1),
        probabilities=probabilities,
        edges=_edges_of_files(folder, ids) if model is None else _edges_of_model(model),
        features=None if model is None else model._fitted_rows,
        feature_names=None if model is None else _feature_names(table, model),
        feature_columns=None if table is None else table.feature_columns(),
        comparison=_json(folder, "comparison.json") if _has(folder, "comparison.json") else None,
        problems=[*problems, *damage],
    )


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def _json(folder: Path, name: str) -> dict[str, Any]:
    if not folder.is_dir():
        raise RunFolderError(f"there is no folder {folder}: name one that `fit --out` wrote.")
    if not _has(folder, name):
        raise RunFolderError(
            f"{folder} holds no {name}: name a folder that `edgewise fit ... --out {folder}` wrote."
        )
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RunFolderError(f"{folder / name} is damaged (no JSON object): fit again.")
    return content


# ---------------------------------------------------------------------------------- predictions


def _predictions(folder: Path) -> pd.DataFrame:
    import pandas as pd

    file = folder / "predictions.csv"
    if not file.is_file():
        raise RunFolderError(f"{folder} holds no predictions.csv: fit again with --out {folder}.")
    try:
        # All as text: ids may be 007, and a class may be called NA.
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    except ValueError as error:
        raise RunFolderError(f"{file} is damaged ({error}): fit again.") from None
    if not len(table) or not _shares(table):
        raise RunFolderError(
            f"{file} holds no rows with columns {PREFIX}...: it is not of `edgewise fit`."
        )
    return table


def _shares(table: pd.DataFrame) -> list[str]:
    """Names of the columns that hold the probability of a class."""
    return [str(name) for name in table.columns if str(name).startswith(PREFIX)]


def _column(table: pd.DataFrame, name: str) -> list[str] | None:
    return table[name].tolist() if name in table else None


def _probabilities(table: pd.DataFrame, folder: Path) -> NDArray[np.float64]:
    try:
        probabilities: NDArray[np.float64] = (
            table[_shares(table)].to_numpy(dtype=str).astype(np.float64)
        )
    except ValueError as error:
        file = folder / "predictions.csv"
        raise RunFolderError(f"{file} is damaged ({error}): fit again.") from None
    return probabilities


def _codes(names: list[str] | None, classes: Sequence[str], n_rows: int) -> NDArray[np.int64]:
    if names is None:
        return np.full(n_rows, -1, dtype=np.int64)
    place = {name: code for code, name in enumerate(classes)}
    return np.array([place.get(name, -1) for name in names], dtype=np.int64)


# --------------------------------------------------------------------------------------- model


def _model(folder: Path) -> tuple[Any, list[str]]:
    """The saved classifier, if there is one that can be read; else why not."""
    if not (folder / "model").is_dir():
        return None, []
    from edgewise.estimator import LDSClassifier
    from edgewise.persistence import ModelFileError

    try:
        return LDSClassifier.load(folder / "model"), []
    except ModelFileError as error:
        return None, [f"The saved model could not be read, and is left out: {error}"]


def _feature_names(table: TablePreprocessor | None, model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    if names is None and table is not None:
        names = table.get_feature_names_out()
    return None if names is None or len(names) != model.n_features_in_ else list(map(str, names))


def _table(folder: Path, model: Any) -> TablePreprocessor | None:
    """What turned a table's columns into the features, where that was saved."""
    from edgewise.io.columns import FORMAT, TablePreprocessor, load_table_settings

    for file in sorted([*folder.glob("*.json"), *folder.glob("model/*.json")]):
        head = file.read_text(encoding="utf-8", errors="replace")[:200]
        if f'"{FORMAT}"' in head:
            content = load_table_settings(file)
            inner = content.get("preprocessor", content)
            if inner["columns"] is None:  # a sparse file: its features have numbers, no names
                return None
            table = TablePreprocessor.from_dict(inner)
            return table if len(table.feature_columns()) == model.n_features_in_ else None
    return None


# --------------------------------------------------------------------------------------- edges


def _edges_of_model(model: Any) -> Edges:
    pairs, probability = model.edges_.above(LEAST_PROBABILITY)
    order = np.argsort(-probability, kind="stable")[:MAX_EDGES]
    return Edges(pairs.rows[order], pairs.cols[order], probability[order].astype(np.float64))


def _edges_of_files(folder: Path, ids: Sequence[str]) -> Edges:
    import pandas as pd

    if _has(folder, "edges.parquet"):
        file = folder / "edges.parquet"
        table = pd.read_parquet(file)
    elif _has(folder, "edges.csv"):
        file = folder / "edges.csv"
        table = pd.read_csv(file, dtype={"source": str, "target": str}, keep_default_na=False)
    else:
        nothing = np.empty(0, dtype=np.int64)
        return Edges(nothing, nothing, np.empty(0))
    missing = [name for name in ("source", "target", "probability") if name not in table]
    if missing:
        raise RunFolderError(f"{file} has no column {missing[0]!r}: it is not of `edgewise fit`.")
    place = {id_: row for row, id_ in enumerate(ids)}
    if len(place) < len(ids):
        raise RunFolderError(
            f"{folder / 'predictions.csv'} has two rows of one id, so {file.name} does not tell "
            "which one an edge joins: fit again with other ids."
        )
    try:
        ends = [
            np.array([place[str(end)] for end in table[name]], dtype=np.int64)
            for name in ("source", "target")
        ]
    except KeyError as error:
        raise RunFolderError(
            f"{file} names the row {error}, which predictions.csv lacks."
        ) from None
    probability = table["probability"].to_numpy(dtype=np.float64)
    order = np.argsort(-probability, kind="stable")[:MAX_EDGES]
    return Edges(ends[0][order], ends[1][order], probability[order])


# ------------------------------------------------------------------------------------- history


def _history(folder: Path, model: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The outer iterations, and what is wrong with the file they are read from."""
    problems: list[str] = []
    if _has(folder, "log.jsonl"):
        records, problems = _records(folder / "log.jsonl")
    elif _has(folder, "history.csv"):
        with (folder / "history.csv").open(newline="", encoding="utf-8") as file:
            records = [dict(row) for row in csv.DictReader(file)]
    else:
        records = [] if model is None else model.history_
    usable = [
        {name: _number(value) for name, value in record.items()}
        for record in records
        if _number(record.get("iteration")) is not None and "validation_loss" in record
    ]
    return usable, problems


def _records(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Objects of a file with one on each line, and how many lines are none."""
    records, n_damaged = [], 0
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            n_damaged += 1
    damage = f"{file.name} has {n_damaged} damaged lines, which are left out."
    return records, [damage] if n_damaged else []


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
