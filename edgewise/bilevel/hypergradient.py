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
        Gives a freshly sampled graph.
    noise : torch.Generator
        For dropout.
    """
    *earlier, last = trajectory
    outer_loss, (weights, edges) = losses.outer_gradient(last.weights, draw())
    parts = [edges]
    memory = tuple(torch.zeros_like(slot) for slot in last.memory)
    learning_rate = 0.0
    for state in reversed(earlier):
        inner = losses.linearise_inner(state.weights, draw(), noise)
        back = dynamics.adjoint(state, inner.gradient, weights, memory)
        curvature, edges = inner.along(back.gradient)
        parts.append(edges)
        weights = back.weights + curvature
        memory = back.memory
        learning_rate += float(back.learning_rate)
    return Hypergradient(LowRank.total(parts), learning_rate, weights, outer_loss)
