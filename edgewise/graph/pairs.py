"""Undirected node pairs: the one currency in which graphs enter and leave the package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.graph import kernels


class Pairs(NamedTuple):
    """Undirected pairs of nodes, each once with ``rows < cols``, sorted by row, then column.

    Attributes
    ----------
    rows, cols : ndarray of int64, shape (n_pairs,)
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]

    @property
    def n_pairs(self) -> int:
        """Number of pairs (``len`` of a tuple is its number of fields)."""
        return len(self.rows)

    @classmethod
    def fold(cls, rows: ArrayLike, cols: ArrayLike, n_nodes: int) -> Pairs:
        """Fold a list of directed pairs: orientation, repetitions and self-loops are dropped.

        Examples
        --------
        >>> Pairs.fold([1, 0, 2, 2], [0, 1, 0, 2], n_nodes=3)
        Pairs(rows=array([0, 0]), cols=array([1, 2]))
        """
        first = np.asarray(rows, dtype=np.int64)
        second = np.asarray(cols, dtype=np.int64)
        low, high = np.minimum(first, second), np.maximum(first, second)
        key = np.unique((low * n_nodes + high)[low != high])
        return cls(key // n_nodes, key % n_nodes)

    def check(self, n_nodes: int) -> None:
        """Refuse what is not as described above: kernels rely on it.

        Examples
        --------
        >>> import numpy as np
        >>> Pairs(np.array([0]), np.array([3])).check(n_nodes=3)
        Traceback (most recent call last):
        ...
        ValueError: these are no sorted pairs of nodes numbered 0 to 2, each once with rows < cols.
        """
        rows, cols = self
        right = (
            rows.dtype == cols.dtype == np.int64
            and rows.shape == cols.shape == (len(rows),)
            and bool(((rows >= 0) & (rows < cols) & (cols < n_nodes)).all())
            and bool((np.diff(rows * n_nodes + cols) > 0).all())
        )
        if not right:
            raise ValueError(
                f"these are no sorted pairs of nodes numbered 0 to {n_nodes - 1}, each once with "
                "rows < cols."
            )


class Incidence:
    """Which pairs a node is part of: those at ``slots[start[i]:start[i + 1]]``.

    Attributes
    ----------
    start : ndarray of int64, shape (n_nodes + 1,)
    slots : ndarray of int64, shape (2 n_pairs,)
        Positions of pairs.
    others : ndarray of int64, shape (2 n_pairs,)
        The other node of each.

    Examples
    --------
    >>> incidence = Incidence(Pairs.fold([0, 0], [1, 2], n_nodes=3), n_nodes=3)
    >>> incidence.start, incidence.slots, incidence.others
    (array([0, 2, 3, 4]), array([0, 1, 0, 1]), array([1, 2, 0, 0]))
    """

    def __init__(self, pairs: Pairs, n_nodes: int) -> None:
        self.start, self.slots, self.others = kernels.incidence(pairs.rows, pairs.cols, n_nodes)
