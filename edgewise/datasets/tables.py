"""Wine, Cancer and Digits, which ship inside scikit-learn, and the pre-processing they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.datasets.dataset import Table


def standardise(features: ArrayLike) -> NDArray[np.float32]:
    """Give every column mean 0 and variance 1; a constant column becomes 0.

    The learning is transductive, so the mean and the variance are those of all rows.

    Examples
    --------
    >>> standardise([[1.0, 5.0], [3.0, 5.0]])
    array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """
    values = np.asarray(features, dtype=np.float64)
    centred = values - values.mean(axis=0)
    spread = values.std(axis=0)
    # Rounding leaves a constant column a spread of about 1e-16 of its size: it counts as constant.
    constant = spread <= 1e-12 * np.abs(values).max(axis=0)
    scaled = np.where(constant, 0.0, centred / np.where(constant, 1.0, spread))
    return scaled.astype(np.float32)


def _table(bunch: Any, features: NDArray[np.float32]) -> Table:
    return Table(
        features=features,
        labels=bunch.target.astype(np.int64),
        classes=np.asarray(bunch.target_names),
        feature_names=tuple(str(name) for name in bunch.feature_names),
    )


def read_wine() -> Table:
    """Wine: 13 chemical measurements of 178 wines of three cultivars, standardised."""
    from sklearn.datasets import load_wine

    bunch = load_wine()
    return _table(bunch, standardise(bunch.data))


def read_cancer() -> Table:
    """Breast cancer (Wisconsin): 30 measurements of 569 tumours, standardised."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return _table(bunch, standardise(bunch.data))


def read_digits() -> Table:
    """Digits: 1,797 handwritten digits of 8 x 8 pixels, raw grey values 0 to 16."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return _table(bunch, bunch.data.astype(np.float32))
