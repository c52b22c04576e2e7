"""Data files made up for a test: no test downloads, none sees the user's own folders."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder (not made yet), and nothing in EDGEWISE_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    return tmp_path / "cache" / "edgewise"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every download fail as it does without a network."""

    def refuse(url: str) -> None:
        raise OSError("no network")

    monkeypatch.setattr("edgewise.datasets.files._open_url", refuse)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, cache: Path, offline: None, tmp_path: Path) -> Path:
    """An empty folder EDGEWISE_DATA."""
    made = tmp_path / "data"
    made.mkdir()
    monkeypatch.setenv("EDGEWISE_DATA", str(made))
    return made
