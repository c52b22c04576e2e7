"""The scale that networks see a table in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from edgewise.problem import row_unit


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_unit_is_the_rows_root_mean_square_norm_from_one_on(layout):
    table = np.array([[3.0, 4.0], [0.0, 5.0], [0.0, 0.0]])
    assert row_unit(layout(table)) == pytest.approx(np.sqrt(50 / 3))
    assert row_unit(layout(0.1 * table)) == 1.0
    assert row_unit(layout(0 * table)) == 1.0


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_squares_may_overflow(layout):
    table = np.array([[1e30, -2e30], [0.0, 1e-30]], dtype=np.float32)
    assert row_unit(layout(table)) == np.float32(2e30)
