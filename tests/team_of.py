"""A program that tests start: teams of processes, each doing some work, and what comes of it.

``python team_of.py FOLDER WORK/SIZE ...`` lets SIZE processes do ``WORK()`` as torchrun would start
them, one team after the other. Each process leaves what its work returned, or the exception that it
raised, in ``FOLDER/WORK-SIZE-RANK.pickle``; one that is killed leaves nothing. The processes are
forked from this one, which has imported everything, so a team starts within milliseconds. A team of
one is this process itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import torch

from edgewise import LDSClassifier
from edgewise import team as team_module
from edgewise.bilevel.lowrank import Factors, LowRank
from edgewise.graph import growing, sharded
from edgewise.graph.construct import random_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.learn import Callback
from edgewise.nn.gcn import GCN
from edgewise.team import join_team

# So small that every process has a part of each scan for candidates.
growing.TILE_COLS = sharded.TILE_COLS = 8
N_NODES = 60
ALL_PAIRS = Pairs(*(ends.astype(np.int64) for ends in np.triu_indices(N_NODES, 1)))
QUICK = {
    "k": 4,
    "n_samples": 2,
    "max_outer_iterations": 3,
    "max_inner_steps": 10,
    "random_state": 0,
}
KINDS = {
    "dense": {"refit": True},
    "float64": {"dtype": "float64", "learn_inner_rate": True, "tau": 0},
    "sparse": {"storage": "sparse", "max_edges_per_node": 6},
}


def problem():
    rng = np.random.default_rng(0)
    truth = np.arange(40) % 2
    X = rng.normal(size=(40, 5)) + 1.5 * truth[:, None]
    return X, np.where(np.arange(40) < 24, truth, -1)


def fitted(checkpoint=None, **parameters):
    X, y = problem()
    model = LDSClassifier(**{**QUICK, **parameters}).fit(X, y, checkpoint=checkpoint)
    pairs, probability = model.edges_.above(0.0)
    return {
        "edges": type(model.edges_).__name__,
        "pairs": np.stack(pairs),
        "probability": probability,
        "expected": model.edges_.expected_edges(),
        "drawn": np.stack(model.edges_.sample(5)),
        "distributions": model.label_distributions_,
        "unseen": model.predict_proba(X[:3] + 0.01),
        "weights": model.weights_,
        "history": [{**record, "seconds": 0} for record in model.history_],
    }


# ------------------------------------------------------------------- distributions, step by step


def gradient(seed, real=np.float32):
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(N_NODES, 12, replace=False))
    left = torch.from_numpy(rng.normal(size=(12, 3)).astype(real))
    right = torch.from_numpy(rng.normal(size=(N_NODES, 3)).astype(real))
    return LowRank([Factors(rows, left, right)], rng.normal(size=N_NODES).astype(real))


def course(edges):
    """What a distribution draws and becomes."""
    rng, seen = np.random.default_rng(1), []
    for seed in range(6):
        edges.descend(gradient(seed), 0.03)
        seen += [np.stack(edges.sample(rng)) for _ in range(20)]
        if seed == 2:
            earlier, state = edges.copy(), edges.snapshot()
    seen += [np.stack(earlier.sample(9)), edges.probability(*ALL_PAIRS), *edges.above(0.3)[0]]
    edges.restore(state)
    return [*seen, np.stack(edges.sample(9)), np.array([[edges.probability(3, 1)]])], (
        edges.expected_edges()
    )


def initial():
    return random_pairs(N_NODES, n_pairs=90, rng=np.random.default_rng(0))


def dense_course():
    team, weights = join_team(), np.linspace(0.1, 1.0, 90)
    if team is None:
        return course(DenseEdges(N_NODES, initial(), weights))
    return course(sharded.ShardedEdges(team, N_NODES, initial(), weights))


def sparse_course():
    options = {"max_edges_per_node": 8, "growth_interval": 2}
    team = join_team()
    if team is None:
        return course(growing.GrowingEdges(N_NODES, initial(), **options))
    return course(sharded.SharedCandidates(team, N_NODES, initial(), **options))


def truncated():
    """All pairs probable, and room for 100 of them."""
    sharded.MOST_PAIRS = 100
    weights = np.linspace(0.001, 1.0, ALL_PAIRS.n_pairs)
    edges = sharded.ShardedEdges(join_team(), N_NODES, ALL_PAIRS, weights).whole()
    return type(edges).__name__, edges.above(0.0)[1]


def messages():
    """What a team says to each other."""
    team = join_team()
    own = np.arange(team.rank, dtype=np.float32) + 10 * team.rank
    return (
        team.gather(own),
        team.gather(own[:0]),
        team.broadcast(np.array([team.rank, 7]), source=1),
        team.received,
    )


# ---------------------------------------------------------------------- fits that go wrong


class Rounding(GCN):
    """A network whose results differ from process to process in the last bits."""

    def logits(self, weights, features, graph, noise=None):
        return super().logits(weights, features, graph, noise) * (
            1.0 + 3e-7 * int(os.environ["RANK"])
        )


class Ends(Callback):
    """Ends or stops a process in its second outer iteration."""

    def __init__(self, rank, number):
        self.rank, self.number = rank, number

    def after_update(self, edges, progress):
        if len(progress.history) == 1 and int(os.environ.get("RANK", -1)) == self.rank:
            os.kill(os.getpid(), self.number)


class Fails(Callback):
    def after_iteration(self, edges, progress):
        if os.environ["RANK"] == "1":
            raise ArithmeticError("a reason of its own")


def unequal_rounding():
    return fitted(network=Rounding())


def killed():
    return fitted("kept", callbacks=[Ends(1, signal.SIGKILL)])


def gone_on():
    return fitted(None if join_team() is None else "kept")


def hung():
    team_module.TIMEOUT = 5.0
    return fitted(callbacks=[Ends(1, signal.SIGSTOP)])


def stopped():
    return fitted(callbacks=[Ends(0, signal.SIGTERM), Ends(1, signal.SIGTERM)])


def failed():
    return fitted(callbacks=[Fails()])


def unlike():
    return fitted(random_state=int(os.environ["RANK"]))


def similarity():
    return fitted(edges="similarity")


def uneven():
    """As if the last one had been killed before it wrote what the others wrote."""
    team = join_team()
    fitted("uneven", max_outer_iterations=2)
    if team.rank == team.size - 1:
        os.replace("uneven.process-1.previous", "uneven.process-1")
    team.fence()
    return fitted("uneven")


def incomplete():
    team = join_team()
    fitted("incomplete", max_outer_iterations=1)
    if team.rank == 1:
        os.remove("incomplete.process-1")
        os.remove("incomplete.process-1.previous")
    team.fence()
    return fitted("incomplete")


def main(folder, *teams):
    os.chdir(folder)
    for team in teams:
        name, size = team.split("/")
        if size == "1":
            leave(name, 1, 0)
            continue
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
        members = [member(name, int(size), rank) for rank in range(int(size))]
        await_all(members)


def member(name, size, rank):
    child = os.fork()
    if child:
        return child
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    leave(name, size, rank)
    os._exit(0)


def leave(name, size, rank):
    work = KINDS.get(name)
    try:
        found = globals()[name]() if work is None else fitted(**work)
    except BaseException as error:
        found = error
    Path(f"{name}-{size}-{rank}.pickle").write_bytes(pickle.dumps(found))


def await_all(members):
    """A stopped process must not outlive the others: it waits for them in vain."""
    left = set(members)
    while left:
        child, status = os.waitpid(-1, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            left.discard(child)
        elif len(left) > 1:
            for other in left - {child}:
                os.waitpid(other, 0)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            left.clear()


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    main(*sys.argv[1:])
