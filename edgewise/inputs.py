"""From what users give to checked arrays: features, labels, the split of labelled rows, graphs.

Nothing is repaired silently. What cannot be used raises an error that names the culprit and the
remedy; what can be used after a change (loops dropped, directions folded) is used, with an
:class:`EdgewiseWarning`.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from edgewise.graph.pairs import Pairs
from edgewise.problem import Split

UNLABELLED = -1

_NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))


class EdgewiseWarning(UserWarning):
    """The input was used, but not quite as it was given, or is unlikely to be what was meant."""


# --------------------------------------------------------------------------------- features


def check_features(X: Any, dtype: DTypeLike = np.float64, *, min_rows: int = 2) -> Any:
    """Feature table as a floating-point array, dense or CSR; errors name the first bad cell.

    Made to be called before ``sklearn.utils.validation.validate_data(self, X,
    skip_check_array=True)``, which then only records the number and the names of the columns.

    Parameters
    ----------
    X : array-like, DataFrame, tensor or SciPy sparse of shape (n_rows, n_features)
    dtype : float32 or float64
    min_rows : int, default=2
        Fewer rows are refused.

    Returns
    -------
    ndarray or scipy.sparse.csr_array
        A CSR array has sorted indices, each once. The input is never written to.

    Examples
    --------
    >>> from edgewise.inputs import check_features
    >>> check_features([[1, 2], [3, 4]], "float32")
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    >>> check_features([[1, 2], [3, float("nan")]])
    Traceback (most recent call last):
    ...
    ValueError: Input X contains NaN. The first is in row 1, column 1. Fill in or drop such cells.
    """
    table = _to_host(X)
    _refuse_what_is_no_table(table)
    _refuse_text_and_dates(table)
    try:
        # Overflow on the way to float32 is reported below as infinity, with its place.
        with np.errstate(over="ignore"):
            checked = check_array(
                table,
                accept_sparse="csr",
                dtype=np.dtype(dtype),
                ensure_all_finite=False,
                ensure_min_samples=min_rows,
                input_name="X",
            )
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}{_blame_cell(table)}") from error
    _refuse_non_finite(checked, table)
    if not _is_sparse(checked):
        return checked
    rows = sparse.csr_array(checked)
    if not rows.has_canonical_format:
        rows = rows.copy()  # summing in place would change the caller's matrix
        rows.sum_duplicates()
    return rows


def _is_sparse(table: Any) -> bool:
    return bool(sparse.issparse(table))


def _to_host(values: Any) -> Any:
    """A torch tensor as a NumPy array or SciPy matrix, polars as pandas; others as they are."""
    polars = sys.modules.get("polars")  # whoever holds such an object has imported its package
    if polars is not None and isinstance(values, polars.Series):
        # As objects: 1 stays an integer beside a missing value.
        return pd.Series(values.to_list(), dtype=object, name=values.name)
    if polars is not None and isinstance(values, polars.DataFrame):
        return pd.DataFrame({column.name: column.to_numpy() for column in values.get_columns()})
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    tensor = values.detach().cpu()
    if tensor.layout == torch.strided:
        return tensor.numpy()
    tensor = tensor.to_sparse_coo().coalesce()
    rows, cols = tensor.indices().numpy()
    return sparse.coo_array((tensor.values().numpy(), (rows, cols)), shape=tuple(tensor.shape))


def _cell(table: Any, row: int, col: int) -> str:
    """The place of a cell in words, with the names a DataFrame gives it."""
    if isinstance(table, pd.DataFrame):
        return f"row {row} (index {table.index[row]!r}), column {table.columns[col]!r}"
    return f"row {row}, column {col}"


def _refuse_what_is_no_table(table: Any) -> None:
    """What scikit-learn refuses as well, but in many lines or in other words."""
    if table is None:
        raise ValueError("X is None: give a table of numbers, one row for each case.")
    if isinstance(table, (str, bytes)):
        raise ValueError(
            f"X is the text {table[:50]!r}: if it names a file, read the file first, for example "
            "with pandas.read_csv."
        )
    kinds = table.dtypes if isinstance(table, pd.DataFrame) else [getattr(table, "dtype", None)]
    if any(getattr(kind, "kind", "O") == "c" for kind in kinds):
        # "Complex data not supported" is what scikit-learn's tests of estimators look for.
        raise ValueError(
            "Complex data not supported: X holds complex numbers: features must be real, for "
            "example X.real and X.imag as columns."
        )


def _refuse_text_and_dates(table: Any) -> None:
    """NumPy would quietly read the text "1.5" as a number and a date as nanoseconds."""
    if _is_sparse(table):
        return
    if isinstance(table, pd.DataFrame):
        for col, kind in enumerate(table.dtypes):
            if getattr(kind, "kind", "O") in "Mm":
                raise ValueError(
                    f"X holds dates in column {table.columns[col]!r}: turn them into numbers."
                )
    elif getattr(table, "dtype", np.dtype(object)).kind in "Mm":
        raise ValueError("X holds dates or durations: turn them into numbers.")
    found = _first_cell(table, lambda value: isinstance(value, (str, bytes)))
    if found is not None:
        raise ValueError(
            f"X holds the text {found[1]!r} in {found[0]}: features must be numbers. Drop the "
            "column or encode it, for example with sklearn.preprocessing.OneHotEncoder."
        )


def _first_cell(table: Any, is_bad: Callable[[Any], bool]) -> tuple[str, Any] | None:
    """The place and the value of the first bad cell in columns that may hold other than numbers."""
    if isinstance(table, pd.DataFrame):
        for col, kind in enumerate(table.dtypes):
            if not pd.api.types.is_numeric_dtype(kind):
                for row, value in enumerate(table.iloc[:, col]):
                    if is_bad(value):
                        return _cell(table, row, col), value
        return None
    if _is_sparse(table) or getattr(table, "dtype", np.dtype(object)).kind in "biuf":
        return None
    cells = np.asarray(table, dtype=object)
    if cells.ndim == 2:
        for row, values in enumerate(cells):
            for col, value in enumerate(values):
                if is_bad(value):
                    return _cell(table, row, col), value
    return None


def _blame_cell(table: Any) -> str:
    """Where the first cell is that is no number, if that is why a table was refused."""
    if isinstance(table, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in table):
        widths = [len(row) for row in table]
        odd = [row for row, width in enumerate(widths) if width != widths[0]]
        if odd:
            return f" Row {odd[0]} has {widths[odd[0]]} columns, row 0 has {widths[0]}."
    found = _first_cell(table, lambda value: value is not None and not isinstance(value, Real))
    if found is None:
        return ""
    return f" The first such cell is a {type(found[1]).__name__} in {found[0]}."


def _refuse_non_finite(checked: Any, original: Any) -> None:
    values = checked.data if _is_sparse(checked) else checked
    bad = np.flatnonzero(~np.isfinite(values))
    if not len(bad):
        return
    if _is_sparse(checked):
        row = int(np.searchsorted(checked.indptr, bad[0], side="right")) - 1
        col = int(checked.indices[bad[0]])
    else:
        row, col = divmod(int(bad[0]), checked.shape[1])
    where = _cell(original, row, col)
    if np.isnan(values.flat[bad[0]]):
        raise ValueError(
            f"Input X contains NaN. The first is in {where}. Fill in or drop such cells."
        )
    raise ValueError(
        f"Input X contains infinity or a value too large for {checked.dtype!r}. The first is in "
        f"{where}. Clip or rescale such cells."
    )


# ----------------------------------------------------------------------------------- labels


def encode_labels(y: Any, n_rows: int | None = None) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Labels as class numbers, with -1 for rows that have none.

    What counts as unlabelled depends on the type of the labels:

    - integers and floats: ``-1`` (scikit-learn's semi-supervised convention, which holds for
      ``-1.0`` as well) and, in floats, NaN: a column of integers with gaps reads as floats;
    - strings: the empty string. The text ``"-1"`` is a class like any other;
    - everything that can hold them (objects, categories, nullable types): None, NaN, ``pd.NA``.

    Booleans are two classes. Other negative integers are classes.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
    n_rows : int, optional
        The number of rows that ``y`` must have.

    Returns
    -------
    codes : ndarray of int64, shape (n_rows,)
        Positions in ``classes``; -1 where there is no label.
    classes : ndarray, shape (n_classes,)
        The distinct labels, sorted.

    Examples
    --------
    >>> from edgewise.inputs import encode_labels
    >>> codes, classes = encode_labels(["ham", None, "spam", "", "ham"])
    >>> codes
    array([ 0, -1,  1, -1,  0])
    >>> classes
    array(['ham', 'spam'], dtype=object)
    """
    labels = _label_column(y)
    if n_rows is not None and len(labels) != n_rows:
        raise ValueError(
            f"y has {len(labels)} labels but X has {n_rows} rows: give one label for each row, "
            f"with {UNLABELLED} or None where it is unknown."
        )
    values, labelled = _split_off_missing(labels)
    if not labelled.any():
        raise ValueError(
            f"y holds no label: all {len(labels)} rows are unlabelled (-1, NaN, None or empty). "
            "Label at least 3 rows."
        )
    known = values[labelled]
    try:
        with np.errstate(invalid="ignore"):  # it tries 1e300 as an integer
            check_classification_targets(known)
    except ValueError as error:
        raise ValueError(f"{error}{_blame_fraction(values, labelled)}") from error
    classes, inverse = np.unique(known, return_inverse=True)
    codes = np.full(len(labels), UNLABELLED, dtype=np.int64)
    codes[labelled] = inverse
    if classes.tolist() == [1] and any(isinstance(v, Real) and v == -1 for v in labels.tolist()):
        warnings.warn(
            "y holds the labels 1 and -1 alone, and -1 means unlabelled, so that one class is "
            "left. If -1 is a class, rename the classes, for example to 0 and 1.",
            EdgewiseWarning,
            stacklevel=3,
        )
    return codes, classes


def _label_column(y: Any) -> NDArray[Any]:
    """y as a one-dimensional array, in which missing values are still told from text."""
    if y is None:
        raise ValueError(
            "this classifier requires y to be passed, but the target y is None. Give one label "
            "for each row, with -1 or None where it is unknown."
        )
    y = _to_host(y)
    if isinstance(y, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        # Categories and nullable types as objects: 1 stays an integer beside a missing value.
        y = np.asarray(y if isinstance(y.dtype, np.dtype) else y.astype(object))
    elif isinstance(y, pd.DataFrame) or (isinstance(y, Sequence) and not isinstance(y, str)):
        # Not asarray(y): it would turn NaN among strings into the text "nan".
        y = np.asarray(y, dtype=object)
    if isinstance(y, np.ndarray) and y.ndim == 1:
        return y
    if isinstance(y, np.ndarray) and y.dtype.kind == "O" and y.shape[1:] == (1,):
        column_or_1d(np.zeros(y.shape), warn=True)  # for scikit-learn's own warning alone
        return y.ravel()
    return np.asarray(column_or_1d(y, warn=True))


def _split_off_missing(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels in their own type, and which rows have one."""
    kind = labels.dtype.kind
    if kind in "OT":
        objects = labels.astype(object)
        empty = np.array([isinstance(label, str) and label == "" for label in objects], bool)
        return _typed(objects, ~pd.isna(objects) & ~empty)
    if kind == "f":
        infinite = np.flatnonzero(np.isinf(labels))
        if len(infinite):
            raise ValueError(
                f"Input y contains infinity in row {infinite[0]}: labels must be classes, with "
                "-1 or NaN where they are unknown."
            )
        return labels, ~np.isnan(labels) & (labels != UNLABELLED)
    if kind == "i":
        return labels, labels != UNLABELLED
    if kind == "U":
        return labels, labels != ""
    if kind in "bu":
        return labels, np.ones(len(labels), bool)
    if kind == "S":
        raise TypeError(
            "Support for labels represented as bytes is not supported. Convert y to strings, "
            "for example with y.astype(str)."
        )
    raise ValueError(
        f"Unknown label type: y has dtype {labels.dtype}. Labels must be integers, strings or "
        "booleans."
    )


def _typed(
    labels: NDArray[Any], present: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Objects as the one type they share: text, truth values or numbers."""
    first: dict[str, int] = {}
    for row in np.flatnonzero(present).tolist():
        first.setdefault(_kind_of_label(labels[row], row), row)
    if len(first) > 1 and set(first) != {"integer", "fraction"}:
        found = " and ".join(f"{labels[row]!r} in row {row}" for row in first.values())
        raise TypeError(
            f"y mixes labels of different types: {found}. Make them all strings or all integers."
        )
    if not first or "text" in first:
        return labels, present
    target: Any = np.float64
    if "fraction" not in first:
        target = np.bool_ if "truth" in first else np.int64
    filled = labels.copy()
    filled[~present] = UNLABELLED
    try:
        numbers: NDArray[Any] = filled.astype(target)
    except OverflowError:
        too_large = [abs(int(label)) >= 2**63 for label in filled]
        row = too_large.index(True)
        raise ValueError(
            f"y holds {filled[row]} in row {row}, which does not fit in 64 bits: use strings."
        ) from None
    values, labelled = _split_off_missing(numbers)
    return values, labelled & present


def _kind_of_label(label: Any, row: int) -> str:
    if isinstance(label, str):
        return "text"
    if isinstance(label, (bool, np.bool_)):
        return "truth"
    if isinstance(label, Integral):
        return "integer"
    if isinstance(label, Real):
        return "fraction"
    raise TypeError(
        f"Unknown label type: y holds a {type(label).__name__} in row {row}. Labels must be "
        "integers, strings or booleans."
    )


def _blame_fraction(values: NDArray[Any], labelled: NDArray[np.bool_]) -> str:
    fractions = np.flatnonzero(labelled & (values != np.round(values)))
    if not len(fractions):
        return " Labels this large must be strings."
    return f" The first such value is {values[fractions[0]]} in row {fractions[0]} of y."


# ------------------------------------------------------------------------------------ split


def split_labelled(
    codes: NDArray[np.int64],
    *,
    validation: Any = None,
    early_stopping: Any = None,
    rng: np.random.Generator,
    validation_share: float = 1 / 3,
    early_stopping_share: float = 1 / 3,
) -> Split:
    """Give every labelled row its role: train, validation (outer loss) or early stopping.

    - Neither part given: the labelled rows are divided at random, class by class. A class too
      small to be everywhere goes to train first, then validation, then early stopping.
    - Only ``validation`` given: it is halved at random, class by class, as in the paper; one
      half is for the outer loss, the other for early stopping. All other labels train.
    - Only ``early_stopping`` given: the other labelled rows are divided between train and
      validation, in the proportion of their shares.
    - Both given: they are used as they are. All other labels train.

    No part is ever empty. With so few labels that whole classes are missing from train, an
    :class:`EdgewiseWarning` says which.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_rows,)
        Class numbers; -1 where there is no label.
    validation, early_stopping : array-like, optional
        Boolean mask of all rows, or row numbers. All these rows must be labelled.
    rng : numpy.random.Generator
    validation_share, early_stopping_share : float
        Of the labelled rows; positive, with a sum below 1.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise.inputs import split_labelled
    >>> codes = np.array([0, 1, 0, 1, -1, 0, 1])
    >>> split = split_labelled(codes, rng=np.random.default_rng(0))
    >>> [codes[part].tolist() for part in (split.train, split.validation, split.early_stopping)]
    [[0, 1], [0, 1], [1, 0]]
    """
    shares = _check_shares(validation_share, early_stopping_share)
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < 3:
        raise ValueError(
            f"only {len(labelled)} rows are labelled, but training, validation and early "
            "stopping need one each, of whatever class: label at least 3 rows."
        )
    outer = None if validation is None else _part("validation", validation, codes)
    stop = None if early_stopping is None else _part("early_stopping", early_stopping, codes)
    if outer is not None and stop is not None:
        both = np.intersect1d(outer, stop)
        if len(both):
            raise ValueError(
                f"validation and early_stopping overlap in {_listed(both, 'row')}: give each row "
                "one role, or give validation alone to have it halved."
            )
    rest = labelled
    for part in (outer, stop):
        rest = rest if part is None else np.setdiff1d(rest, part)
    if outer is not None and stop is None:
        outer, stop = _halve(outer, codes, rng)
    if outer is None:
        if stop is None:
            train, outer, stop = _divide(rest, codes, shares, rng)
        else:
            _check_enough(rest, 2, "training and validation")
            train, outer = _divide(rest, codes, shares[:2], rng)
    else:
        _check_enough(rest, 1, "training")
        train = rest
    assert outer is not None  # for the type checker, as the next line
    assert stop is not None
    _warn_missing_classes(codes, train)
    return Split(np.sort(train), np.sort(outer), np.sort(stop))


def _check_shares(validation: float, early_stopping: float) -> list[float]:
    for name, share in (
        ("validation_share", validation),
        ("early_stopping_share", early_stopping),
    ):
        if not 0 < share < 1:
            raise ValueError(f"{name}={share} must lie between 0 and 1, both excluded.")
    if validation + early_stopping >= 1:
        raise ValueError(
            f"validation_share={validation} and early_stopping_share={early_stopping} leave "
            "nothing for training: their sum must be below 1."
        )
    return [1 - validation - early_stopping, validation, early_stopping]


def _check_enough(rest: NDArray[np.int64], least: int, roles: str) -> None:
    if len(rest) < least:
        raise ValueError(
            f"the given masks leave {len(rest)} labelled rows for {roles}, which takes at least "
            f"{least}: shrink the masks or label more rows."
        )


def _listed(items: Iterable[Any], noun: str) -> str:
    """``row 3``, or ``rows 3, 5, 8, ... (12 in all)``: enough to find them, never a flood."""
    values = [repr(item.item() if isinstance(item, np.generic) else item) for item in items]
    if len(values) == 1:
        return f"{noun} {values[0]}"
    tail = f", ... ({len(values)} in all)" if len(values) > 5 else ""
    return f"{noun}s {', '.join(values[:5])}{tail}"


def _part(name: str, rows: Any, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A mask or a list of row numbers as checked, sorted row numbers."""
    given = np.asarray(_to_host(rows))
    if given.ndim != 1:
        raise ValueError(f"{name} has shape {given.shape}: give a flat mask or row numbers.")
    if not len(given):
        raise ValueError(f"{name} is empty: give at least one row, or leave it out.")
    if given.dtype == bool:
        if len(given) != len(codes):
            raise ValueError(
                f"{name} is a mask of {len(given)} rows but X has {len(codes)}: give one truth "
                "value for each row."
            )
        if not given.any():
            raise ValueError(f"{name} is empty: no row of the mask is True.")
        part = np.flatnonzero(given)
    elif given.dtype.kind in "iu":
        outside = given[(given < 0) | (given >= len(codes))]
        if len(outside):
            raise ValueError(
                f"{name} names {_listed(outside, 'row')}, but rows are numbered 0 to "
                f"{len(codes) - 1}."
            )
        part, counts = np.unique(given.astype(np.int64), return_counts=True)
        if (counts > 1).any():
            raise ValueError(
                f"{name} names {_listed(part[counts > 1], 'row')} more than once. If it is a "
                "mask of zeros and ones, convert it with .astype(bool)."
            )
    else:
        raise TypeError(
            f"{name} has dtype {given.dtype}: give a boolean mask or integer row numbers."
        )
    unlabelled = part[codes[part] < 0]
    if len(unlabelled):
        raise ValueError(
            f"{name} holds {_listed(unlabelled, 'row')}, which y leaves unlabelled: remove them "
            "from it or label them."
        )
    return part


def _by_class(
    rows: NDArray[np.int64], codes: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """The rows of each class that occurs, shuffled."""
    return [rng.permutation(rows[codes[rows] == code]) for code in np.unique(codes[rows])]


def _halve(
    rows: NDArray[np.int64], codes: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two random halves; neither they nor a class within them differ by more than one row."""
    if len(rows) < 2:
        raise ValueError(
            f"validation holds row {rows[0]} alone, and half of it is needed for early stopping: "
            "give at least 2 rows, or give early_stopping as well."
        )
    groups = _by_class(rows, codes, rng)
    dealt = np.concatenate([groups[i] for i in rng.permutation(len(groups))])
    return dealt[::2], dealt[1::2]


def _divide(
    rows: NDArray[np.int64],
    codes: NDArray[np.int64],
    shares: Sequence[float],
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Random parts in proportion to ``shares``, class by class; earlier parts are served first."""
    parts: list[list[int]] = [[] for _ in shares]
    for group in _by_class(rows, codes, rng):
        stops = np.cumsum(_apportion(len(group), np.array(shares)))
        for part, chunk in zip(parts, np.split(group, stops[:-1]), strict=True):
            part.extend(chunk.tolist())
    for part in parts:
        if not part:
            part.append(_spare(parts, rng))
    return [np.array(part, dtype=np.int64) for part in parts]


def _apportion(count: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers near ``count * shares``: one for each part first, then largest remainders."""
    if count <= len(shares):
        return np.array([int(part < count) for part in range(len(shares))], dtype=np.int64)
    quota = count * shares / shares.sum()
    # Rounded, so that 3 * (1/3) is whole and equal remainders go to the earlier part.
    sizes: NDArray[np.int64] = np.maximum(np.floor(np.round(quota, 9)), 1).astype(np.int64)
    while sizes.sum() > count:
        sizes[np.argmax(np.where(sizes > 1, sizes - quota, -np.inf))] -= 1
    while sizes.sum() < count:
        sizes[np.argmax(np.round(quota - sizes, 9))] += 1
    return sizes


def _spare(parts: list[list[int]], rng: np.random.Generator) -> int:
    """Take a row for a part that would be empty, which happens only if every class is tiny.

    The classes were served in the order of the parts, so the last one that can spare a row
    gives it: a class then stays in train as long as possible.
    """
    donor = [part for part in parts if len(part) > 1][-1]
    return donor.pop(int(rng.integers(len(donor))))


def _warn_missing_classes(codes: NDArray[np.int64], train: NDArray[np.int64]) -> None:
    missing = np.setdiff1d(codes[codes >= 0], codes[train])
    if len(missing):
        warnings.warn(
            f"no training row has a label of {_listed(missing, 'class number')} (its place in "
            "classes_), so the network cannot learn it. Label more rows or give smaller masks.",
            EdgewiseWarning,
            stacklevel=3,
        )


# ------------------------------------------------------------------------------------ graph


class _Edges(NamedTuple):
    """A graph as it was given: every entry or edge with its weight, directed."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    weights: NDArray[np.float64] | None  # None: all 1
    directed: bool | None  # None: an edge list, whose order means something only if both occur


def adjacency_pairs(
    graph: Any, n_nodes: int, *, node_names: Sequence[Hashable] | None = None
) -> tuple[Pairs, NDArray[np.float64] | None]:
    """Undirected pairs of a graph given in any of the usual forms.

    Self-loops are dropped (networks add their own), directions are folded and repeated edges
    merged, each with an :class:`EdgewiseWarning`. Where the same pair comes with different
    weights, the largest counts. Entries of weight 0 are no edges.

    Parameters
    ----------
    graph : adjacency, edge list or graph
        - SciPy sparse, NumPy or torch adjacency of shape (n_nodes, n_nodes), in row order;
        - edge list of shape (n_edges, 2), as an array, a tensor or a sequence of pairs. With
          two nodes, an array or list of lists of shape (2, 2) is read as an adjacency;
        - pandas edge frame with columns ``source`` and ``target`` and perhaps ``probability``
          or ``weight``;
        - NetworkX graph, with edge attributes ``probability`` or ``weight`` if any;
        - :class:`~edgewise.graph.pairs.Pairs`.
    n_nodes : int
    node_names : sequence, optional
        The name of each row, by which edge lists, frames and NetworkX graphs then refer to it.
        Without names, nodes are row numbers; a NetworkX graph of exactly ``n_nodes`` other
        nodes is taken in its own order.

    Returns
    -------
    pairs : Pairs
    weights : ndarray of float64, shape (n_pairs,), or None
        Edge weights in (0, 1]; None if all are 1.

    Examples
    --------
    >>> from edgewise.inputs import adjacency_pairs
    >>> pairs, weights = adjacency_pairs([("b", "a"), ("b", "c")], 3, node_names=["a", "b", "c"])
    >>> pairs
    Pairs(rows=array([0, 1]), cols=array([1, 2]))
    """
    networkx = sys.modules.get("networkx")  # whoever holds such a graph has imported it
    graph = _to_host(graph)
    if isinstance(graph, Pairs):
        edges = _from_endpoints(graph.rows, graph.cols, None, n_nodes, None)._replace(
            directed=False
        )
    elif networkx is not None and isinstance(graph, networkx.Graph):
        edges = _from_networkx(graph, n_nodes, node_names)
    elif isinstance(graph, pd.DataFrame):
        edges = _from_frame(graph, n_nodes, node_names)
    elif _is_sparse(graph):
        edges = _from_matrix(graph, n_nodes)
    else:
        edges = _from_array(graph, n_nodes, node_names)
    return _fold(edges, n_nodes)


def _from_matrix(matrix: Any, n_nodes: int) -> _Edges:
    if matrix.shape != (n_nodes, n_nodes):
        raise ValueError(
            f"graph has shape {matrix.shape} but X has {n_nodes} rows: an adjacency must have "
            f"shape ({n_nodes}, {n_nodes}), an edge list (n_edges, 2)."
        )
    if _is_sparse(matrix):
        entries = matrix.tocoo(copy=True)
        entries.sum_duplicates()
        rows, cols, values = entries.row, entries.col, entries.data
    else:
        rows, cols = np.nonzero(matrix)
        values = matrix[rows, cols]
    weights = _check_weights(values, rows, cols)
    return _Edges(rows.astype(np.int64), cols.astype(np.int64), weights, directed=True)


def _check_weights(values: Any, rows: Any, cols: Any) -> NDArray[np.float64]:
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        try:
            if values.dtype.kind == "c":
                raise TypeError("complex numbers")
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"graph has weights that are no real numbers ({error}): weights are edge "
                "probabilities between 0 and 1."
            ) from None
    weights: NDArray[np.float64] = values.astype(np.float64)
    for bad, what, remedy in (
        (np.isnan(weights), "NaN", "remove the edge or give it a weight between 0 and 1"),
        (weights < 0, "negative", "weights are edge probabilities between 0 and 1"),
        (
            weights > 1,
            "greater than 1",
            "weights are edge probabilities between 0 and 1; divide by the largest, or drop "
            "them, for example with graph != 0",
        ),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"graph has a weight that is {what} ({weights[first]:g}), between nodes "
                f"{rows[first]} and {cols[first]}: {remedy}."
            )
    return weights


def _from_array(graph: Any, n_nodes: int, names: Sequence[Hashable] | None) -> _Edges:
    """A dense adjacency or an edge list, told apart by shape and, for two nodes, by tuples."""
    pairwise = isinstance(graph, Sequence) and any(isinstance(edge, tuple) for edge in graph)
    if names is not None and isinstance(graph, Sequence) and not isinstance(graph, str):
        table = _object_table(graph)  # asarray would turn the name 1 next to "a" into "1"
    else:
        try:
            table = np.asarray(graph)
        except (TypeError, ValueError, OverflowError):
            table = np.empty(0)
    if table.size == 0 and isinstance(graph, (Sequence, np.ndarray)) and len(graph) == 0:
        return _Edges(_NO_PAIRS.rows, _NO_PAIRS.cols, None, directed=False)
    if table.ndim != 2:
        raise ValueError(
            f"graph of type {type(graph).__name__} is not understood: give an adjacency of shape "
            f"({n_nodes}, {n_nodes}), an edge list of shape (n_edges, 2), an edge frame or a "
            "NetworkX graph."
        )
    if table.shape == (n_nodes, n_nodes) and not (n_nodes == 2 and pairwise):
        return _from_matrix(table, n_nodes)
    if table.shape[1] == 2:
        return _from_endpoints(table[:, 0], table[:, 1], None, n_nodes, names)
    hint = " Transpose it: graph.T has a row for each edge." if table.shape[0] == 2 else ""
    raise ValueError(
        f"graph has shape {table.shape} but X has {n_nodes} rows: an adjacency must have shape "
        f"({n_nodes}, {n_nodes}), an edge list (n_edges, 2).{hint}"
    )


def _object_table(rows: Sequence[Any]) -> NDArray[Any]:
    """A list of equally long rows as objects; one-dimensional where they are not."""
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        return np.empty(0)
    if len({len(row) for row in rows}) != 1:
        return np.empty(0)
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j] = value
    return table


def _from_frame(frame: pd.DataFrame, n_nodes: int, names: Sequence[Hashable] | None) -> _Edges:
    missing = [name for name in ("source", "target") if name not in frame.columns]
    if missing:
        raise ValueError(
            f"graph is a DataFrame without the {_listed(missing, 'column')}: rename its columns "
            "to source and target, or pass graph.to_numpy() if it is an adjacency in row order."
        )
    weight = next((name for name in ("probability", "weight") if name in frame.columns), None)
    source, target = (frame[name].to_numpy() for name in ("source", "target"))
    weights = None if weight is None else frame[weight].to_numpy()
    return _from_endpoints(source, target, weights, n_nodes, names)


def _from_networkx(graph: Any, n_nodes: int, names: Sequence[Hashable] | None) -> _Edges:
    nodes = list(graph.nodes)
    strange = [node for node in nodes if not _is_row_number(node, n_nodes)]
    if names is None and strange:
        if len(nodes) != n_nodes:
            raise ValueError(
                f"graph has {len(nodes)} nodes but X has {n_nodes} rows, and "
                f"{_listed(strange, 'node')} match no row number: name the rows, number the "
                f"nodes 0 to {n_nodes - 1}, or give a graph with one node for each row."
            )
        names = nodes
    if names is not None:
        _positions(nodes, names, "node")  # nodes without edges must match as well
    ends = list(graph.edges(data=True))
    weights = [data.get("probability", data.get("weight", 1.0)) for _, _, data in ends]
    source, target = np.empty(len(ends), object), np.empty(len(ends), object)
    for i, (first, second, _) in enumerate(ends):
        source[i], target[i] = first, second
    edges = _from_endpoints(source, target, np.array(weights), n_nodes, names)
    return edges._replace(directed=bool(graph.is_directed()))


def _is_row_number(node: Any, n_nodes: int) -> bool:
    whole = isinstance(node, (int, np.integer)) and not isinstance(node, bool)
    return whole and 0 <= int(node) < n_nodes


def _from_endpoints(
    source: Any, target: Any, weights: Any, n_nodes: int, names: Sequence[Hashable] | None
) -> _Edges:
    """Edges by the names or numbers of their ends."""
    if names is not None:
        if len(names) != n_nodes:
            raise ValueError(f"there are {len(names)} node_names for {n_nodes} rows.")
        # Both ends at once, so that an error lists all the names that match nothing.
        both = _positions([*source, *target], names, "edge end")
        rows, cols = both[: len(source)], both[len(source) :]
    else:
        rows, cols = (_row_numbers(np.asarray(end), n_nodes) for end in (source, target))
    checked = None if weights is None else _check_weights(weights, source, target)
    return _Edges(rows, cols, checked, directed=None)


def _positions(ends: Sequence[Hashable], names: Sequence[Hashable], what: str) -> NDArray[np.int64]:
    position = {name: row for row, name in enumerate(names)}
    if len(position) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise ValueError(
            f"node_names holds {_listed(twice, 'name')} more than once: names must be unique."
        )
    unknown = list(dict.fromkeys(end for end in ends if end not in position))
    if unknown:
        example = f" Rows have names like {next(iter(position))!r}." if position else ""
        raise ValueError(
            f"graph refers to {_listed(unknown, what)} that "
            f"match no row: remove them or correct the names.{example}"
        )
    found: NDArray[np.int64] = np.array([position[end] for end in ends], dtype=np.int64)
    return found


def _row_numbers(ends: NDArray[Any], n_nodes: int) -> NDArray[np.int64]:
    """Ends of edges as row numbers, whatever number type they came in."""
    if ends.dtype.kind not in "iuf":
        for edge, end in enumerate(ends.tolist()):
            if isinstance(end, bool) or not isinstance(end, Real):
                raise TypeError(
                    f"graph has the end {end!r} in edge {edge}: give row numbers from 0 to "
                    f"{n_nodes - 1}, or the names of the rows as well."
                )
    as_float = ends.astype(np.float64)
    whole = np.isfinite(as_float) & (as_float == np.floor(as_float))
    if not whole.all():
        edge = int(np.argmin(whole))
        raise ValueError(
            f"graph has the end {ends[edge]} in edge {edge}, which is no whole number: give row "
            f"numbers from 0 to {n_nodes - 1}."
        )
    outside = (as_float < 0) | (as_float >= n_nodes)
    if outside.any():
        edge = int(np.argmax(outside))
        raise ValueError(
            f"graph has the end {ends[edge]} in edge {edge}, but X has {n_nodes} rows: row "
            f"numbers run from 0 to {n_nodes - 1}."
        )
    numbers: NDArray[np.int64] = ends.astype(np.int64)
    return numbers


def _fold(edges: _Edges, n_nodes: int) -> tuple[Pairs, NDArray[np.float64] | None]:
    """Undirected pairs with the largest of their weights; says what was changed on the way."""
    weights = np.ones(len(edges.rows)) if edges.weights is None else edges.weights
    loop = edges.rows == edges.cols
    n_loops = int(np.count_nonzero(loop & (weights > 0)))
    if n_loops:
        _note(f"{n_loops} self-loops of the graph were dropped: networks add their own.")
    used = ~loop & (weights > 0)
    rows, cols, weights = edges.rows[used], edges.cols[used], weights[used]
    # One entry for each direction, with its largest weight.
    key, inverse = np.unique(rows * n_nodes + cols, return_inverse=True)
    if len(key) < len(rows):
        _note(
            f"{len(rows) - len(key)} repeated edges of the graph were merged; the largest weight "
            "of each counts."
        )
    strongest = np.zeros(len(key))
    np.maximum.at(strongest, inverse, weights)
    rows, cols = key // n_nodes, key % n_nodes
    one_way, unequal = _count_asymmetries(edges.directed, key, cols * n_nodes + rows, strongest)
    if one_way or unequal:
        _note(
            f"the graph is directed ({one_way} edges go one way only, {unequal} have another "
            "weight back): it was made undirected, with the larger weight of each pair."
        )

    pairs = Pairs.fold(rows, cols, n_nodes)
    pair_key = pairs.rows * n_nodes + pairs.cols
    entry = np.minimum(rows, cols) * n_nodes + np.maximum(rows, cols)
    folded = np.zeros(len(pair_key))
    np.maximum.at(folded, np.searchsorted(pair_key, entry), strongest)
    return pairs, None if (folded == 1).all() else folded


def _count_asymmetries(
    directed: bool | None,
    key: NDArray[np.int64],
    opposite: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> tuple[int, int]:
    """How many edges go one way only, and how many pairs have two different weights.

    An edge list that names every pair once is the usual way to write an undirected graph; one
    that names some pairs in both directions and others in one is a directed graph.
    """
    if directed is False or not len(key):
        return 0, 0
    place = np.minimum(np.searchsorted(key, opposite), len(key) - 1)
    both = key[place] == opposite
    if directed is None and not both.any():
        return 0, 0
    unequal = both & (weights != weights[place])
    return int(np.count_nonzero(~both)), int(np.count_nonzero(unequal)) // 2


def _note(message: str) -> None:
    # 4: past _note, _fold and adjacency_pairs, to whoever handed over the graph.
    warnings.warn(message, EdgewiseWarning, stacklevel=4)
