"""LDS under the names that the paper's tables give it, each with its own start and search space."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from edgewise.baselines.base import SearchSpace
from edgewise.baselines.networks import given_graph
from edgewise.estimator import LDSClassifier
from edgewise.graph.construct import knn_pairs
from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.similarity_matrix import SimilarityMatrix
from edgewise.learn import Schedule
from edgewise.memory import require_memory
from edgewise.problem import Problem

_RATES: SearchSpace = {
    "inner_learning_rate": (0.005, 0.01, 0.02),
    "outer_learning_rate": (1.0, 0.1),
}
_KNN_SPACE: SearchSpace = {
    "k": (10, 20),
    "metric": ("euclidean", "cosine"),
    "tau": (5, 16),
    **_RATES,
}


class GraphLDSClassifier(LDSClassifier):
    """LDS started from the given graph.

    Parameters and attributes are those of `LDSClassifier`.

    Examples
    --------
    >>> from edgewise.baselines import GraphLDSClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> model = GraphLDSClassifier(patience=1, random_state=0)
    >>> model.fit(X, y, [[0, 1], [1, 2], [3, 4], [4, 5]]).edges_.n_nodes
    6
    """

    search_space: ClassVar[SearchSpace] = {"tau": (1, 5, 20), **_RATES}
    needs_graph: ClassVar[bool] = True

    def _initial_edges(self, problem: Problem) -> EdgeDistribution:
        given_graph(problem, "lds", "knn-lds")
        return super()._initial_edges(problem)


class KNNLDSClassifier(LDSClassifier):
    """LDS started from the kNN graph of the features; a given graph is left aside.

    Parameters and attributes are those of `LDSClassifier`.

    Examples
    --------
    >>> from edgewise.baselines import KNNLDSClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> model = KNNLDSClassifier(2, metric="euclidean", patience=1, random_state=0)
    >>> model.fit(X, y).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    search_space: ClassVar[SearchSpace] = _KNN_SPACE
    needs_graph: ClassVar[bool] = False

    def _initial_edges(self, problem: Problem) -> EdgeDistribution:
        return super()._initial_edges(replace(problem, pairs=None, weights=None))


class DenseKNNLDSClassifier(LDSClassifier):
    """LDS with a dense real-valued similarity matrix in place of a random graph.

    The same bilevel program, started from the kNN graph. Memory: three matrices of n_rows × n_rows
    (the one that is learned, the best so far, and the one about to replace that). Parameters and
    attributes are those of `LDSClassifier`; `n_samples` and `storage` mean nothing here.

    Examples
    --------
    >>> from edgewise.baselines import DenseKNNLDSClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> model = DenseKNNLDSClassifier(2, metric="euclidean", patience=1, random_state=0)
    >>> model.fit(X, y).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    search_space: ClassVar[SearchSpace] = _KNN_SPACE
    needs_graph: ClassVar[bool] = False

    def _initial_edges(self, problem: Problem) -> EdgeDistribution:
        require_memory(
            3 * problem.n_nodes**2 * np.dtype(self.dtype).itemsize,
            f"a similarity for each pair of {problem.n_nodes} rows",
            "Use knn-lds with storage='sparse', which is linear in the rows.",
        )
        return SimilarityMatrix(
            problem.n_nodes,
            knn_pairs(problem.features, self.k, metric=self.metric),
            dtype=getattr(torch, self.dtype),
            device=self.device,
        )

    def _schedule(self) -> Schedule:
        return replace(super()._schedule(), n_samples=1)
