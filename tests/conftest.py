"""What all tests share: where the data files are, and how examples are drawn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, and no deadline: a busy machine must not fail a test.
settings.register_profile("edgewise", deadline=None, derandomize=True)
settings.load_profile("edgewise")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder ``EDGEWISE_DATA``; a test that asks for it is skipped where there is none."""
    named = os.environ.get("EDGEWISE_DATA")
    if not named:
        pytest.skip("needs data files: the environment variable EDGEWISE_DATA is not set")
    if not Path(named).is_dir():
        pytest.skip(f"needs data files: EDGEWISE_DATA={named} is not a folder")
    return Path(named)
