"""What a machine computes with, what data it has at hand, and whether it computes right.

The self-test fits a small problem in double precision and compares losses and expected edges with
the figures stored here. They follow from the seed, so that elsewhere they may differ by rounding
alone: a larger difference means that some library samples or computes otherwise than it did when
they were stored, and that published results will not be reproduced to the digit.
"""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from edgewise import __version__
from edgewise.datasets import describe
from edgewise.datasets.files import cache_folder
from edgewise.estimator import LDSClassifier

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "pandas",
    "pyarrow",
    "safetensors",
    "joblib",
    "optuna",
    "networkx",
    "torch-geometric",
    "pynndescent",
    "ray",
    "dask",
)
# Steps are few, so that rounding errors, which grow from step to step, stay far below this.
RELATIVE_TOLERANCE = 1e-6
# From a run on x86-64 (torch 2.13, NumPy 2.4); `edgewise doctor --json` shows what is found. A
# change of the algorithm that changes what is drawn has to store them anew.
STORED: dict[str, float] = {
    "train_loss 1": 0.33700820623355543,
    "validation_loss 1": 0.21635398458347327,
    "early_stopping_loss 1": 0.3053384524147401,
    "expected_edges 1": 289.6748302752811,
    "train_loss 2": 0.35513268116252444,
    "validation_loss 2": 0.2156667239864998,
    "early_stopping_loss 2": 0.3198336808063598,
    "expected_edges 2": 293.8764200370253,
    "train_loss 3": 0.22511309388672485,
    "validation_loss 3": 0.08723900328965219,
    "early_stopping_loss 3": 0.21998384951147795,
    "expected_edges 3": 298.98210898466596,
    "inner_learning_rate": 0.02043551268309032,
}


class Figure(NamedTuple):
    """A number that the self-test found, and what it should be."""

    name: str
    found: float
    stored: float

    @property
    def agrees(self) -> bool:
        return bool(np.isclose(self.found, self.stored, rtol=RELATIVE_TOLERANCE, atol=0.0))


class SelfTest(NamedTuple):
    """The outcome of `self_test`."""

    figures: tuple[Figure, ...]
    repeats: bool  # whether a second fit gave the same bits
    seconds: float

    @property
    def passed(self) -> bool:
        return self.repeats and all(figure.agrees for figure in self.figures)


def environment() -> dict[str, Any]:
    """Versions, threads and devices.

    Examples
    --------
    >>> sorted(environment())
    ['devices', 'edgewise', 'packages', 'platform', 'processor_count', 'python', 'threads']
    """
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "edgewise": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "processor_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def data_state() -> dict[str, Any]:
    """Where data files are looked for, and which data sets are at hand.

    Examples
    --------
    >>> data_state()["datasets"]["wine"]  # ships with scikit-learn
    True
    """
    named = os.environ.get("EDGEWISE_DATA")
    folder = cache_folder()
    return {
        "EDGEWISE_DATA": named,
        "EDGEWISE_DATA_exists": bool(named) and Path(str(named)).is_dir(),
        "cache": str(folder),
        "cache_bytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()),
        "datasets": {entry.statistics.name: entry.at_hand for entry in describe()},
    }


def self_test() -> SelfTest:
    """Fit a small problem twice, and compare with what it gave when the figures were stored."""
    started = time.perf_counter()
    first, second = _fitted(), _fitted()
    figures = tuple(Figure(name, found, STORED[name]) for name, found in _figures(first).items())
    repeats = first.label_distributions_.tobytes() == second.label_distributions_.tobytes()
    return SelfTest(figures, repeats, time.perf_counter() - started)


def _fitted() -> LDSClassifier:
    # Three overlapping groups; made of sines, so that no stream of random numbers has a say.
    place = np.arange(90.0)[:, None]
    columns = np.arange(1.0, 7.0)
    groups = np.arange(90) % 3
    features = np.sin(place * np.sqrt(columns) * 1.7) + 0.8 * np.cos(groups[:, None] * columns)
    labels = np.where(np.arange(90) < 45, groups, -1)
    classifier = LDSClassifier(
        5,
        metric="euclidean",
        learn_inner_rate=True,
        max_inner_steps=25,
        max_outer_iterations=3,
        n_samples=8,
        dtype="float64",
        random_state=0,
    )
    fitted: LDSClassifier = classifier.fit(features, labels)
    return fitted


def _figures(classifier: LDSClassifier) -> dict[str, float]:
    watched = ("train_loss", "validation_loss", "early_stopping_loss", "expected_edges")
    found = {
        f"{name} {number}": record[name]
        for number, record in enumerate(classifier.history_, 1)
        for name in watched
    }
    return {**found, "inner_learning_rate": classifier.history_[-1]["inner_learning_rate"]}
