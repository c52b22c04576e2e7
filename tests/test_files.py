"""Files that are whole or not there; what a full disk does to them is in `reliability`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewise.files import require_folder, staged, write_atomically


def contents(folder: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in folder.iterdir()}


def test_write_atomically_replaces(tmp_path):
    write_atomically(tmp_path / "file", b"one")
    write_atomically(tmp_path / "file", b"two", earlier=tmp_path / "earlier")
    assert contents(tmp_path) == {"file": "two", "earlier": "one"}


def _burn(file: Path) -> None:
    file.write_text("new")
    raise OSError("on fire")


def test_files_are_staged_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(OSError, match="see to the disk") as caught, staged(tmp_path) as stage:
        _burn(stage / "a")
    assert caught.value.filename == str(tmp_path)
    assert contents(tmp_path) == {"a": "old"}
    with staged(tmp_path) as stage:
        (stage / "a").write_text("new")
        (stage / "b").write_text("new")
    assert contents(tmp_path) == {"a": "new", "b": "new"}


def test_what_a_killed_process_staged_is_swept_once_it_is_old(tmp_path):
    for name, age in (("old", 7200), ("fresh", 60)):
        (tmp_path / f".staged-{name}").mkdir()
        past = (tmp_path / f".staged-{name}").stat().st_mtime - age
        os.utime(tmp_path / f".staged-{name}", (past, past))
    with staged(tmp_path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == [".staged-fresh"]


def test_folders_are_made_or_refused(tmp_path):
    require_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match=r"a file is in the way.*name another one"):
        require_folder(tmp_path / "file" / "b")
    with pytest.raises(OSError, match=r"does not exist .any more.: make it"):
        write_atomically(tmp_path / "c" / "d", b"")
    assert (tmp_path / "file").read_text() == "kept"
