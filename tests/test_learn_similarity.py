"""The recipe for edges from features on a made-up problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgewise.denoising import Denoiser
from edgewise.graph.similarity import SimilarityEdges
from edgewise.learn import Callback, Schedule
from edgewise.learn_similarity import (
    SimilaritySchedule,
    _on_all_labels,
    _rotated,
    learn_similarity,
)
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective, Randomness

BRIEF = SimilaritySchedule(
    warm_steps=30, check_interval=10, rotations=1, rotation_steps=20, max_steps=60
)


@pytest.fixture
def problem():
    """Two classes told apart by the first two of ten columns; the others are noise."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 40)
    features = rng.normal(size=(80, 10))
    features[:, :2] += 3.0 * labels[:, None]
    rows = np.concatenate([rng.permutation(40), 40 + rng.permutation(40)]).reshape(2, 40)
    split = Split(*(np.sort(rows[:, a : a + 4].ravel()) for a in (0, 4, 8)))
    known = np.full(80, -1)
    seen = np.concatenate([split.train, split.validation, split.early_stopping])
    known[seen] = labels[seen]
    return Problem(features, known, np.arange(2), split)


def run(problem, callbacks=()):
    randomness = Randomness(0)
    edges = SimilarityEdges(
        problem.features, n_candidates=10, expected_degree=6, metric="euclidean", scale=2.0
    )
    denoiser = Denoiser(problem.features, randomness.weights, hidden_units=8)

    def objective(divided):
        return Objective(divided, GCN(8))

    inner = Schedule(n_samples=4)
    return learn_similarity(
        problem, objective, edges, denoiser, BRIEF, inner, randomness, callbacks
    )


def test_predicts_what_was_hidden(problem):
    progress = run(problem)
    truth = np.repeat([0, 1], 40)
    assert (progress.best.probabilities.argmax(axis=1) == truth).mean() > 0.9
    assert len(progress.history) == 1 + 3 + 1
    assert progress.updates == 30 + 4


def test_keeps_the_lowest_early_stopping_loss(problem):
    progress = run(problem)
    losses = [entry.scores.early_stopping.loss for entry in progress.history]
    assert progress.best.scores.early_stopping.loss == min(losses)
    assert progress.best.iteration == 1 + int(np.argmin(losses))


def test_repeats_bit_for_bit(problem):
    first, second = run(problem), run(problem)
    np.testing.assert_array_equal(first.best.probabilities, second.best.probabilities)
    assert torch.equal(first.best.weights, second.best.weights)


def test_roles_of_the_rows(problem):
    split = problem.split
    labelled = np.union1d(split.train, split.validation)
    np.testing.assert_array_equal(_on_all_labels(problem).split.train, labelled)
    rotated = _rotated(problem, np.random.default_rng(0)).split
    np.testing.assert_array_equal(np.union1d(rotated.train, rotated.validation), labelled)
    assert not set(rotated.train) & set(rotated.validation)
    np.testing.assert_array_equal(rotated.early_stopping, split.early_stopping)


def test_an_interrupt_keeps_the_best(problem):
    class Impatient(Callback):
        def after_iteration(self, edges, progress):
            if len(progress.history) == 2:
                raise KeyboardInterrupt

    progress = run(problem, [Impatient()])
    assert progress.interrupted
    assert len(progress.history) == 2
    assert progress.best is not None
