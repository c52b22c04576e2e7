from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import edgewise.learn
from edgewise.bilevel.dynamics import SGD, Adam, Momentum
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.learn import (
    INNER_RATE_STEP,
    Callback,
    OuterIteration,
    Progress,
    Schedule,
    Scores,
    descend_inner_rate,
    learn,
)
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective, Randomness, Score, score

N, N_CLASSES = 60, 3


class Made:
    """A problem with features of little use, and a graph of true and of noisy edges.

    True edges join nodes of one class, noisy ones nodes of two.
    """

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        labels = np.arange(N) % N_CLASSES
        X = rng.normal(size=(N, 5))
        X[np.arange(N), labels] += 1.0
        same = labels[:, None] == labels
        upper = np.triu(np.ones((N, N), bool), 1)
        self.true = Pairs.fold(*np.nonzero(upper & same & (rng.random((N, N)) < 0.15)), N)
        self.noisy = Pairs.fold(*np.nonzero(upper & ~same & (rng.random((N, N)) < 0.07)), N)
        order = rng.permutation(N)
        split = Split(*(np.sort(order[a:b]) for a, b in ((0, 15), (15, 35), (35, 45))))
        self.pairs = Pairs.fold(
            np.append(self.true.rows, self.noisy.rows),
            np.append(self.true.cols, self.noisy.cols),
            N,
        )
        self.problem = Problem(X, labels, np.arange(N_CLASSES), split, self.pairs)


QUICK = Schedule(tau=5, max_inner_steps=20, max_outer_iterations=2, n_samples=3)


class Watched(DenseEdges):
    """Keeps the rates of its updates, and counts its samples."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.rates, self.n_drawn = [], 0

    def descend(self, gradient, rate):
        self.rates.append(rate)
        super().descend(gradient, rate)

    def draw(self, rng):
        self.n_drawn += 1
        return super().draw(rng)


class Slope:
    """A gradient of ones."""

    def __init__(self, n_nodes):
        self.shift = np.zeros(n_nodes, np.float32)

    def band(self, start, stop):
        return np.ones((stop - start, len(self.shift) - start), np.float32)


def run(schedule=QUICK, *, made=None, seed=0, dynamics=None, dtype=torch.float64, callbacks=()):
    made = made or Made()
    edges = Watched(N, made.pairs, dtype=dtype)
    objective = Objective(made.problem, GCN(8), dtype=dtype)
    progress = learn(
        made.problem,
        objective,
        edges,
        dynamics or Adam(0.02),
        schedule,
        Randomness(seed),
        callbacks,
    )
    return progress, edges


def probabilities(edges):
    return edges.probability(*np.triu_indices(N, 1))


def without_time(history):
    return [dataclasses.replace(entry, seconds=0.0) for entry in history]


class TestSchedule:
    def test_rate_of_the_nth_update(self):
        schedule = Schedule(outer_learning_rate=2.0, outer_decay=0.5)
        assert [schedule.outer_rate(n) for n in range(3)] == [2.0, 2.0 / 1.5, 1.0]

    @pytest.mark.parametrize(
        ("tau", "window", "due"),
        [
            (0, 1, [1, 2, 3, 4, 5, 6, 7]),
            (1, 2, [1, 2, 3, 4, 5, 6, 7]),
            (3, 4, [3, 6]),
            (None, None, [7]),
        ],
    )
    def test_when_updates_are_due(self, tau, window, due):
        schedule = Schedule(tau=tau)
        assert schedule.window == window
        assert [t for t in range(1, 8) if schedule.is_due(t, last=t == 7)] == due

    def test_defaults_are_the_papers(self):
        schedule = Schedule()
        assert (schedule.max_inner_steps, schedule.inner_patience) == (400, 20)
        assert (schedule.inner_tolerance, schedule.outer_decay) == (1e-3, 1e-3)
        assert (schedule.patience, schedule.n_samples) == (20, 16)


class TestAlgorithm:
    @pytest.mark.parametrize("tau", [0, 1, 5, 8, None])
    def test_numbers_of_steps_updates_and_samples(self, tau):
        schedule = dataclasses.replace(QUICK, tau=tau)
        progress, edges = run(schedule)
        updates = {0: 20, 1: 20, 5: 4, 8: 2, None: 1}[tau]
        for entry in progress.history:
            assert (entry.inner_steps, entry.outer_updates) == (20, updates)
        assert [entry.iteration for entry in progress.history] == [1, 2]
        assert progress.updates == 2 * updates
        # A graph for each inner step, each outer loss, each unrolled step, each predicted sample.
        unrolled = 20 if tau is None else tau
        assert edges.n_drawn == 2 * (20 + updates * (1 + unrolled) + 3)
        # The rate decays over all updates, restarts notwithstanding.
        assert edges.rates == [1.0 / (1.0 + 1e-3 * n) for n in range(2 * updates)]

    @pytest.mark.parametrize("tau", [0, 5, None])
    def test_each_update_unrolls_the_last_tau_steps_of_this_restart(self, tau, monkeypatch):
        seen = []

        def spy(losses, dynamics, trajectory, *draws):
            seen.append([state.count for state in trajectory])
            return original(losses, dynamics, trajectory, *draws)

        original = edgewise.learn.unrolled_hypergradient
        monkeypatch.setattr(edgewise.learn, "unrolled_hypergradient", spy)
        run(dataclasses.replace(QUICK, tau=tau, max_inner_steps=12))
        expected = {
            0: [[t] for t in range(1, 13)],
            5: [[0, 1, 2, 3, 4, 5], [5, 6, 7, 8, 9, 10]],
            None: [list(range(13))],
        }[tau]
        assert seen == 2 * expected

    def test_the_inner_optimisation_ends_when_it_stalls(self):
        stuck = dataclasses.replace(QUICK, inner_patience=4, inner_tolerance=0.9)
        progress, _ = run(stuck)
        # No loss falls to a tenth of the first so soon: four more steps follow, with it the last.
        assert [entry.inner_steps for entry in progress.history] == [5, 5]
        assert [entry.outer_updates for entry in progress.history] == [1, 1]

    def test_restarts_from_fresh_weights(self, monkeypatch):
        starts = []
        original = Objective.initial_weights

        def spy(self, generator):
            starts.append(original(self, generator))
            return starts[-1]

        monkeypatch.setattr(Objective, "initial_weights", spy)
        run(dataclasses.replace(QUICK, max_outer_iterations=3))
        assert len(starts) == 3
        assert not torch.equal(starts[0], starts[1])

    def test_history_tells_what_the_model_predicts(self):
        progress, edges = run(dataclasses.replace(QUICK, max_outer_iterations=1))
        (entry,), best, problem = progress.history, progress.best, Made().problem
        for part in ("train", "validation", "early_stopping"):
            rows = getattr(problem.split, part)
            expected = score(best.probabilities, problem.labels, rows)
            assert getattr(entry.scores, part) == getattr(best.scores, part) == expected
        assert entry.expected_edges == edges.expected_edges()
        assert entry.inner_learning_rate == 0.02
        assert entry.seconds > 0.0
        assert np.isfinite(entry.inner_loss)
        record = entry.as_dict()
        assert record["early_stopping_accuracy"] == entry.scores.early_stopping.accuracy
        assert record["validation_loss"] == entry.scores.validation.loss
        assert record["iteration"] == 1
        assert not [name for name, value in record.items() if not isinstance(value, int | float)]

    @pytest.mark.parametrize("dynamics", [SGD(0.3), Momentum(0.05), Adam(0.02)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_any_dynamics_in_any_precision(self, dynamics, dtype):
        progress, edges = run(dynamics=dynamics, dtype=dtype)
        theta = probabilities(edges)
        assert theta.dtype == (np.float32 if dtype == torch.float32 else np.float64)
        assert np.all((theta >= 0.0) & (theta <= 1.0))
        assert progress.best.weights.dtype == dtype
        assert np.isfinite([entry.inner_loss for entry in progress.history]).all()
        assert (theta != probabilities(DenseEdges(N, Made().pairs))).any()


class TestEnd:
    @staticmethod
    def scores(accuracy, loss):
        other = Score(0.0, 0.0)
        return Scores(other, other, Score(accuracy, loss))

    def offer(self, *offers):
        """Whether each model was kept, and the patience used up after it."""
        progress, edges = Progress(), DenseEdges(2, Pairs.fold([], [], 2))
        kept = []
        for number, offered in enumerate(offers):
            weights = torch.tensor([float(number)])
            progress.keep_if_better(weights, edges, np.zeros((2, 1)), self.scores(*offered))
            kept.append((progress.best.weights is weights, progress.since_better))
        return kept

    def test_ties_are_decided_by_loss_but_only_accuracy_counts_for_patience(self):
        offers = [(0.8, 0.5), (0.8, 0.4), (0.8, 0.45), (0.7, 0.1), (0.9, 2.0), (0.9, 2.0)]
        kept = self.offer(*offers)
        assert kept == [(True, 0), (True, 1), (False, 2), (False, 3), (True, 0), (False, 1)]

    def test_a_network_that_diverged_never_wins_a_tie(self):
        lost = score(np.full((2, 2), np.nan), np.array([0, 1]), np.array([0, 1]))
        kept = self.offer((lost.accuracy, 9.0), lost, (lost.accuracy, 8.0))
        assert [was for was, _ in kept] == [True, False, True]
        kept = self.offer(lost, (lost.accuracy, 9.0), lost)
        assert [was for was, _ in kept] == [True, True, False]

    def test_the_kept_model_is_a_snapshot(self):
        edges, progress = DenseEdges(3, Pairs.fold([0], [1], 3)), Progress()
        progress.keep_if_better(torch.zeros(1), edges, np.zeros((3, 1)), self.scores(1.0, 0.0))
        assert progress.best.iteration == 1
        edges.descend(Slope(3), 1.0)
        assert edges.expected_edges() == 0.0
        assert progress.best.edges.expected_edges() == 1.0

    def test_patience_and_the_upper_bound(self):
        progress = Progress(since_better=3)
        assert progress.is_over(Schedule(patience=3))
        assert not progress.is_over(Schedule(patience=4))
        entry = OuterIteration(1, 1, 1, 0.0, self.scores(0.0, 0.0), 0.0, 0.1, 0.0)
        progress = Progress(history=[entry] * 5)
        assert progress.is_over(Schedule(max_outer_iterations=5))
        assert not progress.is_over(Schedule(max_outer_iterations=6))

    def test_learning_ends_by_patience(self):
        schedule = dataclasses.replace(
            QUICK, max_outer_iterations=50, patience=3, max_inner_steps=10
        )
        progress, _ = run(schedule)
        accuracies = [entry.scores.early_stopping.accuracy for entry in progress.history]
        best = int(np.argmax(accuracies))
        assert len(accuracies) == best + 1 + 3
        tied = [
            entry
            for entry in progress.history
            if entry.scores.early_stopping.accuracy == accuracies[best]
        ]
        winner = min(tied, key=lambda entry: entry.scores.early_stopping.loss)
        assert progress.best.iteration == winner.iteration
        assert progress.best.scores == winner.scores
        assert not progress.interrupted


class TestRandomness:
    @pytest.mark.parametrize("tau", [0, 5])
    def test_a_seed_repeats_bit_for_bit(self, tau):
        schedule = dataclasses.replace(QUICK, tau=tau, learn_inner_rate=True)
        (one, edges), (two, same) = run(schedule), run(schedule)
        assert without_time(one.history) == without_time(two.history)
        assert_array_equal(probabilities(edges), probabilities(same))
        assert torch.equal(one.best.weights, two.best.weights)
        assert_array_equal(one.best.probabilities, two.best.probabilities)
        other, _ = run(schedule, seed=1)
        assert without_time(other.history) != without_time(one.history)

    def test_no_global_random_state_is_read_or_written(self):
        histories = []
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
            histories.append(without_time(run()[0].history))
            assert random.getstate() == before[0]
            assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
            assert torch.equal(torch.get_rng_state(), before[2])
        assert histories[0] == histories[1]

    def test_single_and_double_precision_agree_roughly(self):
        """A few updates by plain gradient descent, before rounding can turn a coin over."""
        schedule = dataclasses.replace(
            QUICK, max_outer_iterations=1, max_inner_steps=10, outer_learning_rate=5.0
        )
        (double, edges), (single, rounded) = (
            run(schedule, dynamics=SGD(0.2), dtype=dtype)
            for dtype in (torch.float64, torch.float32)
        )
        assert double.history[0].outer_updates == 2
        assert single.history[0].inner_loss == pytest.approx(double.history[0].inner_loss, rel=1e-2)
        assert_allclose(probabilities(rounded), probabilities(edges), atol=2e-2)
        moved = np.abs(probabilities(edges) - probabilities(DenseEdges(N, Made().pairs)))
        assert moved.max() > 0.1, "there is something to compare"
        assert_allclose(single.best.probabilities, double.best.probabilities, atol=0.05)


class TestCallbacks:
    def test_see_every_update_and_every_iteration(self):
        class Log(Callback):
            def __init__(self):
                self.seen = []

            def after_update(self, edges, progress):
                self.seen.append(("update", progress.updates, edges.expected_edges()))

            def after_iteration(self, edges, progress):
                self.seen.append(("iteration", len(progress.history), edges.expected_edges()))
                assert progress.history[-1].expected_edges == edges.expected_edges()
                assert progress.best is not None

        log, second = Log(), Log()
        run(callbacks=[log, second])
        kinds = [(kind, number) for kind, number, _ in log.seen]
        updates = [("update", number) for number in range(1, 9)]
        assert kinds == [*updates[:4], ("iteration", 1), *updates[4:], ("iteration", 2)]
        assert log.seen == second.seen
        assert len({edges for _, _, edges in log.seen}) > 4, "the edges change in between"

    def test_looking_on_changes_nothing(self):
        assert without_time(run()[0].history) == without_time(
            run(callbacks=[Callback()])[0].history
        )


class TestInterrupt:
    class AtUpdate(Callback):
        def __init__(self, number):
            self.number = number

        def after_update(self, edges, progress):
            if progress.updates == self.number:
                raise KeyboardInterrupt

    def test_keeps_the_best_model_so_far(self):
        schedule = dataclasses.replace(QUICK, max_outer_iterations=10)
        progress, _ = run(schedule, callbacks=[self.AtUpdate(10)])
        assert progress.interrupted
        assert len(progress.history) == 2
        whole, _ = run(QUICK)
        assert progress.best.iteration == whole.best.iteration
        assert torch.equal(progress.best.weights, whole.best.weights)
        assert_array_equal(probabilities(progress.best.edges), probabilities(whole.best.edges))

    def test_before_there_is_a_model_is_an_interrupt(self):
        with pytest.raises(KeyboardInterrupt):
            run(callbacks=[self.AtUpdate(2)])

    def test_other_errors_are_not_swallowed(self):
        class Fails(Callback):
            def after_iteration(self, edges, progress):
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            run(callbacks=[Fails()])


class TestInnerRate:
    def test_descends_on_the_logarithm(self):
        dynamics = SGD(0.5)
        descend_inner_rate(dynamics, 0.4, eta=1.0)
        assert dynamics.learning_rate == pytest.approx(0.5 * np.exp(-INNER_RATE_STEP * 0.2))
        descend_inner_rate(dynamics, -1e9, eta=0.5)
        clipped = 0.5 * np.exp(-INNER_RATE_STEP * 0.2) * np.exp(INNER_RATE_STEP * 0.5)
        assert dynamics.learning_rate == pytest.approx(clipped)

    @pytest.mark.parametrize("tau", [5, None])
    def test_is_learned_only_when_asked_for(self, tau):
        schedule = dataclasses.replace(QUICK, tau=tau)
        progress, _ = run(schedule)
        assert [entry.inner_learning_rate for entry in progress.history] == [0.02, 0.02]
        dynamics = Adam(0.02)
        learned = dataclasses.replace(schedule, learn_inner_rate=True)
        progress, _ = run(learned, dynamics=dynamics)
        rates = [entry.inner_learning_rate for entry in progress.history]
        assert len({0.02, *rates}) == 3
        assert rates[-1] == dynamics.learning_rate > 0.0

    def test_a_rate_too_small_grows(self):
        dynamics = SGD(1e-3)
        schedule = dataclasses.replace(QUICK, learn_inner_rate=True, outer_learning_rate=10.0)
        run(schedule, dynamics=dynamics)
        assert dynamics.learning_rate > 1e-3


class TestLearning:
    """On the made-up problem, the algorithm does what it is for."""

    schedule = Schedule(
        tau=5, outer_learning_rate=1.0, max_inner_steps=100, max_outer_iterations=4, n_samples=8
    )

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_improves_the_outer_loss_and_removes_noise_before_truth(self, seed):
        made = Made(seed)
        still = dataclasses.replace(self.schedule, outer_learning_rate=0.0, max_outer_iterations=1)
        before, fixed = run(still, made=made, seed=seed)
        assert fixed.expected_edges() == made.pairs.n_pairs, "a rate of 0 leaves the graph alone"
        after, edges = run(self.schedule, made=made, seed=seed)
        first, last = before.history[-1].scores, after.history[-1].scores
        assert last.validation.loss < 0.5 * first.validation.loss
        true, noisy = (1.0 - edges.probability(*p).mean() for p in (made.true, made.noisy))
        assert noisy > 2.0 * true
        assert noisy > 0.1

    def test_added_edges_join_equals(self):
        made = Made(0)
        _, edges = run(self.schedule, made=made)
        pairs, probability = edges.above(0.0)
        given = set(zip(*made.pairs, strict=True))
        new = np.array([pair not in given for pair in zip(*pairs, strict=True)])
        same = made.problem.labels[pairs.rows] == made.problem.labels[pairs.cols]
        weight = probability * new
        share = (weight * same).sum() / weight.sum()
        assert share > 0.5, "by chance it is a third"


def test_nodes_without_edges_or_features_and_a_single_class_make_no_nan():
    made = Made()
    made.problem.features[:20] = 0.0
    progress, _ = run(made=made)
    assert np.isfinite(progress.best.probabilities).all()

    lonely = Made()
    lonely.pairs = Pairs.fold([], [], N)
    progress, edges = run(made=lonely, dtype=torch.float32)
    assert np.isfinite(progress.best.probabilities).all()
    assert np.isfinite(probabilities(edges)).all()

    single = Made()
    single.problem = dataclasses.replace(
        single.problem, labels=np.zeros(N, np.int64), classes=np.arange(1)
    )
    progress, edges = run(made=single)
    assert_array_equal(progress.best.probabilities, np.ones((N, 1)))
    assert edges.expected_edges() == single.pairs.n_pairs, "nothing to learn, nothing changed"
