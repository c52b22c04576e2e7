"""How to differentiate the outer loss by the edges: the truncated, re-sampled unroll.

    A ~ Ber(theta);  p <- dF/dw;  G <- dF/dA
    for the last steps, backwards:
        A_s ~ Ber(theta), afresh
        p <- p dPhi/dw (w_s, A_s);  G <- G + p dPhi/dA (w_s, A_s)

p is the cotangent of the whole state, optimiser memory included. Differentiating the gradient that
Phi consumes once more, along the cotangent, yields the Hessian-vector product and, on the graph's
tape, the factors of its derivative by the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.bilevel.dynamics import Dynamics, State
from edgewise.bilevel.losses import Losses
from edgewise.bilevel.lowrank import LowRank
from edgewise.bilevel.parts import total_of_parts
from edgewise.graph.sampled import Graph


@dataclass(frozen=True)
class Hypergradient:
    """Derivatives of the outer loss at the end of an unrolled stretch of inner steps."""

    edges: LowRank
    learning_rate: float
    weights: Tensor  # with respect to the weights at the start of the stretch
    outer_loss: float


def unrolled_hypergradient(
    losses: Losses,
    dynamics: Dynamics,
    trajectory: Sequence[State],
    draw: Callable[[], Graph],
    noise: torch.Generator,
    draw_outer: Callable[[], Graph] | None = None,
) -> Hypergradient:
    """Differentiate the outer loss at ``trajectory[-1]`` through the steps that led there.

    Parameters
    ----------
    losses : Losses
    dynamics : Dynamics
    trajectory : sequence of State
        The states before each step to differentiate through, then the last state. With the last
        one alone this is the alternating scheme, tau = 0.
    draw : callable
        Gives a freshly sampled graph, or what of it matters to a batch.
    noise : torch.Generator
        For dropout.
    draw_outer : callable, optional
        Gives the graph of the outer loss, if that is to be drawn in another way.
    """
    *earlier, last = trajectory
    graphs = [(draw_outer or draw)()]
    outer_loss, (weights, edges) = losses.outer_gradient(last.weights, graphs[0])
    parts = [edges]
    memory = tuple(torch.zeros_like(slot) for slot in last.memory)
    learning_rate = 0.0
    for state in reversed(earlier):
        graphs.append(draw())
        inner = losses.linearise_inner(state.weights, graphs[-1], noise)
        back = dynamics.adjoint(state, inner.gradient, weights, memory)
        curvature, edges = inner.along(back.gradient)
        parts.append(edges)
        weights = back.weights + curvature
        memory = back.memory
        learning_rate += float(back.learning_rate)
    return Hypergradient(total_of_parts(graphs, parts), learning_rate, weights, outer_loss)
