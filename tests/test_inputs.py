from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from edgewise.graph.pairs import Pairs
from edgewise.inputs import (
    EdgewiseWarning,
    adjacency_pairs,
    check_features,
    encode_labels,
    split_labelled,
)
from edgewise.problem import Split

NAN = float("nan")
TABLE = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])


# --------------------------------------------------------------------------------- features


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32"])
@pytest.mark.parametrize(
    "X",
    [
        TABLE,
        TABLE.astype(int),
        TABLE.astype(object),
        TABLE.tolist(),
        np.asfortranarray(TABLE),
        pd.DataFrame(TABLE, columns=["a", "b", "c"]),
        pd.DataFrame(TABLE).astype("Int64"),
        pd.DataFrame(TABLE).astype("category"),
        torch.tensor(TABLE, requires_grad=True),
        TABLE.astype(np.float16),
    ],
    ids=lambda X: type(X).__name__,
)
def test_dense_features_in_every_form(X: Any, dtype: Any) -> None:
    checked = check_features(X, dtype)
    assert isinstance(checked, np.ndarray)
    assert checked.dtype == np.dtype(dtype)
    assert_array_equal(checked, TABLE)


@pytest.mark.parametrize(
    "X",
    [
        sparse.csr_matrix(TABLE),
        sparse.csr_array(TABLE),
        sparse.csc_array(TABLE),
        sparse.coo_matrix(TABLE.astype(int)),
        torch.tensor(TABLE).to_sparse(),
        torch.tensor(TABLE).to_sparse().to_sparse_coo(),
    ],
    ids=lambda X: type(X).__name__,
)
def test_sparse_features_become_csr_arrays(X: Any) -> None:
    checked = check_features(X, np.float32)
    assert isinstance(checked, sparse.csr_array)
    assert checked.dtype == np.float32
    assert_array_equal(checked.toarray(), TABLE)


def test_unsorted_and_repeated_entries_are_put_in_order_without_touching_the_input() -> None:
    X = sparse.csr_array(
        (np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3, 3])), shape=(2, 3)
    )
    checked = check_features(X)
    assert checked.has_canonical_format
    assert_array_equal(checked.toarray(), [[2, 0, 4], [0, 0, 0]])
    assert X.indices.tolist() == [2, 0, 2]
    assert X.data.tolist() == [1, 2, 3]


def test_read_only_features_are_accepted() -> None:
    X = TABLE.copy()
    X.setflags(write=False)
    assert_array_equal(check_features(X), TABLE)


def test_the_least_number_of_rows_can_be_lowered() -> None:
    assert check_features(TABLE[:1], min_rows=1).shape == (1, 3)
    with pytest.raises(ValueError, match=r"0 sample\(s\).*minimum of 1"):
        check_features(TABLE[:0], min_rows=1)


def test_constant_and_repeated_columns_are_fine() -> None:
    assert check_features(np.ones((4, 3))).shape == (4, 3)


NAMED = pd.DataFrame({"age": [1.0, 2.0], "town": ["Oslo", "Rome"]}, index=["ann", "bob"])
BAD_FEATURES = {
    "nan": ([[1, 2], [3, NAN]], ValueError, r"NaN.*row 1, column 1\. Fill in or drop"),
    "none": ([[1, None], [3, 4]], ValueError, "NaN.*row 0, column 1"),
    "infinite": ([[1, 2], [np.inf, 4]], ValueError, "infinity.*row 1, column 0.*Clip or rescale"),
    "too large": ([[1, 2], [1e300, 4]], ValueError, r"too large for .*float32.*row 1, column 0"),
    "sparse nan": (
        sparse.csr_array([[0, 0], [0, NAN], [1, 1]]),
        ValueError,
        "NaN.*row 1, column 1",
    ),
    "frame nan": (
        pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, NAN]}, index=["x", "y"]),
        ValueError,
        r"NaN.*row 1 \(index 'y'\), column 'b'",
    ),
    "frame NA": (pd.DataFrame({"a": [1, None]}, dtype="Int64"), ValueError, "NaN.*column 'a'"),
    "object NA": (
        pd.DataFrame({"a": [1, pd.NA]}, dtype=object),
        TypeError,
        r"NAType in row 1 \(index 1\), column 'a'",
    ),
    "text": ([["a", "b"], ["c", "d"]], ValueError, "text 'a' in row 0, column 0.*OneHotEncoder"),
    "numeric text": ([["1", "2"], ["3", "4"]], ValueError, "text '1' in row 0, column 0"),
    "one text": ([[1, 2], [3, "x"]], ValueError, "text 'x' in row 1, column 1"),
    "text column": (NAMED, ValueError, r"text 'Oslo' in row 0 \(index 'ann'\), column 'town'"),
    "text category": (NAMED.astype("category"), ValueError, "text 'Oslo' .* column 'town'"),
    "dates": (np.full((2, 2), "2020", dtype="M8[D]"), ValueError, "dates.*turn them into numbers"),
    "date column": (
        pd.DataFrame({"a": [1, 2], "when": pd.to_datetime(["2020", "2021"])}),
        ValueError,
        "dates in column 'when'",
    ),
    "complex": (np.ones((2, 2)) * 1j, ValueError, "Complex data not supported"),
    "object": (
        np.array([[1, {}], [1, 1]], dtype=object),
        TypeError,
        "argument must be .* string.* number.*dict in row 0, column 1",
    ),
    "ragged": ([[1, 2], [3, 4], [5]], ValueError, "Row 2 has 1 columns, row 0 has 2"),
    "one row": (np.ones((1, 3)), ValueError, r"1 sample\(s\).*minimum of 2 is required"),
    "no rows": (np.ones((0, 3)), ValueError, r"0 sample\(s\)"),
    "no columns": (np.ones((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\)"),
    "flat": (np.ones(3), ValueError, "Expected 2D array, got 1D array"),
    "cube": (np.ones((2, 2, 2)), ValueError, "dim 3"),
    "nothing": (None, ValueError, "X is None: give a table"),
    "file name": ("table.csv", ValueError, "text .table.csv.: .* read the file first"),
}


@pytest.mark.parametrize("case", BAD_FEATURES.values(), ids=BAD_FEATURES.keys())
def test_bad_features(case: Any) -> None:
    X, error, message = case
    with pytest.raises(error, match=rf"(?s){message}"):
        check_features(X, np.float32)


# ----------------------------------------------------------------------------------- labels

A, B, U = 0, 1, -1
GOOD_LABELS = {
    "integers": (np.array([3, -1, 7]), [A, U, B], [3, 7]),
    "int8": (np.array([3, -1, 7], np.int8), [A, U, B], [3, 7]),
    "unsigned": (np.array([3, 255, 7], np.uint8), [0, 2, 1], [3, 7, 255]),
    "other negatives": ([-2, -1, 5], [A, U, B], [-2, 5]),
    "integer list with None": ([1, None, 0, -1], [B, U, A, U], [0, 1]),
    "floats": (np.array([0.0, NAN, -1.0, 2.0]), [A, U, U, B], [0.0, 2.0]),
    "float list": ([1, 2.0, None, NAN], [A, B, U, U], [1.0, 2.0]),
    "strings": (np.array(["b", "", "a"]), [B, U, A], ["a", "b"]),
    "minus one as text": (["-1", "a"], [A, B], ["-1", "a"]),
    "string list with gaps": (["b", None, NAN, "", pd.NA, "a"], [B, U, U, U, U, A], ["a", "b"]),
    "the text nan": (np.array(["nan", "a"]), [B, A], ["a", "nan"]),
    "numpy strings": (np.array(["b", "", "a"], np.dtypes.StringDType()), [B, U, A], ["a", "b"]),
    "objects": (np.array([2, 1, 2], dtype=object), [B, A, B], [1, 2]),
    "booleans": (np.array([True, False]), [B, A], [False, True]),
    "boolean list with None": ([True, None, False], [B, U, A], [False, True]),
    "nullable integers": (pd.Series([1, pd.NA, 0], dtype="Int64"), [B, U, A], [0, 1]),
    "nullable booleans": (
        pd.Series([True, pd.NA, False], dtype="boolean"),
        [B, U, A],
        [False, True],
    ),
    "pandas strings": (pd.Series(["b", None, "a"]), [B, U, A], ["a", "b"]),
    "pandas floats": (pd.Series([1.0, NAN, 0.0]), [B, U, A], [0.0, 1.0]),
    "string categories": (pd.Categorical(["b", None, "a"]), [B, U, A], ["a", "b"]),
    "integer categories": (
        pd.Series([1, None, 0], dtype=pd.CategoricalDtype([0, 1, 2])),
        [B, U, A],
        [0, 1],
    ),
    "pandas index": (pd.Index(["b", "a"]), [B, A], ["a", "b"]),
    "tensor": (torch.tensor([4, -1, 2]), [B, U, A], [2, 4]),
    "range": (range(2), [A, B], [0, 1]),
    "one class": (np.ones(3), [A, A, A], [1.0]),
    "one class and gaps": ([1, None], [A, U], [1]),
}


@pytest.mark.parametrize("case", GOOD_LABELS.values(), ids=GOOD_LABELS.keys())
def test_labels_in_every_form(case: Any) -> None:
    y, expected_codes, expected_classes = case
    codes, classes = encode_labels(y)
    assert codes.dtype == np.int64
    assert codes.tolist() == expected_codes
    assert classes.tolist() == expected_classes
    assert [type(label) for label in classes.tolist()] == [type(c) for c in expected_classes]
    check_classification_targets(classes[codes[codes >= 0]])


def test_labels_keep_their_numpy_type() -> None:
    for y in (np.array([1, 2], np.int8), np.array(["a", "bc"]), np.array([1, 2], np.float32)):
        assert encode_labels(y)[1].dtype == y.dtype


@pytest.mark.parametrize("column", [np.array([[1], [0]]), [[1], [0]], pd.DataFrame({"y": [1, 0]})])
def test_a_column_is_flattened_with_scikit_learns_warning(column: Any) -> None:
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        codes, _ = encode_labels(column)
    assert codes.tolist() == [1, 0]


@pytest.mark.parametrize("y", [np.array([1, -1]), [1.0, -1.0], [1, -1, None]])
def test_classes_named_plus_and_minus_one_get_a_warning(y: Any) -> None:
    with pytest.warns(EdgewiseWarning, match="If -1 is a class, rename the classes"):
        codes, classes = encode_labels(y)
    assert codes[:2].tolist() == [0, -1]
    assert classes.tolist() == [1]


BAD_LABELS = {
    "none": (None, ValueError, "requires y to be passed, but the target y is None"),
    "continuous": ([0, 0.5, 1], ValueError, "Unknown label type: continuous.*0.5 in row 1"),
    "huge floats": ([1e300, 2.0], ValueError, "Unknown label type: continuous.*must be strings"),
    "infinite": ([1.0, np.inf], ValueError, "contains infinity in row 1"),
    "all minus one": (np.full(4, -1), ValueError, "no label: all 4 rows.*Label at least 3"),
    "all nan": ([NAN, NAN], ValueError, "no label: all 2 rows"),
    "all empty": (["", None], ValueError, "no label: all 2 rows"),
    "nothing": ([], ValueError, "no label: all 0 rows"),
    "text and integers": (["a", None, 1], TypeError, "mixes .*'a' in row 0 and 1 in row 2.*Make"),
    "truth and integers": ([True, 2], TypeError, "mixes .*True in row 0 and 2 in row 1"),
    "bytes": (np.array([b"a"]), TypeError, "bytes is not supported.*astype"),
    "bytes objects": ([b"a"], TypeError, "holds a bytes in row 0"),
    "dicts": (["a", {}], TypeError, "Unknown label type: y holds a dict in row 1"),
    "dates": (np.array(["2020"], "M8[D]"), ValueError, "Unknown label type.*datetime64"),
    "timestamps": ([pd.Timestamp("2020")], TypeError, "Unknown label type.*Timestamp in row 0"),
    "complex": (np.array([1j, 2]), ValueError, "Unknown label type.*complex128"),
    "too large": ([1, 2**70], ValueError, "1180591620717411303424 in row 1.*use strings"),
    "table": (np.eye(2), ValueError, r"y should be a 1d array, got an array of shape \(2, 2\)"),
    "list table": ([[1, 2], [3, 4]], ValueError, r"should be a 1d array.*\(2, 2\)"),
    "ragged": ([[1], [2, 3]], TypeError, "Unknown label type: y holds a list in row 0"),
    "one string": ("spam", ValueError, "should be a 1d array"),
    "sparse": (sparse.csr_array([[1], [0]]), TypeError, "Sparse data was passed for y"),
}


@pytest.mark.parametrize("case", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels(case: Any) -> None:
    y, error, message = case
    with pytest.raises(error, match=rf"(?s){message}"):
        encode_labels(y)


def test_wrong_number_of_labels() -> None:
    assert encode_labels([0, 1], n_rows=2)[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="y has 2 labels but X has 3 rows"):
        encode_labels([0, 1], n_rows=3)


# A fixed pool of few names: scikit-learn warns where almost every row has its own class.
labels_with_gaps = st.lists(
    st.one_of(st.none(), st.sampled_from(["", "a", "b", "c", "é"])), min_size=1, max_size=20
)


@given(y=labels_with_gaps.filter(lambda y: any(y)))
def test_codes_lead_back_to_the_labels(y: list[str | None]) -> None:
    codes, classes = encode_labels(y)
    assert classes.tolist() == sorted({label for label in y if label})
    for label, code in zip(y, codes.tolist(), strict=True):
        assert (classes[code] == label) if label else code == -1


# ------------------------------------------------------------------------------------ split


def parts_of(split: Split) -> list[list[int]]:
    return [split.train.tolist(), split.validation.tolist(), split.early_stopping.tolist()]


def assert_sound(split: Split, codes: np.ndarray) -> None:
    """Non-empty, sorted, disjoint parts that cover the labelled rows exactly."""
    everything = []
    for part in (split.train, split.validation, split.early_stopping):
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()
        everything += part.tolist()
    assert sorted(everything) == np.flatnonzero(codes >= 0).tolist()


@given(
    codes=st.lists(st.integers(-1, 4), min_size=3, max_size=40)
    .map(lambda values: np.array(values, dtype=np.int64))
    .filter(lambda codes: np.count_nonzero(codes >= 0) >= 3),
    seed=st.integers(0, 9),
    shares=st.sampled_from([(1 / 3, 1 / 3), (0.1, 0.1), (0.45, 0.45), (0.05, 0.9)]),
)
@settings(max_examples=300)
def test_the_split_covers_the_labelled_rows_and_serves_train_first(
    codes: np.ndarray, seed: int, shares: tuple[float, float]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)  # classes missing from train
        split = split_labelled(
            codes,
            rng=np.random.default_rng(seed),
            validation_share=shares[0],
            early_stopping_share=shares[1],
        )
    assert_sound(split, codes)
    sizes = Counter(codes[codes >= 0].tolist())
    if max(sizes.values()) < 3:
        return  # a row may have been moved to a part that would have been empty
    train, validation, stop = (Counter(codes[part].tolist()) for part in parts_of(split))
    for code, size in sizes.items():
        assert train[code] >= 1
        assert validation[code] >= min(1, size - 1)
        assert stop[code] >= min(1, max(0, size - 2))
        if size >= 30:
            assert abs(validation[code] - size * shares[0]) <= 1.5


def test_equal_shares_are_equal_parts_of_every_class() -> None:
    codes = np.repeat([0, 1, 2], [30, 60, 9])
    split = split_labelled(codes, rng=np.random.default_rng(0))
    for part in parts_of(split):
        assert np.bincount(codes[part]).tolist() == [10, 20, 3]


def test_shares_are_respected() -> None:
    codes = np.repeat([0, 1], 100)
    split = split_labelled(
        codes,
        rng=np.random.default_rng(0),
        validation_share=0.2,
        early_stopping_share=0.1,
    )
    assert [len(part) for part in parts_of(split)] == [140, 40, 20]


def test_a_large_share_never_empties_a_class() -> None:
    codes = np.zeros(4, dtype=np.int64)
    split = split_labelled(
        codes, rng=np.random.default_rng(0), validation_share=0.05, early_stopping_share=0.05
    )
    assert [len(part) for part in parts_of(split)] == [2, 1, 1]


def test_single_rows_train() -> None:
    codes = np.array([0, 0, 0, 1, 2, 2])
    split = split_labelled(codes, rng=np.random.default_rng(0))
    assert 3 in split.train
    assert codes[split.validation].tolist() == [0, 2]
    assert codes[split.early_stopping].tolist() == [0]


def test_an_empty_part_takes_a_row_from_validation_before_train() -> None:
    # Train and validation get one row of each class, which leaves nothing to stop by.
    codes = np.array([0, 0, 1, 1])
    split = split_labelled(codes, rng=np.random.default_rng(0))
    assert_sound(split, codes)
    assert sorted(codes[split.train].tolist()) == [0, 1]


def test_three_classes_of_one_row_are_split_with_a_warning() -> None:
    codes = np.array([0, 1, 2])
    with pytest.warns(EdgewiseWarning, match="no training row has a label of class numbers "):
        split = split_labelled(codes, rng=np.random.default_rng(0))
    assert_sound(split, codes)


def test_the_seed_decides() -> None:
    codes = np.repeat([0, 1, -1], 20)

    def draw(seed: int, **masks: Any) -> list[list[int]]:
        return parts_of(split_labelled(codes, rng=np.random.default_rng(seed), **masks))

    assert draw(1) == draw(1) != draw(2)
    half = {"validation": np.arange(10, 30)}
    assert draw(1, **half) == draw(1, **half) != draw(2, **half)


@pytest.mark.parametrize("form", ["mask", "indices", "list", "series", "tensor", "unsorted"])
def test_validation_is_halved_by_class(form: str) -> None:
    codes = np.tile([0, 1, 2, -1], 20)
    rows = np.flatnonzero((codes >= 0) & (np.arange(80) >= 20))
    mask = np.isin(np.arange(80), rows)
    validation: Any = {
        "mask": mask,
        "indices": rows,
        "list": rows.tolist(),
        "series": pd.Series(mask),
        "tensor": torch.tensor(mask),
        "unsorted": rows[::-1].astype(np.int32),
    }[form]
    split = split_labelled(codes, validation=validation, rng=np.random.default_rng(3))
    assert_sound(split, codes)
    assert_array_equal(np.union1d(split.validation, split.early_stopping), rows)
    for part in (split.validation, split.early_stopping):
        counts = np.bincount(codes[part])
        assert counts.sum() in (22, 23)
        assert set(counts.tolist()) <= {7, 8}


@given(
    codes=st.lists(st.integers(0, 3), min_size=4, max_size=30).map(np.array),
    seed=st.integers(0, 5),
    data=st.data(),
)
@settings(max_examples=100)
def test_halves_never_differ_by_more_than_one(codes: Any, seed: int, data: Any) -> None:
    n_rows = data.draw(st.integers(2, len(codes) - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        split = split_labelled(codes, validation=np.arange(n_rows), rng=np.random.default_rng(seed))
    assert_sound(split, codes)
    first, second = (
        np.bincount(codes[part], minlength=4) for part in (split.validation, split.early_stopping)
    )
    assert first.sum() - second.sum() in (0, 1)
    assert (np.abs(first - second) <= 1).all()


def test_both_parts_are_used_as_given() -> None:
    codes = np.array([0, 1, 0, 1, 0, 1, -1])
    stop = np.array([0, 0, 0, 0, 1, 1, 0], dtype=bool)
    split = split_labelled(
        codes, validation=[3, 2], early_stopping=stop, rng=np.random.default_rng(0)
    )
    assert parts_of(split) == [[0, 1], [2, 3], [4, 5]]


def test_early_stopping_alone_leaves_the_rest_to_the_other_two() -> None:
    codes = np.repeat([0, 1, -1], 30)
    stop = np.arange(20)
    split = split_labelled(codes, early_stopping=stop, rng=np.random.default_rng(0))
    assert_sound(split, codes)
    assert_array_equal(split.early_stopping, stop)
    assert np.bincount(codes[split.train]).tolist() == [5, 15]
    assert np.bincount(codes[split.validation]).tolist() == [5, 15]


SPLIT_CODES = np.array([0, 1, 0, 1, 0, 1, -1, -1])
BAD_SPLITS = {
    "overlap": (
        {"validation": [0, 1, 2], "early_stopping": [1, 2, 3]},
        ValueError,
        "validation and early_stopping overlap in rows 1, 2:",
    ),
    "empty list": ({"validation": []}, ValueError, "validation is empty"),
    "empty mask": (
        {"early_stopping": np.zeros(8, bool)},
        ValueError,
        "early_stopping is empty: no row of the mask is True",
    ),
    "unlabelled": (
        {"validation": [0, 6]},
        ValueError,
        "validation holds row 6, which y leaves unlabelled",
    ),
    "unlabelled mask": ({"validation": np.ones(8, bool)}, ValueError, "holds rows 6, 7"),
    "out of range": (
        {"validation": [0, 8]},
        ValueError,
        "validation names row 8, but rows are numbered 0 to 7",
    ),
    "negative": ({"early_stopping": [-1]}, ValueError, "early_stopping names row -1"),
    "wrong length": (
        {"validation": np.ones(7, bool)},
        ValueError,
        "validation is a mask of 7 rows but X has 8",
    ),
    "zeros and ones": (
        {"validation": [0, 1, 0, 1, 0, 0, 0, 0]},
        ValueError,
        r"rows 0, 1 more than once.*astype\(bool\)",
    ),
    "fractions": ({"validation": [0.5, 1.0]}, TypeError, "validation has dtype float64"),
    "text": ({"validation": ["a"]}, TypeError, "validation has dtype <U1"),
    "table": ({"validation": np.eye(8, dtype=bool)}, ValueError, r"has shape \(8, 8\)"),
    "one row to halve": (
        {"validation": [3]},
        ValueError,
        "validation holds row 3 alone.*give early_stopping as well",
    ),
    "nothing left to train": (
        {"validation": [0, 1, 2, 3, 4, 5]},
        ValueError,
        "leave 0 labelled rows for training, which takes at least 1",
    ),
    "nothing left, both": (
        {"validation": [0, 1, 2], "early_stopping": [3, 4, 5]},
        ValueError,
        "leave 0 labelled rows for training",
    ),
    "one left for two": (
        {"early_stopping": [0, 1, 2, 3, 4]},
        ValueError,
        "leave 1 labelled rows for training and validation, which takes at least 2",
    ),
    "share 0": ({"validation_share": 0.0}, ValueError, "validation_share=0.0 must lie between"),
    "share nan": ({"early_stopping_share": NAN}, ValueError, "early_stopping_share=nan"),
    "shares": (
        {"validation_share": 0.5, "early_stopping_share": 0.5},
        ValueError,
        "leave nothing for training: their sum must be below 1",
    ),
}


@pytest.mark.parametrize("case", BAD_SPLITS.values(), ids=BAD_SPLITS.keys())
def test_bad_splits(case: Any) -> None:
    arguments, error, message = case
    with pytest.raises(error, match=message):
        split_labelled(SPLIT_CODES, rng=np.random.default_rng(0), **arguments)


@pytest.mark.parametrize("codes", [[0, 1, -1], [0, -1], [-1, -1]])
def test_fewer_than_three_labels(codes: Any) -> None:
    with pytest.raises(ValueError, match=r"only \d rows are labelled.*label at least 3 rows"):
        split_labelled(np.array(codes), rng=np.random.default_rng(0))


def test_a_mask_that_takes_a_whole_class_is_reported() -> None:
    codes = np.array([0, 0, 1, 1, 2, 2])
    with pytest.warns(EdgewiseWarning, match=r"class number 1 \(its place in classes_\)"):
        split_labelled(codes, validation=[2, 3], rng=np.random.default_rng(0))


# ------------------------------------------------------------------------------------ graph

PATH = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
PATH_EDGES = [(0, 1), (2, 1)]
NAMES = ["a", "b", "c", "d"]
NAMED_EDGES = [("a", "b"), ("c", "b")]
GRAPHS = {
    "dense": (PATH, None),
    "float": (PATH.astype(float), None),
    "bool": (PATH.astype(bool), None),
    "objects": (PATH.astype(object), None),
    "nested lists": (PATH.tolist(), None),
    "nested lists beside names": (PATH.tolist(), NAMES),
    "csr_matrix": (sparse.csr_matrix(PATH), None),
    "csr_array": (sparse.csr_array(PATH), None),
    "csc_array": (sparse.csc_array(PATH), None),
    "coo_array": (sparse.coo_array(PATH), NAMES),
    "lil_array": (sparse.lil_array(PATH), None),
    "tensor": (torch.tensor(PATH), None),
    "sparse tensor": (torch.tensor(PATH).to_sparse(), None),
    "tuples": (PATH_EDGES, None),
    "lists": ([list(edge) for edge in PATH_EDGES], None),
    "edge array": (np.array(PATH_EDGES), None),
    "edge array of floats": (np.array(PATH_EDGES, float), None),
    "unsigned edge array": (np.array(PATH_EDGES, np.uint8), None),
    "edge tensor": (torch.tensor(PATH_EDGES), None),
    "both directions": ([*PATH_EDGES, (1, 0), (1, 2)], None),
    "named tuples": (NAMED_EDGES, NAMES),
    "named array": (np.array(NAMED_EDGES), np.array(NAMES)),
    "mixed names": ([(1, "a"), ("c", "a")], [1, "a", "c", 2.5]),
    "frame": (pd.DataFrame(PATH_EDGES, columns=["source", "target"]), None),
    "named frame": (pd.DataFrame(NAMED_EDGES, columns=["source", "target"]), pd.Index(NAMES)),
    "networkx": (nx.Graph(PATH_EDGES), None),
    "named networkx": (nx.Graph(NAMED_EDGES), NAMES),
    "networkx in its own order": (nx.from_numpy_array(PATH), None),
    "networkx both directions": (nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 1)]), None),
    "pairs": (Pairs.fold([0, 1], [1, 2], 4), None),
}


@pytest.mark.parametrize("case", GRAPHS.values(), ids=GRAPHS.keys())
def test_graphs_in_every_form(case: Any) -> None:
    graph, names = case
    pairs, weights = adjacency_pairs(graph, 4, node_names=names)
    assert pairs.rows.tolist() == [0, 1]
    assert pairs.cols.tolist() == [1, 2]
    assert pairs.rows.dtype == pairs.cols.dtype == np.int64
    assert weights is None


def weighted_networkx(attribute: str) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edge(2, 0, **{attribute: 0.25})
    graph.add_edge(1, 2, **{attribute: 1.0})
    return graph


WEIGHTED = np.array([[0, 0, 0.25], [0, 0, 1], [0.25, 1, 0]])
WEIGHTED_GRAPHS = {
    "dense": WEIGHTED,
    "sparse": sparse.csr_array(WEIGHTED),
    "tensor": torch.tensor(WEIGHTED),
    "probability frame": pd.DataFrame(
        {"source": [2, 1], "target": [0, 2], "probability": [0.25, 1.0], "weight": [7, 7]}
    ),
    "weight frame": pd.DataFrame({"source": [2, 1], "target": [0, 2], "weight": [0.25, 1.0]}),
    "networkx": weighted_networkx("weight"),
    "networkx probability": weighted_networkx("probability"),
}


@pytest.mark.parametrize("graph", WEIGHTED_GRAPHS.values(), ids=WEIGHTED_GRAPHS.keys())
def test_weights_follow_their_pairs(graph: Any) -> None:
    pairs, weights = adjacency_pairs(graph, 3)
    assert pairs.rows.tolist() == [0, 1]
    assert pairs.cols.tolist() == [2, 2]
    assert weights is not None
    assert weights.dtype == np.float64
    assert weights.tolist() == [0.25, 1.0]


@pytest.mark.parametrize(
    "graph", [[], np.empty((0, 2)), np.zeros((3, 3)), sparse.csr_array((3, 3)), nx.Graph()]
)
def test_graphs_without_edges(graph: Any) -> None:
    pairs, weights = adjacency_pairs(graph, 3)
    assert pairs.rows.tolist() == pairs.cols.tolist() == []
    assert pairs.rows.dtype == np.int64
    assert weights is None


def test_stored_zeros_are_no_edges() -> None:
    graph = sparse.coo_array(([0.0, 0.0, 1.0, 1.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    pairs, _ = adjacency_pairs(graph, 3)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([1], [2])
    assert graph.nnz == 4  # the caller's matrix is as it was


def test_two_nodes_are_told_apart_by_tuples() -> None:
    assert adjacency_pairs([(0, 1), (1, 0)], 2)[0].rows.tolist() == [0]
    with pytest.warns(EdgewiseWarning, match="2 self-loops"):
        assert adjacency_pairs([[1, 0], [0, 1]], 2)[0].rows.tolist() == []


def test_a_networkx_graph_of_other_names_is_taken_in_its_own_order() -> None:
    pairs, _ = adjacency_pairs(nx.path_graph(["x", "y", "z"]), 3)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0, 1], [1, 2])
    one_based = nx.Graph()
    one_based.add_nodes_from([1, 2, 3])
    one_based.add_edge(3, 1)
    pairs, _ = adjacency_pairs(one_based, 3)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0], [2])


DIRECTED = {
    "dense": (np.triu(PATH), "2 edges go one way only, 0 have another"),
    "sparse": (sparse.csr_array(np.triu(PATH)), "2 edges go one way only"),
    "networkx": (nx.DiGraph(PATH_EDGES), "2 edges go one way only"),
    "edge list": ([(0, 1), (1, 0), (1, 2)], "1 edges go one way only"),
    "weights": (
        np.array([[0, 0.2, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]),
        "0 edges go one way only, 1 have another weight back",
    ),
}


@pytest.mark.parametrize("case", DIRECTED.values(), ids=DIRECTED.keys())
def test_directed_graphs_are_folded_with_a_note(case: Any) -> None:
    graph, message = case
    with pytest.warns(EdgewiseWarning, match=message) as caught:
        pairs, weights = adjacency_pairs(graph, 4)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # it points at whoever gave the graph
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0, 1], [1, 2])
    assert weights is None  # the larger weight of each pair, here always 1


@pytest.mark.parametrize(
    "graph", [PATH + np.eye(4), [*PATH_EDGES, (3, 3)], nx.Graph([*PATH_EDGES, (3, 3)])]
)
def test_self_loops_are_dropped_with_a_note(graph: Any) -> None:
    with pytest.warns(EdgewiseWarning, match=r"[14] self-loops of the graph were dropped"):
        pairs, _ = adjacency_pairs(graph, 4)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize(
    "graph", [[*PATH_EDGES, PATH_EDGES[0]], nx.MultiGraph([*PATH_EDGES, PATH_EDGES[0]])]
)
def test_repeated_edges_are_merged_with_a_note(graph: Any) -> None:
    with pytest.warns(EdgewiseWarning, match="1 repeated edges of the graph were merged"):
        pairs, _ = adjacency_pairs(graph, 4)
    assert (pairs.rows.tolist(), pairs.cols.tolist()) == ([0, 1], [1, 2])


def test_the_largest_weight_of_a_repeated_edge_counts() -> None:
    frame = pd.DataFrame({"source": [0, 0, 0], "target": [1, 1, 1], "weight": [0.2, 0.9, 0.4]})
    with pytest.warns(EdgewiseWarning, match="2 repeated edges"):
        _, weights = adjacency_pairs(frame, 2)
    assert weights is not None
    assert weights.tolist() == [0.9]


def with_weight(value: Any) -> Any:
    return PATH.astype(float) * value


BAD_GRAPHS: dict[str, Any] = {
    "wrong shape": (np.ones((5, 5)), ValueError, r"shape \(5, 5\) but X has 4 rows"),
    "wrong sparse shape": (sparse.csr_array((3, 3)), ValueError, r"must have shape \(4, 4\)"),
    "transposed edge list": (
        np.array([[0, 1, 2], [1, 2, 3]]),
        ValueError,
        r"graph has shape \(2, 3\).*Transpose it: graph.T",
    ),
    "three columns": ([(0, 1, 2)], ValueError, r"an edge list \(n_edges, 2\)"),
    "ragged": ([(0, 1), (2,)], ValueError, "graph of type list is not understood"),
    "none": (None, ValueError, "graph of type NoneType is not understood"),
    "text": ("karate", ValueError, "graph of type str is not understood"),
    "dict": ({0: 1}, ValueError, "graph of type dict is not understood"),
    "nan": (with_weight(NAN), ValueError, "NaN .*between nodes 0 and 0: remove the edge"),
    "sparse nan": (
        sparse.coo_array(([NAN], ([2], [3])), shape=(4, 4)),
        ValueError,
        "NaN .*between nodes 2 and 3",
    ),
    "negative": (with_weight(-1), ValueError, r"negative \(-1\), between nodes 0 and 1"),
    "above one": (with_weight(3), ValueError, r"greater than 1 \(3\).*divide by the largest"),
    "infinite": (sparse.csr_array(PATH) * np.inf, ValueError, r"greater than 1 \(inf\)"),
    "complex": (PATH.astype(complex), TypeError, "no real numbers"),
    "text weights": (np.full((4, 4), "x"), TypeError, "no real numbers"),
    "frame weight": (
        pd.DataFrame({"source": [0], "target": [1], "weight": [1.5]}),
        ValueError,
        r"greater than 1 \(1.5\), between nodes 0 and 1",
    ),
    "frame text weight": (
        pd.DataFrame({"source": [0], "target": [1], "weight": ["much"]}),
        TypeError,
        "no real numbers",
    ),
    "frame columns": (
        pd.DataFrame({"from": [0], "target": [1]}),
        ValueError,
        "DataFrame without the column 'source': rename",
    ),
    "end out of range": ([(0, 1), (1, 4)], ValueError, "end 4 in edge 1, but X has 4 rows"),
    "negative end": ([(0, -1)], ValueError, "end -1 in edge 0"),
    "huge end": ([(0, 2**70)], ValueError, "end 1180591620717411303424 in edge 0"),
    "huge unsigned end": (np.array([[0, 2**64 - 1]], np.uint64), ValueError, "but X has 4 rows"),
    "fraction": ([(0, 1), (1.5, 2)], ValueError, "end 1.5 in edge 1, which is no whole number"),
    "nan end": ([(0, NAN)], ValueError, "end nan in edge 0, which is no whole number"),
    "names without rows' names": ([("a", "b")], TypeError, "end 'a' in edge 0: give row numbers"),
    "truth ends": ([(True, False)], TypeError, "end True in edge 0"),
    "pairs out of range": (Pairs.fold([0], [7], 9), ValueError, "end 7 in edge 0"),
    "networkx": (nx.path_graph(["a", "b"]), ValueError, "2 nodes but X has 4 rows, and nodes 'a'"),
    "networkx too many": (nx.path_graph(6), ValueError, "6 nodes but X has 4 rows, and nodes 4, 5"),
}


@pytest.mark.parametrize("case", BAD_GRAPHS.values(), ids=BAD_GRAPHS.keys())
def test_bad_graphs(case: Any) -> None:
    graph, error, message = case
    with pytest.raises(error, match=message):
        adjacency_pairs(graph, 4)


@pytest.mark.parametrize(
    ("graph", "names", "message"),
    [
        ([("a", "z"), ("y", "b")], NAMES, "edge ends 'y', 'z' that match no row.*names like 'a'"),
        ([(0, 1)], NAMES, "edge ends 0, 1 that match no row"),
        ([("a", "b"), ("c",)], NAMES, "graph of type list is not understood"),
        ([{"a", "b"}], NAMES, "graph of type list is not understood"),
        (nx.Graph([("a", "z")]), NAMES, "refers to node 'z' that match no row"),
        (pd.DataFrame({"source": list("uvwxyz"), "target": "a"}), NAMES, r"'y', \.\.\. \(6 in all"),
        ([("a", "b")], ["a", "b", "a", "c"], "node_names holds name 'a' more than once"),
        ([("a", "b")], ["a", "b"], "2 node_names for 4 rows"),
    ],
)
def test_names_that_match_nothing(graph: Any, names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adjacency_pairs(graph, 4, node_names=names)


directed_lists = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30),
    )
)


@given(case=directed_lists)
@settings(max_examples=200)
def test_folding_is_symmetric_idempotent_and_keeps_every_pair(
    case: tuple[int, list[tuple[int, int]]],
) -> None:
    n_nodes, edges = case

    def read(graph: Any) -> list[tuple[int, int]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgewiseWarning)
            pairs, weights = adjacency_pairs(graph, n_nodes)
        assert weights is None
        return list(zip(pairs.rows.tolist(), pairs.cols.tolist(), strict=True))

    folded = read(edges)
    assert folded == sorted({(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]})
    assert read([(j, i) for i, j in edges]) == folded
    assert read(folded) == folded
    adjacency = np.zeros((n_nodes, n_nodes))
    for i, j in edges:
        adjacency[i, j] = 1
    assert read(adjacency) == read(adjacency.T) == read(sparse.csr_array(adjacency)) == folded


@given(seed=st.integers(0, 1000), n_nodes=st.integers(2, 9))
@settings(max_examples=50)
def test_matrix_frame_and_networkx_agree_on_weights(seed: int, n_nodes: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)) * (rng.random((n_nodes, n_nodes)) < 0.5), 1)
    full = upper + upper.T
    rows, cols = np.nonzero(upper)
    frame = pd.DataFrame({"source": cols, "target": rows, "probability": upper[rows, cols]})
    expected = upper[rows, cols].tolist()
    for graph in (full, sparse.coo_array(full), frame, nx.from_numpy_array(full)):
        pairs, weights = adjacency_pairs(graph, n_nodes)
        assert (pairs.rows.tolist(), pairs.cols.tolist()) == (rows.tolist(), cols.tolist())
        assert (weights.tolist() if weights is not None else []) == expected
