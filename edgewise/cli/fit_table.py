"""``edgewise fit customers.csv``: from a table to a learned graph, and a folder full of results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from edgewise.cli.fitting import (
    Fitted,
    Watching,
    baseline,
    figures,
    parameters_of,
    print_summary,
    watched_fit,
)
from edgewise.cli.folder import edge_table
from edgewise.cli.output import notes, plain, results

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from edgewise.estimator import LDSClassifier
    from edgewise.io.columns import TablePreprocessor
    from edgewise.learn import Callback

TABLE_FILES = (
    "predictions.csv",
    "edges.parquet",
    "edges.csv",
    "graph.graphml",
    "metrics.json",
    "log.jsonl",
    "model/",
    "report.html",
)
SETTINGS = "table.json"


@dataclass(frozen=True)
class Content:
    """A table as it is fitted.

    Attributes
    ----------
    features : ndarray or scipy CSR array
    names : list of str, or None
        Of the features, where they have any.
    labels : ndarray of object
        None where there is none.
    ids : list of str
    preprocessor : TablePreprocessor or None
        None for tables that come as a sparse matrix of features.
    target : str
        The column that the labels are from.
    notes : list of str
        What was decided about the columns, in words.
    """

    features: Any
    names: list[str] | None
    labels: NDArray[Any]
    ids: list[str]
    preprocessor: TablePreprocessor | None
    target: str
    notes: list[str]


@dataclass(frozen=True)
class TableFit:
    """A table to fit on, and what the user says about it."""

    path: Path
    target: str | None
    row_id: str | None
    drop: list[str]
    categorical: list[str]
    graph: Path | None
    test_fraction: float | None

    def run(
        self,
        parameters: dict[str, Any],
        seed: int,
        out: Path | None,
        shown_edges: tuple[int | None, float | None],
        watching: Watching,
    ) -> dict[str, Any]:
        """Fit, write the folder, and return the figures."""
        import numpy as np

        from edgewise.io.graphs import read_graph

        content = read_content(self)
        graph = None if self.graph is None else read_graph(self.graph, content.ids)
        test = held_out(content.labels, self.test_fraction, np.random.default_rng([seed, 3]))
        known = content.labels.copy()
        known[test] = None
        # Said once the fit is under way: of one that cannot be, the error is all there is to say.
        unsaid = [*content.notes, *leak_warnings(content, known)]
        watchers = [_says(unsaid), *([] if out is None else [_log(out / "log.jsonl")])]
        method = "knn-lds" if graph is None else "lds"
        arguments = {"X": content.features, "y": known, "graph": graph}
        fitted = watched_fit(
            f"{method} on {self.path.name}",
            parameters,
            seed,
            arguments,
            watching,
            callbacks=watchers,
        )
        say(unsaid)  # where a checkpoint left nothing to learn
        split = fitted.classifier.split_
        metrics = {
            "dataset": self.path.name,
            "target": content.target,
            "method": method,
            "seed": seed,
            "rows": len(content.ids),
            "classes": [str(name) for name in fitted.classifier.classes_],
            "parameters": parameters_of(fitted.classifier),
            "labels": {
                "train": len(split.train),
                "validation": len(split.validation),
                "early_stopping": len(split.early_stopping),
                "test": len(test),
            },
            **judged(fitted, content.labels, test),
            **baseline(fitted, arguments, content.labels, test),
            **figures(fitted),
        }
        if out is not None:
            self._write(out, content, fitted, test, shown_edges, metrics)
        return metrics

    def _write(
        self,
        out: Path,
        content: Content,
        fitted: Fitted,
        test: NDArray[np.int64],
        shown_edges: tuple[int | None, float | None],
        metrics: dict[str, Any],
    ) -> None:
        from edgewise.files import staged
        from edgewise.io.graphs import write_edges, write_graphml
        from edgewise.report.html import write_report

        classifier = fitted.classifier
        predictions = prediction_table(content, fitted, test)
        edges = edge_table(classifier.edges_, fitted.initial, *shown_edges)
        attributes = predictions[["role", "label", "predicted"]].assign(
            probability=classifier.label_distributions_.max(axis=1)
        )
        named = edges.assign(
            source=[content.ids[row] for row in edges["source"]],
            target=[content.ids[row] for row in edges["target"]],
        )
        with staged(out) as stage:
            predictions.to_csv(stage / "predictions.csv", index=False, lineterminator="\n")
            write_graphml(stage / "graph.graphml", edges, content.ids, attributes)
            for name in ("edges.parquet", "edges.csv"):
                write_edges(stage / name, named)
            (stage / "metrics.json").write_text(json.dumps(plain(metrics), indent=2) + "\n")
            self._save(out / "model", content, classifier)
        write_report(out, out / "report.html")

    def _save(self, folder: Path, content: Content, classifier: LDSClassifier) -> None:
        """The model, and what it takes to turn another table into its features."""
        from edgewise.io.columns import save_table_settings
        from edgewise.persistence import read_manifest

        classifier.save(folder)
        columns = (
            None if content.preprocessor is None else content.preprocessor.to_dict()["columns"]
        )
        settings = {
            "source": self.path.name,
            "target": content.target,
            "id": self.row_id,
            "model": read_manifest(folder)["checksum"],
        }
        save_table_settings(folder / SETTINGS, {**settings, "columns": columns})


def is_table(table: TableFit) -> bool:
    """Whether a source is a file; refuses options that a data set by name does not have."""
    from edgewise.datasets import available

    path = table.path
    if str(path) not in available() and (path.exists() or path.suffix):
        return True
    given = {
        "--target": table.target,
        "--id": table.row_id,
        "--drop": table.drop,
        "--categorical": table.categorical,
        "--graph": table.graph,
        "--test-fraction": table.test_fraction,
    }
    named = [option for option, value in given.items() if value]
    if named and str(path) in available():
        raise typer.BadParameter(f"{named[0]} is about tables, and {path} is a data set by name")
    return bool(named)


def read_content(table: TableFit) -> Content:
    """Read a table, and decide what its columns are."""
    from edgewise.io.columns import TablePreprocessor
    from edgewise.io.tables import read_table, require_columns, target_labels

    read = read_table(table.path, text=[name for name in (table.target, table.row_id) if name])
    target = table.target or read.target
    if target is None:
        raise typer.BadParameter(f"{table.path} is a table: name the column with --target COLUMN")
    require_columns(read.frame, [target], "--target", table.path)
    if table.row_id is not None:
        require_columns(read.frame, [table.row_id], "--id", table.path)
    if target in (table.row_id, *table.drop):
        raise typer.BadParameter(f"{target!r} is the target: it cannot be --id or --drop as well")
    labels = target_labels(read.frame[target], target)
    ids = row_ids(read.frame, table.row_id, table.path)
    counts = {name: int((labels == name).sum()) for name in sorted({*labels} - {None}, key=str)}
    described = ", ".join(f"{name}: {count}" for name, count in counts.items())
    unlabelled = sum(label is None for label in labels)
    balance = f"target {target!r}: {described}; {unlabelled:,} rows without a label"
    if read.matrix is not None:
        return Content(read.matrix, None, labels, ids, None, target, [balance])
    others = read.frame.drop(columns=[target, *([table.row_id] if table.row_id else [])])
    preprocessor = TablePreprocessor(drop=table.drop, categorical=table.categorical)
    features = preprocessor.fit_transform(others)
    decisions = [preprocessor.describe(), balance]
    if table.row_id is None and (unused := _unused_id(others, preprocessor)):
        decisions.append(f"rows go by their numbers; --id {unused} would name them")
    names = preprocessor.get_feature_names_out()
    return Content(features, names, labels, ids, preprocessor, target, decisions)


def _unused_id(frame: pd.DataFrame, preprocessor: TablePreprocessor) -> str | None:
    """A column without holes or repetitions that was left out because it looks like names."""
    for column in preprocessor.columns_:
        cells = frame[column.name]
        if column.is_identifier and cells.is_unique and cells.notna().all():
            return column.name
    return None


def row_ids(frame: pd.DataFrame, column: str | None, path: Path) -> list[str]:
    """The id of each row as text; row numbers without such a column."""
    from edgewise.io.graphs import as_id
    from edgewise.io.tables import TableError

    if column is None:
        return [str(row) for row in range(len(frame))]
    ids = [as_id(value) for value in frame[column]]
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in ("", "nan", "None", "<NA>"):
            raise TableError(f"--id: {path} has no {column!r} in row {row}: fill it in.")
        if name in first:
            raise TableError(
                f"--id: {path} holds {name!r} in rows {first[name]} and {row} of {column!r}: ids "
                "must be unique; rename one, or leave --id out."
            )
        first[name] = row
    return ids


def held_out(
    labels: NDArray[Any], share: float | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Labelled rows to judge by, in proportion to the classes; no class loses its last row."""
    import numpy as np

    if share is None:
        return np.empty(0, np.int64)
    chosen = []
    for name in sorted({*labels} - {None}, key=str):
        rows = rng.permutation(np.flatnonzero(labels == name))
        chosen.append(rows[: min(round(share * len(rows)), len(rows) - 1)])
    test = np.sort(np.concatenate(chosen))
    if not len(test):
        raise typer.BadParameter(
            f"--test-fraction {share} of so few labels holds out no row: label more rows"
        )
    return test.astype(np.int64)


def leak_warnings(content: Content, known: NDArray[Any]) -> list[str]:
    """A warning for each column that gives the label away."""
    from edgewise.inputs import encode_labels
    from edgewise.io.tables import leaking_columns

    if content.names is None:
        return []
    codes, _ = encode_labels(known)
    return [
        f"edgewise: warning: {name!r} alone all but determines {content.target!r}. If it is only "
        "known afterwards, the result means nothing: leave it out with --drop."
        for name, _ in leaking_columns(content.features, content.names, codes)
    ]


def say(lines: list[str]) -> None:
    """Print notes and warnings, and take them off the list."""
    for line in lines:
        notes().print(line, soft_wrap=True, markup=False)
    lines.clear()


def _says(lines: list[str]) -> Callback:
    """A callback that prints them when something has been learned."""
    from edgewise.learn import Callback

    class Says(Callback):
        def after_update(self, edges: Any, progress: Any) -> None:
            say(lines)

    return Says()


def _log(path: Path) -> Callback:
    """A callback that keeps a file with a line of JSON for each outer iteration."""
    from edgewise.files import write_atomically
    from edgewise.learn import Callback

    class Log(Callback):
        def after_iteration(self, edges: Any, progress: Any) -> None:
            # All of them anew: a fit that goes on from a checkpoint has no other log to add to.
            records = [plain(entry.as_dict()) for entry in progress.history]
            lines = [json.dumps(record, allow_nan=False) + "\n" for record in records]
            write_atomically(path, "".join(lines).encode())

    return Log()


def judged(fitted: Fitted, labels: NDArray[Any], test: NDArray[np.int64]) -> dict[str, float]:
    """How well the held-out rows are predicted."""
    if not len(test):
        return {}
    import numpy as np
    from sklearn.metrics import balanced_accuracy_score, f1_score

    classifier = fitted.classifier
    names = {name: code for code, name in enumerate(classifier.classes_.tolist())}
    truth = np.array([names[label] for label in labels[test]])
    probabilities = classifier.label_distributions_[test]
    predicted = probabilities.argmax(axis=1)
    own = np.maximum(probabilities[np.arange(len(test)), truth], np.finfo(float).tiny)
    return {
        "test_accuracy": float((predicted == truth).mean()),
        "test_balanced_accuracy": float(balanced_accuracy_score(truth, predicted)),
        "test_macro_f1": float(f1_score(truth, predicted, average="macro", zero_division=0.0)),
        "test_log_loss": float(-np.log(own).mean()),
    }


def prediction_table(content: Content, fitted: Fitted, test: NDArray[np.int64]) -> pd.DataFrame:
    """Each row's id, role, label, predicted class and class probabilities."""
    import numpy as np
    import pandas as pd

    classifier = fitted.classifier
    roles = np.full(len(content.ids), "", dtype=object)
    for role in ("train", "validation", "early_stopping"):
        roles[getattr(classifier.split_, role)] = role
    roles[test] = "test"
    return pd.DataFrame(
        {
            "id": content.ids,
            "role": roles,
            "label": ["" if label is None else str(label) for label in content.labels],
            "predicted": classifier.transduction_.astype(str),
            **probability_columns(classifier.classes_, classifier.label_distributions_),
        }
    )


def probability_columns(
    classes: NDArray[Any], probabilities: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """A column for each class."""
    return {
        f"probability_{name}": probabilities[:, code].round(6)
        for code, name in enumerate(classes.tolist())
    }


def print_table_summary(metrics: dict[str, Any], out: Path | None) -> None:
    """Say how it went, and where the results are."""
    print_summary(metrics, f"{metrics['dataset']}, target {metrics['target']}")
    if metrics["labels"]["test"]:
        results().print(
            f"held-out rows: accuracy {metrics['test_accuracy']:.3f}, balanced accuracy "
            f"{metrics['test_balanced_accuracy']:.3f}, macro-F1 {metrics['test_macro_f1']:.3f}, "
            f"log-loss {metrics['test_log_loss']:.3f}",
            soft_wrap=True,
        )
    if out is not None:
        results().print(f"written to {out}: {', '.join(TABLE_FILES)}", soft_wrap=True, markup=False)
