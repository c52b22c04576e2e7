"""The stages of Algorithm 1 on one data set, the bare products they consist of, and two rivals.

``python benchmarks/stages.py cora`` prints one JSON object. Times are of the processor, for this
thread, and the least of several: what remains of a busy machine is then only its shared cache.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from dense_lds import DenseLDS

from edgewise.bilevel.dynamics import Adam, State
from edgewise.bilevel.hypergradient import Hypergradient, unrolled_hypergradient
from edgewise.datasets import load
from edgewise.graph.construct import keep_pairs, knn_pairs
from edgewise.graph.distribution import DenseEdges, EdgeDistribution
from edgewise.graph.growing import GrowingEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import FixedMatrix, Graph
from edgewise.learn import Schedule, learn
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, row_unit
from edgewise.train import Objective, Randomness, inner_steps

TAU = 5
HIDDEN = 16
LARGEST_DENSE_RIVAL = 4000  # rows; its N x N temporaries are some thirty
LARGEST_DENSE_STORAGE = 12_000
Stages = dict[str, Callable[[], Any]]


@dataclass
class Setting:
    """A run caught in the middle of its first outer iterations."""

    problem: Problem
    pairs: Pairs
    objective: Objective
    edges: EdgeDistribution
    dynamics: Adam
    trajectory: list[State]
    randomness: Randomness

    def draw(self) -> Graph:
        return self.edges.draw(self.randomness.graphs)

    def hypergradient(self) -> Hypergradient:
        return unrolled_hypergradient(
            self.objective, self.dynamics, self.trajectory, self.draw, self.randomness.noise
        )

    def inner_step(self) -> State:
        """Draw a graph, take the gradient, take the step."""
        state = self.trajectory[-1]
        _, gradient = self.objective.inner_gradient(
            state.weights, self.draw(), self.randomness.noise
        )
        return self.dynamics.step(state, gradient)

    def cycle(self) -> None:
        """Tau inner steps, the hypergradient, the update (so small that theta stays put)."""
        for _ in range(TAU):
            self.inner_step()
        self.edges.descend(self.hypergradient().edges, 1e-9)

    def evaluate(self) -> None:
        graphs = [self.draw() for _ in range(16)]
        self.objective.probabilities(self.trajectory[-1].weights, graphs)


def problem_of(name: str) -> tuple[Problem, Pairs]:
    """The problem, and the graph to start from: half of the given one, or 10 nearest neighbours."""
    data = load(name, seed=0)
    features = data.features / row_unit(data.features)  # as the estimators see them
    problem = Problem(features, data.masked_labels(), data.classes, data.split)
    if data.pairs is None:
        return problem, knn_pairs(data.features, 10)
    return problem, keep_pairs(data.pairs, 0.5, np.random.default_rng(0))


def prepare(name: str) -> Setting:
    problem, pairs = problem_of(name)
    n_nodes = problem.n_nodes
    storage = DenseEdges if n_nodes <= LARGEST_DENSE_STORAGE else GrowingEdges
    edges = storage(n_nodes, pairs)
    objective, randomness = Objective(problem, GCN(HIDDEN)), Randomness(0)
    schedule = Schedule(tau=TAU, max_outer_iterations=1, max_inner_steps=100, n_samples=1)
    learn(problem, objective, edges, Adam(0.02), schedule, randomness)
    dynamics = Adam(0.02)
    state = dynamics.start(objective.initial_weights(randomness.weights))
    trajectory = deque([state], maxlen=TAU + 1)
    steps = inner_steps(
        objective, dynamics, lambda: edges.draw(randomness.graphs), state, randomness.noise
    )
    for state, _ in steps:
        trajectory.append(state)
        if state.count == 50:
            break
    return Setting(problem, pairs, objective, edges, dynamics, list(trajectory), randomness)


def stages(setting: Setting) -> Stages:
    """Each stage on its own, and the whole cycle."""
    edges, randomness = setting.edges, setting.randomness
    pairs, graph = edges.sample(randomness.graphs), setting.draw()
    weights = setting.trajectory[-1].weights
    gradient = setting.hypergradient().edges
    found: Stages = {
        "sample": lambda: edges.sample(randomness.graphs),
        "build graph": lambda: Graph.from_pairs(pairs, edges.n_nodes),
        "gradient": lambda: setting.objective.inner_gradient(weights, graph, randomness.noise),
        "inner step": setting.inner_step,
        "hypergradient": setting.hypergradient,
        "apply": lambda: edges.descend(gradient, 1e-9),
        "evaluation": setting.evaluate,
        "cycle": setting.cycle,
    }
    if isinstance(edges, DenseEdges):
        found["sampler refresh"] = edges._sampler.refresh  # part of "apply"
    return found


def floor(setting: Setting) -> Stages:
    """The products that no implementation in this library avoids, into preallocated memory.

    A gradient takes six products with features or graph on its way there and back (the features
    twice, the graph four times) and three small ones, and each derivative of a gradient along a
    vector takes as many once more. The hypergradient is one gradient of the
    outer loss and, for each of the tau steps, a gradient and its derivative. Applying it takes one
    product for each of its factors.
    """
    features, graph = setting.objective.features, setting.draw().operator.matrix
    n_nodes, n_classes = setting.problem.n_nodes, setting.objective.n_classes
    W1 = torch.randn(setting.objective.n_features, HIDDEN)
    W2 = torch.randn(HIDDEN, n_classes)
    wide, narrow = torch.randn(n_nodes, HIDDEN), torch.randn(n_nodes, n_classes)
    wide_out, narrow_out = torch.empty_like(wide), torch.empty_like(narrow)
    W1_out, W2_out = torch.empty_like(W1), torch.empty_like(W2)
    sparse = isinstance(features, FixedMatrix)
    X, X_transposed = (features.matrix, features.transposed) if sparse else (features, features.T)
    factors = setting.hypergradient().edges.parts  # as they come: merging adds multiplications
    out = torch.empty(max((len(f.rows) for f in factors), default=0), n_nodes)

    def gradient() -> None:
        torch.mm(X, W1, out=wide_out)
        torch.mm(graph, wide, out=wide_out)
        torch.mm(wide, W2, out=narrow_out)
        torch.mm(graph, narrow, out=narrow_out)
        torch.mm(graph, narrow, out=narrow_out)
        torch.mm(wide.T, narrow, out=W2_out)
        torch.mm(narrow, W2.T, out=wide_out)
        torch.mm(graph, wide, out=wide_out)
        torch.mm(X_transposed, wide, out=W1_out)

    def hypergradient() -> None:
        for _ in range(1 + 2 * TAU):
            gradient()

    def apply() -> None:
        for factor in factors:
            torch.mm(factor.left, factor.right.T, out=out[: len(factor.rows)])

    def cycle() -> None:
        for _ in range(TAU):
            gradient()
        hypergradient()
        if isinstance(setting.edges, DenseEdges):
            apply()

    found: Stages = {"inner step": gradient, "hypergradient": hypergradient, "cycle": cycle}
    return found | ({"apply": apply} if isinstance(setting.edges, DenseEdges) else {})


def dense_cycle(setting: Setting) -> Callable[[], Any]:
    """A cycle of `DenseLDS`, from the same graph."""
    problem, split = setting.problem, setting.problem.split
    n_nodes = problem.n_nodes
    theta = torch.zeros(n_nodes, n_nodes)
    theta[setting.pairs.rows, setting.pairs.cols] = 1.0
    return DenseLDS(
        torch.from_numpy(as_array(problem.features)),
        torch.from_numpy(problem.labels),
        torch.from_numpy(split.train),
        torch.from_numpy(split.validation),
        theta + theta.T,
    ).cycle


def pyg_step(setting: Setting) -> Callable[[], Any]:
    """A training step of PyTorch Geometric's GCN on a sampled graph, normalised beforehand."""
    from torch_geometric.nn import GCNConv

    problem, pairs = setting.problem, setting.edges.sample(setting.randomness.graphs)
    features = torch.from_numpy(as_array(problem.features))
    edge_index = torch.from_numpy(np.concatenate([np.stack(pairs), np.stack(pairs)[::-1]], axis=1))
    first = GCNConv(features.shape[1], HIDDEN, cached=True, bias=False)
    second = GCNConv(HIDDEN, setting.objective.n_classes, cached=True, bias=False)
    optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    rows, labels = setting.objective.train

    def step() -> None:
        optimiser.zero_grad()
        hidden = torch.nn.functional.dropout(torch.relu(first(features, edge_index)), 0.5)
        loss = torch.nn.functional.cross_entropy(second(hidden, edge_index)[rows], labels)
        loss.backward()
        optimiser.step()

    return step


def as_array(features: Any) -> np.ndarray:
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    return np.ascontiguousarray(dense, dtype=np.float32)


def milliseconds(work: Callable[[], Any], budget: float, clock: Callable[[], float]) -> float:
    """The least time of several repetitions, of which there are at least 3 and at most 200."""
    work()
    taken, ends = [], time.perf_counter() + budget
    while len(taken) < 3 or (time.perf_counter() < ends and len(taken) < 200):
        started = clock()
        work()
        taken.append(clock() - started)
    return 1e3 * min(taken)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure(name: str, budget: float) -> dict[str, Any]:
    """All numbers of one data set. Memory is read before the rivals take theirs."""
    before = peak_megabytes()
    setting = prepare(name)

    def timed(found: Stages) -> dict[str, float]:
        return {key: milliseconds(f, budget, time.thread_time) for key, f in found.items()}

    result: dict[str, Any] = {"name": name, "rows": setting.problem.n_nodes}
    result["stages"] = timed(stages(setting))
    result["memory before"], result["memory"] = before, peak_megabytes()
    result["floor"] = timed(floor(setting))
    result["pyg step"] = milliseconds(pyg_step(setting), budget, time.thread_time)
    if setting.problem.n_nodes <= LARGEST_DENSE_RIVAL:
        result["dense cycle"] = milliseconds(dense_cycle(setting), budget, time.thread_time)
    return result


def measure_fit(name: str) -> dict[str, Any]:
    """A whole fit with the defaults: patience 20, evaluation on 16 samples."""
    problem, pairs = problem_of(name)
    storage = DenseEdges if problem.n_nodes <= LARGEST_DENSE_STORAGE else GrowingEdges
    edges, objective = storage(problem.n_nodes, pairs), Objective(problem, GCN(HIDDEN))
    wall, processor = time.perf_counter(), time.process_time()
    progress = learn(problem, objective, edges, Adam(0.02), Schedule(tau=TAU), Randomness(0))
    data = load(name, seed=0)
    assert progress.best is not None
    right = progress.best.probabilities.argmax(axis=1)[data.test] == data.labels[data.test]
    return {
        "name": name,
        "wall seconds": time.perf_counter() - wall,
        "processor seconds": time.process_time() - processor,
        "outer iterations": len(progress.history),
        "updates": progress.updates,
        "test accuracy": float(right.mean()),
        "memory": peak_megabytes(),
    }


def median_cycle(name: str, seconds: float) -> dict[str, float]:
    """Wall time of the median cycle; for two processes side by side."""
    setting = prepare(name)
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        started = time.perf_counter()
        setting.cycle()
        taken.append(time.perf_counter() - started)
    return {"milliseconds": 1e3 * statistics.median(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each number")
    parser.add_argument("--fit", action="store_true", help="a whole fit instead")
    parser.add_argument("--only-cycle", type=float, metavar="SECONDS", help="cycles for so long")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.fit:
        result = measure_fit(options.name)
    elif options.only_cycle:
        result = median_cycle(options.name, options.only_cycle)
    else:
        result = measure(options.name, options.budget)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
