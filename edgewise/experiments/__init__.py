"""Experiments: runs and their records, the store that keeps them, the runner, the statistics."""

from __future__ import annotations

from edgewise.experiments.progress import Status, status
from edgewise.experiments.protocol import Outcome, Record, Run, choose
from edgewise.experiments.runner import Summary, run_all
from edgewise.experiments.store import CorruptRecordWarning, Store, StoreError

__all__ = [
    "CorruptRecordWarning",
    "Outcome",
    "Record",
    "Run",
    "Status",
    "Store",
    "StoreError",
    "Summary",
    "choose",
    "run_all",
    "status",
]
