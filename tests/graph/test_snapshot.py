"""A distribution restored from its snapshot goes on with the same bits; a wrong one is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from edgewise.bilevel.lowrank import Factors, LowRank
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import DenseEdges, EdgeDistribution
from edgewise.graph.growing import GrowingEdges
from edgewise.graph.pairs import Pairs
from edgewise.graph.similarity import SimilarityEdges
from edgewise.graph.similarity_matrix import SimilarityMatrix
from edgewise.snapshot import Snapshot

N = 20
FEATURES = np.random.default_rng(0).normal(size=(N, 4))
PAIRS = Pairs.fold([0, 2, 5, 7], [1, 3, 9, 8], N)

MAKERS = {
    "dense": lambda dtype: DenseEdges(N, PAIRS, dtype=dtype),
    "candidates": lambda dtype: CandidateEdges(N, PAIRS, [0.1, 0.9, 1.0, 0.5], dtype=dtype),
    "growing": lambda dtype: GrowingEdges(
        N, PAIRS, max_edges_per_node=6, growth_interval=2, dtype=dtype
    ),
    "similarity": lambda dtype: SimilarityEdges(
        FEATURES, n_candidates=4, expected_degree=3, metric="euclidean", dtype=dtype
    ),
    "cosine": lambda dtype: SimilarityEdges(
        FEATURES, n_candidates=4, expected_degree=3, pull=0.1, dtype=dtype
    ),
    "matrix": lambda dtype: SimilarityMatrix(N, PAIRS, dtype=dtype),
}


def gradient(seed, dtype):
    """A derivative by the edges, made up."""
    rng = np.random.default_rng(seed)
    left = torch.tensor(rng.normal(scale=0.4, size=(N, N)), dtype=dtype)
    shift = rng.normal(scale=0.1, size=N).astype(left.numpy().dtype)
    return LowRank([Factors(np.arange(N), left, torch.eye(N, dtype=dtype))], shift)


def descend(edges, seeds):
    for seed in seeds:
        edges.descend(gradient(seed, edges.dtype), 0.5)


def assert_same(first, second):
    ours, theirs = first.snapshot(), second.snapshot()
    assert ours.settings == theirs.settings
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        assert array.dtype == theirs.arrays[name].dtype
        assert array.tobytes() == theirs.arrays[name].tobytes(), name
    streams = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(3):
        assert_array_equal(first.sample(streams[0]), second.sample(streams[1]))
    assert first.expected_edges() == second.expected_edges()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_goes_on_with_the_same_bits(kind, steps, dtype):
    edges = MAKERS[kind](dtype)
    descend(edges, range(steps))
    snapshot = edges.snapshot()
    restored = MAKERS[kind](dtype)
    descend(restored, [99])  # whatever it was before does not count
    restored.restore(snapshot)
    anew = type(edges).from_snapshot(snapshot, N, FEATURES, dtype=dtype)
    for twin in (restored, anew):
        assert_same(edges, twin)
    # Nothing is shared: each goes on by itself, and the snapshot stays.
    for twin in (edges, restored, anew):
        descend(twin, range(10, 13))
    assert_same(edges, restored)
    assert_same(edges, anew)
    later = MAKERS[kind](dtype)
    later.restore(snapshot)
    descend(later, range(10, 13))
    assert_same(edges, later)


def test_few_probabilities_are_kept_with_their_places():
    edges = DenseEdges(N, PAIRS)
    assert_array_equal(edges.snapshot().arrays["theta"], np.ones(4, np.float32))
    assert len(edges.snapshot().arrays["positions"]) == 4
    descend(edges, range(3))
    assert edges.snapshot().arrays.keys() == {"theta"}


def test_a_negative_zero_is_kept():
    edges = DenseEdges(N, PAIRS)
    edges._theta[3] = -0.0
    assert np.signbit(edges.snapshot().arrays["theta"]).sum() == 1


def changed(edges, settings=None, **arrays):
    snapshot = edges.snapshot()
    return Snapshot({**snapshot.settings, **(settings or {})}, {**snapshot.arrays, **arrays})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("dense", {"theta": np.ones(4)}),
        ("dense", {"theta": np.full(4, 1.5, np.float32)}),
        ("dense", {"theta": np.full(4, np.nan, np.float32)}),
        ("dense", {"theta": np.ones((4, 1), np.float32)}),
        ("dense", {"positions": np.array([0, 1, 2, N * (N - 1) // 2])}),
        ("dense", {"positions": np.array([-1, 1, 2, 3])}),
        ("dense", {"positions": np.array([0, 1, 1, 2])}),
        ("dense", {"positions": np.array([0, 1, 2, 3], np.int32)}),
        ("candidates", {"cols": np.array([1, 3, 9, N])}),
        ("candidates", {"rows": np.array([-1, 2, 5, 7])}),
        ("candidates", {"rows": np.array([1, 2, 5, 7])}),
        ("candidates", {"rows": np.array([2, 0, 5, 7]), "cols": np.array([3, 1, 9, 8])}),
        ("candidates", {"rows": np.array([0, 2, 5])}),
        ("candidates", {"rows": np.array([0.0, 2.0, 5.0, 7.0])}),
        ("growing", {"theta": np.ones(3, np.float32)}),
        ("similarity", {"log_weights": np.zeros(3)}),
        ("similarity", {"log_weights": np.full(4, np.inf)}),
        ("similarity", {"settings": {"metric": "manhattan"}}),
        ("similarity", {"settings": {"unit": 0.0}}),
        ("similarity", {"settings": {"offset": float("nan")}}),
        ("similarity", {"settings": {"learning_rates": [0.1, 0.1]}}),
        ("matrix", {"values": np.triu(np.ones((N, N), np.float32), 1)}),
        ("matrix", {"values": np.zeros((4, N * N // 4), np.float32)}),
        ("matrix", {"values": np.full((N, N), 2.0, np.float32)}),
    ],
)
def test_what_no_distribution_holds_is_refused(kind, change):
    edges = MAKERS[kind](torch.float32)
    with pytest.raises(ValueError, match=r"snapshot|pairs|unpack"):
        edges.restore(changed(edges, **change))


def test_distributions_without_a_state_say_so():
    class Mine(DenseEdges):
        snapshot = EdgeDistribution.snapshot
        restore = EdgeDistribution.restore

    with pytest.raises(TypeError, match="Mine can be neither saved nor checkpointed: give"):
        Mine(N, PAIRS).snapshot()
    with pytest.raises(TypeError, match="Mine cannot be restored"):
        Mine(N, PAIRS).restore(Snapshot({}, {}))
