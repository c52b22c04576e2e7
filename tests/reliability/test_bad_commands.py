"""Bad command lines: exit code 2, one line on the standard error stream, no traceback."""

from __future__ import annotations

import re

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


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(SystemExit):
        main(["--debug", "fit", "wine", "--tau", "401"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "tau=401" in err
