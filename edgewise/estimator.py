"""Classifiers of the rows they are fitted on, with scikit-learn's face; LDS first of all."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from edgewise.bilevel.dynamics import SGD, Adam, Dynamics, Momentum
from edgewise.checkpoint import Checkpoint, SharedCheckpoint, describe_problem
from edgewise.denoising import HIDDEN_UNITS, Denoiser
from edgewise.graph.construct import knn_pairs
from edgewise.graph.distribution import DenseEdges, EdgeDistribution
from edgewise.graph.growing import GrowingEdges
from edgewise.graph.sharded import ShardedEdges, SharedCandidates, agreed
from edgewise.graph.similarity import N_CANDIDATES, SimilarityEdges
from edgewise.induction import Induction, class_frequencies, far_distance, reaches
from edgewise.inputs import (
    EdgewiseWarning,
    adjacency_pairs,
    check_features,
    encode_labels,
    split_labelled,
)
from edgewise.learn import Callback, Model, Progress, Schedule, learn
from edgewise.learn_similarity import SimilaritySchedule, learn_similarity
from edgewise.memory import require_memory
from edgewise.nn.gcn import GCN
from edgewise.nn.network import Network
from edgewise.persistence import describe_parameters, load_classifier, save_classifier
from edgewise.problem import Problem, Split, row_unit
from edgewise.team import join_team, machines, on_duty
from edgewise.teamwork import SharedObjective, in_one_piece, require_alike, require_shared
from edgewise.train import Objective, Randomness, Score, TrainedNetwork, train_network

if TYPE_CHECKING:
    from typing_extensions import Self

# Rows up to which "auto" storage keeps a probability for each pair: 0.3 GB, twice.
DENSE_UP_TO = 12_000
# The probabilities being learned and the best so far, and a third for what else is needed.
DENSE_COPIES = 3
# Candidates being learned, the best so far, and old and new ones together when they grow.
CANDIDATE_COPIES = 4

# Numbers up to this are numbers in every precision that is computed with.
LARGEST = 1e30
OPTIMIZERS: dict[str, type[Dynamics]] = {"adam": Adam, "momentum": Momentum, "sgd": SGD}


class TransductiveClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that sees labelled and unlabelled rows, and perhaps a graph, when it is fitted.

    Subclasses say how in `_solve`, and declare their parameters in scikit-learn's
    ``_parameter_constraints``. Fitted, they hold a `validation_score_`: accuracy and loss of what
    was learned from ``split.train``, on labelled rows that had no part in it.
    """

    _parameter_constraints: dict[str, list[Any]]
    validation_score_: Score

    def fit(
        self,
        X: Any,
        y: Any,
        graph: Any = None,
        *,
        validation: Any = None,
        early_stopping: Any = None,
    ) -> Any:
        """Fit to labelled and unlabelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_rows, n_features)
        y : array-like, shape (n_rows,)
            Class labels. Unlabelled rows hold -1 if labels are numbers; None, NaN or "" otherwise.
        graph : adjacency, edge list or graph, optional
            The known part of the graph; see `edgewise.inputs.adjacency_pairs`.
        validation, early_stopping : array-like, optional
            Boolean masks or indices of labelled rows to fit the edges on, and to stop on. With
            `validation` alone, it is halved at random. With neither, the labelled rows are split
            into three stratified parts.

        Returns
        -------
        self
        """
        problem, seed = self._posed(X, y, graph, validation, early_stopping)
        return self._solved(problem, seed, self._solve(problem, seed))

    def _posed(
        self, X: Any, y: Any, graph: Any, validation: Any, early_stopping: Any
    ) -> tuple[Problem, int]:
        """The problem that was given, checked, and the seed of all that is random."""
        self._validate_params()
        self._check_device()
        features = check_features(X, self._dtype())
        validate_data(self, X, skip_check_array=True)
        codes, self.classes_ = encode_labels(y, features.shape[0])
        # None takes fresh entropy: check_random_state would draw from NumPy's global state.
        given = self._random_state()
        source = np.random.RandomState() if given is None else check_random_state(given)
        seed = int(source.randint(2**31 - 1))
        split = self._split(codes, validation, early_stopping, np.random.default_rng(seed))
        pairs, weights = (
            (None, None) if graph is None else adjacency_pairs(graph, features.shape[0])
        )
        return Problem(features, codes, self.classes_, split, pairs, weights), seed

    def _solved(self, problem: Problem, seed: int, probabilities: NDArray[np.float64]) -> Any:
        """Set what all classifiers have once they are fitted."""
        self.label_distributions_ = probabilities
        self.transduction_ = self.classes_[probabilities.argmax(axis=1)]
        self.class_frequencies_ = class_frequencies(problem.labels, problem.n_classes)
        self.split_ = problem.split
        self._fitted_rows = problem.features
        self._fitted_labels = problem.labels
        self._seed = seed
        return self

    @abstractmethod
    def _solve(self, problem: Problem, seed: int) -> NDArray[np.float64]:
        """Class probabilities of all rows; sets whatever else is learned."""

    def _dtype(self) -> str:
        return "float64"

    def _check_device(self) -> None:
        device = getattr(self, "device", "cpu")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device={device!r} is not at hand ({str(error).splitlines()[0]}): use "
                "device='cpu', or a device that torch finds here."
            ) from error

    def _random_state(self) -> Any:
        return getattr(self, "random_state", None)

    def _split(
        self,
        codes: NDArray[np.int64],
        validation: Any,
        early_stopping: Any,
        rng: np.random.Generator,
    ) -> Split:
        return split_labelled(codes, validation=validation, early_stopping=early_stopping, rng=rng)

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class of each row."""
        check_is_fitted(self)
        predicted: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return predicted

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of rows that took part in the fit, and of others.

        Rows equal to a fitted row get what was found in the fit. Others are attached to the
        fitted rows, without changing anything for these; see `edgewise.induction`. Rows far from
        everything (see `novelty`) get the class frequencies of the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_rows, n_features)

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
        """
        features, rows = self._located(X)
        known: NDArray[np.float64] = self.label_distributions_[rows]
        unseen = np.flatnonzero(rows < 0)
        if len(unseen):
            known[unseen] = self._predict_unseen(features[unseen], unseen)
        return known

    def novelty(self, X: Any) -> NDArray[np.bool_]:
        """Which rows are far from all fitted ones, so that their class is anybody's guess.

        A row is far if its nearest fitted row is more than twice as far away as is usual (the
        95 % quantile) between fitted rows and their nearest neighbours; under the cosine metric
        also if it has nothing in common with any fitted row, or more than twice the norm of the
        longest one.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_rows, n_features)

        Returns
        -------
        ndarray of bool, shape (n_rows,)
        """
        features, rows = self._located(X)
        far: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
        unseen = np.flatnonzero(rows < 0)
        if len(unseen):
            far[unseen] = self._induction(unseen).is_far(features[unseen])
        return far

    def _located(self, X: Any) -> tuple[Any, NDArray[np.int64]]:
        """Checked rows, and which fitted row each of them equals (-1 if none)."""
        check_is_fitted(self)
        features = check_features(X, self._dtype(), min_rows=1)
        validate_data(self, X, skip_check_array=True, reset=False)
        fitted = self._fitted_rows
        if issparse(features) != issparse(fitted):
            features = csr_array(features) if issparse(fitted) else features.toarray()
        if _same_table(features, fitted):
            return features, np.arange(features.shape[0])
        place = {key: row for row, key in reversed(list(enumerate(_row_keys(fitted))))}
        rows = [place.get(key, -1) for key in _row_keys(features)]
        return features, np.array(rows, dtype=np.int64)

    def _predict_unseen(self, features: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._induction(rows).probabilities(features)

    def _induction(self, rows: NDArray[np.int64]) -> Induction:
        """What predicts rows that took no part in the fit: by default, nothing."""
        raise ValueError(
            f"row {rows[0]} of X (and {len(rows) - 1} more) did not take part in the fit, and "
            f"{type(self).__name__} predicts only rows that did. Fit again with these rows in X, "
            "unlabelled (y = -1)."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _same_table(first: Any, second: Any) -> bool:
    if first.shape != second.shape or type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return bool((first == second).all())
    return bool((first != second).nnz == 0)


def _row_keys(features: Any) -> list[bytes]:
    """The content of each row, as something that can be looked up."""
    if isinstance(features, np.ndarray):
        return [row.tobytes() for row in features + 0.0]  # + 0.0 makes -0 equal to 0
    features = features.copy()
    features.eliminate_zeros()
    ends, indices, data = features.indptr, features.indices.astype(np.int64), features.data
    return [indices[a:b].tobytes() + data[a:b].tobytes() for a, b in pairwise(ends)]


class LDSClassifier(TransductiveClassifier):
    """Learns a graph together with the graph neural network that uses it (LDS, ICML 2019).

    Every pair of rows is an edge with a probability of its own. A bilevel program fits the weights
    of the network on the training rows (inner problem) and the probabilities on the validation
    rows (outer problem). Started from the given graph, or from the k-nearest-neighbour graph
    (kNN-LDS) where none is given.

    Parameters
    ----------
    k : int, default=10
        Neighbours a row in the initial graph, if none is given. With ``edges="similarity"`` the
        expected degree at the start.
    metric : {"cosine", "euclidean"}, default="cosine"
        By which neighbours are near.
    edges : {"free", "similarity"}, default="free"
        What is learned: a probability of its own for each pair, or few parameters of a similarity
        of the rows' features, which over-fit less and know new rows as well. The latter takes no
        `graph` and goes its own way: see `edgewise.learn_similarity`.
    storage : {"auto", "dense", "sparse"}, default="auto"
        Whether free probabilities are kept for all pairs, or only for the candidates that the
        gradient asks for, in memory linear in the rows; "auto" is dense up to 12,000 rows.
    max_edges_per_node : int, default=20
        Candidates a row under sparse storage.
    tau : int or None, default=5
        Inner steps between two updates of the edges, which is also how far the hypergradient looks
        back. 0 alternates between weights and edges; None unrolls the whole inner problem.
    outer_learning_rate : float, default=1.0
        eta. The n-th update of the edges has rate ``eta / (1 + outer_decay n)``.
    outer_decay : float, default=1e-3
    inner_learning_rate : float, default=0.02
    inner_optimizer : {"adam", "momentum", "sgd"}, default="adam"
    learn_inner_rate : bool, default=False
        Whether the inner learning rate is learned as well, by the same hypergradient.
    rescale : bool, default=True
        Whether the network sees a table whose rows have a root mean square norm above 1 divided by
        that; see `edgewise.problem.row_unit`.
    hidden_units : int, default=16
    dropout : float, default=0.5
    weight_decay : float, default=2.5e-4
        Factor of the squared norm of the first layer's weights.
    max_inner_steps : int, default=400
    inner_patience : int, default=20
        An inner problem ends after so many steps without a decrease of its loss ...
    inner_tolerance : float, default=1e-3
        ... by at least this share.
    patience : int, default=20
        Outer iterations without better early-stopping accuracy before the end. Equal accuracies
        are decided by early-stopping loss, but do not reset the patience.
    max_outer_iterations : int, default=1000
    n_samples : int, default=16
        Graphs that class probabilities are averaged over.
    batch_size : int or None, default=None
        Labelled rows that a step looks at, with their neighbourhoods in a sampled graph; None for
        all. For graphs where a step on all of it takes too long or too much memory. Under dense
        storage every row is in everybody's neighbourhood, so it saves nothing there.
    refit : bool, default=False
        Whether the network is fitted once more, on all labelled rows, under the learned edges.
    network : Network, optional
        In place of the two-layer GCN.
    dtype : {"float32", "float64"}, default="float32"
    device : str, default="cpu"
        Where the network computes: "cpu", "cuda", ...
    callbacks : sequence of Callback, optional
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    classes_ : ndarray
    edges_ : EdgeDistribution
        The learned distribution of the graph.
    transduction_ : ndarray, shape (n_rows,)
        The predicted class of each row.
    label_distributions_ : ndarray, shape (n_rows, n_classes)
        Class probabilities of each row.
    weights_ : list of ndarray
        The fitted weights of the network, in its own order.
    class_frequencies_ : ndarray, shape (n_classes,)
        Share of each class among the labelled rows.
    split_ : Split
        The roles of the labelled rows.
    history_ : list of dict
        Losses, accuracies, expected edges and seconds of each outer iteration.
    n_iter_ : int
        Number of outer iterations.
    best_iteration_ : int
        The outer iteration (from 1) that the model is from.
    validation_score_ : Score
        Accuracy and loss on the early-stopping rows, by which hyperparameters can be chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise import LDSClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 1, (30, 2)), rng.normal(2, 1, (30, 2))])
    >>> y = np.full(60, -1)
    >>> y[[0, 1, 2, 30, 31, 32]] = 0, 0, 0, 1, 1, 1
    >>> classifier = LDSClassifier(k=5, metric="euclidean", patience=2, random_state=0).fit(X, y)
    >>> float((classifier.transduction_ == np.repeat([0, 1], 30)).mean()) > 0.9
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "k": [Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions({"cosine", "euclidean"})],
        "edges": [StrOptions({"free", "similarity"})],
        "storage": [StrOptions({"auto", "dense", "sparse"})],
        "max_edges_per_node": [Interval(Integral, 1, None, closed="left")],
        "tau": [Interval(Integral, 0, None, closed="left"), None],
        "outer_learning_rate": [Interval(Real, 0, LARGEST, closed="neither")],
        "outer_decay": [Interval(Real, 0, LARGEST, closed="left")],
        "inner_learning_rate": [Interval(Real, 0, LARGEST, closed="neither")],
        "inner_optimizer": [StrOptions(set(OPTIMIZERS))],
        "learn_inner_rate": ["boolean"],
        "rescale": ["boolean"],
        "hidden_units": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "weight_decay": [Interval(Real, 0, LARGEST, closed="left")],
        "max_inner_steps": [Interval(Integral, 1, None, closed="left")],
        "inner_patience": [Interval(Integral, 1, None, closed="left")],
        "inner_tolerance": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "max_outer_iterations": [Interval(Integral, 1, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "refit": ["boolean"],
        "network": [Network, None],
        "dtype": [StrOptions({"float32", "float64"})],
        "device": [str],
        "callbacks": ["array-like", None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        k: int = 10,
        *,
        metric: Literal["cosine", "euclidean"] = "cosine",
        edges: Literal["free", "similarity"] = "free",
        storage: Literal["auto", "dense", "sparse"] = "auto",
        max_edges_per_node: int = 20,
        tau: int | None = 5,
        outer_learning_rate: float = 1.0,
        outer_decay: float = 1e-3,
        inner_learning_rate: float = 0.02,
        inner_optimizer: Literal["adam", "momentum", "sgd"] = "adam",
        learn_inner_rate: bool = False,
        rescale: bool = True,
        hidden_units: int = 16,
        dropout: float = 0.5,
        weight_decay: float = 2.5e-4,
        max_inner_steps: int = 400,
        inner_patience: int = 20,
        inner_tolerance: float = 1e-3,
        patience: int = 20,
        max_outer_iterations: int = 1000,
        n_samples: int = 16,
        batch_size: int | None = None,
        refit: bool = False,
        network: Network | None = None,
        dtype: Literal["float32", "float64"] = "float32",
        device: str = "cpu",
        callbacks: Sequence[Callback] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.k = k
        self.metric = metric
        self.edges = edges
        self.storage = storage
        self.max_edges_per_node = max_edges_per_node
        self.tau = tau
        self.outer_learning_rate = outer_learning_rate
        self.outer_decay = outer_decay
        self.inner_learning_rate = inner_learning_rate
        self.inner_optimizer = inner_optimizer
        self.learn_inner_rate = learn_inner_rate
        self.rescale = rescale
        self.hidden_units = hidden_units
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.max_inner_steps = max_inner_steps
        self.inner_patience = inner_patience
        self.inner_tolerance = inner_tolerance
        self.patience = patience
        self.max_outer_iterations = max_outer_iterations
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.refit = refit
        self.network = network
        self.dtype = dtype
        self.device = device
        self.callbacks = callbacks
        self.random_state = random_state

    def _dtype(self) -> str:
        return self.dtype

    def fit(
        self,
        X: Any,
        y: Any,
        graph: Any = None,
        *,
        validation: Any = None,
        early_stopping: Any = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Any:
        """Fit to labelled and unlabelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_rows, n_features)
        y : array-like, shape (n_rows,)
            Class labels. Unlabelled rows hold -1 if labels are numbers; None, NaN or "" otherwise.
        graph : adjacency, edge list or graph, optional
            The known part of the graph; see `edgewise.inputs.adjacency_pairs`.
        validation, early_stopping : array-like, optional
            Boolean masks or indices of labelled rows to fit the edges on, and to stop on. With
            `validation` alone, it is halved at random. With neither, the labelled rows are split
            into three stratified parts.
        checkpoint : str or path-like, optional
            A file that keeps the state after each outer iteration. If it is there already, the
            fit goes on from it, and comes to the same result as if it had never been interrupted.
            `random_state` must be an integer. See `edgewise.checkpoint`.

        Returns
        -------
        self
        """
        with on_duty() as team:
            problem, seed = self._posed(X, y, graph, validation, early_stopping)
            if team is not None:
                require_alike(team, self._identity(problem, seed))
            keeper = None if checkpoint is None else self._keeper(checkpoint, problem, seed)
            return self._solved(problem, seed, self._solve(problem, seed, keeper))

    def _identity(self, problem: Problem, seed: int) -> dict[str, Any]:
        """All that has a say in the course of a fit."""
        kind = {"class": type(self).__name__, "seed": seed}
        return {**kind, **describe_parameters(self), **describe_problem(problem)}

    def _keeper(self, path: str | PathLike[str], problem: Problem, seed: int) -> Checkpoint:
        if not isinstance(self.random_state, Integral):
            raise ValueError(
                f"with a checkpoint random_state must be an integer, not {self.random_state!r}: "
                "else the fit that goes on from it would be another one. Use random_state=0."
            )
        # What may be changed to go further, or is done when all is learned.
        free = ("callbacks", "patience", "max_outer_iterations", "refit")
        everything = self._identity(problem, seed)
        identity = {name: value for name, value in everything.items() if name not in free}
        team = join_team()
        if team is not None:
            return SharedCheckpoint(team, path, identity)
        return Checkpoint(path, identity)

    def _solve(
        self, problem: Problem, seed: int, keeper: Checkpoint | None = None
    ) -> NDArray[np.float64]:
        team = join_team()
        randomness = Randomness(seed, self.device)
        # First what is largest: an error then names what it would take to make it smaller.
        if self.edges == "similarity":
            self._require_room_for_similarity(problem)
            objective = self._objective(problem)
            progress = self._learn_similarity(problem, randomness, keeper)
        else:
            edges, objective = self._initial_edges(problem), self._objective(problem)
            if team is not None:
                require_shared(edges)
            progress = learn(
                problem,
                objective,
                edges,
                OPTIMIZERS[self.inner_optimizer](self.inner_learning_rate),
                self._schedule(),
                randomness,
                self.callbacks or (),
                keeper=keeper,
            )
        self.history_ = [iteration.as_dict() for iteration in progress.history]
        self.n_iter_ = len(self.history_)
        model = self._kept(progress)
        self.best_iteration_ = model.iteration
        self.validation_score_ = model.scores.early_stopping
        weights, probabilities = model.weights, model.probabilities
        if self.refit:
            refitted = self._refitted(problem, model, randomness)
            weights, probabilities = refitted.weights, refitted.probabilities
        self.edges_ = model.edges if team is None else in_one_piece(model.edges)
        self.weights_ = [part.cpu().numpy() for part in objective.unflatten(weights)]
        self._far = far_distance(problem.features, self.metric)
        self.__dict__.pop("_reach", None)  # that of an earlier fit
        return probabilities

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to a folder, or over an earlier one in such a folder.

        The folder holds a JSON manifest and a safetensors file, no pickle: loading it executes
        nothing. Whatever happens while it is written, an earlier model stays intact until the
        new one is complete. `callbacks` and a `random_state` that is a generator are not saved.

        Parameters
        ----------
        path : str or path-like
        """
        check_is_fitted(self)
        save_classifier(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        network: Network | None = None,
        device: str | None = None,
    ) -> Self:
        """Read a classifier that `save` wrote; it predicts the same, to the last bit.

        Parameters
        ----------
        path : str or path-like
        network : Network, optional
            The network it was fitted with, needed if that is a class of your own.
        device : str, optional
            Where to compute, if not where it was fitted.

        Returns
        -------
        LDSClassifier
        """
        classifier: Self = load_classifier(cls, path, network=network, device=device)
        return classifier

    @cached_property
    def _reach(self) -> NDArray[np.float64]:
        # Found when it is asked for: among very many rows that takes as long as much of the fit.
        return reaches(self._fitted_rows, self.k, self.metric)

    def _induction(self, rows: NDArray[np.int64]) -> Induction:
        return Induction(
            self._network(),
            [torch.as_tensor(part, device=self.device) for part in self.weights_],
            self.edges_,
            self._fitted_rows,
            self.class_frequencies_,
            self._far,
            self._reach,
            self.k,
            self.metric,
            self._schedule().n_samples,
            self._seed,
            self._unit(self._fitted_rows),
        )

    @staticmethod
    def _kept(progress: Progress) -> Model:
        assert progress.best is not None  # there is at least one outer iteration
        if progress.interrupted:
            warnings.warn(
                "the fit was interrupted; kept the best model so far, of outer iteration "
                f"{progress.best.iteration} of {len(progress.history)}",
                EdgewiseWarning,
                stacklevel=4,
            )
        return progress.best

    def _network(self) -> Network:
        return self.network or GCN(self.hidden_units, self.dropout)

    def _unit(self, features: Any) -> float:
        return row_unit(features) if self.rescale else 1.0

    def _objective(self, problem: Problem) -> Objective:
        seen = replace(problem, features=problem.features / self._unit(problem.features))
        options: dict[str, Any] = {
            "weight_decay": self.weight_decay,
            "dtype": getattr(torch, self.dtype),
            "device": self.device,
        }
        # The weights, their gradient and Adam's two moments; each row's hidden units.
        n_weights = self.hidden_units * (seen.features.shape[1] + seen.n_classes)
        n_numbers = 4 * n_weights + self.hidden_units * seen.n_nodes
        require_memory(
            n_numbers * np.dtype(self.dtype).itemsize,
            f"a network with hidden_units={self.hidden_units}",
            "Choose fewer.",
        )
        team = join_team()
        if team is not None:
            return SharedObjective(team, seen, self._network(), **options)
        return Objective(seen, self._network(), **options)

    def _initial_edges(self, problem: Problem) -> EdgeDistribution:
        n_nodes, weights, team = problem.n_nodes, problem.weights, join_team()
        on_candidates = self.storage == "sparse" or (
            self.storage == "auto" and n_nodes > DENSE_UP_TO
        )
        if on_candidates:
            self._require_room_for_candidates(problem)
        else:
            self._require_room_for_all_pairs(n_nodes)
        pairs = problem.pairs
        if pairs is None:
            pairs = knn_pairs(problem.features, self.k, metric=self.metric)
            pairs = pairs if team is None else agreed(team, pairs)
        options: dict[str, Any] = {"dtype": getattr(torch, self.dtype), "device": self.device}
        if on_candidates:
            options["max_edges_per_node"] = self.max_edges_per_node
            if team is not None:
                return SharedCandidates(team, n_nodes, pairs, weights, **options)
            return GrowingEdges(n_nodes, pairs, weights, **options)
        if team is not None:
            return ShardedEdges(team, n_nodes, pairs, weights, **options)
        return DenseEdges(n_nodes, pairs, weights, **options)

    def _require_room_for_all_pairs(self, n_nodes: int) -> None:
        real = getattr(torch, self.dtype).itemsize
        require_memory(
            DENSE_COPIES * real * n_nodes * (n_nodes - 1) // 2 // machines(),
            f"a probability for each pair of {n_nodes} rows (storage='dense')",
            "Use storage='sparse', which is linear in the rows, or more machines (torchrun).",
        )

    def _require_room_for_candidates(self, problem: Problem) -> None:
        """Ask for what sparse storage takes at the least."""
        real = getattr(torch, self.dtype).itemsize
        candidate = 2 * np.dtype(np.int64).itemsize + real
        # Two products with the graph in each of tau + 1 losses, forth and back.
        unrolled = self.max_inner_steps if self.tau is None else self.tau
        rank = (2 * unrolled + 1) * (self.hidden_units + problem.n_classes)
        columns = 0 if issparse(problem.features) else problem.features.shape[1]
        a_row = real * (rank + columns) + CANDIDATE_COPIES * candidate * self.max_edges_per_node / 2
        require_memory(
            int(problem.n_nodes * a_row),
            f"a fit of {problem.n_nodes} rows with max_edges_per_node={self.max_edges_per_node} "
            f"and tau={self.tau}",
            "Lower max_edges_per_node, tau or hidden_units, or fit fewer rows.",
        )

    def _require_room_for_similarity(self, problem: Problem) -> None:
        """Ask for what candidates and denoising take at the least."""
        real = getattr(torch, self.dtype).itemsize
        double, index = np.dtype(np.float64).itemsize, np.dtype(np.int64).itemsize
        features, n_nodes = problem.features, problem.n_nodes
        n_pairs = n_nodes * min(N_CANDIDATES, n_nodes - 1) // 2
        # A pair's ends, probability, similarity, and what is between it and its derivative.
        candidates = n_pairs * (2 * index + real + 6 * double)
        # The features and their squares; dense ones standardised, and partly hidden, as well.
        table = (
            4 * double * features.size
            if isinstance(features, np.ndarray)
            else 2 * (double + index // 2) * features.nnz
        )
        # Two products, their activation, and the derivatives of these.
        activations = 6 * real * HIDDEN_UNITS * n_nodes
        require_memory(
            int(candidates + table + activations),
            f"edges='similarity' among {n_nodes} rows of {features.shape[1]} columns",
            "Fit fewer rows or columns, or use edges='free' with storage='sparse'.",
        )

    def _learn_similarity(
        self, problem: Problem, randomness: Randomness, keeper: Checkpoint | None
    ) -> Progress:
        if join_team() is not None:
            raise ValueError(
                "edges='similarity' has too few parameters to be divided among processes: start "
                "it without torchrun, or use edges='free'."
            )
        if problem.pairs is not None:
            raise ValueError(
                "edges='similarity' learns a graph from the features alone, but a graph was given: "
                "leave it out, or use edges='free'."
            )
        if self.batch_size is not None:
            raise ValueError(
                "edges='similarity' sees all rows at each step: use batch_size=None, or "
                "edges='free'."
            )
        options: dict[str, Any] = {"dtype": getattr(torch, self.dtype), "device": self.device}
        return learn_similarity(
            problem,
            self._objective,
            SimilarityEdges(
                problem.features, expected_degree=self.k, metric=self.metric, **options
            ),
            Denoiser(problem.features, randomness.weights, **options),
            SimilaritySchedule(
                learning_rate=self.inner_learning_rate,
                max_steps=self.max_inner_steps,
                patience=self.inner_patience,
            ),
            self._schedule(),
            randomness,
            self.callbacks or (),
            keeper,
        )

    def _schedule(self) -> Schedule:
        return Schedule(
            tau=self.tau,
            outer_learning_rate=self.outer_learning_rate,
            outer_decay=self.outer_decay,
            max_inner_steps=self.max_inner_steps,
            inner_patience=self.inner_patience,
            inner_tolerance=self.inner_tolerance,
            patience=self.patience,
            max_outer_iterations=self.max_outer_iterations,
            n_samples=self.n_samples,
            learn_inner_rate=self.learn_inner_rate,
            batch_size=self.batch_size,
        )

    def _refitted(self, problem: Problem, model: Model, randomness: Randomness) -> TrainedNetwork:
        """A network fitted on all labelled rows, for as many steps as the best."""
        everything = Split(np.flatnonzero(problem.labels >= 0), *[np.empty(0, np.int64)] * 2)
        full = replace(problem, split=everything)
        best = self.history_[model.iteration - 1]
        return train_network(
            full,
            self._objective(full),
            OPTIMIZERS[self.inner_optimizer](best["inner_learning_rate"]),
            lambda: model.edges.draw(randomness.graphs),
            randomness,
            stopping_rows=None,
            max_steps=int(best["inner_steps"]),
            n_samples=self.n_samples,
        )
