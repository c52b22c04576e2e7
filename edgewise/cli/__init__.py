"""The ``edgewise`` command: one module for each of its subcommands."""

from __future__ import annotations

from edgewise.cli.app import main

__all__ = ["main"]
