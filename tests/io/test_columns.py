"""What columns are taken for, and that the features are those of scikit-learn's own parts."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from edgewise.io import columns
from edgewise.io.columns import TablePreprocessor, load_table_settings, save_table_settings
from edgewise.io.tables import TableError
from edgewise.persistence import ModelFileError


def customers(n_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "again"])
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(900, size=n_rows), unit="D")
    frame = pd.DataFrame(
        {
            "customer_id": [f"C{number:05}" for number in rng.permutation(n_rows)],
            "number": np.arange(n_rows) + 1000,
            "age": rng.normal(40, 12, n_rows).round(1),
            "visits": rng.integers(0, 9, n_rows),
            "income": [f"{value:.2f}" for value in rng.lognormal(10, 1, n_rows)],
            "member": rng.choice(["yes", "no"], n_rows),
            "active": rng.random(n_rows) < 0.5,
            "flag": rng.integers(0, 2, n_rows),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], n_rows),
            "since": days.strftime("%Y-%m-%d"),
            "last": days,
            "note": [" ".join(rng.choice(words, 4)) for _ in range(n_rows)],
            "country": "IT",
            "fax": None,
        }
    )
    frame.loc[3, ["age", "city", "member", "since"]] = np.nan
    frame.loc[5, "income"] = "?"
    return frame


KINDS = {
    "customer_id": "dropped",
    "number": "dropped",
    "age": "numeric",
    "visits": "numeric",
    "income": "numeric",
    "member": "boolean",
    "active": "boolean",
    "flag": "boolean",
    "city": "categorical",
    "since": "date",
    "last": "date",
    "note": "text",
    "country": "dropped",
    "fax": "dropped",
}


@pytest.fixture(scope="module")
def fitted():
    return TablePreprocessor().fit(customers())


def test_columns_are_taken_for_what_they_are(fitted):
    assert {column.name: column.kind for column in fitted.columns_} == KINDS


def test_decisions_are_told_in_plain_words(fitted):
    lines = dict(line.split(None, 1) for line in fitted.describe().splitlines())
    assert "identifier" in lines["customer_id"]
    assert "1 missing, filled with the median" in lines["age"]
    assert "counted as missing: '?'" in lines["income"]
    assert "one feature for each of 3 values (Bonn, Oslo, Rome)" in lines["city"]
    assert "constant ('IT' in every row)" in lines["country"]
    assert lines["fax"].endswith("empty")


def test_features_are_those_of_a_column_transformer(fitted):
    frame = customers()
    frame["income"] = pd.to_numeric(frame["income"], errors="coerce")
    epoch = pd.Timestamp("1970-01-01")
    for name in ("since", "last"):
        frame[name] = (pd.to_datetime(frame[name]) - epoch) / pd.Timedelta(days=1)
    frame["city"] = frame["city"].astype(object).where(frame["city"].notna(), None)
    frame["member"] = (frame["member"].fillna(frame["member"].mode()[0]) == "yes").astype(float)
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    reference = ColumnTransformer(
        [
            ("numbers", scaled, ["age", "visits", "income"]),
            ("truths", "passthrough", ["member", "active", "flag"]),
            ("city", OneHotEncoder(handle_unknown="ignore"), ["city"]),
            ("dates", scaled, ["since", "last"]),
            ("note", TfidfVectorizer(min_df=2, max_df=0.5, max_features=1000), "note"),
        ],
        sparse_threshold=0,
    ).fit_transform(frame)
    np.testing.assert_allclose(fitted.transform(customers()), reference.astype(float), atol=1e-9)


def test_features_have_names(fitted):
    features = fitted.get_feature_names_out()
    assert len(features) == fitted.transform(customers()).shape[1] == len(set(features))
    assert "age" in features
    assert "city=Rome" in features
    assert "note: quick" in features


def test_what_was_learned_survives_as_text(fitted, tmp_path):
    save_table_settings(tmp_path / "table.json", {"id": "customer_id", **fitted.to_dict()})
    content = load_table_settings(tmp_path / "table.json")
    assert content["id"] == "customer_id"
    again = TablePreprocessor.from_dict(content)
    new = customers(30, seed=1)
    np.testing.assert_array_equal(again.transform(new), fitted.transform(new))
    assert again.describe() == fitted.describe()


def test_damaged_settings_are_refused(fitted, tmp_path):
    file = tmp_path / "table.json"
    with pytest.raises(ModelFileError, match="is missing"):
        load_table_settings(file)
    save_table_settings(file, fitted.to_dict())
    whole = file.read_text()
    file.write_text(whole.replace("median", "medium", 1))
    with pytest.raises(ModelFileError, match="wrong checksum"):
        load_table_settings(file)
    file.write_text(whole[:-10])
    with pytest.raises(ModelFileError, match="damaged"):
        load_table_settings(file)
    body = json.loads(whole)
    file.write_text(json.dumps({**body, "version": 2}))
    with pytest.raises(ModelFileError, match="newer Edgewise"):
        load_table_settings(file)
    file.write_text(json.dumps({**body, "format": "other"}))
    with pytest.raises(ModelFileError, match="does not describe a table"):
        load_table_settings(file)
    with pytest.raises(ValueError, match="unknown kind 'eval'"):
        TablePreprocessor.from_dict({"columns": [{"name": "a", "kind": "eval", "why": ""}]})


def test_wishes_come_first():
    frame = customers()
    wished = TablePreprocessor(drop=["age", "note"], categorical=["visits", "customer_id"])
    kinds = {column.name: column.kind for column in wished.fit(frame).columns_}
    assert kinds == {
        **KINDS,
        "age": "dropped",
        "note": "dropped",
        "visits": "categorical",
        "customer_id": "categorical",
    }
    with pytest.raises(TableError, match=r"--drop: the table has no column 'agee'.*'age'"):
        TablePreprocessor(drop=["agee"]).fit(frame)
    with pytest.raises(TableError, match="--categorical"):
        TablePreprocessor(categorical=["zip"]).fit(frame)


def test_forced_categories_of_numbers_match_whatever_type_they_come_in():
    frame = pd.DataFrame({"code": [1, 2, 2, 3], "x": [0.1, 0.5, 0.2, 0.9]})
    preprocessor = TablePreprocessor(categorical=["code"]).fit(frame)
    with_gap = pd.DataFrame({"code": [2.0, np.nan], "x": [0.1, 0.1]})
    assert preprocessor.transform(with_gap)[:, :3].tolist() == [[0, 1, 0], [0, 0, 0]]
    as_text = pd.DataFrame({"code": ["3", "9"], "x": [0.1, 0.1]})
    assert preprocessor.transform(as_text)[:, :3].tolist() == [[0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["03.04.2020", "12.11.2021", "30.01.2020"], "day first"),
        (["3/25/2020", "12/11/2021", "1/2/2020"], "month first"),
        (["3/4/2020", "2/1/2021", "1/2/2020"], "month first"),
        (["2020-03-04", "2020-03-04T12:30:00Z", "2021-1-1"], "year first"),
    ],
)
def test_dates_are_read_the_way_they_are_written(values, kind):
    frame = pd.DataFrame({"when": values})
    preprocessor = TablePreprocessor().fit(frame)
    (column,) = preprocessor.columns_
    assert column.kind == "date"
    assert f"read {kind}" in column.why
    expected = {
        "day first": ["2020-04-03", "2021-11-12", "2020-01-30"],
        "month first": None,
        "year first": ["2020-03-04", "2020-03-04 12:30", "2021-01-01"],
    }[kind]
    if expected:
        days = pd.to_datetime(pd.Series(expected), format="mixed")
        as_numbers = TablePreprocessor().fit(pd.DataFrame({"when": days}))
        np.testing.assert_allclose(
            preprocessor.transform(frame), as_numbers.transform(pd.DataFrame({"when": days}))
        )


def test_codes_with_leading_zeros_are_no_numbers():
    frame = pd.DataFrame({"zip": ["00100", "00185", "20121", "00100"] * 10})
    assert TablePreprocessor().fit(frame).columns_[0].kind == "categorical"


def test_many_categories_keep_the_most_frequent():
    values = [f"v{number}" for number in range(150)] + [f"v{number}" for number in range(100)] * 2
    preprocessor = TablePreprocessor().fit(pd.DataFrame({"c": values}))
    assert set(preprocessor.columns_[0].learned["categories"]) == {f"v{n}" for n in range(100)}
    assert "the most frequent of 150" in preprocessor.columns_[0].why


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": np.inf}, "'age' holds infinity in row 0"),
        ({"income": "lots"}, r"'income' holds 'lots' in row 0.*numeric when"),
        ({"since": "soon"}, r"'since' holds 'soon' in row 0.*dates when"),
        ({"city": [["Rome"]]}, "'city' holds a list in row 0"),
        ({"member": "maybe"}, r"'member' holds 'maybe' in row 0.*truth values when"),
        ({"flag": 2}, r"'flag' holds '2' in row 0.*truth values when"),
    ],
)
def test_cells_that_cannot_be_are_named(fitted, change, message):
    new = customers(8, seed=2).head(1).astype(object)
    for name, value in change.items():
        new[name] = value if isinstance(value, list) else [value]
    with pytest.raises(TableError, match=message):
        fitted.transform(new.infer_objects() if "age" in change else new)


def test_filled_cells_are_counted(fitted):
    new = customers(8).assign(age=[np.nan] * 3 + [1.0] * 5, city=None)
    assert fitted.filled(new) == {"age": 3, "member": 1, "since": 1}
    assert fitted.filled(customers(8).drop(index=3)) == {}


def test_missing_columns_are_named_and_others_ignored(fitted):
    new = customers(8).drop(columns=["fax", "country", "number"]).assign(extra=1)
    assert fitted.transform(new).shape[0] == 8
    with pytest.raises(TableError, match=r"no column 'age'.*nor 1 others"):
        fitted.transform(new.drop(columns=["age", "city"]))


def test_nothing_to_learn_from():
    with pytest.raises(TableError, match=r"no column is left.*'a' constant \(1 in every row\)"):
        TablePreprocessor().fit(pd.DataFrame({"a": [1, 1, 1]}))
    with pytest.raises(TableError, match="there is no other than the target"):
        TablePreprocessor().fit(pd.DataFrame(index=range(3)))


def test_wide_tables_that_are_mostly_zeros_stay_sparse(monkeypatch):
    frame = customers()
    dense = TablePreprocessor().fit_transform(frame[["age", "city", "note"]])
    many = pd.DataFrame({"word": [f"w{n % 50}" for n in range(200)], "x": np.arange(200.0) ** 2})
    expected = TablePreprocessor().fit_transform(many)
    monkeypatch.setattr(columns, "MAX_DENSE_VALUES", 100)
    found = TablePreprocessor().fit_transform(many)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert isinstance(dense, np.ndarray)


def test_very_wide_tables_are_described_in_few_lines():
    table = np.random.default_rng(0).normal(size=(5, 20_000))
    preprocessor = TablePreprocessor().fit(pd.DataFrame(table).rename(columns=str))
    assert preprocessor.describe().splitlines()[-1] == "... and 19,960 more columns: 19,960 numeric"
    np.testing.assert_allclose(
        preprocessor.transform(pd.DataFrame(table).rename(columns=str)),
        StandardScaler().fit_transform(table),
    )


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_infinity=False), st.text(max_size=6)
)


@given(st.lists(anything, min_size=3, max_size=12), st.lists(anything, min_size=1, max_size=4))
def test_whatever_a_column_holds_features_are_finite_or_refused(cells, new):
    frame = pd.DataFrame({"x": np.arange(len(cells)) ** 2, "c": pd.Series(cells, dtype=object)})
    with contextlib.suppress(TableError):  # the tests above say which, and why
        preprocessor = TablePreprocessor().fit(frame)
        assert np.isfinite(preprocessor.transform(frame)).all()
        again = TablePreprocessor.from_dict(json.loads(json.dumps(preprocessor.to_dict())))
        other = pd.DataFrame({"x": np.arange(len(new)), "c": pd.Series(new, dtype=object)})
        assert np.isfinite(again.transform(other)).all()
