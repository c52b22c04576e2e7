"""What the subcommands share: consoles, and JSON for other programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console

from edgewise.team import leads

# Where nobody looks, tables need not fit into a window: pipes and files get whole words.
WIDTH_OF_A_FILE = 160


def results() -> Console:
    """The console for results: the standard output."""
    return _console(sys.stdout.isatty())


def notes() -> Console:
    """The console for everything else: the standard error stream."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(is_terminal: bool, stderr: bool = False) -> Console:
    width = None if is_terminal else WIDTH_OF_A_FILE
    # Of several processes on one fit, one speaks.
    return Console(stderr=stderr, width=width, highlight=False, quiet=not leads())


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of the standard output."""
    if leads():
        print(json.dumps(plain(record), allow_nan=False))


def plain(value: Any) -> Any:
    """A value of JSON's types; numbers that JSON does not know (NaN, infinity) become null.

    Examples
    --------
    >>> plain({"accuracy": np.float32(0.5), "loss": float("nan"), "rows": (1, 2)})
    {'accuracy': 0.5, 'loss': None, 'rows': [1, 2]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
