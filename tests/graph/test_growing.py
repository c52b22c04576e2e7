"""Candidates that follow the gradient: with room for all pairs, nothing but `DenseEdges`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.bilevel.dynamics import Adam
from edgewise.bilevel.lowrank import Factors, LowRank
from edgewise.graph.construct import random_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.growing import GrowingEdges, most_negative, thinned
from edgewise.graph.pairs import Pairs
from edgewise.learn import Schedule, learn
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective, Randomness

N_NODES = 40


def gradient(seed):
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(N_NODES, 12, replace=False))
    left, right = torch.from_numpy(rng.normal(size=(12, 3))), rng.normal(size=(N_NODES, 3))
    shift = rng.normal(size=N_NODES)
    return LowRank([Factors(rows, left, torch.from_numpy(right))], shift)


def all_pairs():
    return Pairs(*(ends.astype(np.int64) for ends in np.triu_indices(N_NODES, 1)))


@pytest.fixture
def initial():
    return random_pairs(N_NODES, n_pairs=60, rng=np.random.default_rng(0))


def test_most_negative_pairs_are_those_of_a_full_sort(initial):
    for seed in range(5):
        derivative = gradient(seed)
        everything = all_pairs()
        values = derivative.at_pairs(*everything)
        known = set(zip(*initial, strict=True))
        outside = [e for e, pair in enumerate(zip(*everything, strict=True)) if pair not in known]
        wanted = sorted(values[outside][values[outside] < 0])[:30]
        found, slopes = most_negative(derivative, N_NODES, initial, 30)
        np.testing.assert_allclose(np.sort(slopes), wanted, atol=1e-12)
        np.testing.assert_allclose(derivative.at_pairs(*found), slopes, atol=1e-12)
        assert not known & set(zip(*found, strict=True))


def test_tiles_do_not_change_the_selection(initial, monkeypatch):
    whole = most_negative(gradient(1), N_NODES, initial, 5)
    monkeypatch.setattr("edgewise.graph.growing.TILE_ROWS", 5)
    monkeypatch.setattr("edgewise.graph.growing.TILE_COLS", 7)
    for one, other in zip(
        whole[0], most_negative(gradient(1), N_NODES, initial, 5)[0], strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(3))
def test_what_two_halves_find_is_what_one_scan_finds(initial, seed):
    derivative, count = gradient(seed), 25
    whole, slopes = most_negative(derivative, N_NODES, initial, count)
    halves = [
        most_negative(derivative, N_NODES, initial, count, half)
        for half in [(0, 15), (15, N_NODES)]
    ]
    together = np.concatenate([values for _, values in halves])
    rows = np.concatenate([pairs.rows for pairs, _ in halves])
    cols = np.concatenate([pairs.cols for pairs, _ in halves])
    best = np.argsort(together)[:count]
    best = best[np.lexsort((cols[best], rows[best]))]
    np.testing.assert_array_equal(rows[best], whole.rows)
    np.testing.assert_array_equal(cols[best], whole.cols)
    np.testing.assert_allclose(together[best], slopes, rtol=1e-12)


def test_of_equal_derivatives_the_first_pairs_are_taken():
    shift = np.zeros(N_NODES)
    shift[5] = -1.0
    nothing = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    found, slopes = most_negative(LowRank([], shift), N_NODES, nothing, 10)
    assert (slopes == -1.0).all()
    assert list(zip(*found, strict=True)) == [(i, 5) for i in range(5)] + [
        (5, j) for j in range(6, 11)
    ]


@pytest.mark.parametrize(("rows", "entries"), [(4, N_NODES), (1, 4 * N_NODES + 1)])
def test_beyond_a_number_of_rows_the_scan_takes_the_strongest(rows, entries, initial, monkeypatch):
    derivative = gradient(2)
    derivative.shift[:] = 0.0
    monkeypatch.setattr("edgewise.graph.growing.SCAN_ROWS", rows)
    monkeypatch.setattr("edgewise.graph.growing.SCAN_ENTRIES", entries)
    found, slopes = most_negative(derivative, N_NODES, initial, 10_000)
    strongest = set(np.argsort(-derivative.row_bounds())[:4].tolist())
    everything = all_pairs()
    values = derivative.at_pairs(*everything)
    known = set(zip(*initial, strict=True))
    wanted = {
        pair
        for pair, value in zip(zip(*everything, strict=True), values, strict=True)
        if value < 0 and strongest & set(pair) and pair not in known
    }
    assert set(zip(*found, strict=True)) == wanted
    np.testing.assert_allclose(derivative.at_pairs(*found), slopes, atol=1e-12)


def test_with_room_for_all_pairs_it_is_the_dense_distribution(initial):
    dense = DenseEdges(N_NODES, initial, dtype=torch.float64)
    growing = GrowingEdges(
        N_NODES, initial, max_edges_per_node=N_NODES, growth_interval=1, dtype=torch.float64
    )
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    everything = all_pairs()
    for seed in range(25):
        for edges in (dense, growing):
            edges.descend(gradient(seed), 0.05)
        np.testing.assert_allclose(
            growing.probability(*everything), dense.probability(*everything), atol=1e-12
        )
        for mine, other in zip(growing.sample(ours), dense.sample(theirs), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_never_more_candidates_than_there_is_room_for(initial):
    edges = GrowingEdges(N_NODES, initial, max_edges_per_node=3, growth_interval=2)
    for seed in range(12):
        before = edges.probability(*all_pairs())
        edges.descend(gradient(seed), 0.1)
        if seed % 2 == 0:
            assert edges.pairs.n_pairs <= edges.capacity == 60
        else:  # no newcomers between growths
            assert not (edges.probability(*all_pairs())[before == 0] > 0).any()
    order = edges.pairs.rows * N_NODES + edges.pairs.cols
    assert (np.diff(order) > 0).all()


class Lot:
    """A random number that is known."""

    def __init__(self, number):
        self._number = number

    def random(self):
        return self._number


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 12))
def test_over_all_lots_every_probability_stays_what_it_was(seed, n_values, count):
    values = np.random.default_rng(seed).random(n_values) ** 6 + 1e-9
    total, n_lots = np.zeros(n_values), 1000
    for lot in (np.arange(n_lots) + 0.5) / n_lots:
        kept, factors = thinned(values, count, Lot(lot))
        assert len(kept) == min(count, n_values)
        assert (factors >= 1).all()
        total[kept] += values[kept] * factors
    np.testing.assert_allclose(total / n_lots, values, atol=2 * values.sum() / n_lots)


def test_what_is_probable_stays_as_it_is_and_the_others_stand_for_all():
    values = np.array([0.9, 0.01, 0.5, *[0.02] * 20])
    kept, factors = thinned(values, 6, np.random.default_rng(0))
    assert {0, 2} <= set(kept)
    np.testing.assert_array_equal(factors[np.isin(kept, [0, 2])], 1.0)
    # Four are left to stand for 0.01 and 20 times 0.02.
    raised = (values[kept] * factors)[~np.isin(kept, [0, 2])]
    np.testing.assert_allclose(raised, 0.41 / 4)


def test_who_stands_for_others_takes_their_steps_as_well(initial):
    edges = GrowingEdges(N_NODES, initial, max_edges_per_node=2, growth_interval=100)
    edges.descend(gradient(7), 0.1)
    before, stakes = edges.probability(*edges.pairs), edges.snapshot().arrays["stakes"]
    assert stakes.max() > 2  # there was not room for all
    derivative = gradient(8)
    edges.descend(derivative, 1e-3)
    wanted = np.clip(before - 1e-3 * stakes * derivative.at_pairs(*edges.pairs), 0.0, 1.0)
    np.testing.assert_allclose(edges.probability(*edges.pairs), wanted, atol=1e-6)


def test_stakes_that_cannot_be_are_refused(initial):
    edges = GrowingEdges(N_NODES, initial)
    kept = edges.snapshot()
    for wrong in (np.zeros(60), np.ones(59), np.full(60, np.nan)):
        spoilt = kept._replace(arrays={**kept.arrays, "stakes": wrong})
        with pytest.raises(ValueError, match="stakes"):
            edges.restore(spoilt)


def test_copy_goes_on_alike(initial):
    edges = GrowingEdges(N_NODES, initial, growth_interval=3)
    edges.descend(gradient(0), 0.1)
    twin = edges.copy()
    for seed in range(1, 5):
        edges.descend(gradient(seed), 0.1)
    for seed in range(1, 5):
        twin.descend(gradient(seed), 0.1)
    np.testing.assert_array_equal(edges.probability(*all_pairs()), twin.probability(*all_pairs()))


def test_with_room_for_all_pairs_a_whole_fit_takes_the_same_course(initial):
    rng = np.random.default_rng(0)
    labels = np.full(N_NODES, -1)
    labels[:24] = rng.integers(3, size=24)
    split = Split(np.arange(8), np.arange(8, 16), np.arange(16, 24))
    problem = Problem(rng.normal(size=(N_NODES, 5)), labels, np.arange(3), split)
    schedule = Schedule(tau=3, max_inner_steps=30, max_outer_iterations=2, n_samples=4)
    courses = []
    for edges in (
        DenseEdges(N_NODES, initial, dtype=torch.float64),
        GrowingEdges(
            N_NODES, initial, max_edges_per_node=N_NODES, growth_interval=1, dtype=torch.float64
        ),
    ):
        objective = Objective(problem, GCN(6), dtype=torch.float64)
        courses.append(
            (learn(problem, objective, edges, Adam(0.02), schedule, Randomness(0)), edges)
        )
    (dense, full), (sparse, grown) = courses
    assert [record.inner_steps for record in dense.history] == [
        record.inner_steps for record in sparse.history
    ]
    for ours, theirs in zip(dense.history, sparse.history, strict=True):
        np.testing.assert_allclose(ours.expected_edges, theirs.expected_edges, rtol=1e-9)
        np.testing.assert_allclose(ours.inner_loss, theirs.inner_loss, rtol=1e-9)
    np.testing.assert_allclose(dense.best.probabilities, sparse.best.probabilities, rtol=1e-8)
    everything = all_pairs()
    theta = full.probability(*everything)
    assert ((theta > 0) & (theta < 1)).sum() > 100  # there was something to learn
    np.testing.assert_allclose(grown.probability(*everything), theta, atol=1e-9)
