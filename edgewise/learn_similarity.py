"""Edges from features: a start without labels, then few steps of the hypergradient.

Free edges over-fit the outer loss within one outer iteration. Edges that are a function of the
features have few parameters, and a denoising term (`edgewise.denoising`) that sees all rows can
move them before any label does:

1. Warm start: descend on the denoising loss alone.
2. Rotations: outer iterations of Algorithm 1 on hypergradient plus denoising gradient, each with
   the labelled rows (training and validation together) divided anew into inner and outer halves.

All along, a network is fitted on all labelled rows under the edges reached, and its loss on the
early-stopping rows decides which edges are kept. The prediction is the mean over several graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgewise.bilevel.dynamics import Adam
from edgewise.denoising import Denoiser
from edgewise.graph.sampled import Graph
from edgewise.graph.similarity import SimilarityEdges
from edgewise.learn import (
    Callback,
    Effort,
    Keeper,
    Progress,
    Schedule,
    learn,
)
from edgewise.problem import Problem, Split
from edgewise.train import Objective, Randomness, TrainedNetwork, score, train_network


@dataclass(frozen=True)
class SimilaritySchedule:
    """How long each part takes.

    Attributes
    ----------
    warm_steps : steps of the warm start.
    check_interval : steps between two looks at the early-stopping loss.
    rotations : outer iterations with labels.
    rotation_rate : their learning rate, relative to that of the warm start.
    rotation_steps : inner steps of one of them, at most.
    learning_rate, max_steps, patience : of the networks fitted on all labelled rows.
    """

    warm_steps: int = 400
    check_interval: int = 100
    rotations: int = 3
    rotation_rate: float = 0.3
    rotation_steps: int = 200
    learning_rate: float = 0.01
    max_steps: int = 400
    patience: int = 20

    def stages(self) -> list[int | None]:
        """What comes before each look: steps of the warm start, or (None) a rotation.

        Examples
        --------
        >>> SimilaritySchedule(warm_steps=25, check_interval=10, rotations=2).stages()
        [0, 10, 10, 5, None, None]
        """
        starts = range(0, self.warm_steps, self.check_interval)
        warm = [min(self.check_interval, self.warm_steps - start) for start in starts]
        return [0, *warm, *[None] * self.rotations]


def learn_similarity(
    problem: Problem,
    make_objective: Callable[[Problem], Objective],
    edges: SimilarityEdges,
    denoiser: Denoiser,
    schedule: SimilaritySchedule,
    inner: Schedule,
    randomness: Randomness,
    callbacks: Sequence[Callback] = (),
    keeper: Keeper | None = None,
) -> Progress:
    """Learn the parameters of `edges`, in place; the best model is ``progress.best``.

    With a `keeper`, the state after each look is kept, and an earlier run is gone on with.

    Parameters
    ----------
    make_objective : callable
        Gives the losses for a division of the labelled rows.
    inner : Schedule
        Of the outer iterations with labels; its rates and lengths are replaced.
    """
    progress = Progress(criterion="loss")
    check_seed = int(randomness.graphs.integers(2**31))
    everything = _on_all_labels(problem)
    objective = make_objective(everything)

    def draw() -> Graph:
        return edges.draw(randomness.graphs)

    def check() -> TrainedNetwork:
        # The same random streams each time: what differs between two looks is the edges.
        streams = Randomness(check_seed, str(objective.device))
        return train_network(
            everything,
            objective,
            Adam(schedule.learning_rate),
            lambda: edges.draw(streams.graphs),
            streams,
            stopping_rows=problem.split.early_stopping,
            patience=schedule.patience,
            max_steps=schedule.max_steps,
            n_samples=inner.n_samples,
        )

    def warm_start(steps: int) -> int:
        for _ in range(steps):
            edges.descend(denoiser.gradient(draw, randomness.graphs), 1.0)
        return steps

    def rotation() -> int:
        rotated = _rotated(problem, randomness.graphs)
        one = replace(
            inner,
            outer_learning_rate=schedule.rotation_rate,
            max_inner_steps=schedule.rotation_steps,
            max_outer_iterations=1,
        )
        dynamics = Adam(schedule.learning_rate)
        divided = make_objective(rotated)
        part = learn(rotated, divided, edges, dynamics, one, randomness, terms=[denoiser])
        return part.updates

    if keeper:
        keeper.resume(progress, edges, denoiser, randomness)
    try:
        for steps in schedule.stages()[len(progress.history) :]:
            started = time.perf_counter()
            updates = rotation() if steps is None else warm_start(steps)
            progress.updates += updates
            fitted = check()
            loss = score(fitted.probabilities, problem.labels, problem.split.train).loss
            seconds = time.perf_counter() - started
            effort = Effort(fitted.steps, updates, loss, schedule.learning_rate, seconds)
            progress.conclude(problem, edges, fitted.weights, fitted.probabilities, effort)
            if keeper:
                keeper.keep(progress, edges, denoiser, randomness)
            for callback in callbacks:
                callback.after_iteration(edges, progress)
    except KeyboardInterrupt:
        if progress.best is None:
            raise
        progress.interrupted = True
    return progress


def _on_all_labels(problem: Problem) -> Problem:
    """The problem with training and validation rows together as training rows."""
    split = problem.split
    labelled = np.union1d(split.train, split.validation)
    return replace(problem, split=replace(split, train=labelled))


def _rotated(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with training and validation rows mixed and halved anew."""
    split = problem.split
    mixed = rng.permutation(np.concatenate([split.train, split.validation]))
    half = len(mixed) // 2
    first, second = np.sort(mixed[:half]), np.sort(mixed[half:])
    return replace(problem, split=Split(first, second, split.early_stopping))
