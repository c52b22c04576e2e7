"""Disks that are full, may not be written to, or are gone: clear words, and nothing lost.

The first two are real: a small file system in memory, mounted in a name space of its own, which
needs no privileges where the system lets users have such name spaces.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from edgewise import LDSClassifier
from edgewise.cli import main
from edgewise.experiments.protocol import Record, Run
from edgewise.experiments.store import Store

QUICK = {"k": 3, "patience": 9, "max_inner_steps": 10, "n_samples": 2, "random_state": 0}
BRIEF = ["--max-outer-iterations", "1", "--threads", "1"]


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(120, 4)), np.where(np.arange(120) < 40, np.arange(120) % 2, -1)


def command(*arguments: object) -> str:
    """What a command says on the standard error stream when it fails."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code or 0
    if not code:
        return ""
    assert code == 2
    (line,) = [line for line in err.getvalue().splitlines() if line.startswith("edgewise: [")]
    assert err.getvalue().splitlines()[-1] == line
    assert "Traceback" not in err.getvalue()
    return line


def checkpointed(disk: Path, seed: int) -> str:
    fitted = LDSClassifier(**QUICK, max_outer_iterations=1 + seed)
    return complaint(lambda: fitted.fit(*problem(), checkpoint=disk / "state"))


def saved(disk: Path, seed: int) -> str:
    fitted = LDSClassifier(**QUICK, max_outer_iterations=1).fit(*problem(seed))
    return complaint(lambda: fitted.save(disk / "model"))


def stored(disk: Path, seed: int) -> str:
    store, record = Store(disk / "records"), Record(Run("rf", "wine", {"x": "y" * 9000}, seed=seed))
    return complaint(lambda: store.add(record))


def set_of_data(disk: Path, seed: int) -> str:
    return command("fit", "wine", "--k", 3, "--seed", seed, "--out", disk / "wine", *BRIEF)


def table_of_rows(disk: Path, seed: int) -> str:
    X, y = problem()
    names = np.array(["a", "b", ""])[y]
    file = disk.parent / "table.csv"
    pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": names}).to_csv(file, index=False)
    arguments = ("--target", "y", "--k", 3, "--seed", seed, "--out", disk / "table", *BRIEF)
    return command("fit", file, *arguments)


def predicted(disk: Path, seed: int) -> str:
    """Beside the run of `table_of_rows`, which must have been there."""
    shutil.copytree(disk / "table", disk.parent / "run", dirs_exist_ok=True)
    arguments = (disk.parent / "run", disk.parent / "table.csv", "--out", disk / "predicted.csv")
    return command("predict", *arguments)


def reported(disk: Path, seed: int) -> str:
    return command("report", disk.parent / "run", "--output", disk / "report.html")


WRITERS: dict[str, Callable[[Path, int], str]] = {
    writer.__name__: writer
    for writer in (
        checkpointed,
        saved,
        stored,
        set_of_data,
        table_of_rows,
        predicted,
        reported,
    )
}


def complaint(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return str(error)
    return ""


def contents(disk: Path) -> dict[str, bytes]:
    """All files but the log of a fit that is under way, which is no result."""
    return {
        str(file.relative_to(disk)): file.read_bytes()
        for file in sorted(disk.rglob("*"))
        if file.is_file() and file.name not in ("filler", "log.jsonl")
    }


def inside(disk: Path) -> None:
    """In a name space of its own: everything is written once, then on a full or closed disk."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    for name, write in WRITERS.items():
        assert write(disk, 0) == "", name
    said = {}
    for how, pages in (("full", 0), ("nearly full", 4)):
        fill(disk, pages)
        said[how] = {name: tried(write, disk) for name, write in WRITERS.items()}
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    said["read-only"] = {name: tried(write, disk) for name, write in WRITERS.items()}
    print(json.dumps(said))


def tried(write: Callable[[Path, int], str], disk: Path) -> str:
    before = contents(disk)
    message = write(disk, 1)
    if message:
        assert contents(disk) == before, message
    return message


def fill(disk: Path, pages: int) -> None:
    """Leave only so many pages of room."""
    (disk / "filler").write_bytes(b"")
    spare = shutil.disk_usage(disk).free - 4096 * pages
    (disk / "filler").write_bytes(b"x" * spare)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs the command unshare, of util-linux")
    own = [unshare, "--user", "--map-root-user", "--mount"]
    disk = tmp_path_factory.mktemp("disks") / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(disk)]
    if subprocess.run([*own, *mount], capture_output=True, check=False).returncode:
        pytest.skip("this system lets users mount nothing in a name space of their own")
    done = subprocess.run(
        [*own, sys.executable, __file__, str(disk)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


ROOM = "make room"
PLACE = "folder that you may write to|folder writable"


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("how", "reason", "remedy"),
    [
        ("full", "No space left on device", ROOM),
        ("nearly full", "No space left on device", ROOM),
        ("read-only", "Read-only file system", PLACE),
    ],
)
def test_every_writer_says_why_and_what_to_do(said, writer, how, reason, remedy):
    message = said[how][writer]
    if how == "nearly full" and not message:
        assert writer in ("stored", "predicted")  # which need little room
        return
    assert reason in message
    assert re.search(remedy, message), message


# ------------------------------------------------------------------------------ vanished folders


@pytest.mark.parametrize("source", ["wine", "table.csv"])
def test_a_folder_that_vanishes_during_a_fit(tmp_path, monkeypatch, capsys, source):
    monkeypatch.chdir(tmp_path)
    X, _ = problem()
    y = np.where(X[:, 0] > 0, "a", "b")
    pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": y}).to_csv("table.csv", index=False)
    fit = LDSClassifier.fit

    def and_then_it_is_gone(self, *arguments, **given):
        shutil.rmtree("run")
        return fit(self, *arguments, **given)

    monkeypatch.setattr(LDSClassifier, "fit", and_then_it_is_gone)
    target = ["--target", "y"] if source == "table.csv" else []
    with pytest.raises(SystemExit) as ended:
        main(["fit", source, "--k", "3", "--out", "run", *target, *BRIEF])
    last = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert "No such file or directory" in last
    assert "its folder does not exist (any more): make it, or name another one: 'run" in last
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


if __name__ == "__main__":
    inside(Path(sys.argv[1]))
