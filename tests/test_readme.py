"""What the README says to type runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edgewise.cli import main
from edgewise.datasets import describe

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


SHELL, *MORE_SHELL = blocks("sh")


def test_ten_lines_each() -> None:
    (python,) = blocks("python")
    assert len([line for line in python.splitlines() if line.strip()]) == 10
    assert len(SHELL.splitlines()) == 10


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    (python,) = blocks("python")
    exec(compile(python, README.name, "exec"), {})
    accuracy = re.search(r"accuracy on the others: ([\d.]+)", capsys.readouterr().out)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("line", [line.partition("#")[0].strip() for line in SHELL.splitlines()])
def test_shell(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(line)
    assert program == "edgewise"
    absent = {d.statistics.name for d in describe() if not d.at_hand} & set(arguments)
    if absent:
        pytest.skip(f"needs the files of {absent.pop()}: they are not at hand")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    named = re.findall(r"^\$ make (\S+)", TEXT, flags=re.MULTILINE)
    assert named == ["demo", "test"]
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
