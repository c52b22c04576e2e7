"""Graph neural networks on graphs that nobody learns.

One network, one training loop: what tells these methods apart is the graph of each step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import comb
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from edgewise.baselines.base import (
    COUNT,
    KNN_SPACE,
    METRICS,
    NON_NEGATIVE,
    POSITIVE,
    Baseline,
    Learner,
    Metric,
    SearchSpace,
    kernel_gamma,
)
from edgewise.bilevel.dynamics import Adam
from edgewise.graph.candidates import (
    CandidateEdges,
    cosine_similarities,
    logistic_probabilities,
)
from edgewise.graph.construct import (
    add_random_pairs,
    knn_pairs,
    random_pairs,
    rbf_similarities,
)
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.memory import require_memory
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split, row_unit
from edgewise.train import Objective, Randomness, as_features, train_network

_RATES: SearchSpace = {"learning_rate": (0.005, 0.01, 0.02)}


class Graphs(NamedTuple):
    """The graph of each step, those to predict under, and how many edges the former has."""

    draw: Callable[[], Graph]
    n_samples: int = 1
    predict_under: Callable[[], Graph] | None = None
    n_edges: int | None = None  # unknown where the graph is random, or where there is none


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkBaseline(Baseline):
    """The paper's two-layer network, on some graph.

    It stops when the held-out rows have not been predicted better for `patience` steps. With
    `refit` it is trained once more on all labelled rows, for as many steps as were best.

    Parameters
    ----------
    learning_rate : float, default=0.01
        Of Adam.
    rescale : bool, default=True
        Whether a table whose rows have a root mean square norm above 1 is divided by that; see
        `edgewise.problem.row_unit`.
    hidden_units : int, default=16
    dropout : float, default=0.5
    weight_decay : float, default=2.5e-4
        Factor of the squared norm of the first layer's weights.
    max_steps : int, default=1000
    patience : int, default=20
    stop_on : {"loss", "accuracy"}, default="loss"
        What is watched on the held-out rows.
    dtype : {"float32", "float64"}, default="float32"
    device : str, default="cpu"
    refit, random_state
        See `Baseline`.

    Attributes
    ----------
    n_steps_ : int
        Steps after which the kept weights were reached.
    n_edges_ : int or None
        Edges of the graph of each step; None where there is none, or where it is random (see
        `edges_` there).
    """

    learning_rate: float = 0.01
    rescale: bool = True
    hidden_units: int = 16
    dropout: float = 0.5
    weight_decay: float = 2.5e-4
    max_steps: int = 1000
    patience: int = 20
    stop_on: Literal["loss", "accuracy"] = "loss"
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"

    n_steps_: int = field(init=False)
    n_edges_: int | None = field(init=False)

    search_space: ClassVar[SearchSpace] = _RATES
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        **Baseline._parameter_constraints,
        "learning_rate": POSITIVE,
        "rescale": ["boolean"],
        "hidden_units": COUNT,
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "weight_decay": NON_NEGATIVE,
        "max_steps": COUNT,
        "patience": COUNT,
        "stop_on": [StrOptions({"loss", "accuracy"})],
        "dtype": [StrOptions({"float32", "float64"})],
        "device": [str],
    }

    @abstractmethod
    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        """The graphs that the network meets."""

    def _dtype(self) -> str:
        return self.dtype

    def _torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def _network(self) -> GCN:
        return GCN(self.hidden_units, self.dropout)

    def _objective(self, problem: Problem) -> Objective:
        return Objective(
            problem,
            self._network(),
            weight_decay=self.weight_decay,
            dtype=self._torch_dtype(),
            device=self.device,
        )

    def _learner(self, problem: Problem, seed: int) -> Learner:
        randomness = Randomness(seed, self.device)
        self._unit = row_unit(problem.features) if self.rescale else 1.0
        problem = replace(problem, features=problem.features / self._unit)
        graphs = self._graphs(problem, randomness.graphs)
        self.n_edges_ = graphs.n_edges

        def learn(split: Split) -> NDArray[np.float64]:
            stops = len(split.early_stopping) > 0
            objective = self._objective(replace(problem, split=split))
            trained = train_network(
                problem,
                objective,
                Adam(self.learning_rate),
                graphs.draw,
                randomness,
                stopping_rows=split.early_stopping if stops else None,
                criterion=self.stop_on,
                patience=self.patience,
                max_steps=self.max_steps if stops else self.n_steps_,
                n_samples=graphs.n_samples,
                predict_under=graphs.predict_under,
            )
            self.n_steps_ = trained.steps
            self._weights = objective.unflatten(trained.weights)
            return trained.probabilities

        return learn

    def _fixed(self, pairs: Pairs, n_nodes: int, weights: Any = None) -> Graphs:
        graph = Graph.from_pairs(
            pairs, n_nodes, weights=weights, dtype=self._torch_dtype(), device=self.device
        )
        return Graphs(lambda: graph, n_edges=pairs.n_pairs)


NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))


class RowNetworkBaseline(NetworkBaseline):
    """The network on the graph without edges, where it sees one row at a time, and so any row."""

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        return self._fixed(NO_PAIRS, problem.n_nodes)._replace(n_edges=None)

    def _predict_unseen(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        table = as_features(features / self._unit, self._torch_dtype(), torch.device(self.device))
        graph = self._fixed(NO_PAIRS, features.shape[0]).draw()
        with torch.no_grad():
            logits = self._network().logits(self._weights, table, graph)
        probabilities: NDArray[np.float64] = torch.softmax(logits.double(), dim=1).cpu().numpy()
        return probabilities


class FFNNClassifier(RowNetworkBaseline):
    """The two-layer network without a graph.

    Parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import FFNNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> FFNNClassifier(random_state=0).fit(X, y).predict([[-0.7], [0.7]])
    array([0, 1])
    """


@dataclass(kw_only=True, eq=False, repr=False)
class SparseGCNClassifier(NetworkBaseline):
    """GCN on a sparse random graph (Erdős and Rényi's): what a graph without meaning does.

    Parameters
    ----------
    expected_degree : float, default=5.0
        Expected neighbours a row; as many as there are others, if that is less.

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import SparseGCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> SparseGCNClassifier(0.5, random_state=0).fit(X, y).transduction_.shape
    (6,)
    """

    expected_degree: float = field(default=5.0, kw_only=False)

    search_space: ClassVar[SearchSpace] = {"expected_degree": (1.0, 2.0, 5.0, 10.0), **_RATES}
    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "expected_degree": NON_NEGATIVE,
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        degree = min(self.expected_degree, problem.n_nodes - 1)
        pairs = random_pairs(problem.n_nodes, expected_degree=degree, rng=rng)
        return self._fixed(pairs, problem.n_nodes)


@dataclass(kw_only=True, eq=False, repr=False)
class DenseGCNClassifier(NetworkBaseline):
    """GCN on the complete graph with equal weights, whose product is a mean.

    Parameters
    ----------
    edge_weight : float or None, default=None
        Of every edge, beside a self-loop of weight 1. None is one over the number of neighbours,
        so that a row weighs as much as all others together. With 1 the rows are all mapped to
        their mean: such a network predicts the same class for every row.

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import DenseGCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> DenseGCNClassifier(random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    edge_weight: float | None = field(default=None, kw_only=False)

    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "edge_weight": [*POSITIVE, None],
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        weight = self.edge_weight
        graph = Graph.complete(
            problem.n_nodes,
            weight=1.0 / (problem.n_nodes - 1) if weight is None else weight,
            dtype=self._torch_dtype(),
            device=self.device,
        )
        return Graphs(lambda: graph, n_edges=comb(problem.n_nodes, 2))


@dataclass(kw_only=True, eq=False, repr=False)
class RBFGCNClassifier(NetworkBaseline):
    """GCN on the dense graph of a Gaussian kernel. Memory: one n_rows × n_rows matrix.

    Parameters
    ----------
    gamma_scale : float, default=10.0
        The weight of an edge is ``exp(-gamma |x - x'|^2)`` with gamma = `gamma_scale` /
        (n_features Var(X)).

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import RBFGCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, 1]
    >>> RBFGCNClassifier(3.0, random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    gamma_scale: float = field(default=10.0, kw_only=False)

    search_space: ClassVar[SearchSpace] = {
        "gamma_scale": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
        **_RATES,
    }
    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "gamma_scale": POSITIVE,
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        require_memory(
            problem.n_nodes**2 * np.dtype(self.dtype).itemsize,
            f"the Gaussian kernel of {problem.n_nodes} rows",
            "Use knn-gcn, which is linear in the rows.",
        )
        kernel = rbf_similarities(
            problem.features, kernel_gamma(problem.features, self.gamma_scale)
        )
        np.fill_diagonal(kernel, 0.0)
        adjacency = torch.as_tensor(kernel, dtype=self._torch_dtype(), device=self.device)
        graph = Graph.from_dense(adjacency)
        return Graphs(lambda: graph, n_edges=comb(problem.n_nodes, 2))


@dataclass(kw_only=True, eq=False, repr=False)
class KNNGCNClassifier(NetworkBaseline):
    """GCN on the k-nearest-neighbour graph of the features; a given graph is left aside.

    Parameters
    ----------
    k : int, default=10
        Neighbours a row.
    metric : {"cosine", "euclidean"}, default="cosine"

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import KNNGCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, -1]
    >>> KNNGCNClassifier(2, metric="euclidean", random_state=0).fit(X, y).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    k: int = field(default=10, kw_only=False)
    metric: Metric = "cosine"

    search_space: ClassVar[SearchSpace] = {**KNN_SPACE, **_RATES}
    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "k": COUNT,
        "metric": METRICS,
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        pairs = knn_pairs(problem.features, self.k, metric=self.metric)
        return self._fixed(pairs, problem.n_nodes)


def given_graph(problem: Problem, method: str, remedy: str) -> Pairs:
    """The given graph, or an error that says what to do without one."""
    if problem.pairs is None:
        raise ValueError(
            f"{method} needs a graph: pass it as fit(X, y, graph). Without one, use {remedy}."
        )
    return problem.pairs


class GCNClassifier(NetworkBaseline):
    """GCN on the given graph.

    Parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import GCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, -1]
    >>> edges = [[0, 1], [1, 2], [3, 4], [4, 5]]
    >>> GCNClassifier(random_state=0).fit(X, y, edges).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    needs_graph: ClassVar[bool] = True

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        pairs = given_graph(problem, "gcn", "knn-gcn")
        return self._fixed(pairs, problem.n_nodes, problem.weights)


@dataclass(kw_only=True, eq=False, repr=False)
class RandomEdgesGCNClassifier(NetworkBaseline):
    """GCN on the given graph plus fresh random edges at every step: noise alone, nothing learned.

    Random edges are for the optimisation only. Predictions are made on the given graph, as they
    are made without dropout.

    Parameters
    ----------
    share : float, default=1.0
        Random edges for each given one.

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import RandomEdgesGCNClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, -1]
    >>> edges = [[0, 1], [1, 2], [3, 4], [4, 5]]
    >>> RandomEdgesGCNClassifier(0.25, random_state=0).fit(X, y, edges).transduction_
    array([0, 0, 0, 1, 1, 1])
    """

    share: float = field(default=1.0, kw_only=False)

    needs_graph: ClassVar[bool] = True
    search_space: ClassVar[SearchSpace] = {"share": (0.1, 0.3, 1.0, 3.0), **_RATES}
    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "share": NON_NEGATIVE,
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        n_nodes = problem.n_nodes
        given = given_graph(problem, "gcn-rnd", "knn-gcn")
        given_keys = given.rows * n_nodes + given.cols
        absent = n_nodes * (n_nodes - 1) // 2 - given.n_pairs
        n_added = min(round(self.share * given.n_pairs), absent)

        def draw() -> Graph:
            pairs = add_random_pairs(given, n_nodes, n_added, rng)
            weights = None
            if problem.weights is not None:
                weights = np.ones(pairs.n_pairs)
                keys = pairs.rows * n_nodes + pairs.cols
                weights[np.searchsorted(keys, given_keys)] = problem.weights
            return self._fixed(pairs, n_nodes, weights).draw()

        clean = self._fixed(given, n_nodes, problem.weights).draw
        return Graphs(draw, predict_under=clean, n_edges=given.n_pairs + n_added)


@dataclass(kw_only=True, eq=False, repr=False)
class SoftKNNGCNClassifier(NetworkBaseline):
    """GCN on a random graph of similar rows, drawn anew at every step; nothing of it is learned.

    Each row and its most similar ones are candidate pairs. A candidate is an edge with probability
    ``logistic(scale (cosine similarity - offset))``, the offset being such that the mean degree is
    as asked. Class probabilities are averaged over sampled graphs.

    Parameters
    ----------
    expected_degree : float, default=7.0
        Expected neighbours a row.
    scale : float, default=20.0
        How steeply the probability of an edge rises with the similarity.
    n_candidates : int, default=30
        Candidates a row; all others, if there are fewer.
    n_samples : int, default=16
        Graphs that class probabilities are averaged over.

    Other parameters are those of `NetworkBaseline`.

    Attributes
    ----------
    edges_ : CandidateEdges

    Examples
    --------
    >>> from edgewise.baselines import SoftKNNGCNClassifier
    >>> X = [[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.1], [1.0, 0.2]]
    >>> y = [0, 0, 0, 1, 1, 1]
    >>> model = SoftKNNGCNClassifier(2.0, random_state=0).fit(X, y)
    >>> model.transduction_
    array([0, 0, 0, 1, 1, 1])
    >>> round(model.edges_.expected_edges(), 3)  # 2 for each of 6 rows, each shared by two
    6.0
    """

    expected_degree: float = field(default=7.0, kw_only=False)
    scale: float = 20.0
    n_candidates: int = 30
    n_samples: int = 16

    search_space: ClassVar[SearchSpace] = {
        "expected_degree": (4.0, 7.0, 10.0, 15.0),
        "scale": (5.0, 10.0, 20.0, 40.0),
        **_RATES,
    }
    _parameter_constraints = {  # noqa: RUF012
        **NetworkBaseline._parameter_constraints,
        "expected_degree": POSITIVE,
        "scale": POSITIVE,
        "n_candidates": COUNT,
        "n_samples": COUNT,
    }

    def _graphs(self, problem: Problem, rng: np.random.Generator) -> Graphs:
        self.edges_ = self._candidates(problem)
        return Graphs(lambda: self.edges_.draw(rng), self.n_samples)

    def _candidates(self, problem: Problem) -> CandidateEdges:
        k = min(self.n_candidates, problem.n_nodes - 1)
        pairs = knn_pairs(problem.features, k, metric="cosine")
        probabilities = logistic_probabilities(
            cosine_similarities(problem.features, pairs),
            scale=self.scale,
            expected_edges=self.expected_degree * problem.n_nodes / 2.0,
        )
        return CandidateEdges(
            problem.n_nodes,
            pairs,
            probabilities,
            dtype=self._torch_dtype(),
            device=self.device,
        )
