"""Tables from files: CSV, Parquet, Feather, NPZ and SVMlight, each to the same `Table`.

Files come from all sorts of programs. What can be told apart is told apart (encodings,
separators, decimal commas); what is broken (ragged rows, an open quote, a Parquet file that is
none) is an error of one line that names the place and the remedy. Nothing in a file is executed.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from edgewise.inputs import EdgewiseWarning
from edgewise.memory import require_memory

SEPARATORS = (",", ";", "\t", "|")
# Texts that stand for a missing label. "None" does not: it may well be a class.
MISSING_LABELS = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "<NA>"})
# More distinct numbers than this are a quantity to predict, not classes.
MAX_NUMERIC_CLASSES = 30
_SNIFFED_LINES = 100
_GUESSED = "cp1252"  # of text that nothing tells the encoding of
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class TableError(ValueError):
    """A file is no table that can be used; the message says which, where and what to do."""


@dataclass(frozen=True)
class Table:
    """What a file holds.

    Attributes
    ----------
    frame : DataFrame
        All columns, or, beside sparse features, the others.
    matrix : scipy.sparse.csr_array or None
        Features of a file that holds them as one sparse matrix.
    target : str or None
        The column that the format itself says is the target: labels of SVMlight, ``y`` of NPZ.
    """

    frame: pd.DataFrame
    matrix: Any = None
    target: str | None = None

    @property
    def n_rows(self) -> int:
        return len(self.frame)


def read_table(path: str | os.PathLike[str], *, text: Collection[str] = ()) -> Table:
    """Read a table; the format is that of the file's name.

    Parameters
    ----------
    path : str or path-like
        ``.csv``, ``.tsv``, ``.txt`` (separated values), ``.parquet``, ``.feather``, ``.npz``,
        ``.svmlight``, ``.svm`` or ``.libsvm``.
    text : collection of str
        Columns of separated values that stay text as it stands in the file: ids, where 007 is not
        7, and targets, where "None" may be a class.

    Returns
    -------
    Table

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "people.csv")
    ...     _ = file.write_text("id;height\\n007;1,80\\n008;1,60\\n")
    ...     read_table(file, text=["id"]).frame
        id  height
    0  007     1.8
    1  008     1.6
    """
    file = Path(path)
    if file.is_dir():
        raise TableError(f"{file} is a folder: name a file in it.")
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist: check the name and the folder.")
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise TableError(
            f"{file} has the ending {file.suffix!r}: tables are read from {', '.join(_READERS)}."
        )
    if file.stat().st_size == 0:
        raise TableError(f"{file} is empty (0 bytes).")
    table = reader(file, text)
    if not table.n_rows:
        raise TableError(f"{file} holds column names but no rows.")
    return table


# ---------------------------------------------------------------------------- separated values


def _read_csv(file: Path, text: Collection[str]) -> Table:
    content = _text_of(file)
    if "\0" in content:
        raise TableError(f"{file} is no text (it holds zero bytes): name a CSV file.")
    separator = sniffed_separator(content)
    header, n_rows, body = _checked_lines(file, content, separator)
    _check_header(file, header)
    if not n_rows:
        raise TableError(f"{file} holds column names but no rows.")
    as_text = [name.strip() for name in header if name.strip() in text]
    names = [name.strip() or f"column {place + 1}" for place, name in enumerate(header)]
    form: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "names": names,
        "low_memory": False,
        "skip_blank_lines": True,
        "skipinitialspace": True,
        "index_col": False,
    }
    converters = dict.fromkeys(as_text, _shielded)
    frame: pd.DataFrame = pd.read_csv(io.StringIO(body), converters=converters, **form)
    if len(frame) != n_rows:
        raise TableError(
            f"{file} has {n_rows} rows by its quotes and separators, but {len(frame)} were "
            "understood: remove lines that hold nothing but spaces."
        )
    for name in as_text:
        frame[name] = frame[name].str[1:]
    if re.search(rf'(^|["{separator}])[ ]*0\d', body, re.MULTILINE):
        _keep_codes(frame, body, form)
    if separator != ",":
        _read_decimal_commas(frame, keep=text)
    if not header[0].strip() and _counts_rows(frame.iloc[:, 0]):
        frame = frame.iloc[:, 1:]  # the index that pandas and R write without a name
    return Table(frame)


def _keep_codes(frame: pd.DataFrame, body: str, form: dict[str, Any]) -> None:
    """Columns of digits in which some start with 0, such as postcodes, stay text as it stands."""
    numbers = [name for name in frame.columns if frame[name].dtype.kind in "iuf"]
    if not numbers:
        return
    raw: pd.DataFrame = pd.read_csv(io.StringIO(body), usecols=numbers, dtype=str, **form)
    for name in numbers:
        if raw[name].str.fullmatch(r"0\d+").any():
            frame[name] = raw[name]


def _shielded(text: str) -> str:
    """Text that pandas takes for nothing else: it looks for missing values after conversion."""
    return "'" + text.strip()


def _text_of(file: Path) -> str:
    """The text of a file, in whatever encoding; said where that is a guess."""
    data = file.read_bytes()
    try:
        text, encoding = decoded(data)
    except UnicodeDecodeError as error:
        seen = error.object  # but for a mark
        line = seen[: error.start].count(b"\n") + 1
        raise TableError(
            f"{file}, line {line}: byte 0x{seen[error.start]:02x} is no text: name a CSV file, "
            "or save it as UTF-8."
        ) from None
    if encoding == _GUESSED:
        warnings.warn(
            f"{file} is not UTF-8, and was read as Windows-1252 (Western Europe): if names or "
            "labels look wrong, save it as UTF-8.",
            EdgewiseWarning,
            stacklevel=2,
        )
    return text


def decoded(data: bytes) -> tuple[str, str]:
    """Text and its encoding: by a byte-order mark, else UTF-8, UTF-16 or Windows' Latin-1.

    Raises
    ------
    UnicodeDecodeError
        If the bytes are text in none of these.

    Examples
    --------
    >>> [decoded("é;1".encode(code)) for code in ("utf-8-sig", "utf-16-le", "latin-1")]
    [('é;1', 'utf-8-sig'), ('é;1', 'utf-16-le'), ('é;1', 'cp1252')]
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding), encoding
    # Mostly Latin letters in two bytes each have a zero in every other byte.
    head = np.frombuffer(data[:4096][: len(data[:4096]) // 2 * 2], np.uint8).reshape(-1, 2)
    if len(data) % 2 == 0 and len(head):
        zeros = (head == 0).mean(axis=0)
        if zeros[1] > 0.3 > zeros[0]:
            return data.decode("utf-16-le"), "utf-16-le"
        if zeros[0] > 0.3 > zeros[1]:
            return data.decode("utf-16-be"), "utf-16-be"
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode(_GUESSED), _GUESSED


def sniffed_separator(content: str) -> str:
    """The separator under which the first lines have equally many fields, and most of them.

    Examples
    --------
    >>> sniffed_separator("name;price\\nbread;1,20\\nmilk;0,90\\n")
    ';'
    """
    lines = content[: 2**20].splitlines(keepends=True)[:_SNIFFED_LINES]
    best, best_value = ",", (0.0, 0)
    for separator in SEPARATORS:
        try:
            widths = [len(row) for row in _reader(lines, separator) if row]
        except csv.Error:
            continue
        if not widths or widths[0] < 2:
            continue
        agreement = float(np.mean(np.array(widths) == widths[0]))
        value = (round(agreement, 1), widths[0])
        if value > best_value:
            best, best_value = separator, value
    return best


def _reader(lines: Any, separator: str, strict: bool = False) -> Any:
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict)


def _checked_lines(file: Path, content: str, separator: str) -> tuple[list[str], int, str]:
    """Header, number of rows, and the text of the rows.

    Refuses rows of other lengths (pandas would pad short ones in silence) and quotes that are
    never closed.
    """
    lines = io.StringIO(content, newline=None)
    reader = _reader(lines, separator, strict=True)
    try:
        header: list[str] = next((row for row in reader if row), [])
        start = lines.tell()
        n_rows = 0
        for row in reader:
            if row and len(row) != len(header):
                raise TableError(
                    f"{file}, line {reader.line_num}: {len(row)} fields, but the header has "
                    f"{len(header)} (separated by {separator!r}). Correct the line, or put quotes "
                    "around texts that hold the separator."
                )
            n_rows += bool(row)
    except csv.Error as error:
        raise TableError(
            f"{file}, line {reader.line_num}: {error}. Look for a quote that is not closed."
        ) from None
    if not header:
        raise TableError(f"{file} is empty (blank lines only).")
    lines.seek(start)
    return header, n_rows, lines.read()


def _check_header(file: Path, header: list[str]) -> None:
    names = [name.strip() for name in header]
    named = [name for name in names if name]
    twice = sorted({name for name in named if named.count(name) > 1}) if _repeats(named) else []
    if twice:
        raise TableError(f"{file} has the column {twice[0]!r} more than once: rename one of them.")
    numbered = names == [str(place) for place in range(len(names))]
    if named and all(_is_number(name) for name in named) and not numbered:
        raise TableError(
            f"{file} seems to have no header: its first line holds numbers only ({named[0]}, ...). "
            "Add a first line with the names of the columns."
        )


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _read_decimal_commas(frame: pd.DataFrame, keep: Collection[str]) -> None:
    for name in frame.select_dtypes(exclude=["number", "bool"]).columns:
        if name in keep:
            continue
        cells = frame[name].dropna().astype(str)
        if len(cells) and cells.str.fullmatch(r"\s*[-+]?\d+(,\d+)?([eE][-+]?\d+)?\s*").all():
            frame[name] = pd.to_numeric(frame[name].str.replace(",", ".", regex=False))


def _counts_rows(column: pd.Series[Any]) -> bool:
    if column.dtype.kind not in "iu":
        return False
    values = column.to_numpy()
    start = values[0]
    return bool(start in (0, 1) and (values == np.arange(start, start + len(values))).all())


# -------------------------------------------------------------------------------- other formats


def _read_arrow(kind: str, read: Callable[[Path], pd.DataFrame]) -> Callable[..., Table]:
    def reader(file: Path, text: Collection[str]) -> Table:
        try:
            frame = read(file)
        except Exception as error:  # of damaged files, readers raise whatever comes up
            raise TableError(
                f"{file} is not {kind}, whatever its name says, or it is damaged "
                f"({_first_line(error)})."
            ) from None
        if _repeats(list(map(str, frame.columns))):
            raise TableError(f"{file} has two columns of the same name: rename one of them.")
        frame.columns = frame.columns.map(str)
        for name in text:
            if name in frame.columns and frame[name].dtype.kind == "f":
                frame[name] = _whole_as_integers(frame[name])
        return Table(frame.reset_index(drop=True))

    return reader


def _whole_as_integers(column: pd.Series[Any]) -> pd.Series[Any]:
    """1.0, NaN, 2.0 as 1, missing, 2: what a column of integers with gaps was meant to be."""
    known = column.dropna()
    whole = bool((known == known.round()).all()) and bool((known.abs() < 2**53).all())
    return column.astype("Int64") if whole else column


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _read_npz(file: Path, text: Collection[str]) -> Table:
    arrays = load_npz(file)
    if {"format", "shape", "data"} <= set(arrays):
        return Table(pd.DataFrame(index=range(int(arrays["shape"][0]))), _sparse(file, arrays))
    lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        raise TableError(
            f"{file} holds arrays of different lengths ({_counts(lengths)}): keep those with one "
            "entry for each row."
        )
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = array
        elif array.ndim == 2:
            columns.update({f"{name}{place}": array[:, place] for place in range(array.shape[1])})
        else:
            raise TableError(
                f"{file} holds the array {name!r} with {array.ndim} dimensions: flatten it to 2."
            )
    # Arrays X and y are what scikit-learn's users save.
    return Table(pd.DataFrame(columns), target="y" if "y" in columns else None)


def load_npz(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ archive; pickled objects, and more than fits, are refused."""
    from zipfile import ZipFile

    # Of damaged files, readers raise whatever comes up: hence the broad exceptions.
    try:
        with ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except Exception as error:
        raise _no_npz(file, error) from None
    require_memory(unpacked, f"reading {file}", "Keep fewer of its rows or columns.")
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays: dict[str, NDArray[Any]] = {name: stored[name] for name in stored.files}
    except Exception as error:
        if "allow_pickle" in str(error):
            raise TableError(
                f"{file} holds Python objects (pickled), which could execute code when read: "
                "save plain arrays of numbers or text."
            ) from None
        raise _no_npz(file, error) from None
    others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if others:
        raise TableError(f"{file} holds {others[0]!r}, which is no array: leave it out.")
    if not arrays:
        raise TableError(f"{file} holds no arrays.")
    return arrays


def _no_npz(file: Path, error: Exception) -> TableError:
    return TableError(
        f"{file} is no NPZ archive, whatever its name says, or it is damaged "
        f"({_first_line(error)})."
    )


def _sparse(file: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    """What scipy.sparse.save_npz wrote."""
    try:
        matrix = sparse.load_npz(file)
        matrix = sparse.csr_array(matrix)
        matrix.check_format(full_check=True)
    except Exception as error:
        raise TableError(f"{file} holds a damaged sparse matrix ({_first_line(error)}).") from None
    return matrix


def _counts(lengths: dict[str, int]) -> str:
    return ", ".join(f"{name}: {length}" for name, length in list(lengths.items())[:5])


def _read_svmlight(file: Path, text: Collection[str]) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        matrix, labels = load_svmlight_file(str(file))
    except (ValueError, OverflowError, UnicodeDecodeError) as error:
        raise TableError(
            f"{file} is not in SVMlight's format ({_first_line(error)}): each line must be a label "
            "and pairs index:value."
        ) from None
    known = labels[~np.isnan(labels)]
    column: Any = pd.Series(labels)
    if (known == np.round(known)).all():
        column = column.astype("Int64")
    return Table(pd.DataFrame({"label": column}), sparse.csr_array(matrix), target="label")


_READERS: dict[str, Callable[[Path, Collection[str]], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".parquet": _read_arrow("Parquet", pd.read_parquet),
    ".feather": _read_arrow("Feather", pd.read_feather),
    ".npz": _read_npz,
    ".svmlight": _read_svmlight,
    ".svm": _read_svmlight,
    ".libsvm": _read_svmlight,
}


# -------------------------------------------------------------------------------------- columns


def require_columns(frame: pd.DataFrame, names: Collection[str], option: str, source: Any) -> None:
    """Refuse names of columns that are not there, with the likeliest one that was meant.

    Examples
    --------
    >>> require_columns(pd.DataFrame({"churned": [1]}), ["churn"], "--target", "customers.csv")
    Traceback (most recent call last):
    ...
    edgewise.io.tables.TableError: --target: customers.csv has no column 'churn'.
    Did you mean 'churned'?
    """
    columns = [str(name) for name in frame.columns]
    for name in names:
        if name not in columns:
            near = get_close_matches(name, columns, n=1)
            shown = ", ".join(map(repr, columns[:8])) + (", ..." if len(columns) > 8 else "")
            hint = f" Did you mean {near[0]!r}?" if near else f" Its columns: {shown}."
            if len(columns) == 1 and not near:
                hint += f" (Columns are told apart by one of {' '.join(map(repr, SEPARATORS))}.)"
            raise TableError(f"{option}: {source} has no column {name!r}.{hint}")


def target_labels(column: pd.Series[Any], name: str) -> NDArray[Any]:
    """A target column as labels, None where it is empty.

    Text that is all whole numbers becomes integers; -1 then means unlabelled as well, as in
    scikit-learn, but beside nothing else than 1 it is a class, as in SVMlight. A column with many
    distinct numbers, or with fractions, is refused.

    Examples
    --------
    >>> target_labels(pd.Series(["1", "", "0"]), "churned")
    array([1, None, 0], dtype=object)
    """
    labels: NDArray[Any] = column.astype(object).to_numpy(copy=True)
    for row, value in enumerate(labels):
        if isinstance(value, np.generic):
            value = labels[row] = value.item()
        if isinstance(value, str):
            text = value.strip()
            labels[row] = None if text in MISSING_LABELS else text
        elif value is None or value is pd.NA or value is pd.NaT or value != value:
            labels[row] = None
        elif not isinstance(value, (bool, int, float)):
            raise TableError(
                f"the target {name!r} holds a {type(value).__name__} in row {row}: classes are "
                "texts, whole numbers or truth values."
            )
    known = [label for label in labels if label is not None]
    if not known:
        raise TableError(
            f"the target {name!r} is empty in every row: fill it in for some rows of each class."
        )
    numbers = _numbers(known)
    if numbers is not None:
        _refuse_regression(numbers, name)
        values: list[Any] = numbers.astype(np.int64).tolist()
        if set(values) == {-1, 1}:  # as text: further on, the number -1 is no label
            values = list(map(str, values))
        rows = [row for row, label in enumerate(labels) if label is not None]
        labels[rows] = [None if value == -1 else value for value in values]
    return labels


def _numbers(known: list[Any]) -> NDArray[np.float64] | None:
    """Labels as numbers, if all are; codes with leading zeros and truth values are none."""
    if any(isinstance(label, bool) or not isinstance(label, (int, float, str)) for label in known):
        return None
    if any(isinstance(label, str) and re.fullmatch(r"[-+]?0\d+", label) for label in known):
        return None
    try:
        numbers = np.array([float(label) for label in known])
    except ValueError:
        return None
    usable = np.isfinite(numbers).all() and (np.abs(numbers) < 2**53).all()
    return numbers if usable else None


def _refuse_regression(numbers: NDArray[np.float64], name: str) -> None:
    distinct = np.unique(numbers)
    fractions = distinct[distinct != np.round(distinct)]
    if len(fractions) or len(distinct) > MAX_NUMERIC_CLASSES:
        why = f"fractions like {fractions[0]:g}" if len(fractions) else "numbers"
        raise TableError(
            f"the target {name!r} holds {len(distinct)} distinct values, {why}: predicting a "
            "quantity is regression, and Edgewise classifies. Put it into a few bins, or name "
            "another column."
        )


def _is_sparse(table: Any) -> bool:
    return bool(sparse.issparse(table))


def leaking_columns(
    features: Any,
    names: Collection[str],
    codes: NDArray[np.int64],
    *,
    threshold: float = 0.98,
    min_rows: int = 20,
) -> list[tuple[str, float]]:
    """Columns that determine the target all but perfectly on their own, as leaked ones do.

    Labelled rows are sorted by the column. Where it determines the class, neighbours in that
    order are of one class, but for one change between each two. The score is the share of
    neighbours of one class, corrected for those changes.

    Parameters
    ----------
    features : array-like or sparse matrix, shape (n_rows, n_columns)
    names : collection of str
    codes : ndarray of int64; class numbers, -1 where there is none
    threshold : float
        Columns with at least this score are reported.
    min_rows : int
        With fewer labelled rows, chance makes such columns, and none is reported.

    Returns
    -------
    list of (name, score), the highest score first

    Examples
    --------
    >>> codes = np.arange(40) % 2
    >>> table = np.column_stack([np.sin(np.arange(40.0)), codes * 3.0])
    >>> leaking_columns(table, ["season", "closed_at"], codes)
    [('closed_at', 1.0)]
    """
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < min_rows:
        return []
    # Rows of equal values must not stand in the order of the file, which may be that of classes.
    labelled = np.random.default_rng(0).permutation(labelled)
    truth = codes[labelled]
    n_changes = len(np.unique(truth)) - 1
    if not n_changes:
        return []
    found = []
    for start in range(0, features.shape[1], 1000):
        block = features[labelled][:, start : start + 1000]
        block = np.asarray(block.toarray() if _is_sparse(block) else block)
        sorted_truth = truth[np.argsort(block, axis=0, kind="stable")]
        same = (sorted_truth[1:] == sorted_truth[:-1]).sum(axis=0)
        scores = np.minimum(same / (len(labelled) - 1 - n_changes), 1.0)
        found += [
            (start + int(place), float(scores[place]))
            for place in np.flatnonzero(scores >= threshold)
        ]
    by_place = list(names)
    return sorted(((by_place[place], score) for place, score in found), key=lambda item: -item[1])
