from __future__ import annotations

import numpy as np

from edgewise.datasets.tables import read_cancer, read_digits, read_wine, standardise


def test_standardise_gives_mean_zero_and_variance_one():
    values = np.random.default_rng(0).normal(1e6, 1e-2, size=(200, 3))
    scaled = standardise(values)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-5)


def test_standardise_leaves_constant_columns_at_zero():
    for constant in (0.0, 0.1, 1e9 / 3):
        assert not standardise(np.full((7, 1), constant)).any()


def test_wine_and_cancer_are_standardised_and_digits_raw():
    for table in (read_wine(), read_cancer()):
        np.testing.assert_allclose(table.features.std(axis=0), 1, rtol=1e-4)
        assert table.feature_names is not None
        assert len(table.feature_names) == table.features.shape[1]
    digits = read_digits().features
    assert (digits.min(), digits.max()) == (0, 16)
    np.testing.assert_array_equal(digits, np.round(digits))
