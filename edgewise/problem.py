"""What is to be learned: features, partly known labels, the roles of the labelled rows, a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.graph.pairs import Pairs


def row_unit(features: Any) -> float:
    """What networks see a table in units of: the rows' root mean square norm, or 1 if it is less.

    Adam's steps are as large as its learning rate, whatever the values of the table. Where these
    are large, such as raw pixels, the first steps kill most hidden units. One factor for the whole
    table leaves zeros, neighbours and the ratios of columns as they are.

    Examples
    --------
    >>> row_unit(np.array([[3.0, 4.0], [0.0, 5.0]])), row_unit(np.array([[0.3, 0.4]]))
    (5.0, 1.0)
    """
    with np.errstate(over="ignore"):
        norm = np.sqrt((features * features).sum() / features.shape[0])
    if not np.isfinite(norm):  # of values whose squares are too large for their type
        norm = abs(features).max()
    return float(max(1.0, norm))


@dataclass(frozen=True)
class Split:
    """The roles of the labelled rows, as sorted and disjoint index arrays.

    Attributes
    ----------
    train : rows of the inner loss, which fits the weights of the network.
    validation : rows of the outer loss, which fits the edges (the paper's first validation half).
    early_stopping : rows that decide when to stop and which graph is kept (the second half).
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    early_stopping: NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A transductive classification problem, checked and encoded.

    Attributes
    ----------
    features : ndarray or scipy CSR array of float32/float64, shape (n_nodes, n_features)
    labels : ndarray of int64, shape (n_nodes,); -1 where the label is unknown
    classes : ndarray, shape (n_classes,); the user's name of each class
    split : Split
    pairs : Pairs or None; the given graph
    weights : ndarray or None; how likely each given pair is an edge, if not certain
    """

    features: Any
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    split: Split
    pairs: Pairs | None = None
    weights: NDArray[np.float64] | None = None

    @property
    def n_nodes(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_classes(self) -> int:
        return len(self.classes)
