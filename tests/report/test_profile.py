"""The stopwatch counts what happened, counts nothing twice, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewise import LDSClassifier
from edgewise import learn as algorithm
from edgewise.bilevel.dynamics import Adam, Dynamics
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.report import profile as profile_module
from edgewise.report.profile import CycleClock, Profile, profiled
from edgewise.train import Objective


def functions() -> list[object]:
    return [
        vars(DenseEdges)["sample"],
        vars(DenseEdges)["descend"],
        vars(Graph)["from_pairs"],
        vars(Objective)["inner_gradient"],
        vars(Objective)["probabilities"],
        vars(Adam)["step"],
        vars(Dynamics)["step"],
        algorithm.unrolled_hypergradient,
    ]


def test_every_phase_is_counted() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    with profiled() as profile:
        classifier = LDSClassifier(k=3, max_outer_iterations=2, n_samples=4, random_state=0)
        history = classifier.fit(X, y).history_
    updates = sum(record["outer_updates"] for record in history)
    steps = sum(record["inner_steps"] for record in history)
    tau = classifier.tau
    assert tau is not None
    assert profile.calls["hypergradient"] == profile.calls["apply to edges"] == updates
    assert profile.calls["inner step"] == steps
    assert profile.calls["evaluation"] == 2
    # Each step, each step of each unrolled stretch and its end, and each evaluation.
    graphs = steps + updates * (tau + 1) + 2 * classifier.n_samples
    assert profile.calls["sample edges"] == profile.calls["build graph"] == graphs
    assert all(seconds > 0 for seconds in profile.seconds.values())
    assert sum(profile.seconds.values()) + profile.rest == pytest.approx(profile.total)
    assert profile.rest >= 0


def test_time_of_a_phase_within_a_phase_counts_once() -> None:
    profile = Profile()
    inner = profile.timed("sample edges", lambda: sum(range(100_000)))
    outer = profile.timed("hypergradient", lambda: [inner(), inner()])
    whole = profile.timed("evaluation", outer)
    assert whole() == [sum(range(100_000))] * 2
    assert profile.calls["sample edges"] == 2
    # Nearly all of it is the innermost function's, however the clock ran.
    assert profile.seconds["sample edges"] > profile.seconds["hypergradient"] >= 0
    assert profile.seconds["evaluation"] >= 0


def test_everything_is_put_back() -> None:
    before = functions()
    with profiled():
        during = functions()
    assert all(a is not b for a, b in zip(before, during, strict=True))
    assert functions() == before


def test_everything_is_put_back_after_an_error() -> None:
    before = functions()
    with pytest.raises(RuntimeError, match="on purpose"), profiled():
        raise RuntimeError("on purpose")
    assert functions() == before


def test_results_are_the_same_under_the_stopwatch() -> None:
    edges = DenseEdges(5, Pairs.fold([0, 1, 2], [1, 2, 3], n_nodes=5))
    with profiled():
        watched = edges.draw(np.random.default_rng(0))
    plain = edges.draw(np.random.default_rng(0))
    assert (watched.operator.matrix.to_dense() == plain.operator.matrix.to_dense()).all()


def test_a_table_without_updates() -> None:
    with profiled() as profile:
        pass
    assert profile.table(updates=0).row_count == 8


def test_the_clock_measures_whole_cycles_and_no_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def taking(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(profile_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(DenseEdges, "descend", taking(1.0, DenseEdges.descend))
    monkeypatch.setattr(Objective, "probabilities", taking(1000.0, Objective.probabilities))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    clock = CycleClock()
    classifier = LDSClassifier(k=3, max_outer_iterations=2, callbacks=[clock], random_state=0)
    history = classifier.fit(X, y).history_
    updates = sum(record["outer_updates"] for record in history)
    assert clock.seconds == [1.0] * (updates - len(history))
    assert clock.median() == 1.0


def test_a_clock_without_cycles_says_nothing() -> None:
    assert CycleClock().median() is None
