"""Kernels where nothing can be written."""

from __future__ import annotations

import numba
import pytest

from edgewise.compiled import njit


def test_what_cannot_be_cached_is_compiled_all_the_same():
    """The file of the function is in no folder that could be written to."""
    made: dict = {}
    exec(compile("def double(x):\n    return 2 * x", "/proc/nowhere/module.py", "exec"), made)
    with pytest.raises(RuntimeError, match="cannot cache function"):
        numba.njit(cache=True)(made["double"])
    assert njit(cache=True)(made["double"])(3) == 6
