"""Bad command lines: exit code 2, one line on the standard error stream, no traceback."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest

from edgewise.cli import main

BAD = {
    "no such command": ("fitt wine", "fitt"),
    "no such option": ("fit wine --taus 5", "--taus"),
    "no such data set": ("fit irises", "irises"),
    "nothing to fit": ("fit", "Missing argument"),
    "k is 0": ("fit wine --k 0", "--k"),
    "k is a word": ("fit wine --k many", "--k"),
    "k as large as the table": ("fit wine --k 178", "k=178 is too large.*Choose k <= 177"),
    "k beyond all sizes": ("fit wine --k 1000000000000", "k=1000000000000 is too large"),
    "tau is a word": ("fit wine --tau soon", "'soon' is neither a number nor 'full'"),
    "tau is negative": ("fit wine --tau -1", "tau.*Got -1"),
    "tau beyond the inner steps": (
        "fit wine --tau 401",
        "tau=401 is more than max_inner_steps=400",
    ),
    "a negative rate": ("fit wine --outer-lr -1", "outer_learning_rate.*Got -1"),
    "a rate that is no number": ("fit wine --inner-lr nan", "inner_learning_rate.*Got nan"),
    "no patience": ("fit wine --patience 0", "--patience"),
    "a negative seed": ("fit wine --seed -1", "--seed"),
    "an unknown metric": ("fit wine --metric hamming", "hamming.*cosine"),
    "a share of nothing": ("fit wine --keep-edges 0.5", "wine has none"),
    "a share above 1": ("fit wine --keep-edges 1.5", "--keep-edges"),
    "no threads": ("fit wine --threads 0", "--threads"),
    "edges of nowhere": ("fit wine --top-edges 5", "--out DIR"),
    "a checkpoint in no folder": ("fit wine --checkpoint {tmp}/no/state", "does not exist: make"),
    "a checkpoint that is a folder": ("fit wine --checkpoint {tmp}", "checkpoint.*is a directory"),
    "a checkpoint that is none": ("fit wine --checkpoint {tmp}/thesis", "no checkpoint at all"),
    "a result in a file": ("fit wine --out {tmp}/thesis", "is a file"),
    "an unknown method": ("compare wine --methods magic", "magic"),
    "a parameter of another method": (
        "compare wine --methods knn-gcn --set knn-gcn.kk=3",
        "knn-gcn has no parameter 'kk'.*did you mean 'k'|known are",
    ),
    "a method that is not compared": (
        "compare wine --methods knn-gcn --set rf.max_depth=3",
        "'rf', which is not compared",
    ),
    "no seeds": ("compare wine --seeds 0", "--seeds"),
    "no processes": ("compare wine --jobs 0", "0 is neither a number of processes nor -1"),
    "less than all processes": ("reproduce table1 --status --jobs -2", "-2 is neither"),
    "no such figure": ("reproduce table9", "table9.*table1"),
    "more threads than there are": ("doctor --threads 99999999", "--threads"),
    "threads without end": ("fit wine --threads 99999999", "--threads"),
    "a rate beyond all numbers": ("fit wine --inner-lr 1e300", "inner_learning_rate.*Got 1e"),
    "a rate that diverges": (
        "fit wine --inner-lr 1e29 --max-outer-iterations 1",
        "inner problem diverged.*Lower inner_learning_rate",
    ),
    "a seed beyond all sizes": ("fit wine --seed 99999999999999999999", "random_state.*Got 9999"),
    "a share that is no number": ("fit wine --keep-edges nan", "--keep-edges"),
    "neighbours beside a graph": ("fit cora --k 3", "comes with a graph.*--no-graph"),
    "a table's option": ("fit wine --target y", "--target is about tables"),
    "a picture of words": ("demo --picture {tmp}/demo.txt", "must end in one of .png"),
    "a report on nothing": ("report {tmp}/no", "there is no folder.*--out"),
    "a model of nothing": ("predict {tmp}/no {tmp}/thesis", "there is no model"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_one_line_and_code_2(line, message, tmp_path, capsys):
    (tmp_path / "thesis").write_text("years of work")
    with pytest.raises(SystemExit) as ended:
        main([word.format(tmp=tmp_path) for word in line.split()])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("edgewise: ")
    assert re.search(message, err), err
    assert (tmp_path / "thesis").read_text() == "years of work"


# ------------------------------------------------------------------------------ files

GOOD = "age,plan,y\n" + "".join(
    f"{20 + 7 * row % 31},{'ab'[row % 2]},{'uv'[row % 3 // 2]}\n" for row in range(30)
)


def lines_of(text: str, **changes: str) -> bytes:
    lines = text.splitlines()
    for number, line in changes.items():
        lines[int(number[1:])] = line
    return "\n".join(lines).encode()


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, X=np.array([{}, 1], dtype=object))
    return buffer.getvalue()


# What the file holds, further arguments, and what the one line says.
FILES = {
    "empty": (b"", "", "t.csv is empty"),
    "blank": (b"\n\n", "", "blank lines only"),
    "a header alone": (b"a,y\n", "", "column names but no rows"),
    "ragged": (lines_of(GOOD, l3="1,2"), "", "line 4: 2 fields, but the header has 3"),
    "an open quote": (lines_of(GOOD, l3='1,"2,u'), "", "quote that is not closed"),
    "two columns of one name": (lines_of(GOOD, l0="y,plan,y"), "", "column 'y' more than once"),
    "bytes that are no text": (b"a,b\0\n1,2\n", "", "no text"),
    "no such target": (GOOD.encode(), "--target plant", "no column 'plant'. Did you mean 'plan'"),
    "a target of numbers": (
        GOOD.replace(",a", ".5,a").encode(),
        "--target age",
        "'age'.*regression.*into a few bins",
    ),
    "a byte that is no text": (b"a,y\n1,\x81\n", "", "line 2: byte 0x81 is no text.*as UTF-8"),
    "another separator": (GOOD.replace(",", "^").encode(), "", "told apart by one of ',' ';'"),
    "nothing but the target": (b"y\nu\nv\nu\n", "", "no other than the target"),
    "one row": (b"a,y\n1,u\n", "", "'a' constant .1 in every row"),
    "no labels": (GOOD.replace(",u", ",").replace(",v", ",").encode(), "", "'y' is empty in every"),
    "two labels": (b"a,y\n1.5,u\n2,v\n3,\n4,\n", "--k 2", "only 2 rows are labelled"),
    "infinity": (lines_of(GOOD, l3="inf,a,u"), "", "row 2.*'age'|'age'.*row 2"),
    "no such id": (GOOD.encode(), "--id name", "--id: .*no column 'name'. Its columns"),
    "ids twice": (GOOD.encode(), "--id plan", "ids must be unique"),
    "k too large": (GOOD.encode(), "--k 30", "k=30 is too large.*Choose k <= 29"),
    "tau too large": (GOOD.encode(), "--tau 401", "tau=401 is more than max_inner_steps"),
    "a negative rate": (GOOD.encode(), "--outer-lr -1", "outer_learning_rate.*Got -1"),
    "a checkpoint in no folder": (GOOD.encode(), "--checkpoint {tmp}/no/c", "does not exist: make"),
    "no such graph": (GOOD.encode(), "--graph {tmp}/no.csv", "no.csv does not exist"),
    "a graph of strangers": (GOOD.encode(), "--graph {tmp}/strangers.csv", "'x' that match no row"),
    "a graph of weights": (GOOD.encode(), "--graph {tmp}/weights.csv", "greater than 1 .2."),
    "a graph of words": (
        GOOD.encode(),
        "--graph {tmp}/words.csv",
        r"words.csv: .*no real numbers.*between 0 and 1(?!.*--debug)",
    ),
    "a graph of entities": (
        GOOD.encode(),
        "--graph {tmp}/laughs.graphml",
        "declares a document type",
    ),
}
GRAPHS = {
    "strangers.csv": "source,target\n0,x\n",
    "weights.csv": "source,target,weight\n0,1,2\n",
    "words.csv": "source,target,weight\n0,1,much\n",
    "laughs.graphml": '<!DOCTYPE lolz [<!ENTITY a "ha">]><graphml><graph/></graphml>',
}


def refused(arguments, capsys):
    """The one line that a command says when it ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("edgewise: ")
    return line


@pytest.mark.parametrize(("content", "more", "message"), FILES.values(), ids=FILES.keys())
def test_bad_tables(content, more, message, tmp_path, capsys):
    (tmp_path / "t.csv").write_bytes(content)
    for name, text in GRAPHS.items():
        (tmp_path / name).write_text(text)
    target = [] if "--target" in more else ["--target", "y"]
    arguments = [word.format(tmp=tmp_path) for word in more.split()]
    line = refused(["fit", tmp_path / "t.csv", *target, *arguments], capsys)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.parquet", b"a,y\n1,2\n", "is not Parquet, whatever its name says"),
        ("t.npz", b"PK\x03\x04", "is no NPZ archive"),
        ("t.npz", pickled(), "Python objects .pickled.*could execute code"),
        ("t.xlsx", b"PK", "ending '.xlsx': tables are read from .csv"),
        ("t.svm", b"1 one:two\n", "not in SVMlight's format"),
        ("no.csv", None, "no.csv does not exist"),
        (".", None, "is a folder"),
    ],
)
def test_files_that_are_no_tables(name, content, message, tmp_path, capsys):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    line = refused(["fit", tmp_path / name, "--target", "y"], capsys)
    assert re.search(message, line), line


def test_models_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "run" / "model").mkdir(parents=True)
    manifest = tmp_path / "run" / "model" / "manifest.json"
    for content, message in (
        ('{"format": "edgewise-model", "version": 99}', "newer Edgewise .format 99.*upgrade"),
        ('{"format": "edgewise-model", "version": 1}', "is damaged .wrong checksum"),
        ("no json", "is damaged .no JSON"),
    ):
        manifest.write_text(content)
        line = refused(["predict", tmp_path / "run", tmp_path / "t.csv"], capsys)
        assert re.search(message, line), line


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(SystemExit):
        main(["--debug", "fit", "wine", "--tau", "401"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "tau=401" in err
