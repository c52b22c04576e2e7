"""What must hold of every result, whatever the data; and what must not make a difference.

What a permutation of the rows may change: the streams of random numbers (which edge is drawn,
which unit is dropped) know nothing of rows, so a whole fit of permuted rows is another fit. With
chances that belong to nodes instead (the same ones for the same two nodes, wherever they stand),
and without dropout, the whole of Algorithm 1 permutes, and a row without edges changes nothing.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from edgewise import LDSClassifier
from edgewise.baselines import DenseKNNLDSClassifier
from edgewise.bilevel.dynamics import Adam
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph
from edgewise.learn import Callback, Schedule, learn
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem, Split
from edgewise.train import Objective, Randomness, train_network

N = 30
ONE_UPDATE = Schedule(tau=5, max_inner_steps=5, max_outer_iterations=1, n_samples=2)


def problem(seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % 3
    features = rng.normal(size=(N, 4)) + np.eye(3, 4)[labels]
    parts = rng.permutation(N)[:24].reshape(3, 8)
    upper = np.triu(rng.random((N, N)) < 0.12, 1)
    pairs = Pairs.fold(*np.nonzero(upper), N)
    return Problem(features, labels, np.arange(3), Split(*np.sort(parts)), pairs)


def permuted(made, order):
    """Row ``order[i]`` of the old problem is row i of the new one."""
    place = np.argsort(order)
    split = Split(*(np.sort(place[getattr(made.split, name)]) for name in ROLES))
    pairs = Pairs.fold(place[made.pairs.rows], place[made.pairs.cols], N)
    return Problem(made.features[order], made.labels[order], made.classes, split, pairs)


ROLES = ("train", "validation", "early_stopping")


def objective(made, dtype=torch.float64):
    return Objective(made, GCN(8, dropout=0.0), dtype=dtype)


def trained(made, dtype=torch.float64, steps=30):
    """A network fitted on the given graph, without dropout: nothing random but its start."""
    graph = Graph.from_pairs(made.pairs, made.n_nodes, dtype=dtype)
    return train_network(
        made,
        objective(made, dtype),
        Adam(0.02),
        lambda: graph,
        Randomness(0),
        stopping_rows=None,
        max_steps=steps,
    )


def updated(made, dtype=torch.float64):
    """The edges after their first update."""
    edges = DenseEdges(made.n_nodes, made.pairs, dtype=dtype)
    learn(made, objective(made, dtype), edges, Adam(0.02), ONE_UPDATE, Randomness(0))
    return edges


def matrix(edges):
    return edges.to_scipy().toarray()


def drawn_by_node(edges, names):
    """The same edges, but what is drawn depends on the names of the two nodes, not on places."""
    draws = itertools.count()

    def sample(rng):
        (rows, cols), probability = edges.above(0.0)
        chance = np.random.default_rng(next(draws)).random((N + 1, N + 1))
        first, second = np.sort([names[rows], names[cols]], axis=0)
        drawn = chance[first, second] < probability
        return Pairs(rows[drawn], cols[drawn])

    edges.sample = sample
    return edges


def learned(made, edges, names):
    """All of Algorithm 1, with the same seed for each node; the edges and the best model."""
    schedule = Schedule(tau=4, max_inner_steps=12, max_outer_iterations=2, n_samples=3)
    drawn_by_node(edges, names)
    progress = learn(made, objective(made), edges, Adam(0.02), schedule, Randomness(0))
    return matrix(edges), progress.best


class TestPermutedRows:
    def test_a_trained_network_permutes(self):
        order = np.random.default_rng(1).permutation(N)
        first, second = trained(problem()), trained(permuted(problem(), order))
        assert_allclose(second.probabilities, first.probabilities[order], rtol=1e-9)
        assert_allclose(second.weights, first.weights, rtol=1e-7, atol=1e-10)

    def test_the_first_update_permutes(self):
        order = np.random.default_rng(1).permutation(N)
        first, second = matrix(updated(problem())), matrix(updated(permuted(problem(), order)))
        moved = (first > 0) & (first < 1)
        assert moved.sum() > 50  # else there would be nothing to compare
        assert_allclose(second, first[np.ix_(order, order)], rtol=1e-7, atol=1e-12)

    def test_all_that_is_learned_permutes(self):
        order = np.random.default_rng(1).permutation(N)
        made, moved = problem(), permuted(problem(), order)
        wide = {"dtype": torch.float64}
        first, one = learned(made, DenseEdges(N, made.pairs, **wide), np.arange(N))
        second, other = learned(moved, DenseEdges(N, moved.pairs, **wide), order)
        assert ((first > 0) & (first < 1)).sum() > 50
        assert_allclose(second, first[np.ix_(order, order)], rtol=1e-6, atol=1e-9)
        assert_allclose(other.probabilities, one.probabilities[order], rtol=1e-6)
        assert_allclose(other.scores, one.scores, rtol=1e-6)

    def test_labels_by_other_names_change_nothing(self):
        made = problem()
        y = np.where(np.arange(N) < 20, made.labels, -1)
        names = np.array(["a", "b", "c", ""])[y]
        quick = {"k": 3, "max_outer_iterations": 2, "max_inner_steps": 10, "random_state": 0}
        first = LDSClassifier(**quick).fit(made.features, y)
        second = LDSClassifier(**quick).fit(made.features, names)
        assert_array_equal(first.label_distributions_, second.label_distributions_)
        assert_array_equal(np.array(["a", "b", "c"])[first.transduction_], second.transduction_)


class TestIsolatedRow:
    """A row that has no edges, and is no candidate for any."""

    @pytest.fixture
    def extended(self):
        made = problem()
        features = np.vstack([made.features, np.full((1, 4), 7.0)])
        return Problem(features, np.append(made.labels, -1), made.classes, made.split, made.pairs)

    def test_nothing_else_changes(self, extended):
        first, second = trained(problem()), trained(extended)
        assert_allclose(second.probabilities[:N], first.probabilities, rtol=1e-12)
        assert_allclose(second.weights, first.weights, rtol=1e-12)

    def test_all_that_is_learned_stays_the_same(self, extended):
        made = problem()
        candidates = Pairs(*np.triu_indices(N, 1))
        start = np.where(np.arange(candidates.n_pairs) % 5 == 0, 0.5, 0.0)
        found = [
            learned(
                each,
                CandidateEdges(each.n_nodes, candidates, start, dtype=torch.float64),
                np.arange(N + 1),
            )
            for each in (made, extended)
        ]
        (first, one), (second, other) = found
        assert ((first > 0) & (first < 1)).sum() > 50
        assert_allclose(second[:N, :N], first, rtol=1e-9, atol=1e-12)
        assert not second[N].any()
        assert_allclose(other.probabilities[:N], one.probabilities, rtol=1e-9)
        assert np.isfinite(other.probabilities[N]).all()

    def test_it_gets_a_prediction_of_its_own(self, extended):
        own = trained(extended).probabilities[N]
        assert np.isfinite(own).all()
        assert own.sum() == pytest.approx(1.0)


class TestPrecision:
    def test_single_and_double_agree_for_some_steps(self):
        wide, narrow = trained(problem(), steps=10), trained(problem(), torch.float32, 10)
        assert narrow.weights.dtype == torch.float32
        assert_allclose(narrow.probabilities, wide.probabilities, rtol=1e-4)

    def test_the_first_update_agrees(self):
        wide, narrow = matrix(updated(problem())), matrix(updated(problem(), torch.float32))
        assert_allclose(narrow, wide, rtol=1e-3, atol=1e-5)

    def test_the_number_of_threads_makes_no_difference(self):
        """On a table so large that PyTorch does divide the work."""
        rng = np.random.default_rng(0)
        n_rows = 1200
        labels = np.arange(n_rows) % 3
        features = rng.normal(size=(n_rows, 200)) + 3.0 * np.eye(3, 200)[labels]
        split = Split(*rng.permutation(n_rows)[:600].reshape(3, 200))
        ends = rng.integers(n_rows, size=(2, 3 * n_rows))
        pairs = Pairs.fold(*ends[:, ends[0] != ends[1]], n_rows)
        made = Problem(features, labels, np.arange(3), split, pairs)
        before = torch.get_num_threads()
        found = []
        try:
            for threads in (1, 3):
                torch.set_num_threads(threads)
                found.append((trained(made, steps=5).probabilities, updated(made).above(-1.0)[1]))
        finally:
            torch.set_num_threads(before)
        for first, second in zip(*found, strict=True):
            assert_allclose(first, second, rtol=1e-9, atol=1e-12)


class Watching(Callback):
    """Every probability is one, after every update."""

    def __init__(self):
        self.updates = 0

    def after_update(self, edges, progress):
        values = edges.above(-1.0)[1]
        assert np.isfinite(values).all()
        assert ((values >= 0) & (values <= 1)).all()
        assert 0 <= edges.expected_edges() <= edges.n_nodes * (edges.n_nodes - 1) / 2
        self.updates += 1


def table(n_rows, n_features, n_classes, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(n_rows) % n_classes
    X = np.round(rng.normal(size=(n_rows, n_features)), 1)  # equal distances, zeros
    X[:, 0] = X[0, 0]
    X[rng.integers(n_rows)] = 0.0
    return X, np.where(rng.permutation(n_rows) < max(3 * n_classes, n_rows // 2), labels, -1)


@settings(max_examples=12)
@given(
    n_rows=st.integers(10, 24),
    n_features=st.integers(1, 5),
    n_classes=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    storage=st.sampled_from(["dense", "sparse"]),
    metric=st.sampled_from(["cosine", "euclidean"]),
    tau=st.sampled_from([0, 1, 5, None]),
    rate=st.sampled_from([0.1, 1.0, 1e6]),
    dtype=st.sampled_from(["float32", "float64"]),
    given_graph=st.booleans(),
)
@pytest.mark.filterwarnings("ignore:no training row has a label")
def test_any_small_problem_through_fit_predict_save_load(
    tmp_path_factory, n_rows, n_features, n_classes, seed, storage, metric, tau, rate, dtype,
    given_graph,
):  # fmt: skip
    X, y = table(n_rows, n_features, n_classes, seed)
    watch = Watching()
    classifier = LDSClassifier(
        3,
        storage=storage,
        metric=metric,
        tau=tau,
        outer_learning_rate=rate,
        dtype=dtype,
        max_edges_per_node=4,
        max_outer_iterations=2,
        max_inner_steps=8,
        n_samples=2,
        callbacks=[watch],
        random_state=seed,
    )
    fitted = classifier.fit(X, y, [(0, 1), (1, 2), (4, 7)] if given_graph else None)
    assert watch.updates > 0
    rows = np.vstack([X, table(5, n_features, 1, seed + 1)[0], np.full((1, n_features), 1e6)])
    predicted = fitted.predict_proba(rows)
    assert np.isfinite(predicted).all()
    assert (predicted >= 0).all()
    assert_allclose(predicted.sum(axis=1), 1.0)
    # Among other rows, equal ones cannot be told apart: the first speaks for all of them.
    first = np.unique(X, axis=0, return_index=True)[1]
    assert_array_equal(predicted[first], fitted.label_distributions_[first])
    assert_array_equal(fitted.predict_proba(X), fitted.label_distributions_)
    folder = tmp_path_factory.mktemp("numerics") / "model"
    fitted.save(folder)
    loaded = LDSClassifier.load(folder)
    assert_array_equal(loaded.predict_proba(rows), predicted)
    assert type(loaded.edges_) is type(fitted.edges_)
    drawn = [model.edges_.sample(np.random.default_rng(0)) for model in (fitted, loaded)]
    assert_array_equal(*drawn)


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (LDSClassifier, {"edges": "similarity", "metric": "cosine"}),
        (LDSClassifier, {"edges": "similarity", "metric": "euclidean"}),
        (DenseKNNLDSClassifier, {"metric": "euclidean", "max_outer_iterations": 2}),
    ],
)
def test_other_distributions_are_saved_as_well(tmp_path, cls, parameters):
    X, y = table(20, 4, 2, 0)
    fitted = cls(3, max_inner_steps=8, n_samples=2, random_state=0, **parameters).fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model")
    rows = np.vstack([X, X[:4] + 0.05])
    assert_array_equal(loaded.predict_proba(rows), fitted.predict_proba(rows))
    assert type(loaded.edges_) is type(fitted.edges_)
    assert_array_equal(matrix(loaded.edges_), matrix(fitted.edges_))


@pytest.mark.slow
def test_memory_stays_flat_over_200_outer_iterations():
    """A leak of one copy of the probabilities (28 kB) an iteration would be seen three times."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc/self/statm to read the resident size")
    page = pytest.importorskip("resource").getpagesize()

    class Scales(Callback):
        sizes: list[int] = []  # noqa: RUF012 - one instance

        def after_iteration(self, edges, progress):
            self.sizes.append(int(statm.read_text().split()[1]) * page)

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 4)), np.where(np.arange(120) < 30, np.arange(120) % 2, -1)
    scales = Scales()
    LDSClassifier(
        3,
        patience=200,
        max_outer_iterations=200,
        max_inner_steps=5,
        n_samples=1,
        callbacks=[scales],
        random_state=0,
    ).fit(X, y)
    assert len(scales.sizes) == 200
    early, late = (statistics.median(scales.sizes[a : a + 50]) for a in (50, 150))
    assert (late - early) / 100 < 9_000
