"""The paper's data sets by name, pre-processed and split as in the paper; see `load`."""

from __future__ import annotations

from edgewise.datasets.dataset import Dataset, Statistics, statistics
from edgewise.datasets.files import ChecksumError, DataUnavailableError
from edgewise.datasets.registry import Description, available, describe, load

__all__ = [
    "ChecksumError",
    "DataUnavailableError",
    "Dataset",
    "Description",
    "Statistics",
    "available",
    "describe",
    "load",
    "statistics",
]
