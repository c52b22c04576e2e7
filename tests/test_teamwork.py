"""Fits on several processes: equal to those of one, and ended by a lost process with a word."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from edgewise.checkpoint import CheckpointError
from edgewise.graph.sharded import balanced_rows
from edgewise.team import LostProcessError

PROGRAM = Path(__file__).with_name("team_of.py")
ALONE = ["dense", "float64", "sparse", "dense_course", "sparse_course", "gone_on"]
EQUAL = [
    *["dense/2", "dense/4", "float64/2", "sparse/2"],
    *["dense_course/2", "dense_course/4", "sparse_course/2", "sparse_course/4"],
]
OTHERS = ["messages/4", "truncated/2", "unequal_rounding/2", "uneven/2"]
BAD = ["unlike/2", "similarity/2", "incomplete/2", "failed/2", "stopped/2", "hung/2"]
# The same file, one after the other.
KILLED = ["killed/2", "gone_on/3", "gone_on/2"]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What the processes of a team returned or raised; None for one that was killed."""
    folder = tmp_path_factory.mktemp("teams")
    alone = [f"{work}/1" for work in ALONE]
    subprocess.run(
        [sys.executable, PROGRAM, folder, *alone, *EQUAL, *OTHERS, *BAD, *KILLED],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=400,
    )

    def read(team):
        name, size = team.split("/")
        paths = [folder / f"{name}-{size}-{rank}.pickle" for rank in range(int(size))]
        return [pickle.loads(path.read_bytes()) if path.exists() else None for path in paths]

    return read


def assert_same(one, other):
    for name in ("pairs", "probability", "drawn", "distributions", "unseen"):
        assert_array_equal(one[name], other[name])
    for mine, theirs in zip(one["weights"], other["weights"], strict=True):
        assert_array_equal(mine, theirs)
    assert one["edges"] == other["edges"]
    for record, expected in zip(one["history"], other["history"], strict=True):
        # A sum over processes: the only one whose order is another one.
        assert record == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("team", [team for team in EQUAL if "course" not in team])
def test_a_fit_on_several_processes_is_that_of_one_to_the_last_bit(team, outcome):
    (expected,) = outcome(f"{team[:-2]}/1")
    for found in outcome(team):
        assert_same(found, expected)


@pytest.mark.parametrize("team", [team for team in EQUAL if "course" in team])
def test_a_shared_distribution_draws_and_becomes_what_it_would_alone(team, outcome):
    ((expected, edges),) = outcome(f"{team[:-2]}/1")
    for seen, of_edges in outcome(team):
        for mine, theirs in zip(seen, expected, strict=True):
            assert_array_equal(mine, theirs)
        assert of_edges == pytest.approx(edges, rel=1e-12)


@pytest.mark.parametrize(("n_nodes", "n_parts"), [(3, 2), (5, 3), (60, 4), (1000, 7)])
def test_rows_are_divided_by_pairs(n_nodes, n_parts):
    bounds = balanced_rows(n_nodes, n_parts)
    assert bounds[0] == 0
    assert bounds[-1] == n_nodes
    before = np.concatenate([[0], np.cumsum(np.arange(n_nodes - 1, -1, -1))])
    pairs = np.diff(before[bounds])
    assert pairs.min() > 0
    assert np.abs(pairs - before[-1] / n_parts).max() <= n_nodes


def test_more_processes_than_rows_are_refused():
    with pytest.raises(ValueError, match="4 rows are too few to be divided among 4 processes"):
        balanced_rows(4, 4)


def test_messages_arrive_and_are_counted(outcome):
    for rank, (vectors, empty, sent, received) in enumerate(outcome("messages/4")):
        assert [vector.tolist() for vector in vectors] == [[], [10], [20, 21], [30, 31, 32]]
        assert [vector.tolist() for vector in empty] == [[]] * 4
        assert sent.tolist() == [1, 7]
        # Three lengths and three vectors of three numbers; three lengths; two numbers.
        assert received == 3 * 8 + 3 * 3 * 4 + 3 * 8 + (0 if rank == 1 else 16)


def test_a_distribution_too_large_for_one_process_is_cut_by_probability(outcome):
    everything = np.linspace(0.001, 1.0, 60 * 59 // 2).astype(np.float32)
    for kind, probability in outcome("truncated/2"):
        assert kind == "CandidateEdges"
        assert_array_equal(probability, everything[-100:])


def test_processors_that_round_differently_take_the_same_decisions(outcome):
    first, second = outcome("unequal_rounding/2")
    assert first["history"] == second["history"]
    assert_array_equal(first["pairs"], second["pairs"])


@pytest.mark.parametrize(
    ("team", "error", "message"),
    [
        ("unlike/2", ValueError, "random_state is another one in process 1 than in process 0"),
        ("similarity/2", ValueError, "start it without torchrun"),
        ("incomplete/2", CheckpointError, "process 1 has none, and process 0 one after 1"),
        ("gone_on/3", CheckpointError, "processes was 2 and is 3"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(team, error, message, outcome):
    found = outcome(team)
    assert isinstance(found[0], error)
    assert message in str(found[0])
    assert all(isinstance(other, (error, LostProcessError)) for other in found[1:])


def test_a_killed_process_ends_the_others_and_the_fit_goes_on_from_the_checkpoint(outcome):
    survivor, killed = outcome("killed/2")
    assert killed is None
    assert isinstance(survivor, LostProcessError)
    assert str(survivor).startswith("process 1 of 2 was lost")
    (whole,) = outcome("gone_on/1")
    for found in outcome("gone_on/2"):
        assert_same(found, whole)


def test_a_process_that_was_faster_when_all_were_killed_takes_a_step_back(outcome):
    (whole,) = outcome("gone_on/1")
    for found in outcome("uneven/2"):
        assert_same(found, whole)


@pytest.mark.parametrize(
    ("team", "message"),
    [
        ("hung/2", "process 1 of 2 was lost, or does not answer (no answer for 5 s)"),
        ("failed/2", "process 1 of 2 failed: ArithmeticError: a reason of its own"),
        ("stopped/2", "the 2 processes of this fit were stopped (SIGTERM)"),
    ],
)
def test_whatever_ends_the_others_is_named(team, message, outcome):
    first = outcome(team)[0]
    assert isinstance(first, LostProcessError)
    assert str(first) == message
