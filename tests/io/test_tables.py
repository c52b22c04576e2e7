"""Files as people have them, and the errors that broken ones deserve."""

from __future__ import annotations

import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from edgewise import memory
from edgewise.inputs import EdgewiseWarning
from edgewise.io.tables import (
    TableError,
    decoded,
    leaking_columns,
    read_table,
    require_columns,
    sniffed_separator,
    target_labels,
)

TEXT = "name{0}height{0}town\nÉva{0}1.5{0}Pécs\nÅsa{0}{0}Umeå\n"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_encodings_and_separators_are_told_apart(tmp_path, separator, encoding):
    (tmp_path / "t.csv").write_bytes(TEXT.format(separator).encode(encoding))
    frame = read_table(tmp_path / "t.csv").frame
    assert frame["name"].tolist() == ["Éva", "Åsa"]
    assert frame["town"].tolist() == ["Pécs", "Umeå"]
    assert frame["height"].tolist()[0] == 1.5
    assert np.isnan(frame["height"].tolist()[1])


def test_a_guessed_encoding_is_said(tmp_path):
    (tmp_path / "t.csv").write_bytes(TEXT.format(",").encode("latin-1"))
    with pytest.warns(
        EdgewiseWarning, match=r"t\.csv is not UTF-8.*Windows-1252.*save it as UTF-8"
    ):
        frame = read_table(tmp_path / "t.csv").frame
    assert frame["town"].tolist() == ["Pécs", "Umeå"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbfa,b\n1,2\n3,\xff\n", r"line 3: byte 0xff is no text: .*as UTF-8"),
        (b"a,b\n1,\x81\n", r"line 2: byte 0x81 is no text"),
        ("a,b\n1,2\n".encode("utf-32")[:-2], r"t\.csv, line 2: byte .* is no text"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], r"t\.csv, line 2: byte .* is no text"),
    ],
)
def test_bytes_that_are_no_text_are_never_replaced(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_and_blank_lines(tmp_path, ending):
    (tmp_path / "t.csv").write_bytes(ending.join(["", "a,b", "1,2", "", "3,4", ""]).encode())
    assert read_table(tmp_path / "t.csv").frame.to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_quotes_hold_separators_and_line_breaks(tmp_path):
    (tmp_path / "t.csv").write_text('"a, or so","b\nb"\n"x, ""y""",1\n"two\nlines",2\n')
    frame = read_table(tmp_path / "t.csv").frame
    assert list(frame) == ["a, or so", "b\nb"]
    assert frame.iloc[:, 0].tolist() == ['x, "y"', "two\nlines"]


def test_decimal_commas_are_numbers_beside_another_separator(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;c\n1,5;2,0;x,y\n-3;;1,2\n")
    frame = read_table(tmp_path / "t.csv").frame
    assert frame["a"].tolist() == [1.5, -3.0]
    assert frame["c"].tolist() == ["x,y", "1,2"]


def test_columns_of_text_stay_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("id,level\n007,None\n010,\n")
    frame = read_table(tmp_path / "t.csv", text=["id", "level"]).frame
    assert frame["id"].tolist() == ["007", "010"]
    assert frame["level"].tolist() == ["None", ""]


def test_digits_that_start_with_zero_are_no_numbers(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("zip,share,day,n\n01067,0.5,01/02/2024,10\n,0.25,03/02/2024,7\n80331,1,,0\n")
    frame = read_table(file).frame
    assert frame["zip"].tolist()[::2] == ["01067", "80331"]
    assert frame["zip"].isna().tolist() == [False, True, False]
    assert frame["share"].tolist() == [0.5, 0.25, 1.0]
    assert frame["n"].tolist() == [10, 7, 0]


def test_a_nameless_count_of_rows_is_no_column(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["x", "y", "z"]})
    frame.to_csv(tmp_path / "t.csv")
    assert list(read_table(tmp_path / "t.csv").frame) == ["a", "b"]
    frame.to_csv(tmp_path / "t.csv", columns=["b"], index_label="a")
    assert list(read_table(tmp_path / "t.csv").frame) == ["a", "b"]


names = st.text("abcdefgh", min_size=1, max_size=4)
cells = st.text("abc xyz,;\t\"'\n|é-", max_size=8).map(lambda text: "v" + text.strip())


@given(st.lists(names, min_size=2, max_size=5, unique=True), st.data())
def test_what_pandas_writes_is_read_back(tmp_path_factory, columns, data):
    row = st.tuples(*[cells] * len(columns))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    frame = pd.DataFrame(rows, columns=columns)
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    frame.to_csv(file, index=False)
    pd.testing.assert_frame_equal(read_table(file).frame, frame, check_dtype=False)


def test_a_hundred_thousand_columns(tmp_path):
    n_columns = 100_000
    header = ",".join(f"c{place}" for place in range(n_columns))
    line = ",".join(map(str, range(n_columns)))
    (tmp_path / "wide.csv").write_text(f"{header}\n{line}\n{line}\n")
    assert read_table(tmp_path / "wide.csv").frame.shape == (2, n_columns)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"t\.csv is empty"),
        ("\n\n\n", "blank lines only"),
        ("a,b\n", "column names but no rows"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 fields, but the header has 2.*quotes"),
        ('a,b\n1,"2\n3,4\n', "quote that is not closed"),
        ("a,b,a\n1,2,3\n", "column 'a' more than once: rename"),
        ("1.5,2,7\n3,4,5\n", "seems to have no header.*Add a first line"),
        ("a,b\0\n1,2\n", "no text"),
    ],
)
def test_broken_csv_is_explained(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_explained(tmp_path):
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv does not exist"):
        read_table(tmp_path / "nowhere.csv")
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(TableError, match=r"ending '.xlsx': tables are read from .csv"):
        read_table(tmp_path / "t.xlsx")


# ------------------------------------------------------------------------------ other formats


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_arrow_files(tmp_path, kind):
    frame = pd.DataFrame({"a": [1.5, None], "b": ["x", "y"], "y": [1.0, np.nan]})
    getattr(frame, f"to_{kind}")(tmp_path / f"t.{kind}")
    read = read_table(tmp_path / f"t.{kind}", text=["y"]).frame
    assert read["y"].astype(object).tolist() == [1, pd.NA]
    assert read["b"].tolist() == ["x", "y"]


@pytest.mark.parametrize("kind", ["parquet", "feather", "npz"])
@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"PAR1 nothing PAR1", b"PK\x03\x04"])
def test_files_that_are_not_what_their_names_say(tmp_path, kind, content):
    (tmp_path / f"t.{kind}").write_bytes(content)
    with pytest.raises(TableError, match="whatever its name says") as caught:
        read_table(tmp_path / f"t.{kind}")
    assert "\n" not in str(caught.value)


def test_npz_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.arange(6.0).reshape(3, 2), y=["a", "", "b"])
    frame = read_table(tmp_path / "t.npz").frame
    assert list(frame) == ["X0", "X1", "y"]
    assert frame["X1"].tolist() == [1.0, 3.0, 5.0]
    assert frame["y"].tolist() == ["a", "", "b"]


class Bomb:
    def __reduce__(self):
        return (warnings.warn, ("executed",))


def test_members_of_npz_that_are_no_arrays_are_refused_and_written_nowhere(tmp_path):
    (tmp_path / "inner").mkdir()
    with zipfile.ZipFile(tmp_path / "inner" / "t.npz", "w") as archive:
        archive.writestr("../evil.npy", b"echo")
    with pytest.raises(TableError, match=r"holds '\.\./evil', which is no array: leave it out"):
        read_table(tmp_path / "inner" / "t.npz")
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["inner", "t.npz"]


def test_pickled_objects_in_npz_are_refused_and_not_executed(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([Bomb(), 1], dtype=object))
    with pytest.raises(TableError, match=r"Python objects .pickled.*plain arrays"):
        read_table(tmp_path / "t.npz")
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TableError, match="no NPZ archive"):
        read_table(tmp_path / "p.npz")


def huge_npz(file, shape, *, zeros=0):
    """An archive that declares an array of any shape, and holds that many zeros of it."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    start = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", start + bytes(8 * zeros))


@pytest.mark.parametrize("shape", [(10**15,), (10**30,), (-1,), (2**62, 4)])
def test_npz_of_impossible_sizes(tmp_path, shape):
    huge_npz(tmp_path / "t.npz", shape, zeros=4)
    with pytest.raises(TableError, match="or it is damaged"):
        read_table(tmp_path / "t.npz")


def test_an_npz_that_would_unpack_to_more_than_fits(tmp_path, monkeypatch):
    huge_npz(tmp_path / "t.npz", (2**17, 1), zeros=2**17)
    assert (tmp_path / "t.npz").stat().st_size < 10_000
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)
    with pytest.raises(MemoryError, match=r"reading .*t\.npz takes.*Keep fewer of its rows"):
        read_table(tmp_path / "t.npz")


@pytest.mark.filterwarnings("ignore:.*is not UTF-8")
@pytest.mark.parametrize("kind", ["npz", "sparse.npz", "parquet", "feather", "svm", "csv"])
def test_any_damage_is_a_table_error_or_harmless(tmp_path, kind):
    file, frame = tmp_path / f"t.{kind}", pd.DataFrame({"a": [1.5, 2, 3], "y": ["x", "y", ""]})
    if kind == "npz":
        np.savez_compressed(file, a=frame["a"], y=["x", "y", ""])
    elif kind == "sparse.npz":
        sparse.save_npz(file, sparse.csr_array(np.eye(4, 6)))
    elif kind == "svm":
        file.write_text("2 1:0.5 3:1\nnan 2:1\n-1 1:2 # note\n")
    else:
        getattr(frame, f"to_{kind}")(file)
    good, rng = file.read_bytes(), np.random.default_rng(0)
    n_refused = 0
    for _ in range(150):
        bad = bytearray(good)
        for place in rng.integers(len(bad), size=2):
            bad[place] = rng.integers(256)
        file.write_bytes(bad[: rng.integers(1, len(bad))] if rng.random() < 0.2 else bad)
        try:
            read_table(file)
        except TableError:
            n_refused += 1
    assert n_refused > 30


def test_npz_that_is_no_table(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2)), y=np.ones(4))
    with pytest.raises(TableError, match=r"different lengths .X: 3, y: 4"):
        read_table(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2, 2)))
    with pytest.raises(TableError, match="3 dimensions"):
        read_table(tmp_path / "t.npz")


def test_sparse_matrices(tmp_path):
    matrix = sparse.random_array((5, 8), density=0.4, rng=np.random.default_rng(0), format="csr")
    sparse.save_npz(tmp_path / "t.npz", matrix)
    table = read_table(tmp_path / "t.npz")
    assert table.n_rows == 5
    assert abs(table.matrix - matrix).nnz == 0


def test_svmlight(tmp_path):
    (tmp_path / "t.svm").write_text("2 1:0.5 3:1\nnan 2:1\n-1 1:2 # note\n")
    table = read_table(tmp_path / "t.svm")
    assert table.matrix.toarray().tolist() == [[0.5, 0, 1], [0, 1, 0], [2, 0, 0]]
    assert table.target == "label"
    assert target_labels(table.frame["label"], "label").tolist() == [2, None, None]
    (tmp_path / "t.svm").write_text("1 1:0.5\n-1 2:1\n")
    assert target_labels(read_table(tmp_path / "t.svm").frame["label"], "").tolist() == ["1", "-1"]
    (tmp_path / "t.svm").write_text("1 one:two\n")
    with pytest.raises(TableError, match="SVMlight"):
        read_table(tmp_path / "t.svm")


# ------------------------------------------------------------------------------------ columns


def test_a_wrong_name_meets_the_likeliest_one():
    frame = pd.DataFrame({"churned": [1], "age": [2]})
    require_columns(frame, ["age", "churned"], "--drop", "t.csv")
    with pytest.raises(TableError, match=r"no column 'Churned'\. Did you mean 'churned'"):
        require_columns(frame, ["Churned"], "--target", "t.csv")
    with pytest.raises(TableError, match="Its columns: 'churned', 'age'"):
        require_columns(frame, ["zzz"], "--target", "t.csv")


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (["yes", "", "no", "NA", " yes "], ["yes", None, "no", None, "yes"]),
        ([1.0, np.nan, 0.0], [1, None, 0]),
        (["1", "", "2.0"], [1, None, 2]),
        ([-1, 0, 1], [None, 0, 1]),
        ([-1, 1, None], ["-1", "1", None]),
        (["01", "02", ""], ["01", "02", None]),
        ([True, None, False], [True, None, False]),
        (["None", "some"], ["None", "some"]),
        (["inf", "1"], ["inf", "1"]),
    ],
)
def test_targets(column, labels):
    found = target_labels(pd.Series(column, dtype=object), "y").tolist()
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]


@pytest.mark.parametrize("values", [np.linspace(0, 1, 50), np.arange(200), ["1.5", "2", ""]])
def test_quantities_are_refused(values):
    with pytest.raises(TableError, match=r"'price'.*regression"):
        target_labels(pd.Series(values), "price")


def test_an_empty_target_is_refused():
    with pytest.raises(TableError, match="'y' is empty in every row"):
        target_labels(pd.Series(["", None, "NA"]), "y")


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array])
def test_leaks_are_found_and_nothing_else(wrap):
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 20)  # in the order of the classes, as files often are
    noise = rng.normal(size=60)
    constant = np.ones(60)
    related = codes + 0.5 * rng.normal(size=60)
    leaked = np.array([5.0, -1.0, 3.0])[codes]
    table = wrap(np.column_stack([noise, constant, related, leaked]))
    found = leaking_columns(table, ["noise", "constant", "related", "leaked"], codes)
    assert found == [("leaked", 1.0)]
    unlabelled = np.where(np.arange(60) % 4 == 0, codes, -1)
    assert leaking_columns(table, "abcd", unlabelled) == []  # 15 labels tell nothing


def test_small_functions():
    assert decoded(b"") == ("", "utf-8")
    assert sniffed_separator("only\none\n") == ","
    assert sniffed_separator("a|b;c|d\n1|2;3|4\n") == "|"
