"""The low-rank hypergradient against dense autograd, against differences, and against theory.

The oracle builds the whole N x N adjacency as a variable, unrolls optimiser formulas written out
here, and lets autograd differentiate everything. It shares with the library the sampled graphs, the
states of the dropout generator, and the network's own formula, nothing else.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse

from edgewise.bilevel.dynamics import SGD, Adam, Momentum
from edgewise.bilevel.hypergradient import unrolled_hypergradient
from edgewise.bilevel.losses import Losses
from edgewise.graph.construct import knn_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.nn.gcn import GCN
from edgewise.nn.network import Network, dropout, glorot_uniform
from edgewise.problem import Problem, Split
from edgewise.train import Objective

N, N_FEATURES, N_CLASSES = 24, 6, 3
DYNAMICS = {
    "sgd": lambda: SGD(0.3),
    "momentum": lambda: Momentum(0.1, momentum=0.8),
    "adam": lambda: Adam(0.05),
}


# --- networks of users


class SGC(Network):
    """Meets the graph first in a product with the constant features: the anchor's business."""

    def initial_weights(self, n_features, n_classes, generator):
        return [glorot_uniform(n_features, n_classes, generator), torch.zeros(n_classes)]

    def logits(self, weights, features, graph, noise=None):
        return dropout(graph @ (graph @ features), 0.3, noise) @ weights[0] + weights[1]

    def penalty(self, weights):
        return weights[0].square().sum()


class Deep(Network):
    """Three graph convolutions of different widths, biases, a skip connection."""

    def initial_weights(self, n_features, n_classes, generator):
        sizes = [(n_features, 5), (5, 4), (4, n_classes), (n_features, n_classes)]
        weights = [glorot_uniform(n_in, n_out, generator) for n_in, n_out in sizes]
        return [*weights, torch.full((5,), 0.1), torch.full((4,), -0.1)]

    def logits(self, weights, features, graph, noise=None):
        W1, W2, W3, skip, b1, b2 = weights
        first = torch.relu(graph @ (features @ W1) + b1)
        second = torch.tanh(graph @ (dropout(first, 0.4, noise) @ W2) + b2)
        return graph @ (dropout(second, 0.2, noise) @ W3) + features @ skip

    def penalty(self, weights):
        return sum(weight.square().sum() for weight in weights)


class Unused(GCN):
    """Carries a weight that nothing depends on."""

    def initial_weights(self, n_features, n_classes, generator):
        return [*super().initial_weights(n_features, n_classes, generator), torch.ones(2, 2)]


NETWORKS = {
    "gcn": lambda: GCN(hidden_units=5, dropout=0.5),
    "gcn without dropout": lambda: GCN(hidden_units=4, dropout=0.0),
    "sgc": SGC,
    "deep": Deep,
}


# --- problems and graphs


def a_problem(form=np.asarray):
    """Features with a zero row and a zero column; labelled rows in shuffled roles."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, N_FEATURES)) * (rng.random((N, N_FEATURES)) < 0.7)
    X[7], X[:, 2] = 0.0, 0.0
    rows = rng.permutation(N).astype(np.int64)
    split = Split(np.sort(rows[:7]), np.sort(rows[7:13]), np.sort(rows[13:18]))
    return Problem(form(X), rng.integers(0, N_CLASSES, N), np.arange(N_CLASSES), split)


def an_objective(network="gcn", form=np.asarray, weight_decay=0.02):
    return Objective(
        a_problem(form), NETWORKS[network](), weight_decay=weight_decay, dtype=torch.float64
    )


class Drawn:
    """One graph both ways: for the library, and as a dense adjacency for the oracle."""

    def __init__(self, kind, rng):
        if kind == "knn":  # no graph is given: a sample around that of the nearest neighbours
            nearest = knn_pairs(a_problem().features, 3)
            theta = rng.uniform(0.2, 1.0, nearest.n_pairs)
            self.pairs = DenseEdges(N, nearest, theta, dtype=torch.float64).sample(rng)
        elif kind == "complete":
            self.pairs = Pairs(*(index.astype(np.int64) for index in np.triu_indices(N, 1)))
        else:
            drawn = np.triu(rng.random((N, N)) < 0.15, 1)
            drawn[:, 20:] = False  # isolated nodes
            self.pairs = Pairs.fold(*np.nonzero(drawn), N)
        weighted = kind in ("weighted", "dense")
        self.weights = rng.uniform(0.1, 3.0, self.pairs.n_pairs) if weighted else 1.0
        A = np.zeros((N, N))
        A[self.pairs.rows, self.pairs.cols] = self.weights
        self.kind, self.adjacency = kind, torch.from_numpy(A + A.T)

    def graph(self):
        if self.kind == "weighted":
            return Graph.from_pairs(self.pairs, N, weights=self.weights, dtype=torch.float64)
        if self.kind == "dense":
            return Graph.from_dense(self.adjacency)
        if self.kind == "complete":
            return Graph.complete(N, dtype=torch.float64)
        return Graph.from_pairs(self.pairs, N, dtype=torch.float64)


# --- the oracle


def normalised(A):
    with_loops = A + torch.eye(len(A), dtype=A.dtype)
    scale = with_loops.sum(dim=1) ** -0.5
    return scale[:, None] * with_loops * scale[None, :]


def safe_root(v):
    """Square root with derivative 0 at 0."""
    return torch.where(v > 0, torch.where(v > 0, v, 1.0).sqrt(), 0.0)


def phi(dynamics, rate, weights, memory, count, g):
    """One step of the inner optimiser, from the textbook."""
    if isinstance(dynamics, SGD):
        return weights - rate * g, []
    if isinstance(dynamics, Momentum):
        u = dynamics.momentum * memory[0] + g
        return weights - rate * u, [u]
    b1, b2, t = dynamics.beta1, dynamics.beta2, count + 1
    m = b1 * memory[0] + (1 - b1) * g
    v = b2 * memory[1] + (1 - b2) * g * g
    a = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
    return weights - a * m / (safe_root(v) + dynamics.epsilon), [m, v]


def oracle_gradient(oracle, weights, A, noise):
    """Inner gradient at flat weights, itself differentiable."""
    loss = oracle.inner(oracle.unflatten(weights), normalised(A), noise)
    (g,) = torch.autograd.grad(loss, weights, create_graph=True)
    return g


def unrolled_oracle(oracle, dynamics, start, drawn, seeds, noise):
    """dF/dA summed over the graphs of a whole trajectory, by one autograd graph through all of it.

    Also the derivatives with respect to the learning rate and to the initial weights, and F.
    """
    first = start.clone().requires_grad_()
    rate = torch.tensor(dynamics.learning_rate, dtype=torch.float64, requires_grad=True)
    adjacencies = [graph.adjacency.clone().requires_grad_() for graph in drawn]
    weights = first
    memory = [torch.zeros_like(first) for _ in range(dynamics.n_memory)]
    for t, (A, seed) in enumerate(zip(adjacencies[:-1], seeds, strict=True)):
        g = oracle_gradient(oracle, weights, A, noise.manual_seed(seed))
        weights, memory = phi(dynamics, rate, weights, memory, t, g)
    outer = oracle.outer(oracle.unflatten(weights), normalised(adjacencies[-1]))
    by_first, by_rate, *by_graphs = torch.autograd.grad(
        outer, [first, rate, *adjacencies], materialize_grads=True
    )
    return sum(by_graphs).numpy(), float(by_rate), by_first.numpy(), outer.item()


def resampled_oracle(oracle, dynamics, trajectory, drawn, seeds, noise):
    """Algorithm 1 to the letter: at each stored state, Phi under a graph drawn afresh.

    ``drawn[0]`` is the graph of F, ``drawn[1:]`` those of the steps, backwards.
    """
    *earlier, last = trajectory
    A = drawn[0].adjacency.clone().requires_grad_()
    weights = last.weights.clone().requires_grad_()
    outer = oracle.outer(oracle.unflatten(weights), normalised(A))
    p, G = torch.autograd.grad(outer, [weights, A])
    cotangents = [p, *(torch.zeros_like(slot) for slot in last.memory)]
    by_rate = 0.0
    for state, graph, seed in zip(reversed(earlier), drawn[1:], seeds, strict=True):
        A = graph.adjacency.clone().requires_grad_()
        weights = state.weights.clone().requires_grad_()
        memory = [slot.clone().requires_grad_() for slot in state.memory]
        rate = torch.tensor(dynamics.learning_rate, dtype=torch.float64, requires_grad=True)
        g = oracle_gradient(oracle, weights, A, noise.manual_seed(seed))
        new_weights, new_memory = phi(dynamics, rate, weights, memory, state.count, g)
        along_rate, along_A, *cotangents = torch.autograd.grad(
            [new_weights, *new_memory],
            [rate, A, weights, *memory],
            grad_outputs=cotangents,
            materialize_grads=True,
        )
        by_rate += float(along_rate)
        G = G + along_A
    return G.numpy(), by_rate, cotangents[0].numpy(), outer.item()


# --- the library's side


def a_trajectory(objective, dynamics, drawn, seeds, noise):
    """The states of the library's own inner loop under given graphs and dropout seeds."""
    states = [dynamics.start(objective.initial_weights(torch.Generator().manual_seed(1)))]
    for graph, seed in zip(drawn, seeds, strict=True):
        _, g = objective.inner_gradient(states[-1].weights, graph.graph(), noise.manual_seed(seed))
        states.append(dynamics.step(states[-1], g))
    return states


def library(objective, dynamics, trajectory, drawn, seeds, noise):
    """The hypergradient under given graphs, with the dropout of each drawn along with it."""
    script = iter(zip(drawn, [0, *seeds], strict=True))

    def draw():
        graph, seed = next(script)
        noise.manual_seed(seed)
        return graph.graph()

    result = unrolled_hypergradient(objective, dynamics, trajectory, draw, noise)
    assert next(script, None) is None, "one graph for F and one for each step"
    return result


def assert_equal(result, expected, tolerance=1e-10):
    """All that a hypergradient says, at pairs and by bands, against ``G + G'``."""
    G, by_rate, by_weights, outer = expected
    both = G + G.T
    rows, cols = (index.astype(np.int64) for index in np.triu_indices(N, 1))
    values = both[rows, cols]
    assert np.isfinite(values).all()
    assert np.abs(values).max() > 1e-3, "there is something to compare"
    scale = tolerance * max(1.0, np.abs(values).max())
    assert_allclose(result.edges.at_pairs(rows, cols), values, rtol=0, atol=scale)
    for start, stop in itertools.pairwise([0, 5, 6, N]):
        band = result.edges.band(start, stop)
        shift = result.edges.shift
        whole = band + shift[start:stop, None] + shift[start:]
        keep = np.arange(start, N) > np.arange(start, stop)[:, None]
        assert_allclose(whole[keep], both[start:stop, start:][keep], rtol=0, atol=scale)
    assert_allclose(result.weights, by_weights, rtol=tolerance, atol=tolerance)
    assert_allclose(result.learning_rate, by_rate, rtol=tolerance, atol=tolerance)
    assert result.outer_loss == pytest.approx(outer, abs=1e-13)


def compare_unrolled(kind, network, dynamics, tau, form):
    """Backward graphs and masks are the forward ones: the derivative of one composed function."""
    rng = np.random.default_rng(tau)
    objective, oracle = an_objective(network, form), an_objective(network)
    drawn = [Drawn(kind, rng) for _ in range(tau + 1)]
    seeds = list(range(10, 10 + tau))
    noise = torch.Generator()
    oracle.initial_weights(noise)
    trajectory = a_trajectory(objective, dynamics, drawn[:-1], seeds, noise)
    result = library(objective, dynamics, trajectory, drawn[::-1], seeds[::-1], noise)
    start = trajectory[0].weights
    assert_equal(result, unrolled_oracle(oracle, dynamics, start, drawn, seeds, noise))


# --- the comparisons


@pytest.mark.parametrize("tau", [0, 1, 5, 12])
@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("network", NETWORKS)
def test_equals_dense_autograd_through_the_unrolled_dynamics(network, dynamics, tau):
    compare_unrolled("given", network, DYNAMICS[dynamics](), tau, np.asarray)


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("network", ["gcn", "deep"])
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_equals_dense_autograd_with_sparse_features(form, network, dynamics):
    compare_unrolled("given", network, DYNAMICS[dynamics](), 3, form)


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", ["knn", "weighted", "dense", "complete"])
def test_equals_dense_autograd_on_every_kind_of_graph(kind, network, dynamics):
    compare_unrolled(kind, network, DYNAMICS[dynamics](), 2, np.asarray)


@pytest.mark.parametrize("tau", [1, 5])
@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("network", NETWORKS)
def test_equals_the_algorithm_with_graphs_drawn_afresh_and_a_truncated_stretch(
    network, dynamics, tau
):
    """The stretch starts at a state with a past: Adam's moments and bias correction matter."""
    rng = np.random.default_rng(tau)
    dynamics = DYNAMICS[dynamics]()
    objective, oracle = an_objective(network), an_objective(network)
    noise = torch.Generator()
    oracle.initial_weights(noise)
    forward = [Drawn("given", rng) for _ in range(tau + 4)]
    whole = a_trajectory(objective, dynamics, forward, range(tau + 4), noise)
    trajectory = whole[-tau - 1 :]
    backward = [Drawn("given", rng) for _ in range(tau + 1)]
    seeds = [100 + s for s in range(tau)]
    result = library(objective, dynamics, trajectory, backward, seeds, noise)
    assert_equal(result, resampled_oracle(oracle, dynamics, trajectory, backward, seeds, noise))


def test_the_two_oracles_agree_where_they_must():
    """On a whole trajectory with the forward graphs, both are the same derivative."""
    rng = np.random.default_rng(0)
    dynamics, oracle, noise = Adam(0.05), an_objective("gcn"), torch.Generator()
    drawn = [Drawn("given", rng) for _ in range(4)]
    trajectory = a_trajectory(oracle, dynamics, drawn[:-1], [5, 6, 7], noise)
    start = trajectory[0].weights
    one = unrolled_oracle(oracle, dynamics, start, drawn, [5, 6, 7], noise)
    two = resampled_oracle(oracle, dynamics, trajectory, drawn[::-1], [7, 6, 5], noise)
    for left, right in zip(one, two, strict=True):
        assert_allclose(left, right, rtol=1e-9, atol=1e-11)


def test_one_stream_of_dropout_serves_all_steps():
    """Nothing but the inner losses takes from the generator, a mask a step."""
    rng = np.random.default_rng(0)
    dynamics, objective, oracle = Adam(0.05), an_objective("gcn"), an_objective("gcn")
    noise = torch.Generator().manual_seed(3)
    oracle.initial_weights(torch.Generator())
    drawn = [Drawn("given", rng) for _ in range(3)]
    trajectory = a_trajectory(objective, dynamics, drawn[:2], [1, 2], torch.Generator())
    graphs = iter(drawn)
    result = unrolled_hypergradient(
        objective, dynamics, trajectory, lambda: next(graphs).graph(), noise
    )

    class Continuing:
        """Ignores the seeds of the oracle: one stream, from the state of the library's."""

        def __init__(self):
            self.stream = torch.Generator().manual_seed(3)

        def manual_seed(self, seed):
            return self.stream

    expected = resampled_oracle(oracle, dynamics, trajectory, drawn, [0, 0], Continuing())
    assert_equal(result, expected)


def test_a_weight_that_nothing_depends_on_has_no_derivative():
    objective = Objective(a_problem(), Unused(4, 0.0), weight_decay=0.0, dtype=torch.float64)
    rng, dynamics, noise = np.random.default_rng(0), Adam(0.05), torch.Generator()
    drawn = [Drawn("given", rng) for _ in range(3)]
    trajectory = a_trajectory(objective, dynamics, drawn[:2], [0, 0], noise)
    result = library(objective, dynamics, trajectory, drawn, [0, 0], noise)
    reference = an_objective("gcn without dropout", weight_decay=0.0)
    short = a_trajectory(reference, dynamics, drawn[:2], [0, 0], noise)
    expected = library(reference, dynamics, short, drawn, [0, 0], noise)
    assert not result.weights[-4:].any()
    assert_allclose(result.weights[:-4], expected.weights, rtol=1e-12, atol=1e-15)
    pairs = drawn[0].pairs
    assert_allclose(
        result.edges.at_pairs(*pairs), expected.edges.at_pairs(*pairs), rtol=1e-12, atol=1e-15
    )


def test_no_nan_where_nothing_can_be_learned():
    """No feature at all: every gradient, and v' in Adam, is zero."""
    problem = a_problem(np.zeros_like)
    objective = Objective(problem, GCN(4), weight_decay=0.0, dtype=torch.float64)
    drawn, noise = [Drawn("given", np.random.default_rng(0)) for _ in range(3)], torch.Generator()
    trajectory = a_trajectory(objective, Adam(0.05), drawn[:2], [0, 0], noise)
    result = library(objective, Adam(0.05), trajectory, drawn, [0, 0], noise)
    assert not result.weights.any()
    assert result.learning_rate == 0.0
    assert not result.edges.band(0, N).any()
    assert not result.edges.shift.any()
    assert result.outer_loss == pytest.approx(np.log(N_CLASSES))


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("tau", [0, 5])
def test_single_precision_is_close(dynamics, tau):
    results = []
    for dtype in (torch.float64, torch.float32):
        objective = Objective(a_problem(), GCN(5), weight_decay=0.02, dtype=dtype)
        optimiser, noise = DYNAMICS[dynamics](), torch.Generator()
        rng = np.random.default_rng(tau)
        graphs = [
            Graph.from_pairs(Drawn("given", rng).pairs, N, dtype=dtype) for _ in range(2 * tau + 1)
        ]
        states = [optimiser.start(objective.initial_weights(torch.Generator().manual_seed(1)))]
        for graph in graphs[:tau]:
            _, g = objective.inner_gradient(states[-1].weights, graph, noise.manual_seed(2))
            states.append(optimiser.step(states[-1], g))
        rest = iter(graphs[tau:])
        result = unrolled_hypergradient(objective, optimiser, states, rest.__next__, noise)
        assert result.edges.shift.dtype == (np.float64 if dtype == torch.float64 else np.float32)
        rows, cols = np.triu_indices(N, 1)
        results.append(result.edges.at_pairs(rows.astype(np.int64), cols.astype(np.int64)))
    assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-4 * np.abs(results[0]).max())


@pytest.mark.parametrize("tau", [0, 1, 5])
@pytest.mark.parametrize("network", ["gcn", "sgc"])
def test_descend_is_the_dense_projected_step(network, tau):
    """theta <- clip(theta - eta (G + G'), 0, 1), the gradient being that of the dense oracle."""
    rng = np.random.default_rng(tau)
    dynamics = Adam(0.05)
    objective, oracle, noise = an_objective(network), an_objective(network), torch.Generator()
    oracle.initial_weights(noise)
    upper = tuple(index.astype(np.int64) for index in np.triu_indices(N, 1))
    theta = rng.choice([0.0, 0.05, 0.3, 0.8, 1.0], len(upper[0]))
    edges = DenseEdges(N, Pairs(*upper), theta, dtype=torch.float64)
    moved = 0
    for eta in (1.0, 0.3):
        drawn = [Drawn("given", rng) for _ in range(tau + 1)]
        seeds = list(range(tau))
        trajectory = a_trajectory(objective, dynamics, drawn[:-1], seeds, noise)
        result = library(objective, dynamics, trajectory, drawn[::-1], seeds[::-1], noise)
        start = trajectory[0].weights
        G, *_ = unrolled_oracle(oracle, dynamics, start, drawn, seeds, noise)
        edges.descend(result.edges, eta)
        before, theta = theta, np.clip(theta - eta * (G + G.T)[upper], 0.0, 1.0)
        assert_allclose(edges.probability(*upper), theta, rtol=0, atol=1e-11)
        assert edges.expected_edges() == pytest.approx(theta.sum(), abs=1e-9)
        moved += np.abs(theta - before).max()
    assert moved > 1e-3
    assert {0.0, 1.0} <= set(theta), "the projection was at work"


# --- differences


class TestFiniteDifferences:
    """F of the last weights is a smooth function of real edge weights: no autograd here at all."""

    upper = tuple(index.astype(np.int64) for index in np.triu_indices(N, 1))
    tau = 4

    def outer_loss(self, objective, dynamics, theta, noise):
        """Run the library forwards on one weighted graph for all steps, and evaluate F."""
        graph = Graph.from_pairs(Pairs(*self.upper), N, weights=theta, dtype=torch.float64)
        state = dynamics.start(objective.initial_weights(torch.Generator().manual_seed(1)))
        trajectory = [state]
        for t in range(self.tau):
            _, g = objective.inner_gradient(state.weights, graph, noise.manual_seed(t))
            state = dynamics.step(state, g)
            trajectory.append(state)
        with torch.no_grad():
            outer = objective.outer(objective.unflatten(state.weights), graph).item()
        return outer, trajectory, graph

    @pytest.fixture(params=sorted(DYNAMICS))
    def case(self, request):
        # Without ReLU's kinks, and with an epsilon that keeps Adam's curvature moderate.
        smooth = {**DYNAMICS, "adam": lambda: Adam(0.05, epsilon=1e-2)}
        dynamics = smooth[request.param]()
        rng = np.random.default_rng(0)
        theta = rng.uniform(0.1, 0.9, len(self.upper[0])) * (rng.random(len(self.upper[0])) < 0.5)
        objective, noise = an_objective("sgc"), torch.Generator()
        outer, trajectory, graph = self.outer_loss(objective, dynamics, theta, noise)
        seeds = iter([0, *reversed(range(self.tau))])

        def draw():
            noise.manual_seed(next(seeds))
            return graph

        result = unrolled_hypergradient(objective, dynamics, trajectory, draw, noise)
        assert result.outer_loss == pytest.approx(outer, abs=1e-14)
        return objective, dynamics, theta, result

    def test_by_the_weight_of_a_pair(self, case):
        objective, dynamics, theta, result = case
        derivative = result.edges.at_pairs(*self.upper)
        noise, h = torch.Generator(), 1e-5
        chosen = np.random.default_rng(1).choice(len(theta), 12, replace=False)
        assert (theta[chosen] == 0.0).any(), "absent edges are variables too"
        for e in chosen:
            bump = np.zeros_like(theta)
            bump[e] = h
            up, down = (
                self.outer_loss(objective, dynamics, theta + sign * bump, noise)[0]
                for sign in (1.0, -1.0)
            )
            assert derivative[e] == pytest.approx((up - down) / (2.0 * h), rel=1e-5, abs=1e-9)

    def test_along_a_direction_of_all_pairs(self, case):
        objective, dynamics, theta, result = case
        direction = np.random.default_rng(2).normal(size=len(theta))
        slope = result.edges.at_pairs(*self.upper) @ direction
        noise, h = torch.Generator(), 1e-6
        up, down = (
            self.outer_loss(objective, dynamics, theta + sign * h * direction, noise)[0]
            for sign in (1.0, -1.0)
        )
        assert slope == pytest.approx((up - down) / (2.0 * h), rel=1e-5)

    def test_by_the_learning_rate(self, case):
        objective, dynamics, theta, result = case
        noise, rate, values = torch.Generator(), dynamics.learning_rate, []
        h = 1e-5 * rate
        for moved in (rate + h, rate - h):
            dynamics.learning_rate = moved
            values.append(self.outer_loss(objective, dynamics, theta, noise)[0])
        assert result.learning_rate == pytest.approx((values[0] - values[1]) / (2.0 * h), rel=1e-6)
        assert abs(result.learning_rate) > 1e-3


def test_finite_differences_of_the_relu_network_without_unrolling():
    """tau = 0: F itself by the weights of pairs; no kink lies as close as the differences reach."""
    objective = an_objective("gcn")
    weights = objective.initial_weights(torch.Generator().manual_seed(1))
    upper = TestFiniteDifferences.upper
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.1, 0.9, len(upper[0]))

    def outer(values):
        graph = Graph.from_pairs(Pairs(*upper), N, weights=values, dtype=torch.float64)
        return objective.outer(objective.unflatten(weights), graph).item(), graph

    dynamics = SGD(0.1)
    _, graph = outer(theta)
    start = dynamics.start(weights)
    result = unrolled_hypergradient(objective, dynamics, [start], lambda: graph, torch.Generator())
    derivative, h = result.edges.at_pairs(*upper), 1e-6
    for e in rng.choice(len(theta), 20, replace=False):
        bump = np.zeros_like(theta)
        bump[e] = h
        difference = (outer(theta + bump)[0] - outer(theta - bump)[0]) / (2.0 * h)
        assert derivative[e] == pytest.approx(difference, rel=1e-5, abs=1e-9)


# --- the appendix


class Quadratic(Losses):
    """F = (a z - b)^2 / 2 for the one edge z of two nodes.

    Â of two nodes is [[1, z], [z, 1]] / (1 + z), so z is the quotient of two of its entries, and F
    is a function of products with the graph like that of any network. With inner steps, the only
    weight runs after z: L = (w - z)^2 / 2, and F = (a w - b)^2 / 2.
    """

    def __init__(self, a, b, through_weights=False):
        self.a, self.b, self.through_weights = a, b, through_weights

    def leaves(self, flat):
        return [flat.detach().clone().requires_grad_()]

    def edge(self, graph):
        P = graph @ torch.eye(2, dtype=torch.float64)
        return P[0, 1] / P[0, 0]

    def inner(self, weights, graph, noise):
        return 0.5 * (weights[0] - self.edge(graph)).square().sum()

    def outer(self, weights, graph):
        z = weights[0].sum() if self.through_weights else self.edge(graph) + 0.0 * weights[0].sum()
        return 0.5 * (self.a * z - self.b) ** 2 + 0.0 * self.edge(graph)


def straight_through(losses, theta, rng, n_draws):
    """Outer loss and gradient of the one edge, over samples of z ~ Ber(theta)."""
    edges = DenseEdges(2, Pairs.fold([0], [1], 2), np.array([theta]), dtype=torch.float64)
    start = SGD(0.1).start(torch.zeros(1, dtype=torch.float64))
    pair = np.array([0]), np.array([1])
    for _ in range(n_draws):
        result = unrolled_hypergradient(
            losses, SGD(0.1), [start], lambda: edges.draw(rng), torch.Generator()
        )
        yield result.outer_loss, result.edges.at_pairs(*pair)[0]


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 1.5), (-1.3, 0.4)])
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_bias_of_the_straight_through_estimator(a, b, theta):
    """The appendix of the paper, h(z) = (a z - b)^2 / 2 with z ~ Ber(theta).

    E h = theta h(1) + (1 - theta) h(0), so its derivative is h(1) - h(0) = a^2 / 2 - a b. The
    estimator is h'(z) = a (a z - b), and its mean a (a theta - b). The difference, a^2 (theta -
    1/2), is the bias: none at 1/2, and towards making edges rarer above, likelier below.
    """
    losses, rng = Quadratic(a, b), np.random.default_rng(0)
    drawn = list(straight_through(losses, theta, rng, 150))

    # Two values each, by whether the edge was drawn; sampled as often as theta says.
    h = {z: 0.5 * (a * z - b) ** 2 for z in (0, 1)}
    slope = {z: a * (a * z - b) for z in (0, 1)}
    z = np.array([int(abs(outer - h[1]) < 1e-12) for outer, _ in drawn])
    for (outer, gradient), drawn_edge in zip(drawn, z.tolist(), strict=True):
        assert outer == pytest.approx(h[drawn_edge], abs=1e-12)
        assert gradient == pytest.approx(slope[drawn_edge], abs=1e-12)
    assert abs(z.mean() - theta) <= 3.3 * np.sqrt(theta * (1.0 - theta) / len(z))

    # Their exact mean, from one sample of either kind (a certain and an impossible edge).
    ((h1, slope1),) = straight_through(losses, 1.0, rng, 1)
    ((h0, slope0),) = straight_through(losses, 0.0, rng, 1)
    mean = theta * slope1 + (1.0 - theta) * slope0
    true_derivative = h1 - h0
    assert mean == pytest.approx(a * (a * theta - b), abs=1e-12)
    assert true_derivative == pytest.approx(a * a / 2.0 - a * b, abs=1e-12)
    assert mean - true_derivative == pytest.approx(a * a * (theta - 0.5), abs=1e-12)
    # The library's samples average to it.
    spread = abs(slope1 - slope0) * np.sqrt(theta * (1.0 - theta) / len(drawn))
    assert abs(np.mean([gradient for _, gradient in drawn]) - mean) <= 3.3 * spread + 1e-12


def test_straight_through_an_inner_step():
    """One step w = w0 - lr (w0 - z) and F = (a w - b)^2 / 2: by hand, dF/dz = a (a w - b) lr.

    In the unrolled gradient a second z', drawn afresh, stands for z: dw/dz does not depend on it.
    """
    a, b, rate, w0 = 2.0, 0.7, 0.25, 0.4
    losses, dynamics = Quadratic(a, b, through_weights=True), SGD(rate)
    pair = np.array([0]), np.array([1])
    for z, fresh in itertools.product((0, 1), repeat=2):
        graphs = [
            Graph.from_pairs(Pairs.fold([0] * k, [1] * k, 2), 2, dtype=torch.float64)
            for k in (z, fresh)
        ]
        start = dynamics.start(torch.tensor([w0], dtype=torch.float64))
        leaves = losses.leaves(start.weights)
        (g,) = torch.autograd.grad(losses.inner(leaves, graphs[0], None), leaves)
        last = dynamics.step(start, g)
        w = w0 - rate * (w0 - z)
        assert last.weights.item() == pytest.approx(w, abs=1e-14)
        result = unrolled_hypergradient(
            losses,
            dynamics,
            [start, last],
            lambda graph=graphs[1]: graph,
            torch.Generator(),
        )
        assert result.edges.at_pairs(*pair)[0] == pytest.approx(a * (a * w - b) * rate, abs=1e-13)
        assert result.learning_rate == pytest.approx(-a * (a * w - b) * (w0 - fresh), abs=1e-13)
        assert result.weights.item() == pytest.approx(a * (a * w - b) * (1.0 - rate), abs=1e-13)


class OneIdle(Losses):
    """Of four weights, the last two have no part in the inner loss."""

    features = torch.tensor([[1.0, -2.0], [0.5, 1.0], [2.0, 0.0]], dtype=torch.float64)

    def leaves(self, flat):
        return [part.detach().requires_grad_() for part in flat.split(2)]

    def inner(self, weights, graph, noise):
        return (graph @ (self.features * weights[0])).square().sum()

    def outer(self, weights, graph):
        return (graph @ (self.features * weights[0] * weights[1])).sum()


def test_weights_without_a_part_in_the_inner_loss_have_a_derivative_of_zero():
    graph = Graph.from_pairs(Pairs(np.array([0, 1]), np.array([1, 2])), 3, dtype=torch.float64)
    flat, noise = torch.tensor([0.5, -1.0, 2.0, 3.0], dtype=torch.float64), torch.Generator()
    losses = OneIdle()
    _, gradient = losses.inner_gradient(flat, graph, noise)
    linearised = losses.linearise_inner(flat, graph, noise)
    assert torch.equal(linearised.gradient, gradient)
    assert gradient[:2].abs().min() > 0
    assert torch.equal(gradient[2:], torch.zeros(2, dtype=torch.float64))
    curvature, _ = linearised.along(torch.ones(4, dtype=torch.float64))
    # Quadratic in the first two weights: the Hessian is the gradient's own linear map.
    _, doubled = losses.inner_gradient(flat + 1.0, graph, noise)
    torch.testing.assert_close(curvature, doubled - gradient)
