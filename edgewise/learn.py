"""Algorithm 1 of the paper: learn the edges' probabilities and the network's weights together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgewise.batches import Draws
from edgewise.bilevel.dynamics import Dynamics
from edgewise.bilevel.hypergradient import Hypergradient, unrolled_hypergradient
from edgewise.bilevel.lowrank import LowRank
from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.sampled import Graph
from edgewise.problem import Problem
from edgewise.snapshot import Stateful
from edgewise.train import Objective, Randomness, Score, Stalled, inner_steps, score

# Step of the inner learning rate's logarithm at an outer rate of 1: some ten per cent an outer
# iteration of 80 updates that all agree.
INNER_RATE_STEP = 0.01


@dataclass(frozen=True)
class Schedule:
    """When to do what, and how far to go; the defaults are the paper's.

    Attributes
    ----------
    tau : inner steps between two updates of the edges, and the length of the unrolled stretch.
        0 alternates (an update after each step, no unrolling); None unrolls the whole inner
        optimisation and updates once at its end.
    outer_learning_rate, outer_decay : the n-th update has rate ``eta / (1 + decay n)``.
    max_inner_steps, inner_patience, inner_tolerance : an inner optimisation ends after so many
        steps, or `inner_patience` of them without a relative decrease by `inner_tolerance`.
    patience : outer iterations without better early-stopping accuracy before it all ends.
    max_outer_iterations : an upper bound on their number.
    n_samples : graphs that a prediction is averaged over.
    learn_inner_rate : whether the learning rate of the inner dynamics is an outer variable too.
    batch_size : labelled rows that a step looks at, with their neighbourhoods; None for all. The
        inner loss is then the mean over as many steps as see all rows.
    """

    tau: int | None = 5
    outer_learning_rate: float = 1.0
    outer_decay: float = 1e-3
    max_inner_steps: int = 400
    inner_patience: int = 20
    inner_tolerance: float = 1e-3
    patience: int = 20
    max_outer_iterations: int = 1000
    n_samples: int = 16
    learn_inner_rate: bool = False
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.tau is not None and self.tau > self.max_inner_steps:
            raise ValueError(
                f"tau={self.tau} is more than max_inner_steps={self.max_inner_steps}, so the edges "
                "would never be updated: lower tau, allow more inner steps, or use tau=None (one "
                "update at the end of each inner optimisation)."
            )

    def outer_rate(self, update: int) -> float:
        return self.outer_learning_rate / (1.0 + self.outer_decay * update)

    @property
    def window(self) -> int | None:
        """Number of states that an unrolled stretch consists of."""
        return None if self.tau is None else self.tau + 1

    def is_due(self, step: int, last: bool) -> bool:
        """Whether the edges are updated after this inner step."""
        return last if self.tau is None else step % max(self.tau, 1) == 0


class Scores(NamedTuple):
    """Scores on each part of the labelled rows."""

    train: Score
    validation: Score
    early_stopping: Score

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], problem: Problem) -> Scores:
        split = problem.split
        parts = (split.train, split.validation, split.early_stopping)
        return cls(*(score(probabilities, problem.labels, rows) for rows in parts))


class Effort(NamedTuple):
    """What an outer iteration took."""

    inner_steps: int
    outer_updates: int
    inner_loss: float
    inner_learning_rate: float
    seconds: float


@dataclass(frozen=True)
class OuterIteration:
    """What one outer iteration (one restart of the inner dynamics) did, and where it led."""

    iteration: int
    inner_steps: int
    outer_updates: int
    inner_loss: float
    scores: Scores
    expected_edges: float
    inner_learning_rate: float
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """All of it as one flat record, as for a row of a table."""
        record = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "scores"}
        for part, value in self.scores._asdict().items():
            record[f"{part}_accuracy"], record[f"{part}_loss"] = value
        return record


@dataclass(frozen=True)
class Model:
    """A network, the distribution of its graph, and what they predict together."""

    weights: Tensor
    edges: EdgeDistribution
    probabilities: NDArray[np.float64]
    scores: Scores
    iteration: int


@dataclass
class Progress:
    """All that changes while learning, besides the edges and the random streams."""

    criterion: str = "accuracy"
    history: list[OuterIteration] = field(default_factory=list)
    best: Model | None = None
    updates: int = 0
    since_better: int = 0
    interrupted: bool = False

    def is_over(self, schedule: Schedule) -> bool:
        return (
            self.since_better >= schedule.patience
            or len(self.history) >= schedule.max_outer_iterations
        )

    def keep_if_better(
        self,
        weights: Tensor,
        edges: EdgeDistribution,
        probabilities: NDArray[np.float64],
        scores: Scores,
    ) -> None:
        """Keep the model if it is best on the early-stopping rows: by accuracy, then by loss."""
        self.since_better += 1
        rank = scores.early_stopping.rank(self.criterion)
        if self.best is not None:
            best = self.best.scores.early_stopping.rank(self.criterion)
            if rank <= best:
                return
        if self.best is None or rank[0] > best[0]:
            self.since_better = 0
        self.best = Model(weights, edges.copy(), probabilities, scores, len(self.history) + 1)

    def conclude(
        self,
        problem: Problem,
        edges: EdgeDistribution,
        weights: Tensor,
        probabilities: NDArray[np.float64],
        effort: Effort,
    ) -> None:
        """End an outer iteration: score what it led to, keep that if it is best, and note it."""
        scores = Scores.of(probabilities, problem)
        self.keep_if_better(weights, edges, probabilities, scores)
        expected, number = edges.expected_edges(), len(self.history) + 1
        self.history.append(
            OuterIteration(number, scores=scores, expected_edges=expected, **effort._asdict())
        )


class OuterTerm(Protocol):
    """A further term of the outer objective (see `edgewise.denoising.Denoiser`)."""

    def gradient(self, draw: Callable[[], Graph], rng: np.random.Generator) -> LowRank:
        """Derivative of the term by the edges."""


class Keeper(Protocol):
    """Keeps what is learned where it survives the process (see `edgewise.checkpoint`)."""

    def resume(self, progress: Progress, edges: EdgeDistribution, *others: Stateful) -> None:
        """Put everything to where an earlier run stopped, if there was one."""

    def keep(self, progress: Progress, edges: EdgeDistribution, *others: Stateful) -> None:
        """Keep the state of everything that changes, after an outer iteration."""


class Callback:
    """Looks on while a graph is learned; override what is of interest."""

    def after_update(self, edges: EdgeDistribution, progress: Progress) -> None:
        """After each update of the edges."""

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        """After each outer iteration; the last entry of ``progress.history`` tells about it."""


def learn(
    problem: Problem,
    objective: Objective,
    edges: EdgeDistribution,
    dynamics: Dynamics,
    schedule: Schedule,
    randomness: Randomness,
    callbacks: Sequence[Callback] = (),
    terms: Sequence[OuterTerm] = (),
    keeper: Keeper | None = None,
) -> Progress:
    """Algorithm 1. Changes `edges` (and, if learned, the rate of `dynamics`) in place.

    Equal early-stopping accuracies, the rule when there are few early-stopping rows, are decided
    by early-stopping loss; only a better accuracy resets the patience. An interrupt (Ctrl-C) ends
    the work with the best model so far. With a `keeper`, the state after each outer iteration is
    kept, and the work goes on where an earlier one stopped. (Terms with a state are not kept.)

    Returns
    -------
    Progress
        With the ``history`` and the ``best`` model.
    """
    progress = Progress()
    hops = objective.network.hops
    if keeper:
        keeper.resume(progress, edges, dynamics, randomness)

    try:
        while not progress.is_over(schedule):
            started, first_update = time.perf_counter(), progress.updates
            # Begun anew each time: a checkpoint need not know how far a round of batches is.
            draws = Draws(edges, randomness.graphs, problem.split, schedule.batch_size, hops)
            losses = deque[float](maxlen=draws.n_parts)
            start = dynamics.start(objective.initial_weights(randomness.weights))
            trajectory = deque([start], maxlen=schedule.window)
            stalled = Stalled(schedule.inner_patience, schedule.inner_tolerance)
            for state, loss in inner_steps(
                objective, dynamics, draws.inner, start, randomness.noise
            ):
                trajectory.append(state)
                losses.append(loss)
                ends = stalled(fmean(losses)) or state.count >= schedule.max_inner_steps
                if schedule.is_due(state.count, ends):
                    hypergradient = unrolled_hypergradient(
                        objective,
                        dynamics,
                        trajectory,
                        draws.inner_for_edges,
                        randomness.noise,
                        draws.outer,
                    )
                    require_finite(hypergradient, dynamics)
                    parts = [hypergradient.edges]
                    parts += [term.gradient(draws.whole, randomness.graphs) for term in terms]
                    eta = schedule.outer_rate(progress.updates)
                    edges.descend(LowRank.total(parts), eta)
                    if schedule.learn_inner_rate:
                        descend_inner_rate(dynamics, hypergradient.learning_rate, eta)
                    progress.updates += 1
                    for callback in callbacks:
                        callback.after_update(edges, progress)
                if ends:
                    break
            graphs = [draws.whole() for _ in range(schedule.n_samples)]
            predicted = objective.probabilities(state.weights, graphs)
            effort = Effort(
                inner_steps=state.count,
                outer_updates=progress.updates - first_update,
                inner_loss=fmean(losses),
                inner_learning_rate=dynamics.learning_rate,
                seconds=time.perf_counter() - started,
            )
            progress.conclude(problem, edges, state.weights, predicted, effort)
            if keeper:
                keeper.keep(progress, edges, dynamics, randomness)
            for callback in callbacks:
                callback.after_iteration(edges, progress)
    except KeyboardInterrupt:
        if progress.best is None:
            raise
        progress.interrupted = True
    return progress


def require_finite(hypergradient: Hypergradient, dynamics: Dynamics) -> None:
    """Stop before a diverged inner problem turns all probabilities into NaN."""
    if not (np.isfinite(hypergradient.outer_loss) and np.isfinite(hypergradient.edges.shift).all()):
        raise FloatingPointError(
            "the inner problem diverged: the outer loss or its derivative is not finite. Lower "
            f"inner_learning_rate (now {dynamics.learning_rate:g}), or scale the columns of X."
        )


def descend_inner_rate(dynamics: Dynamics, derivative: float, eta: float) -> None:
    """Descend on the logarithm of the inner learning rate, which keeps it positive."""
    relative = np.clip(dynamics.learning_rate * derivative, -1.0, 1.0)
    dynamics.learning_rate *= float(np.exp(-INNER_RATE_STEP * eta * relative))
