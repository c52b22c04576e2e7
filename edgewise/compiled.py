"""Numba's `njit`, for places where nothing may be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[_Function], _Function]:
    """``numba.njit``, but ``cache=True`` is a wish.

    Numba refuses it where neither the folder of the module nor that of the user can be written to,
    as in many containers. Then each process compiles anew.

    Examples
    --------
    >>> @njit(cache=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """

    def decorate(function: _Function) -> _Function:
        try:
            compiled: _Function = numba.njit(**options)(function)
        except RuntimeError:
            compiled = numba.njit(**{**options, "cache": False})(function)
        return compiled

    return decorate
