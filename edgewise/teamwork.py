"""Algorithm 1 on several processes: what they must have in common, and what each keeps for itself.

The loop itself is that of one process, and runs in all of them. The probabilities of the edges are
shared (`edgewise.graph.sharded`); the network, its weights and the low-rank factors of the
hypergradient are computed by all from the same random streams. So that nothing depends on whether
two processors round alike, the gradient and the predictions of the first process count for all:
they decide how each goes on.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.sampled import Graph
from edgewise.graph.sharded import ShardedEdges, SharedCandidates
from edgewise.inputs import EdgewiseWarning
from edgewise.nn.network import Network
from edgewise.problem import Problem
from edgewise.team import Team
from edgewise.train import Objective


class SharedObjective(Objective):
    """Losses that are, to the last bit, the same in all processes.

    Parameters
    ----------
    team : Team
    problem, network, options
        As for `Objective`, the same in all processes.
    """

    def __init__(self, team: Team, problem: Problem, network: Network, **options: Any) -> None:
        super().__init__(problem, network, **options)
        self._team = team

    def inner_gradient(
        self, flat: Tensor, graph: Graph, noise: torch.Generator
    ) -> tuple[float, Tensor]:
        loss, gradient = super().inner_gradient(flat, graph, noise)
        (loss,) = self._team.broadcast(np.array([loss]))
        return float(loss), self._team.broadcast_tensor(gradient)

    def probabilities(self, flat: Tensor, graphs: Sequence[Graph]) -> NDArray[np.float64]:
        return self._team.broadcast(super().probabilities(flat, graphs))


def require_alike(team: Team, identity: Mapping[str, Any]) -> None:
    """Refuse to begin if the processes were not given the same.

    Parameters
    ----------
    team : Team
    identity : dict
        All that has a say in the course of a fit, by name, in JSON's types.
    """
    names = sorted(identity)
    texts = [json.dumps([name, identity[name]], sort_keys=True) for name in names]
    own = np.array([int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) for text in texts])
    first, *others = team.gather(own)
    for rank, theirs in enumerate(others, start=1):
        if not np.array_equal(first, theirs):
            name = names[int(np.flatnonzero(first != theirs)[0])]
            raise ValueError(
                f"{name} is another one in process {rank} than in process 0: all processes of a "
                "fit must call it with the same arguments, and an integer random_state."
            )


def require_shared(edges: EdgeDistribution) -> None:
    """Refuse distributions that several processes cannot share."""
    if not isinstance(edges, (ShardedEdges, SharedCandidates)):
        raise ValueError(
            f"a {type(edges).__name__} cannot be shared by several processes: start without "
            "torchrun, or use LDSClassifier(edges='free')."
        )


def in_one_piece(edges: EdgeDistribution) -> EdgeDistribution:
    """The learned distribution as each process can use it alone."""
    assert isinstance(edges, (ShardedEdges, SharedCandidates))
    whole = edges.whole()
    kept, learned = whole.expected_edges(), edges.expected_edges()
    if learned - kept > 1e-6 * learned:
        warnings.warn(
            f"edges_ holds the {whole.above(0.0)[0].n_pairs:,} most probable pairs only: they make "
            f"{kept:,.1f} of {learned:,.1f} expected edges.",
            EdgewiseWarning,
            stacklevel=2,
        )
    return whole
