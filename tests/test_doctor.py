"""The self-test, what it is compared with, and how the command tells about it."""

from __future__ import annotations

import json

import pytest

from edgewise import doctor
from edgewise.cli import main


@pytest.fixture(scope="module")
def outcome():
    return doctor.self_test()


def test_this_machine_gives_the_stored_figures(outcome):
    assert {figure.name for figure in outcome.figures} == set(doctor.STORED)
    for figure in outcome.figures:
        assert figure.found == pytest.approx(figure.stored, rel=doctor.RELATIVE_TOLERANCE)
    assert outcome.repeats
    assert outcome.passed


def test_another_algorithm_would_be_noticed(outcome):
    first, *others = outcome.figures
    other = first._replace(found=first.found * (1 + 1e-5))
    assert first.agrees
    assert not other.agrees
    assert not first._replace(found=float("nan")).agrees
    assert not outcome._replace(figures=(other, *others)).passed
    assert not outcome._replace(repeats=False).passed


def test_versions_and_devices():
    about = doctor.environment()
    assert about["packages"]["numpy"]
    assert about["devices"][0] == "cpu"
    assert doctor._version("no-such-package-at-all") is None


def test_data_state(monkeypatch, tmp_path):
    (tmp_path / "edgewise").mkdir()
    (tmp_path / "edgewise" / "file").write_bytes(b"12345")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "nowhere"))
    state = doctor.data_state()
    assert state["cache_bytes"] == 5
    assert not state["EDGEWISE_DATA_exists"]
    assert state["datasets"]["wine"]
    assert not state["datasets"]["cora"]


def run(monkeypatch, capsys, outcome, *arguments):
    monkeypatch.setattr(doctor, "self_test", lambda: outcome)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return int(ended.value.code or 0), *capsys.readouterr()


def test_the_command_on_a_healthy_machine(monkeypatch, capsys, outcome, tmp_path):
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "nowhere"))
    code, out, err = run(monkeypatch, capsys, outcome)
    assert (code, err) == (0, "")
    assert "passed in" in out
    assert "no such folder" in out
    assert "torch 2." in out
    code, out, _ = run(monkeypatch, capsys, outcome, "--json", "--threads", "1")
    record = json.loads(out)
    assert code == 0
    assert record["threads"] == 1
    assert record["self_test"]["passed"]
    assert record["self_test"]["found"].keys() == record["self_test"]["stored"].keys()


def test_the_command_on_an_ill_machine(monkeypatch, capsys, outcome):
    first, *others = outcome.figures
    wrong = outcome._replace(figures=(first._replace(found=1.0), *others))
    code, out, err = run(monkeypatch, capsys, wrong)
    assert code == 2
    assert "FAILED" in out
    assert f"{first.name} is 1 and should be" in err
    assert len(err.splitlines()) == 1
    code, _, err = run(monkeypatch, capsys, outcome._replace(repeats=False))
    assert code == 2
    assert "different bits" in err
