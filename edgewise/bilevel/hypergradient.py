"""How to differentiate the outer loss by the edges: the truncated, re-sampled unroll.

    A ~ Ber(theta);  p <- dF/dw;  G <- dF/dA
    for the last steps, backwards:
        A_s ~ Ber(theta), afresh
        p <- p dPhi/dw (w_s, A_s);  G <- G + p dPhi/dA (w_s, A_s)

p is the cotangent of the whole state, optimiser memory included. The gradient that Phi consumes is
built with ``create_graph``; differentiating it once more along the cotangent yields the
Hessian-vector product and, on the graph's tape, the factors of its derivative by the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from edgewise.bilevel.dynamics import Dynamics, State
from edgewise.bilevel.lowrank import LowRank
from edgewise.graph.sampled import Graph


class Losses(Protocol):
    """The pair of losses of a bilevel program (see `edgewise.train.Objective`)."""

    def leaves(self, flat: Tensor) -> list[Tensor]: ...

    def inner(self, weights: Sequence[Tensor], graph: Graph, noise: torch.Generator) -> Tensor: ...

    def outer(self, weights: Sequence[Tensor], graph: Graph) -> Tensor: ...


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
    graph = draw()
    leaves = losses.leaves(last.weights)
    outer = losses.outer(leaves, graph)
    with graph.recording() as tape:
        weights = _flat_gradient(outer, leaves, graph)
    parts = [LowRank.from_tape(graph, tape)]
    memory = tuple(torch.zeros_like(slot) for slot in last.memory)
    learning_rate = 0.0
    for state in reversed(earlier):
        graph = draw()
        leaves = losses.leaves(state.weights)
        gradients = torch.autograd.grad(
            losses.inner(leaves, graph, noise), leaves, create_graph=True, materialize_grads=True
        )
        flat = torch.cat([gradient.detach().reshape(-1) for gradient in gradients])
        back = dynamics.adjoint(state, flat, weights, memory)
        with graph.recording() as tape:
            curvature = _flat_gradient(gradients, leaves, graph, back.gradient)
        parts.append(LowRank.from_tape(graph, tape))
        weights = back.weights + curvature
        memory = back.memory
        learning_rate += float(back.learning_rate)
    return Hypergradient(LowRank.total(parts), learning_rate, weights, outer.item())


def _flat_gradient(
    outputs: Tensor | Sequence[Tensor],
    leaves: Sequence[Tensor],
    graph: Graph,
    cotangent: Tensor | None = None,
) -> Tensor:
    """Gradient of the outputs, or of their inner product with a flat cotangent, by the leaves."""
    grad_outputs = None
    if cotangent is not None:
        sizes = [leaf.numel() for leaf in leaves]
        parts = zip(cotangent.split(sizes), leaves, strict=True)
        grad_outputs = [part.view_as(leaf) for part, leaf in parts]
    *by_leaves, _ = torch.autograd.grad(
        outputs, [*leaves, graph.anchor], grad_outputs=grad_outputs, materialize_grads=True
    )
    return torch.cat([gradient.reshape(-1) for gradient in by_leaves])
