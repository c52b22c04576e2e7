"""What cannot be used is refused by name, with a remedy; what can be is used with a note.

A table: what is wrong, what the user passes, which exception, and what its message must say.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.utils._param_validation import InvalidParameterError

from edgewise import LDSClassifier
from edgewise.inputs import EdgewiseWarning, adjacency_pairs
from edgewise.persistence import ModelFileError

N = 12


class Bad(NamedTuple):
    """A bad input; X, y and the rest are good unless given."""

    name: str
    error: type[Exception]
    message: str
    parameters: dict[str, Any] = {}  # noqa: RUF012 - never changed
    given: dict[str, Any] = {}  # noqa: RUF012


def table():
    return np.random.default_rng(0).normal(size=(N, 3))


def labels():
    return np.array([0, 1] * 5 + [-1, -1])


def with_cell(value, row=4, col=1, dtype=None):
    X = table().astype(dtype or object)
    X[row, col] = value
    return X


def with_label(value, row=3):
    y = labels().astype(object)
    y[row] = value
    return y


def frame(**columns):
    return pd.DataFrame(table(), columns=["a", "b", "c"]).assign(**columns)


def adjacency(row=0, col=1, value=1.0):
    A = np.zeros((N, N))
    A[2, 3] = A[3, 2] = 1.0
    A[row, col] = A[col, row] = value
    return A


def x(name, error, message, value):
    return Bad(f"X: {name}", error, message, given={"X": value})


def y(name, error, message, value):
    return Bad(f"y: {name}", error, message, given={"y": value})


def graph(name, error, message, value):
    return Bad(f"graph: {name}", error, message, given={"graph": value})


def masks(name, error, message, **given):
    return Bad(f"masks: {name}", error, message, given=given)


def parameter(error, message, **parameters):
    shown = " ".join(f"{name}={value!r}" for name, value in parameters.items())
    return Bad(f"parameter: {shown}", error, message, parameters=parameters)


# fmt: off
# ruff: noqa: E501 - a table: one case a line
FEATURES = [
    x("NaN", ValueError, r"NaN.*row 4, column 1.*Fill in or drop", with_cell(np.nan, dtype=float)),
    x("inf", ValueError, r"infinity.*row 4, column 1.*Clip", with_cell(np.inf, dtype=float)),
    x("too large for float32", ValueError, r"too large.*row 4, column 1", with_cell(1e300, dtype=float)),
    x("NaN in a frame", ValueError, r"NaN.*row 4 \(index 4\), column 'b'", frame(b=[1, 2, 3, 4, np.nan] + [1.0] * 7)),
    x("sparse NaN", ValueError, r"NaN.*row 4, column 1", sparse.csr_array(with_cell(np.nan, dtype=float))),
    x("None", ValueError, r"NaN.*row 4, column 1", with_cell(None)),
    x("text", ValueError, r"text 'red' in row 4, column 1.*numbers.*OneHotEncoder", with_cell("red")),
    x("a number as text", ValueError, r"text '1\.5' in row 4, column 1", with_cell("1.5")),
    x("text column", ValueError, r"text 'x' in row 0 \(index 0\), column 'b'", frame(b=["x"] * N)),
    x("dates", ValueError, r"dates in column 'b'.*into numbers", frame(b=pd.Timestamp("2020-01-01"))),
    x("a date", TypeError, r"datetime.*row 4, column 1", with_cell(datetime.date(2020, 1, 1))),
    x("complex", ValueError, r"Complex data not supported: X holds complex numbers.*real", table() + 1j),
    x("an object", TypeError, r"dict in row 4, column 1", with_cell({})),
    x("0 rows", ValueError, r"0 sample\(s\).*minimum of 2", np.empty((0, 3))),
    x("1 row", ValueError, r"1 sample\(s\).*minimum of 2", np.ones((1, 3))),
    x("0 columns", ValueError, r"0 feature\(s\).*minimum of 1", np.empty((N, 0))),
    x("flat", ValueError, r"Reshape your data", np.ones(N)),
    x("three axes", ValueError, r"dim 3", np.ones((N, 2, 2))),
    x("ragged", ValueError, r"Row 5 has 2 columns, row 0 has 3", [[1, 2, 3]] * 5 + [[1, 2]] * 7),
    x("nothing", ValueError, r"X is None: give a table", None),
    x("a word", ValueError, r"X is the text 'table\.csv': .*read the file first", "table.csv"),
]

LABELS = [
    y("too short", ValueError, r"y has 11 labels but X has 12 rows: give one label", labels()[:-1]),
    y("too long", ValueError, r"y has 24 labels but X has 12 rows", np.tile(labels(), 2)),
    y("none at all", ValueError, r"target y is None.*-1 or None", None),
    y("all unlabelled", ValueError, r"no label: all 12 rows.*Label at least 3", np.full(N, -1)),
    y("all missing", ValueError, r"no label: all 12 rows", [None] * N),
    y("two labels only", ValueError, r"only 2 rows are labelled.*label at least 3", np.repeat([0, 1, -1], [1, 1, 10])),
    y("mixed types", TypeError, r"mixes labels.*'a' in row 3.*all strings or all integers", with_label("a")),
    y("truth and numbers", TypeError, r"mixes labels of different types.*True in row 3", with_label(True)),
    y("a list", TypeError, r"holds a list in row 3", with_label([1])),
    y("fractions", ValueError, r"0\.5 in row 0", np.where(labels() >= 0, labels() + 0.5, -1.0)),
    y("infinite", ValueError, r"infinity in row 3: labels must be classes", np.where(np.arange(N) == 3, np.inf, labels())),
    y("complex", ValueError, r"dtype complex128", labels() + 1j),
    y("bytes", TypeError, r"bytes is not supported.*astype\(str\)", np.array([b"a", b"b"] * 6)),
    y("overflow", ValueError, r"18446744073709551616 in row 3.*64 bits: use strings", with_label(2**64)),
    y("a table", ValueError, r"1d array|shape", np.ones((N, 2), int)),
    y("dates", ValueError, r"dtype datetime64", np.array(["2020-01-01"] * N, "datetime64[D]")),
]

MASKS = [
    masks("overlap", ValueError, r"overlap in rows 1, 2: give each row one role", validation=[0, 1, 2], early_stopping=[1, 2, 3]),
    masks("empty list", ValueError, r"validation is empty: give at least one row", validation=[]),
    masks("empty mask", ValueError, r"early_stopping is empty: no row of the mask", early_stopping=np.zeros(N, bool)),
    masks("mask too short", ValueError, r"mask of 5 rows but X has 12", validation=np.ones(5, bool)),
    masks("row too large", ValueError, r"names row 12, but rows are numbered 0 to 11", validation=[0, 12]),
    masks("negative row", ValueError, r"names row -1, but rows are numbered", validation=[0, -1]),
    masks("twice", ValueError, r"row 3 more than once.*astype\(bool\)", validation=[3, 3, 4]),
    masks("unlabelled", ValueError, r"rows 10, 11, which y leaves unlabelled", validation=[0, 10, 11]),
    masks("fractions", TypeError, r"dtype float64: give a boolean mask", validation=[0.5, 1.0]),
    masks("two axes", ValueError, r"shape \(2, 2\): give a flat mask", validation=[[0, 1], [2, 3]]),
    masks("nothing to train on", ValueError, r"leave 0 labelled rows for training", validation=list(range(10))),
    masks("one validation row", ValueError, r"row 3 alone, and half of it is needed", validation=[3]),
]

GRAPHS = [
    graph("wrong shape", ValueError, r"shape \(5, 5\) but X has 12 rows", np.ones((5, 5))),
    graph("transposed edge list", ValueError, r"Transpose it: graph\.T", np.array([[0, 1, 2], [3, 4, 5]])),
    graph("NaN", ValueError, r"NaN.*between nodes 0 and 1: remove the edge", adjacency(value=np.nan)),
    graph("negative", ValueError, r"negative \(-1\).*nodes 0 and 1", adjacency(value=-1.0)),
    graph("above 1", ValueError, r"greater than 1 \(3\).*nodes 0 and 1.*divide by the largest", sparse.csr_array(adjacency(value=3.0))),
    graph("complex", TypeError, r"no real numbers", adjacency().astype(complex)),
    graph("text weights", TypeError, r"no real numbers", pd.DataFrame({"source": [0], "target": [1], "weight": ["x"]})),
    graph("node too large", ValueError, r"end 12.* in edge 1, but X has 12 rows", [(0, 1), (1, 12)]),
    graph("negative node", ValueError, r"end -1.* in edge 0", [(-1, 1), (1, 2)]),
    graph("huge node", ValueError, r"in edge 0, but X has 12 rows", [(2**70, 1), (1, 2)]),
    graph("node no whole number", ValueError, r"0\.5 in edge 0, which is no whole number", [(0.5, 1), (1, 2)]),
    graph("names without names", TypeError, r"end 'a' in edge 0: give row numbers", np.array([("a", "b")], object)),
    graph("columns missing", ValueError, r"column 'target'.*rename", pd.DataFrame({"source": [0], "to": [1]})),
    graph("ids that match nothing", ValueError, r"nodes 'a', 'b' match no row number", networkx.Graph([("a", "b")])),
    graph("a number", ValueError, r"int is not understood: give an adjacency", 5),
    graph("a path", ValueError, r"str is not understood", "graph.csv"),
    graph("a tensor of wrong shape", ValueError, r"shape \(3, 3\) but X has 12", torch.ones(3, 3)),
]
# fmt: on

PARAMETERS = [
    parameter(InvalidParameterError, r"'k' parameter.*\[1, inf\).*Got 0", k=0),
    parameter(InvalidParameterError, r"'k' parameter.*int.*Got 2\.5", k=2.5),
    parameter(
        ValueError,
        r"k=12 is too large: each of the 12 rows has only 11 others\. Choose k <= 11",
        k=N,
    ),
    parameter(ValueError, r"k=1000000000000.*12 rows", k=10**12),
    parameter(InvalidParameterError, r"'metric'.*cosine.*Got 'hamming'", metric="hamming"),
    parameter(InvalidParameterError, r"'outer_learning_rate'.*Got -1", outer_learning_rate=-1.0),
    parameter(InvalidParameterError, r"'outer_learning_rate'.*Got nan", outer_learning_rate=np.nan),
    parameter(InvalidParameterError, r"'outer_learning_rate'.*Got inf", outer_learning_rate=np.inf),
    parameter(InvalidParameterError, r"'inner_learning_rate'.*Got 0", inner_learning_rate=0.0),
    parameter(InvalidParameterError, r"'inner_learning_rate'.*Got nan", inner_learning_rate=np.nan),
    parameter(InvalidParameterError, r"'outer_decay'.*Got -0\.1", outer_decay=-0.1),
    parameter(InvalidParameterError, r"'dropout'.*\[0\.?0?, 1\.?0?\).*Got 1", dropout=1.0),
    parameter(InvalidParameterError, r"'weight_decay'.*Got '1'", weight_decay="1"),
    parameter(InvalidParameterError, r"'tau'.*Got -1", tau=-1),
    parameter(ValueError, r"tau=20 .*max_inner_steps=10.*tau=None", tau=20, max_inner_steps=10),
    parameter(InvalidParameterError, r"'patience'.*Got 0", patience=0),
    parameter(InvalidParameterError, r"'max_inner_steps'.*Got 0", max_inner_steps=0),
    parameter(InvalidParameterError, r"'n_samples'.*Got 0", n_samples=0),
    parameter(InvalidParameterError, r"'hidden_units'.*Got 0", hidden_units=0),
    parameter(MemoryError, r"hidden_units=10{20} takes.*Choose fewer", hidden_units=10**20),
    parameter(
        FloatingPointError,
        r"inner problem diverged.*Lower inner_learning_rate",
        inner_learning_rate=1e29,
    ),
    parameter(InvalidParameterError, r"'inner_learning_rate'.*1e\+30", inner_learning_rate=1e300),
    parameter(InvalidParameterError, r"'dtype'.*Got 'float16'", dtype="float16"),
    parameter(InvalidParameterError, r"'network'.*Network", network="GCN"),
    parameter(InvalidParameterError, r"'random_state'", random_state="today"),
    parameter(ValueError, r"device='gpu9' .*device='cpu'", device="gpu9"),
    parameter(ValueError, r"edges='similarity'.*graph was given", edges="similarity"),
]

TABLE = FEATURES + LABELS + MASKS + GRAPHS + PARAMETERS


@pytest.mark.parametrize("bad", TABLE, ids=[bad.name for bad in TABLE])
def test_bad_input_is_refused_by_name(bad):
    given = {"X": table(), "y": labels(), **bad.given}
    if bad.parameters.get("edges") == "similarity":
        given["graph"] = [(0, 1), (1, 2)]
    quick = {"k": 3, "patience": 1, "max_outer_iterations": 1, "max_inner_steps": 8}
    with pytest.raises(bad.error, match=bad.message) as caught:
        LDSClassifier(**{**quick, "random_state": 0, **bad.parameters}).fit(**given)
    assert type(caught.value) is bad.error
    assert "\n" not in str(caught.value).strip() or bad.name == "X: flat"


def test_the_table_is_long():
    assert len({bad.name for bad in TABLE}) == len(TABLE) >= 60


# ----------------------------------------------------------------- used, and perhaps said


@pytest.mark.parametrize(
    ("given", "note", "edges"),
    [
        ([(0, 0), (0, 1)], "1 self-loops of the graph were dropped", [(0, 1)]),
        ([(0, 1), (0, 1), (1, 2)], "1 repeated edges of the graph were merged", [(0, 1), (1, 2)]),
        ([(0, 1), (1, 0), (1, 2)], "graph is directed .1 edges go one way", [(0, 1), (1, 2)]),
        (networkx.DiGraph([(0, 1)]), "graph is directed", [(0, 1)]),
    ],
)
def test_what_was_changed_about_a_graph_is_said(given, note, edges):
    with pytest.warns(EdgewiseWarning, match=note):
        pairs, _ = adjacency_pairs(given, N)
    assert list(zip(*pairs, strict=True)) == edges


QUICK = {"k": 3, "patience": 1, "max_outer_iterations": 1, "max_inner_steps": 8, "random_state": 0}


@pytest.mark.parametrize(
    ("name", "X", "y"),
    [
        ("constant column", np.column_stack([table(), np.ones(N)]), labels()),
        ("duplicated column", np.tile(table(), 2), labels()),
        ("all columns constant", np.ones((N, 2)), labels()),
        ("all zero", np.zeros((N, 2)), labels()),
        ("duplicated rows", np.repeat(table()[:6], 2, axis=0), labels()),
        ("one class only", table(), np.where(labels() == 0, 0, -1)),
        ("two rows are not labelled", table().tolist(), [0, 1] * 5 + [None, None]),
        ("many columns", np.tile(table(), 5_000), labels()),
    ],
)
def test_odd_tables_get_predictions(name, X, y):
    predicted = LDSClassifier(**QUICK).fit(X, y).predict_proba(X)
    assert np.isfinite(predicted).all(), name
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)


def test_a_class_with_one_labelled_row_is_learned_from():
    y = labels()
    y[0] = 2
    fitted = LDSClassifier(**QUICK).fit(table(), y)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert 0 in fitted.split_.train


def test_classes_without_a_training_row_are_named():
    y = labels()
    y[0] = 2
    with pytest.warns(EdgewiseWarning, match="no training row has a label of class number 2"):
        LDSClassifier(**QUICK).fit(table(), y, validation=[0, 1, 2, 3], early_stopping=[4, 5])


# ------------------------------------------------------------------------------ predicting


@pytest.fixture(scope="module")
def fitted():
    return LDSClassifier(**QUICK).fit(table(), labels())


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((2, 4)), "X has 4 features, but LDSClassifier is expecting 3"),
        (np.full((1, 3), np.nan), "NaN.*row 0, column 0"),
        (np.ones(3), "Reshape your data"),
        (np.empty((0, 3)), "0 sample"),
    ],
)
def test_bad_rows_to_predict(fitted, X, message):
    with pytest.raises(ValueError, match=message):
        fitted.predict(X)


def test_models_of_a_newer_format(fitted, tmp_path):
    import json

    fitted.save(tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(ModelFileError, match=r"newer Edgewise \(format 99.*upgrade"):
        LDSClassifier.load(tmp_path / "model")
