"""Places for the nodes of a large graph, near the nodes that they are joined to."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

N_STEPS = 250
# Nodes that each node is pushed away from in a step, and how strongly.
N_OTHERS = 8
PUSH = 4.0


def sampled_layout(
    sources: ArrayLike,
    targets: ArrayLike,
    weights: ArrayLike,
    groups: NDArray[np.int64],
    rng: np.random.Generator,
    n_steps: int = N_STEPS,
) -> NDArray[np.float64]:
    """Places such that joined nodes attract, and all others repel, each other.

    The forces are those of UMAP. Each node is pushed away from a few others, drawn anew in each
    step, so that the time is linear in nodes and edges. Groups start at places on a circle and
    exert no force: that they are seen together in the end is due to the edges, but for nodes
    without any, which stay near their group.

    Parameters
    ----------
    sources, targets, weights : array-like, shape (n_edges,)
    groups : ndarray of int64, shape (n_nodes,)
    rng : numpy.random.Generator
    n_steps : int

    Returns
    -------
    ndarray, shape (n_nodes, 2), within the unit square

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> place = sampled_layout([0, 2], [1, 3], [1.0, 1.0], np.array([0, 0, 1, 1]), rng)
    >>> bool(np.hypot(*(place[0] - place[1])) < np.hypot(*(place[0] - place[2])))
    True
    """
    n_nodes = len(groups)
    ends = np.concatenate([sources, targets]).astype(np.int64)
    others = np.concatenate([targets, sources]).astype(np.int64)
    pull = np.concatenate([weights, weights]).astype(np.float64)
    strength = np.bincount(ends, pull, minlength=n_nodes)
    # A node's edges pull with their mean, so that nodes of many edges do not fly about.
    pull = pull / np.maximum(strength[ends], 1e-12)
    place = _on_a_circle(groups, rng)
    for rate in np.linspace(1.0, 0.0, n_steps, endpoint=False):
        apart = place[others] - place[ends]
        attraction = apart * (2.0 * pull / (1.0 + (apart**2).sum(axis=1)))[:, None]
        force = np.stack(
            [np.bincount(ends, attraction[:, axis], minlength=n_nodes) for axis in (0, 1)], axis=1
        )
        for _ in range(N_OTHERS):
            away = place - place[rng.integers(n_nodes, size=n_nodes)]
            square = (away**2).sum(axis=1)
            push = 2.0 / ((0.05 + square) * (1.0 + square))
            force += away * (PUSH / N_OTHERS * push)[:, None]
        # Without it, components that nothing joins would drift apart for ever.
        force -= 0.02 * (place - place.mean(axis=0))
        place = place + rate * np.clip(force, -2.0, 2.0)
    return _in_unit_square(place)


def _on_a_circle(groups: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    turn = 2.0 * np.pi * groups / max(int(groups.max(initial=0)) + 1, 1)
    centres = 8.0 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return np.asarray(centres + rng.normal(scale=2.5, size=(len(groups), 2)))


def _in_unit_square(place: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled by all but the outermost nodes, which come no further than the border."""
    if not len(place):
        return place
    low, high = np.quantile(place, [0.005, 0.995], axis=0)
    span = max(float((high - low).max()), 1e-9)
    return np.asarray((np.clip((place - low) / span, -0.05, 1.05) + 0.05) / 1.1)
