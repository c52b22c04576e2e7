"""From columns as people have them to features: what each is taken for, filled in and scaled.

:class:`TablePreprocessor` does what scikit-learn's ``ColumnTransformer`` does with
``SimpleImputer``, ``StandardScaler``, ``OneHotEncoder`` and ``TfidfVectorizer``, and keeps what it
has learned as plain text, so that a saved model needs no pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from edgewise.files import write_atomically
from edgewise.io.tables import TableError, require_columns
from edgewise.persistence import ModelFileError, plain, unplain

FORMAT = "edgewise-table"
VERSION = 1
MAX_CATEGORIES = 100
MAX_WORDS = 1000
# Cells that need to be numbers for a column to be numeric; the others count as missing.
NUMERIC_SHARE = 0.9
# Squares of larger numbers come near the largest that there is.
LARGEST_NUMBER = 1e100
# Beyond so many values, a table that is mostly zeros is kept sparse.
MAX_DENSE_VALUES = 10_000_000
_TRUTHS = ({"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"})
_TRUE = frozenset({"true", "yes", "y", "t", "on", "1"})
_FALSE = frozenset({"false", "no", "n", "f", "off", "0"})
_BLANK = frozenset({"", "na", "n/a", "nan", "null", "<na>"})
_ISO_DATE = r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
_LOCAL_DATE = r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})"
_ID_NAME = re.compile(r"(.*[ _-])?(id|uuid|guid|index|key)|.*Id", re.ASCII)
_IDENTIFIER = "looks like an identifier"
_SHOWN = 40


@dataclass
class Column:
    """What a column is taken for.

    Attributes
    ----------
    name : str
    kind : {"numeric", "boolean", "categorical", "date", "text", "dropped"}
    why : str
        What was decided, in plain words.
    learned : dict
        What the transformation needs, in JSON's types.
    """

    name: str
    kind: str
    why: str
    learned: dict[str, Any] = field(default_factory=dict)

    @property
    def is_identifier(self) -> bool:
        """Whether it is left out because it names rows rather than tells about them."""
        return self.kind == "dropped" and self.why.startswith(_IDENTIFIER)

    @property
    def outputs(self) -> list[str]:
        """Names of the features it becomes."""
        if self.kind == "dropped":
            return []
        if self.kind == "categorical":
            return [f"{self.name}={category}" for category in self.learned["categories"]]
        if self.kind == "text":
            return [f"{self.name}: {word}" for word in self.learned["words"]]
        return [self.name]

    def in_words(self, value: float) -> str:
        """What the value of a feature was in the table, as far as that can be told.

        Examples
        --------
        >>> Column("height", "numeric", "", {"mean": 1.7, "scale": 0.1}).in_words(-2.0)
        '1.5'
        >>> Column("city", "categorical", "", {"categories": ["Oslo", "Rome"]}).in_words(1.0)
        'yes'
        """
        if self.kind in ("boolean", "categorical"):
            return "yes" if value else "no"
        if self.kind == "text":
            return f"{value:.3g}"
        value = value * self.learned["scale"] + self.learned["mean"]
        if self.kind == "date":
            return str(np.datetime64(round(value), "D"))
        return f"{value:.5g}"


class TablePreprocessor:
    """Decides what each column is, and turns tables into features accordingly.

    - numbers, and dates as days: missing ones filled with the median, then standardised;
    - truth values: 0 or 1, missing ones filled with the more frequent of the two;
    - categories: one feature each (a missing value is a category where it occurs); of more than
      100, the most frequent; others, and categories met later, are zero in all of them;
    - texts: the TF-IDF of the 1,000 most frequent words that occur in two texts at least;
    - what cannot help is left out: constants, empty columns, identifiers.

    Parameters
    ----------
    drop : collection of str
        Columns to leave out.
    categorical : collection of str
        Columns that are categories, whatever they look like.

    Attributes
    ----------
    columns_ : list of Column

    Examples
    --------
    >>> frame = pd.DataFrame({"height": [1.5, None, 1.9], "city": ["Rome", "Oslo", "Rome"]})
    >>> preprocessor = TablePreprocessor().fit(frame)
    >>> preprocessor.transform(frame).round(2)
    array([[-1.22,  0.  ,  1.  ],
           [ 0.  ,  1.  ,  0.  ],
           [ 1.22,  0.  ,  1.  ]])
    >>> preprocessor.get_feature_names_out()
    ['height', 'city=Oslo', 'city=Rome']
    """

    columns_: list[Column]

    def __init__(self, *, drop: Collection[str] = (), categorical: Collection[str] = ()) -> None:
        self.drop = drop
        self.categorical = categorical

    def fit(self, frame: pd.DataFrame) -> TablePreprocessor:
        """Decide what each column is, and learn what its transformation needs."""
        require_columns(frame, self.drop, "--drop", "the table")
        require_columns(frame, self.categorical, "--categorical", "the table")
        forced = set(self.categorical) - set(self.drop)
        numeric = [
            str(name)
            for name, kind in frame.dtypes.items()
            if _is_numeric(kind) and name not in forced and name not in self.drop
        ]
        found = {column.name: column for column in _numeric_columns(frame, numeric)}
        for name in frame.columns:
            if name in self.drop:
                found[name] = Column(name, "dropped", "left out as asked")
            elif name not in found:
                found[name] = _column(frame[name], name, force_categories=name in forced)
        self.columns_ = [found[name] for name in frame.columns]
        if not any(column.outputs for column in self.columns_):
            why = "; ".join(f"{column.name!r} {column.why}" for column in self.columns_[:4])
            more = ", ..." if len(self.columns_) > 4 else ""
            raise TableError(
                "no column is left to learn from: each is empty, constant, an identifier or "
                f"left out ({why or 'there is no other than the target'}{more}). "
                "Use --categorical to keep one."
            )
        return self

    def transform(self, frame: pd.DataFrame) -> Any:
        """Features of the rows of a table with the same columns (others are ignored).

        Returns
        -------
        ndarray or scipy.sparse.csr_array, shape (n_rows, n_features)
        """
        used = [column for column in self.columns_ if column.kind != "dropped"]
        missing = [column.name for column in used if column.name not in frame.columns]
        if missing:
            raise TableError(
                f"the table has no column {missing[0]!r}, which the model was fitted with"
                + (f" (nor {len(missing) - 1} others)" if len(missing) > 1 else "")
                + ": add it, with empty cells where it is unknown."
            )
        place, width = {}, 0
        for column in used:
            place[column.name] = width
            width += len(column.outputs)
        blocks = [
            (place[column.name], _TRANSFORM[column.kind](frame[column.name], column))
            for column in used
            if column.kind != "numeric"
        ]
        numeric = [column for column in used if column.kind == "numeric"]
        scaled = _scaled_numbers(frame, numeric)
        starts = np.array([place[column.name] for column in numeric], dtype=np.int64)
        return _assemble(len(frame), width, (starts, scaled), blocks)

    def filled(self, frame: pd.DataFrame) -> dict[str, int]:
        """How many cells of a table `transform` fills in, by column, where it does.

        Missing categories and texts are none of these: they have a meaning of their own.
        """
        counts = {
            column.name: int(frame[column.name].isna().sum())
            for column in self.columns_
            if "fill" in column.learned
        }
        return {name: count for name, count in counts.items() if count}

    def fit_transform(self, frame: pd.DataFrame) -> Any:
        """`fit`, then `transform`."""
        return self.fit(frame).transform(frame)

    def get_feature_names_out(self) -> list[str]:
        """Names of the features, in their order."""
        return [name for column in self.columns_ for name in column.outputs]

    def feature_columns(self) -> list[Column]:
        """The column that each feature comes from, in their order."""
        return [column for column in self.columns_ for _ in column.outputs]

    def describe(self) -> str:
        """What was decided on each column, a line each; of very wide tables, the first ones."""
        width = max(len(column.name) for column in self.columns_[:_SHOWN])
        width = min(width, 30)
        lines = [
            f"{column.name:{width}}  {column.kind:11}  {column.why}"
            for column in self.columns_[:_SHOWN]
        ]
        rest = self.columns_[_SHOWN:]
        if rest:
            kinds = sorted({column.kind for column in rest})
            counts = (f"{sum(c.kind == kind for c in rest):,} {kind}" for kind in kinds)
            lines.append(f"... and {len(rest):,} more columns: {', '.join(counts)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, in JSON's types."""
        return {"columns": [plain(asdict(column)) for column in self.columns_]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TablePreprocessor:
        """The inverse of `to_dict`."""
        preprocessor = cls()
        preprocessor.columns_ = [Column(**unplain(column)) for column in content["columns"]]
        for column in preprocessor.columns_:
            if column.kind not in (*_TRANSFORM, "numeric", "dropped"):
                raise ValueError(f"the column {column.name!r} is of unknown kind {column.kind!r}")
        return preprocessor


def save_table_settings(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a preprocessor's `to_dict`, and whatever else is about the table, as checked JSON."""
    body = {"format": FORMAT, "version": VERSION, "content": content}
    text = json.dumps({**body, "checksum": _checksum(body)}, allow_nan=False)
    write_atomically(Path(path), text.encode())


def load_table_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save_table_settings` wrote, verified."""
    file = Path(path)
    if not file.is_file():
        raise ModelFileError(f"{file} is missing: the model was not fitted from a file.")
    try:
        body = json.loads(file.read_bytes())
        checksum = body.pop("checksum")
        version = body["version"]
        known = body["format"] == FORMAT and isinstance(version, int)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise ModelFileError(f"{file} is damaged: restore it, or fit again.") from None
    if not known:
        raise ModelFileError(f"{file} does not describe a table of Edgewise's.")
    if version > VERSION:
        raise ModelFileError(
            f"{file} was written by a newer Edgewise (format {version}): upgrade Edgewise."
        )
    if checksum != _checksum(body):
        raise ModelFileError(f"{file} is damaged (wrong checksum): restore it, or fit again.")
    content: dict[str, Any] = body["content"]
    return content


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------- what columns are


def _is_numeric(kind: Any) -> bool:
    return bool(
        pd.api.types.is_numeric_dtype(kind)
        and not pd.api.types.is_bool_dtype(kind)
        and not pd.api.types.is_complex_dtype(kind)
    )


def _numbers(frame: pd.DataFrame, names: list[str]) -> NDArray[np.float64]:
    """Numeric columns as one block; NaN where a value is missing."""
    block = frame[names].to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_large(block, names)
    return block


def _refuse_large(block: NDArray[np.float64], names: list[str]) -> None:
    large = np.argwhere(np.abs(block) > LARGEST_NUMBER)
    if len(large):
        row, place = large[0]
        value = block[row, place]
        what = "infinity" if np.isinf(value) else f"{value:g}, too large a number,"
        raise TableError(
            f"column {names[place]!r} holds {what} in row {row}: leave the cell empty, or drop "
            "the column with --drop."
        )


def _numeric_columns(frame: pd.DataFrame, names: list[str]) -> list[Column]:
    """All numeric columns at once: there may be very many."""
    block = _numbers(frame, names)
    missing = np.isnan(block)
    n_missing = missing.sum(axis=0)
    empty = n_missing == len(frame)
    low, high = (f(np.where(missing, other, block), axis=0) for f, other in _EXTREMES)
    is_truth = ((block == 0) | (block == 1) | missing).all(axis=0)
    steps = np.diff(block, axis=0)
    counts = (steps == 1).all(axis=0) if len(frame) > 2 else np.zeros(len(names), bool)
    columns = []
    for place, name in enumerate(names):
        if empty[place]:
            columns.append(Column(name, "dropped", "empty"))
        elif low[place] == high[place] and not n_missing[place]:
            columns.append(Column(name, "dropped", f"constant ({low[place]:g} in every row)"))
        elif counts[place] or (_ID_NAME.fullmatch(name) and _all_different(block[:, place])):
            columns.append(Column(name, "dropped", f"{_IDENTIFIER}: all different"))
        elif is_truth[place] and low[place] != high[place]:
            columns.append(_truth_column(name, block[:, place]))
        else:
            columns.append(_scaled_column(name, "numeric", block[:, place]))
    return columns


_EXTREMES: tuple[tuple[Any, float], ...] = ((np.min, np.inf), (np.max, -np.inf))


def _all_different(values: NDArray[Any]) -> bool:
    return len(values) >= 20 and len(np.unique(values)) == len(values)


def _scaled_column(name: str, kind: str, values: NDArray[np.float64], note: str = "") -> Column:
    """How to fill and to standardise; the scale of a column of one value is 1."""
    missing = np.isnan(values)
    fill = float(np.median(values[~missing]))
    filled = np.where(missing, fill, values)
    mean, scale = float(filled.mean()), float(filled.std())
    why = "standardised"
    if missing.any():
        shown = str(pd.Timestamp(fill, unit="D").date()) if kind == "date" else f"{fill:g}"
        why += f"; {missing.sum():,} missing, filled with the median {shown}"
    # Of a constant, only rounding errors of the mean are left.
    tiny = scale <= 1e-12 * max(abs(mean), 1e-300)
    learned = {"fill": fill, "mean": mean, "scale": 1.0 if tiny else scale}
    return Column(name, kind, why + note, learned)


def _truth_column(name: str, values: NDArray[np.float64]) -> Column:
    missing = np.isnan(values)
    fill = float(values[~missing].mean() >= 0.5)
    why = "0 or 1"
    if missing.any():
        why += f"; {missing.sum():,} missing, filled with the more frequent {fill:g}"
    return Column(name, "boolean", why, {"fill": fill})


def _column(cells: pd.Series[Any], name: str, *, force_categories: bool) -> Column:
    """What a column is that is not numeric by its type."""
    if not force_categories and pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return _date_column(name, _days(cells, None), None)
    values = _as_text(cells, name)
    known = values[values != None]  # noqa: E711 - element by element
    if not len(known):
        return Column(name, "dropped", "empty")
    distinct, counts = np.unique(known.astype(str), return_counts=True)
    if force_categories:
        return _category_column(name, values, distinct, counts)
    lower = {text.lower() for text in distinct}
    if any(lower == truths for truths in _TRUTHS):
        return _truth_column(name, _truths(values, np.nan))
    if len(distinct) == 1 and len(known) == len(values):
        return Column(name, "dropped", f"constant ({distinct[0][:40]!r} in every row)")
    as_numbers = _numeric_text(name, values, distinct)
    if as_numbers is not None:
        return as_numbers
    pattern = _date_pattern(distinct)
    if pattern is not None:
        return _date_column(name, _days(pd.Series(values), pattern), pattern)
    n_words = float(np.mean([len(text.split()) for text in distinct]))
    if n_words >= 4 and len(distinct) > max(20, len(known) // 4):
        return _text_column(name, values)
    if len(distinct) >= 20 and len(distinct) > 0.9 * len(known):
        return Column(name, "dropped", f"{_IDENTIFIER}: {len(distinct):,} values")
    return _category_column(name, values, distinct, counts)


def _as_text(cells: pd.Series[Any], name: str) -> NDArray[Any]:
    """Cells as text, None where missing; whole numbers without a fraction, to match files."""
    values: NDArray[Any] = np.empty(len(cells), dtype=object)
    for row, value in enumerate(cells.astype(object).to_numpy()):
        if isinstance(value, str):
            text = value.strip()
            values[row] = None if text.lower() in _BLANK else text
        elif isinstance(value, (list, tuple, dict, set, bytes, complex, np.ndarray)):
            raise TableError(
                f"column {name!r} holds a {type(value).__name__} in row {row}: spread it over "
                "columns of their own, or leave the column out with --drop."
            )
        elif pd.isna(value):
            values[row] = None
        elif isinstance(value, float) and value.is_integer():
            values[row] = str(int(value))
        else:
            values[row] = str(value)
    return values


def _numeric_text(name: str, values: NDArray[Any], distinct: NDArray[Any]) -> Column | None:
    """Text that is numbers, with few exceptions like ``?``."""
    if any(re.fullmatch(r"[-+]?0\d+", text) for text in distinct):
        return None  # codes: 007 is not 7
    numbers = _parsed(values)
    known = np.array([value is not None for value in values])
    usable = np.isfinite(numbers)
    _refuse_large(np.where(usable, numbers, 0.0)[:, None], [name])
    if usable.sum() < max(1.0, NUMERIC_SHARE * known.sum()):
        return None
    other = sorted({values[row] for row in np.flatnonzero(known & ~usable)})
    note = f"; counted as missing: {', '.join(map(repr, other[:5]))}" if other else ""
    column = _scaled_column(name, "numeric", np.where(usable, numbers, np.nan), note)
    column.learned["missing"] = other
    return column


def _parsed(values: NDArray[Any]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = pd.to_numeric(
        pd.Series(values, dtype=object), errors="coerce"
    ).to_numpy(dtype=np.float64)
    return numbers


def _date_pattern(distinct: NDArray[Any]) -> str | None:
    """In which order dates are written, if all values are dates."""
    if all(re.fullmatch(_ISO_DATE, text) for text in distinct):
        return "year first"
    parts = [re.fullmatch(_LOCAL_DATE, text) for text in distinct]
    if not all(parts):
        return None
    first = max(int(part[1]) for part in parts if part)
    second = max(int(part[2]) for part in parts if part)
    if first > 12 >= second:
        return "day first"
    if second > 12 >= first:
        return "month first"
    # Nothing tells. Dots are written where the day comes first, slashes by most where it does not.
    return "day first" if "." in distinct[0] else "month first"


def _days(cells: pd.Series[Any], pattern: str | None) -> NDArray[np.float64]:
    """Days since 1970, NaN where missing or no date."""
    if pattern is None or pattern == "year first":
        times = pd.to_datetime(
            cells, errors="coerce", utc=True, format="ISO8601" if pattern else None
        )
    else:
        # One way to write it, whatever separator: the parts are looked at only where they are.
        plain_text = cells.astype("string").str.replace(r"[./]", "-", regex=True)
        order = "%d-%m-%Y" if pattern == "day first" else "%m-%d-%Y"
        times = pd.to_datetime(plain_text, errors="coerce", utc=True, format=order)
    elapsed = times - pd.Timestamp("1970-01-01", tz="UTC")
    return np.asarray((elapsed / pd.Timedelta(days=1)).to_numpy(dtype=np.float64))


def _date_column(name: str, days: NDArray[np.float64], pattern: str | None) -> Column:
    if np.isnan(days).all():
        return Column(name, "dropped", "empty")
    note = "; as days" + (f", read {pattern}" if pattern else "")
    column = _scaled_column(name, "date", days, note)
    column.learned["pattern"] = pattern
    return column


def _category_column(
    name: str, values: NDArray[Any], distinct: NDArray[Any], counts: NDArray[np.int64]
) -> Column:
    n_missing = len(values) - int(counts.sum())
    # By frequency, then by name: which are kept does not depend on the order of the rows.
    kept = sorted(distinct[np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]].tolist())
    shown = ", ".join(kept[:4]) + (", ..." if len(kept) > 4 else "")
    why = f"one feature for each of {len(kept)} values ({shown})"
    if len(distinct) > len(kept):
        why += f", the most frequent of {len(distinct):,}"
    if n_missing:
        why += f"; {n_missing:,} missing, as a value of their own"
    learned = {"categories": [*kept, None] if n_missing else kept}
    return Column(name, "categorical", why, learned)


def _text_column(name: str, values: NDArray[Any]) -> Column:
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [value or "" for value in values]
    counter = CountVectorizer(min_df=2, max_df=0.5, max_features=MAX_WORDS)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no word is left
        return Column(name, "dropped", "texts without a word that two of them share")
    words = counter.get_feature_names_out().tolist()
    occurs = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = np.log((1 + len(texts)) / (1 + occurs)) + 1  # scikit-learn's smooth one
    why = f"TF-IDF of {len(words):,} words"
    return Column(name, "text", why, {"words": words, "idf": idf.tolist()})


# --------------------------------------------------------------------------- transformation


def _scaled_numbers(frame: pd.DataFrame, columns: list[Column]) -> NDArray[np.float64]:
    """All numeric columns, filled and standardised."""
    scaled = np.empty((len(frame), len(columns)))
    plain_ones = [place for place, c in enumerate(columns) if _is_numeric(frame[c.name].dtype)]
    scaled[:, plain_ones] = _numbers(frame, [columns[place].name for place in plain_ones])
    for place in sorted(set(range(len(columns))) - set(plain_ones)):
        scaled[:, place] = _text_numbers(frame[columns[place].name], columns[place])
    fill, mean, scale = (
        np.array([column.learned[name] for column in columns]) for name in ("fill", "mean", "scale")
    )
    scaled = np.where(np.isnan(scaled), fill, scaled)
    standardised: NDArray[np.float64] = (scaled - mean) / scale
    return standardised


def _text_numbers(cells: pd.Series[Any], column: Column) -> NDArray[np.float64]:
    values = _as_text(cells, column.name)
    numbers = _parsed(values)
    as_missing = set(column.learned.get("missing", ()))
    for row in np.flatnonzero(~np.isfinite(numbers)):
        if values[row] is not None and values[row] not in as_missing:
            raise TableError(
                f"column {column.name!r} holds {values[row]!r} in row {row}, and it was numeric "
                "when the model was fitted: correct the cell or leave it empty."
            )
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    _refuse_large(numbers[:, None], [column.name])
    return numbers


def _truths(values: NDArray[Any], fill: float) -> NDArray[np.float64]:
    return np.array([fill if v is None else float(v.lower() in _TRUE) for v in values])


def _transform_truth(cells: pd.Series[Any], column: Column) -> Any:
    values = _as_text(cells, column.name)
    for row, value in enumerate(values):
        if value is not None and value.lower() not in _TRUE | _FALSE:
            raise TableError(
                f"column {column.name!r} holds {value!r} in row {row}, and it held truth values "
                "when the model was fitted: correct the cell or leave it empty."
            )
    return _truths(values, column.learned["fill"])[:, None]


def _transform_date(cells: pd.Series[Any], column: Column) -> Any:
    learned = column.learned
    if not pd.api.types.is_datetime64_any_dtype(cells.dtype):
        texts = pd.Series(_as_text(cells, column.name))
        days = _days(texts, learned["pattern"] or "year first")
        bad = np.flatnonzero(np.isnan(days) & texts.notna().to_numpy())
        if len(bad):
            raise TableError(
                f"column {column.name!r} holds {texts[bad[0]]!r} in row {bad[0]}, and it held "
                "dates when the model was fitted: correct the cell or leave it empty."
            )
    else:
        days = _days(cells, None)
    filled = np.where(np.isnan(days), learned["fill"], days)
    return ((filled - learned["mean"]) / learned["scale"])[:, None]


def _transform_categories(cells: pd.Series[Any], column: Column) -> Any:
    place = {category: i for i, category in enumerate(column.learned["categories"])}
    codes = np.array([place.get(value, -1) for value in _as_text(cells, column.name)])
    rows = np.flatnonzero(codes >= 0)
    shape = (len(codes), len(place))
    return sparse.csr_array((np.ones(len(rows)), (rows, codes[rows])), shape=shape)


def _transform_text(cells: pd.Series[Any], column: Column) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    counter = CountVectorizer(vocabulary=column.learned["words"])
    counts = counter.transform([value or "" for value in _as_text(cells, column.name)])
    return sparse.csr_array(normalize(counts.multiply(np.array(column.learned["idf"])).tocsr()))


_TRANSFORM = {
    "boolean": _transform_truth,
    "date": _transform_date,
    "categorical": _transform_categories,
    "text": _transform_text,
}


def _assemble(
    n_rows: int,
    width: int,
    numeric: tuple[NDArray[np.int64], NDArray[np.float64]],
    blocks: list[tuple[int, Any]],
) -> Any:
    """One table of all features: dense, unless that would be large and mostly zeros."""
    starts, scaled = numeric
    n_stored = scaled.size + sum(
        block.nnz if _is_sparse(block) else block.size for _, block in blocks
    )
    if n_rows * width > MAX_DENSE_VALUES and n_stored < 0.3 * n_rows * width:
        placed = [(starts, scaled), *((_span(start, block), block) for start, block in blocks)]
        entries = [sparse.coo_array(block) for _, block in placed]
        rows = np.concatenate([part.coords[0] for part in entries])
        cols = np.concatenate(
            [columns[part.coords[1]] for (columns, _), part in zip(placed, entries, strict=True)]
        )
        values = np.concatenate([part.data for part in entries])
        return sparse.csr_array((values, (rows, cols)), shape=(n_rows, width))
    table = np.zeros((n_rows, width))
    table[:, starts] = scaled
    for start, block in blocks:
        table[:, start : start + block.shape[1]] = block.toarray() if _is_sparse(block) else block
    return table


def _is_sparse(block: Any) -> bool:
    return bool(sparse.issparse(block))


def _span(start: int, block: Any) -> NDArray[np.int64]:
    return np.arange(start, start + block.shape[1], dtype=np.int64)
