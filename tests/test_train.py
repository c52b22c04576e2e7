from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from edgewise.bilevel.dynamics import SGD, Adam
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import (
    Objective,
    Randomness,
    Stalled,
    flatten,
    inner_steps,
    score,
    train_network,
)

N = 40
DTYPES = [torch.float32, torch.float64]


def a_problem(form=np.asarray, real=np.float64, n_classes=3):
    """Classes that features tell apart, and neighbours that mostly share theirs."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % n_classes
    X = rng.normal(size=(N, 8))
    X[np.arange(N), labels] += 2.0
    order = rng.permutation(N)
    split = Split(*(np.sort(order[a:b]) for a, b in ((0, 12), (12, 22), (22, 32))))
    return Problem(form(X.astype(real)), labels, np.arange(n_classes), split)


def a_graph(dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(N - 1), 2)  # the last node is isolated
    return Graph.from_pairs(
        Pairs.fold(rows, (rows + 3 * rng.integers(1, 12, len(rows))) % (N - 1), N), N, dtype=dtype
    )


def an_objective(problem=None, dtype=torch.float64, **options):
    return Objective(problem or a_problem(), GCN(6), dtype=dtype, **options)


def softmax(logits):
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponential / exponential.sum(axis=1, keepdims=True)


class TestRandomness:
    def test_repeats_with_the_seed_and_differs_between_seeds(self):
        def drawn(seed):
            streams = Randomness(seed)
            return (
                streams.graphs.random(),
                torch.rand((), generator=streams.weights).item(),
                torch.rand((), generator=streams.noise).item(),
            )

        assert drawn(3) == drawn(3) == drawn(np.random.SeedSequence(3))
        assert not set(drawn(3)) & set(drawn(4))

    def test_streams_are_independent_of_how_much_others_gave(self):
        one, two = Randomness(0), Randomness(0)
        one.graphs.random(100)
        torch.rand(100, generator=one.weights)
        assert torch.equal(torch.rand(5, generator=one.noise), torch.rand(5, generator=two.noise))

    def test_its_generators_are_its_own(self):
        streams = Randomness(0)
        assert not torch.equal(
            torch.rand(9, generator=streams.weights), torch.rand(9, generator=streams.noise)
        )


class TestObjective:
    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_losses_are_those_of_the_paper(self, form, dtype):
        problem = a_problem(form)
        objective = Objective(problem, GCN(6, dropout=0.0), weight_decay=0.01, dtype=dtype)
        flat = objective.initial_weights(torch.Generator().manual_seed(1))
        weights, graph = objective.unflatten(flat), a_graph(dtype)
        A = (graph @ torch.eye(N, dtype=dtype)).detach().double().numpy()
        W1, W2 = (weight.double().numpy() for weight in weights)
        logits = A @ np.maximum(A @ a_problem().features @ W1, 0.0) @ W2
        log_loss = -np.log(softmax(logits)[np.arange(N), problem.labels])
        split, tolerance = problem.split, 1e-5 if dtype == torch.float32 else 1e-12
        inner = objective.inner(weights, graph, torch.Generator()).item()
        expected = log_loss[split.train].mean() + 0.01 * (W1**2).sum()
        assert inner == pytest.approx(expected, rel=tolerance)
        outer = objective.outer(weights, graph).item()
        assert outer == pytest.approx(log_loss[split.validation].mean(), rel=tolerance)
        predicted = objective.probabilities(flat, [graph])
        assert_allclose(predicted, softmax(logits), rtol=100 * tolerance)
        assert predicted.dtype == np.float64

    def test_dropout_is_in_the_inner_loss_only(self):
        objective = an_objective()
        weights = objective.unflatten(objective.initial_weights(torch.Generator().manual_seed(1)))
        noise, graph = torch.Generator().manual_seed(0), a_graph()
        one, two = (objective.inner(weights, graph, noise).item() for _ in range(2))
        assert one != two
        assert one == objective.inner(weights, graph, noise.manual_seed(0)).item()
        assert objective.outer(weights, graph).item() == objective.outer(weights, graph).item()

    def test_inner_gradient_is_the_derivative_of_the_inner_loss(self):
        objective = an_objective(weight_decay=0.05)
        flat = objective.initial_weights(torch.Generator().manual_seed(1))
        noise, graph, h = torch.Generator(), a_graph(), 1e-6
        loss, gradient = objective.inner_gradient(flat, graph, noise.manual_seed(5))

        def inner(values):
            return objective.inner(objective.unflatten(values), graph, noise.manual_seed(5)).item()

        assert loss == pytest.approx(inner(flat), rel=1e-14)
        assert not gradient.requires_grad
        for e in np.random.default_rng(0).choice(len(flat), 10, replace=False):
            bump = torch.zeros_like(flat)
            bump[e] = h
            difference = (inner(flat + bump) - inner(flat - bump)) / (2.0 * h)
            assert float(gradient[e]) == pytest.approx(difference, rel=1e-4, abs=1e-8)

    def test_weights_flat_and_in_shape(self):
        objective = an_objective()
        flat = objective.initial_weights(torch.Generator().manual_seed(1))
        assert [tuple(weight.shape) for weight in objective.unflatten(flat)] == [(8, 6), (6, 3)]
        assert torch.equal(flatten(objective.unflatten(flat)), flat)
        leaves = objective.leaves(flat)
        assert all(leaf.is_leaf and leaf.requires_grad for leaf in leaves)
        assert not flat.requires_grad
        assert flat.dtype == objective.dtype

    def test_probabilities_are_averaged_over_graphs(self):
        objective = an_objective()
        flat = objective.initial_weights(torch.Generator().manual_seed(1))
        graphs = [a_graph(seed=seed) for seed in range(3)]
        mean = np.mean([objective.probabilities(flat, [graph]) for graph in graphs], axis=0)
        together = objective.probabilities(flat, graphs)
        assert_allclose(together, mean, rtol=1e-13)
        assert_allclose(together.sum(axis=1), 1.0)

    def test_rows_without_features_or_neighbours_get_the_uniform_prior(self):
        problem = a_problem()
        problem.features[-1] = 0.0
        objective = an_objective(problem)
        flat = objective.initial_weights(torch.Generator().manual_seed(1))
        assert_allclose(objective.probabilities(flat, [a_graph()])[-1], 1.0 / 3.0)

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_read_only_arrays_are_welcome(self, form, dtype):
        """Those of pandas and of joblib's memory maps. PyTorch would warn, once a process."""
        real = np.float32 if dtype == torch.float32 else np.float64
        problem = a_problem(form, real)
        X, split = problem.features, problem.split
        arrays = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
        for array in (*arrays, problem.labels, split.train, split.validation):
            array.setflags(write=False)
        always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            objective = an_objective(problem, dtype)
            flat = objective.initial_weights(torch.Generator())
            objective.inner_gradient(flat, a_graph(dtype), torch.Generator())
        finally:
            torch.set_warn_always(always)


class TestScore:
    def test_accuracy_and_log_loss_on_the_rows(self):
        probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]])
        labels = np.array([0, 0, -1, 1])
        accuracy, loss = score(probabilities, labels, np.array([0, 1, 3]))
        assert accuracy == pytest.approx(2.0 / 3.0)
        assert loss == pytest.approx(-np.log([0.8, 0.4, 0.9]).mean())

    def test_a_certain_error_costs_much_but_not_infinitely(self):
        accuracy, loss = score(np.array([[1.0, 0.0]]), np.array([1]), np.array([0]))
        assert accuracy == 0.0
        assert 100.0 < loss < np.inf

    def test_a_network_that_diverged_has_the_worst_loss(self):
        probabilities = np.array([[0.5, 0.5], [np.nan, np.nan]])
        assert score(probabilities, np.array([0, 1]), np.array([0, 1])).loss == np.inf
        assert score(probabilities, np.array([0, 1]), np.array([0])).loss < 1.0


class TestStalled:
    # Close to each other, so that a decrease is often one of less than the factor.
    losses = st.lists(
        st.integers(0, 20).map(lambda tenths: tenths / 10.0) | st.just(float("nan")), max_size=60
    )

    @given(losses, st.integers(1, 8), st.sampled_from([0.0, 1e-3, 0.3]))
    def test_is_true_after_as_many_steps_without_progress(self, losses, patience, factor):
        """Against the definition, evaluated anew at each step on the whole past."""
        stalled = Stalled(patience, factor)
        for t in range(len(losses)):
            progress, best = [-1], np.inf
            for s, loss in enumerate(losses[: t + 1]):
                if loss < (1.0 - factor) * best:
                    best = loss
                    progress.append(s)
            assert stalled(losses[t]) == (t - progress[-1] >= patience)

    @given(st.integers(1, 30))
    def test_constant_and_falling_losses(self, patience):
        constant, falling = Stalled(patience), Stalled(patience)
        assert [constant(1.0) for _ in range(patience + 1)] == [False] * patience + [True]
        assert not any(falling(0.99**t) for t in range(5 * patience))

    def test_a_slow_decrease_adds_up(self):
        """Too little at each step, but measured against the best that counted."""
        stalled = Stalled(patience=20, factor=1e-3)
        assert not any(stalled(0.9998**t) for t in range(200))

    def test_nan_is_no_progress(self):
        stalled = Stalled(patience=3)
        assert [stalled(loss) for loss in [1.0, np.nan, np.nan, np.nan]] == [False] * 3 + [True]


def test_inner_steps_follow_the_dynamics_under_a_graph_each():
    objective, dynamics = an_objective(), Adam(0.02)
    start = dynamics.start(objective.initial_weights(torch.Generator().manual_seed(1)))
    graphs = [a_graph(seed=seed) for seed in range(4)]
    script = iter(graphs)
    noise = torch.Generator().manual_seed(2)
    steps = inner_steps(objective, dynamics, script.__next__, start, noise)
    got = [next(steps) for _ in range(4)]
    noise, state = torch.Generator().manual_seed(2), start
    for graph, (reached, loss) in zip(graphs, got, strict=True):
        expected_loss, gradient = objective.inner_gradient(state.weights, graph, noise)
        state = dynamics.step(state, gradient)
        assert loss == expected_loss
        assert torch.equal(reached.weights, state.weights)
        assert reached.count == state.count
    assert next(script, None) is None, "one graph a step, drawn when it is needed"


class TestTrainNetwork:
    def train(self, problem=None, dtype=torch.float64, seed=0, draw=None, **options):
        problem = problem or a_problem()
        objective = an_objective(problem, dtype)
        graph = a_graph(dtype)
        options = {"stopping_rows": problem.split.early_stopping, **options}
        return objective, train_network(
            problem,
            objective,
            options.pop("dynamics", None) or Adam(0.02),
            draw or (lambda: graph),
            Randomness(seed),
            **options,
        )

    def test_learns(self):
        problem = a_problem()
        _, fitted = self.train(problem, max_steps=200)
        rest = np.setdiff1d(np.arange(N - 1), problem.split.train)
        assert score(fitted.probabilities, problem.labels, rest).accuracy > 0.8
        assert_allclose(fitted.probabilities.sum(axis=1), 1.0)

    def test_repeats_bit_for_bit_and_differs_between_seeds(self):
        _, one = self.train(max_steps=30)
        _, two = self.train(max_steps=30)
        _, other = self.train(max_steps=30, seed=1)
        assert torch.equal(one.weights, two.weights)
        assert_array_equal(one.probabilities, two.probabilities)
        assert one.stopping == two.stopping
        assert not torch.equal(one.weights, other.weights)

    def test_single_and_double_precision_agree_roughly(self):
        # Stochastic gradients as they are: no division by small moments, so no amplification.
        _, double = self.train(max_steps=40, dynamics=SGD(0.5), patience=40)
        single = self.train(dtype=torch.float32, max_steps=40, dynamics=SGD(0.5), patience=40)[1]
        assert_allclose(single.probabilities, double.probabilities, atol=1e-3)

    @pytest.mark.parametrize("criterion", ["loss", "accuracy"])
    def test_keeps_the_best_weights_and_stops_after_patience(self, criterion):
        problem = a_problem()
        rows = problem.split.early_stopping
        objective, fitted = self.train(problem, criterion=criterion, patience=7, max_steps=300)

        # The same run once more, to its end, looked at from outside.
        randomness, graph = Randomness(0), a_graph()
        start = Adam(0.02).start(objective.initial_weights(randomness.weights))
        steps = inner_steps(objective, Adam(0.02), lambda: graph, start, randomness.noise)
        scores = [
            score(objective.probabilities(next(steps)[0].weights, [graph]), problem.labels, rows)
            for _ in range(300)
        ]
        values = [now.loss if criterion == "loss" else -now.accuracy for now in scores]
        best = 0
        for t in range(300):
            best = t if values[t] < values[best] else best
            if t - best >= 7:
                break
        assert t < 299, "patience was what ended it"
        assert fitted.steps == best + 1
        assert fitted.stopping == scores[best]
        assert score(fitted.probabilities, problem.labels, rows) == scores[best]

    def test_without_stopping_rows_takes_all_steps_and_keeps_the_last(self):
        _, fitted = self.train(stopping_rows=None, max_steps=25)
        assert (fitted.steps, fitted.stopping) == (25, None)

    def test_prediction_averages_over_the_graphs_asked_for(self):
        graphs, used = [a_graph(seed=seed) for seed in range(100)], []

        def draw():
            used.append(graphs[len(used)])
            return used[-1]

        objective, fitted = self.train(stopping_rows=None, max_steps=10, n_samples=4, draw=draw)
        assert len(used) == 14
        assert_array_equal(fitted.probabilities, objective.probabilities(fitted.weights, used[-4:]))

    def test_prediction_under_other_graphs_than_those_of_training(self):
        other = a_graph(seed=9)
        objective, fitted = self.train(max_steps=10, predict_under=lambda: other)
        assert_array_equal(fitted.probabilities, objective.probabilities(fitted.weights, [other]))
        rows = a_problem().split.early_stopping
        assert fitted.stopping == score(fitted.probabilities, a_problem().labels, rows)

    def test_a_single_class(self):
        problem = a_problem(n_classes=1)
        _, fitted = self.train(problem, max_steps=15)
        assert_array_equal(fitted.probabilities, np.ones((N, 1)))
        assert torch.isfinite(fitted.weights).all()

    def test_rows_of_zeros_and_isolated_nodes_make_no_nan(self):
        problem = a_problem()
        problem.features[::2] = 0.0
        objective = an_objective(problem, torch.float32)
        empty = Graph.from_pairs(Pairs.fold([], [], N), N)
        fitted = train_network(
            problem,
            objective,
            Adam(0.02),
            lambda: empty,
            Randomness(0),
            stopping_rows=None,
            max_steps=30,
        )
        assert torch.isfinite(fitted.weights).all()
        assert_allclose(fitted.probabilities[::2], 1.0 / 3.0)

    def test_no_global_random_state_is_read_or_written(self):
        results = []
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
            results.append(self.train(max_steps=15)[1])
            assert random.getstate() == before[0]
            assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
            assert torch.equal(torch.get_rng_state(), before[2])
        assert torch.equal(results[0].weights, results[1].weights)
