"""The state of an object as plain data, which a file can hold without a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray


class Snapshot(NamedTuple):
    """All that an object needs to go on where another stood.

    Attributes
    ----------
    settings : dict
        Short things, of JSON's types; integers of any size and floats come back exactly.
    arrays : dict of ndarray
    """

    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class Stateful(Protocol):
    """Whatever changes while a graph is learned, and can be put back to an earlier state.

    After ``second.restore(first.snapshot())`` the two behave the same, to the last bit, if they
    were made with the same arguments. Snapshots share no memory with what goes on changing.
    """

    def snapshot(self) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> None: ...
