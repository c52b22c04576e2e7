"""What a data set is: a table, perhaps a graph, and the roles of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.graph.pairs import Pairs
from edgewise.problem import Problem, Split


class PublicSplit(NamedTuple):
    """The split a data set was published with; the validation rows are not halved yet."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """A data set as read and pre-processed, before a seed gave its rows their roles."""

    features: Any
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    feature_names: tuple[str, ...] | None = None
    pairs: Pairs | None = None
    public: PublicSplit | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set, pre-processed and split.

    Attributes
    ----------
    name : str
    features : ndarray or scipy CSR array of float32, shape (n_nodes, n_features)
    labels : ndarray of int64, shape (n_nodes,)
        every known label, the test rows' too, for evaluation; -1 where there is none.
        Fit on `masked_labels`, never on these.
    classes : ndarray, shape (n_classes,); what the labels stand for
    pairs : Pairs or None; the given graph
    split : Split; the rows whose labels a method may see
    test : ndarray of int64; the rows to be judged on
    feature_names : tuple of str, or None where they are not known
    """

    name: str
    features: Any
    labels: NDArray[np.int64]
    classes: NDArray[Any]
    pairs: Pairs | None
    split: Split
    test: NDArray[np.int64]
    feature_names: tuple[str, ...] | None = None

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    def masked_labels(self) -> NDArray[np.int64]:
        """The labels of the train, validation and early-stopping rows, and -1 everywhere else.

        Examples
        --------
        >>> from edgewise.datasets import load
        >>> wine = load("wine")
        >>> int((wine.masked_labels() >= 0).sum())
        30
        """
        seen = np.concatenate([self.split.train, self.split.validation, self.split.early_stopping])
        masked = np.full_like(self.labels, -1)
        masked[seen] = self.labels[seen]
        return masked

    def to_problem(self) -> Problem:
        """What a method is given: everything but the labels of the test rows."""
        return Problem(self.features, self.masked_labels(), self.classes, self.split, self.pairs)


@dataclass(frozen=True)
class Statistics:
    """The figures of a data set, as the paper's appendix lists them.

    Attributes
    ----------
    nodes, features, classes : int
    edges : undirected edges of the given graph, or None without one
    train, validation, early_stopping, test : rows in each role
    """

    name: str
    nodes: int
    features: int
    classes: int
    edges: int | None
    train: int
    validation: int
    early_stopping: int
    test: int

    @property
    def label_rate(self) -> float:
        """Share of the nodes whose label a method may see, in whatever role."""
        return (self.train + self.validation + self.early_stopping) / self.nodes


def statistics(dataset: Dataset) -> Statistics:
    """Count a data set.

    Examples
    --------
    >>> from edgewise.datasets import load, statistics
    >>> wine = statistics(load("wine"))
    >>> wine.nodes, wine.features, wine.classes, wine.edges
    (178, 13, 3, None)
    >>> wine.train, wine.validation, wine.early_stopping, wine.test
    (10, 10, 10, 148)
    >>> round(wine.label_rate, 3)
    0.169
    """
    return Statistics(
        name=dataset.name,
        nodes=dataset.n_nodes,
        features=int(dataset.features.shape[1]),
        classes=len(dataset.classes),
        edges=None if dataset.pairs is None else len(dataset.pairs.rows),
        train=len(dataset.split.train),
        validation=len(dataset.split.validation),
        early_stopping=len(dataset.split.early_stopping),
        test=len(dataset.test),
    )
