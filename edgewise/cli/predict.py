"""``edgewise predict``: classes of rows that come after the fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.fit_table import SETTINGS, probability_columns, row_ids
from edgewise.cli.output import notes


def predict(
    run: Annotated[Path, typer.Argument(help="Folder that `edgewise fit TABLE --out` wrote.")],
    source: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Rows with the columns of the fitted table.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="CSV file for the predictions.", show_default="standard output", dir_okay=False
        ),
    ] = None,
    novelty: Annotated[
        bool,
        typer.Option("--novelty", help="Mark rows that are far from all that were fitted."),
    ] = False,
) -> None:
    """Predict rows of another table, without fitting again."""
    import pandas as pd

    from edgewise.estimator import LDSClassifier
    from edgewise.files import write_atomically
    from edgewise.persistence import ModelFileError

    folder = run / "model"
    if run.is_dir() and not folder.exists():
        raise ModelFileError(
            f"{run} holds no model: name a folder that `edgewise fit TABLE --out` wrote."
        )
    classifier = LDSClassifier.load(folder)
    settings = _settings(folder)
    features, ids, filled = _read(source, settings, classifier.n_features_in_)
    probabilities = classifier.predict_proba(features)
    predicted = classifier.classes_[probabilities.argmax(axis=1)]
    columns: dict[str, Any] = {"id": ids, "predicted": predicted.astype(str)}
    columns.update(probability_columns(classifier.classes_, probabilities))
    novel = classifier.novelty(features)
    if novelty:
        columns["novel"] = novel
    text = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
    if out is None:
        sys.stdout.write(text)
    else:
        write_atomically(out, text.encode())
    if filled:
        shown = ", ".join(f"{name}: {count:,}" for name, count in list(filled.items())[:5])
        notes().print(
            f"edgewise: {sum(filled.values()):,} empty cells were filled with what is typical of "
            f"the fitted rows ({shown}{', ...' if len(filled) > 5 else ''})",
            soft_wrap=True,
            markup=False,
        )
    if novel.any():
        notes().print(
            f"edgewise: {int(novel.sum()):,} of {len(ids):,} rows are far from all that were "
            "fitted; they get the class frequencies"
            + ("" if novelty else " (--novelty marks them)"),
            soft_wrap=True,
        )


def _settings(folder: Path) -> dict[str, Any]:
    """What the columns of the fitted table became."""
    from edgewise.io.columns import load_table_settings
    from edgewise.persistence import ModelFileError, read_manifest

    settings = load_table_settings(folder / SETTINGS)
    if settings.get("model") not in (None, read_manifest(folder)["checksum"]):
        raise ModelFileError(
            f"{folder / SETTINGS} belongs to another model than the one beside it: the fit that "
            "wrote them did not get to its end. Fit again."
        )
    return settings


def _read(
    path: Path, settings: dict[str, Any], n_features: int
) -> tuple[Any, list[str], dict[str, int]]:
    """Features and ids of a table like the one of the fit, and how many cells were filled."""
    from edgewise.io.columns import TablePreprocessor
    from edgewise.io.tables import TableError, read_table, require_columns

    row_id = settings["id"]
    table = read_table(path, text=[name for name in (settings["target"], row_id) if name])
    if row_id is not None:
        require_columns(table.frame, [row_id], "the ids of the fit", path)
    ids = row_ids(table.frame, row_id, path)
    if settings["columns"] is not None:
        if table.matrix is not None:
            raise TableError(f"{path} is a sparse matrix, and the model was fitted on columns.")
        preprocessor = TablePreprocessor.from_dict(settings)
        return preprocessor.transform(table.frame), ids, preprocessor.filled(table.frame)
    matrix = table.matrix
    if matrix is None or matrix.shape[1] > n_features:
        what = "columns" if matrix is None else f"{matrix.shape[1]} features"
        raise TableError(
            f"{path} holds {what}, and the model was fitted on a sparse matrix of {n_features} "
            "features."
        )
    # Such files leave out the last features, if they are zero in all rows.
    matrix.resize((matrix.shape[0], n_features))
    return matrix, ids, {}
