"""Losses, and the one loop that fits weights: the inner loop of LDS, and that of every baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.bilevel.dynamics import Dynamics, State
from edgewise.bilevel.losses import Derivatives, Linearised, Losses, flatten
from edgewise.graph.sampled import FixedMatrix, Graph, SparseOperator
from edgewise.nn.gcn import GCN
from edgewise.nn.gcn_derivatives import GCNLoss, LabelledLoss
from edgewise.nn.network import Features, Network
from edgewise.problem import Problem
from edgewise.snapshot import Snapshot


class Randomness:
    """The two streams of a run: NumPy's for graphs, PyTorch's for weights and dropout.

    Examples
    --------
    >>> Randomness(0).graphs.random() == Randomness(0).graphs.random()
    True
    """

    def __init__(self, seed: int | np.random.SeedSequence, device: str = "cpu") -> None:
        sequence = (
            seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        )
        graphs, weights, noise = sequence.spawn(3)
        self.graphs = np.random.default_rng(graphs)
        self.weights = _generator(weights, "cpu")
        self.noise = _generator(noise, device)

    def snapshot(self) -> Snapshot:
        """Where each of the streams is."""
        arrays = {
            "weights": self.weights.get_state().numpy().copy(),
            "noise": self.noise.get_state().numpy().copy(),
        }
        return Snapshot({"graphs": self.graphs.bit_generator.state}, arrays)

    def restore(self, snapshot: Snapshot) -> None:
        self.graphs.bit_generator.state = snapshot.settings["graphs"]
        self.weights.set_state(torch.from_numpy(np.array(snapshot.arrays["weights"])))
        self.noise.set_state(torch.from_numpy(np.array(snapshot.arrays["noise"])))


def _generator(sequence: np.random.SeedSequence, device: str) -> torch.Generator:
    seed = int(sequence.generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator(device).manual_seed(seed)


class Score(NamedTuple):
    """How well class probabilities fit the labels of some rows."""

    accuracy: float
    loss: float

    def rank(self, criterion: str) -> tuple[float, float]:
        """Greater is better: by "accuracy" or by "loss", ties decided by the other one."""
        if criterion == "accuracy":
            return self.accuracy, -self.loss
        return -self.loss, self.accuracy


class Objective(Losses):
    """The inner and the outer loss of the paper, as functions of flat weights and a graph.

    Parameters
    ----------
    problem : Problem
    network : Network
    weight_decay : float
        rho, the factor of the squared norm in the inner loss.
    dtype, device
        In which, and where, everything is computed.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        *,
        weight_decay: float = 2.5e-4,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.network = network
        self.weight_decay = weight_decay
        self.dtype = dtype
        self.device = torch.device(device)
        self.n_features = int(problem.features.shape[1])
        self.n_classes = problem.n_classes
        self.features = as_features(problem.features, dtype, self.device)
        self._table = problem.features
        self._labels = torch.tensor(problem.labels, device=self.device)
        self.train = self._labelled(problem, problem.split.train)
        self.validation = self._labelled(problem, problem.split.validation)
        self._shapes = [weight.shape for weight in self._fresh(torch.Generator())]

    def _labelled(self, problem: Problem, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return (
            torch.tensor(rows, device=self.device),
            torch.tensor(problem.labels[rows], device=self.device),
        )

    def initial_weights(self, generator: torch.Generator) -> Tensor:
        """Fresh weights as one flat vector."""
        return flatten(self._fresh(generator)).to(dtype=self.dtype, device=self.device)

    def _fresh(self, generator: torch.Generator) -> list[Tensor]:
        return self.network.initial_weights(self.n_features, self.n_classes, generator)

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """The network's weights as views of a flat vector."""
        sizes = [shape.numel() for shape in self._shapes]
        return [
            part.view(shape) for part, shape in zip(flat.split(sizes), self._shapes, strict=True)
        ]

    def leaves(self, flat: Tensor) -> list[Tensor]:
        """The network's weights as variables to differentiate by."""
        return [part.requires_grad_() for part in self.unflatten(flat.detach())]

    def inner(self, weights: Sequence[Tensor], graph: Graph, noise: torch.Generator) -> Tensor:
        """L: mean cross-entropy on the training rows, with dropout, plus weight decay."""
        logits = self.network.logits(weights, self._features_of(graph), graph, noise)
        rows, labels, factor = self._seen(graph, self.train)
        cross_entropy = torch.nn.functional.cross_entropy(logits[rows], labels)
        return factor * cross_entropy + self.weight_decay * self.network.penalty(weights)

    def outer(self, weights: Sequence[Tensor], graph: Graph) -> Tensor:
        """F: mean cross-entropy on the validation rows, nothing else."""
        rows, labels, factor = self._seen(graph, self.validation)
        logits = self.network.logits(weights, self._features_of(graph), graph)
        return factor * torch.nn.functional.cross_entropy(logits[rows], labels)

    def _seen(self, graph: Graph, labelled: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, float]:
        """The labelled rows that count, in the graph's numbers, their labels, and a factor.

        All rows, and 1; or the batch that the graph was drawn for, and the factor that makes the
        mean over all batches the mean over all rows.
        """
        batch = getattr(graph, "batch", None)  # whatever multiplies will do for a graph
        if batch is None:
            return *labelled, 1.0
        own, n_parts = batch
        place = own if graph.nodes is None else np.searchsorted(graph.nodes, own)
        rows = torch.from_numpy(place).to(self.device)
        factor = len(own) * n_parts / len(labelled[0])
        return rows, self._labels[torch.from_numpy(own).to(self.device)], factor

    def _features_of(self, graph: Graph) -> Features:
        nodes = getattr(graph, "nodes", None)
        if nodes is None:
            return self.features
        if isinstance(self.features, Tensor):
            return self.features[torch.from_numpy(nodes).to(self.device)]
        return as_features(self._table[nodes], self.dtype, self.device)

    def inner_gradient(
        self, flat: Tensor, graph: Graph, noise: torch.Generator
    ) -> tuple[float, Tensor]:
        if not self._has_closed_form(graph):
            return super().inner_gradient(flat, graph, noise)
        inner = self._gcn_loss(flat, graph, noise)
        return inner.value, inner.gradient

    def outer_gradient(self, flat: Tensor, graph: Graph) -> tuple[float, Derivatives]:
        if not self._has_closed_form(graph):
            return super().outer_gradient(flat, graph)
        outer = self._gcn_loss(flat, graph, None, everywhere=True)
        return outer.value, outer.derivatives()

    def linearise_inner(self, flat: Tensor, graph: Graph, noise: torch.Generator) -> Linearised:
        if not self._has_closed_form(graph):
            return super().linearise_inner(flat, graph, noise)
        return self._gcn_loss(flat, graph, noise, everywhere=True)

    def _has_closed_form(self, graph: Graph) -> bool:
        # A subclass, of either, may have changed what is computed.
        own = type(self)
        plain = own.inner is Objective.inner and own.outer is Objective.outer
        plain = plain and type(self.network) is GCN
        return plain and self.device.type == "cpu" and isinstance(graph.operator, SparseOperator)

    def _gcn_loss(
        self, flat: Tensor, graph: Graph, noise: torch.Generator | None, *, everywhere: bool = False
    ) -> GCNLoss:
        """The inner loss; the outer one without `noise`."""
        assert isinstance(self.network, GCN)
        rows, labels, factor = self._seen(graph, self.validation if noise is None else self.train)
        loss = LabelledLoss(rows, labels, factor=factor)
        if noise is not None:
            loss = loss._replace(weight_decay=self.weight_decay, dropout=self.network.dropout)
        weights, features = self.unflatten(flat), self._features_of(graph)
        return GCNLoss(loss, weights, features, graph, noise, everywhere=everywhere)

    @torch.no_grad()
    def probabilities(self, flat: Tensor, graphs: Sequence[Graph]) -> NDArray[np.float64]:
        """Class probabilities, averaged over graphs; shape (n_nodes, n_classes)."""
        weights = self.unflatten(flat)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for graph in graphs:
            logits = self.network.logits(weights, self.features, graph)
            total = total + torch.softmax(logits.to(torch.float64), dim=1)
        mean: NDArray[np.float64] = (total / len(graphs)).cpu().numpy()
        return mean


def as_features(table: Any, dtype: torch.dtype, device: torch.device) -> Features:
    """An array or a SciPy sparse matrix as a network sees it."""
    if isinstance(table, np.ndarray):
        # PyTorch shares memory with writable arrays only (those of pandas and joblib may not be).
        return torch.as_tensor(np.require(table, requirements="W"), dtype=dtype, device=device)
    return FixedMatrix.from_scipy(table, dtype, device)


def score(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], rows: NDArray[np.int64]
) -> Score:
    """Accuracy and mean log-loss of class probabilities on some rows."""
    chosen, truth = probabilities[rows], labels[rows]
    own = chosen[np.arange(len(rows)), truth]
    loss = -np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean()
    if np.isnan(loss):  # a network that diverged: no other is worse, which NaN would not say
        loss = np.inf
    return Score(float((chosen.argmax(axis=1) == truth).mean()), float(loss))


def inner_steps(
    objective: Objective,
    dynamics: Dynamics,
    draw: Callable[[], Graph],
    state: State,
    noise: torch.Generator,
) -> Iterator[tuple[State, float]]:
    """Descend on the inner loss, a graph from `draw` each step; yields each new state and loss."""
    while True:
        loss, gradient = objective.inner_gradient(state.weights, draw(), noise)
        state = dynamics.step(state, gradient)
        yield state, loss


class Stalled:
    """Tells when a loss has stopped to decrease.

    It has when for `patience` steps no value was below ``(1 - factor)`` times the best before.
    """

    def __init__(self, patience: int, factor: float = 1e-3) -> None:
        self.patience = patience
        self.factor = factor
        self.best = np.inf
        self.since = 0

    def __call__(self, loss: float) -> bool:
        if loss < self.best * (1.0 - self.factor):
            self.best, self.since = loss, 0
        else:
            self.since += 1
        return self.since >= self.patience


@dataclass(frozen=True)
class TrainedNetwork:
    """Weights, what they predict, and how far the training went."""

    weights: Tensor
    probabilities: NDArray[np.float64]
    steps: int
    stopping: Score | None


def train_network(
    problem: Problem,
    objective: Objective,
    dynamics: Dynamics,
    draw: Callable[[], Graph],
    randomness: Randomness,
    *,
    stopping_rows: NDArray[np.int64] | None,
    criterion: str = "loss",
    patience: int = 20,
    max_steps: int = 400,
    n_samples: int = 1,
    predict_under: Callable[[], Graph] | None = None,
) -> TrainedNetwork:
    """Fit the weights of a network on the training rows, under graphs that nobody learns.

    Parameters
    ----------
    draw : callable
        Gives the graph of each step: always the same one, or a fresh sample.
    stopping_rows : ndarray or None
        Rows on which the best weights are chosen; training ends `patience` steps after them.
        Without such rows it takes `max_steps` steps, and the last weights are kept.
    criterion : {"loss", "accuracy"}
        What is watched on the stopping rows.
    n_samples : int
        Graphs that the prediction is averaged over.
    predict_under : callable, optional
        Gives the graphs of evaluation and prediction, where they are not drawn as in training.
    """
    evaluate_under = predict_under or draw
    best: tuple[float, State, Score] | None = None
    since_better = 0
    start = dynamics.start(objective.initial_weights(randomness.weights))
    for state, _ in inner_steps(objective, dynamics, draw, start, randomness.noise):
        if stopping_rows is not None:
            predicted = objective.probabilities(state.weights, [evaluate_under()])
            now = score(predicted, problem.labels, stopping_rows)
            value = now.loss if criterion == "loss" else -now.accuracy
            since_better += 1
            if best is None or value < best[0]:
                best, since_better = (value, state, now), 0
        if state.count >= max_steps or since_better >= patience:
            break
    kept = state if best is None else best[1]
    graphs = [evaluate_under() for _ in range(n_samples)]
    return TrainedNetwork(
        kept.weights,
        objective.probabilities(kept.weights, graphs),
        kept.count,
        None if best is None else best[2],
    )
