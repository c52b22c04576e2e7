"""A small table that is easy to classify, but not without its labels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def blobs() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """60 rows, of which 48 are labelled, of two overlapping classes."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-1, 1.0, (30, 3)), rng.normal(1, 1.0, (30, 3))])
    y = np.repeat([0, 1], 30)
    y[::5] = -1
    return X, y
