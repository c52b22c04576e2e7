"""The two losses of a bilevel program, and all that the hypergradient asks of them.

Products with the graph leave what they are made of on a tape (see `Graph.recording`), so each
derivative by the weights comes with the one by the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from edgewise.bilevel.lowrank import LowRank
from edgewise.graph.sampled import Graph


class Derivatives(NamedTuple):
    """Derivatives of one number by the weights and by the graph."""

    weights: Tensor  # flat
    edges: LowRank


class Linearised(Protocol):
    """The inner loss at some weights and graph: its gradient, and where that moves."""

    gradient: Tensor

    def along(self, direction: Tensor) -> Derivatives:
        """Derivatives of ``<direction, gradient>``: the Hessian-vector product, for one."""


class Losses(ABC):
    """The inner and the outer loss as functions of flat weights and a graph.

    A subclass states the losses; automatic differentiation does the rest. One that knows its
    derivatives in closed form overrides the methods that give them.
    """

    @abstractmethod
    def leaves(self, flat: Tensor) -> list[Tensor]:
        """The weights as variables to differentiate by."""

    @abstractmethod
    def inner(self, weights: Sequence[Tensor], graph: Graph, noise: torch.Generator) -> Tensor:
        """L, what the weights are fitted to."""

    @abstractmethod
    def outer(self, weights: Sequence[Tensor], graph: Graph) -> Tensor:
        """F, what the edges are fitted to."""

    def inner_gradient(
        self, flat: Tensor, graph: Graph, noise: torch.Generator
    ) -> tuple[float, Tensor]:
        """L and its gradient by the weights."""
        leaves = self.leaves(flat)
        loss = self.inner(leaves, graph, noise)
        return loss.item(), flatten(torch.autograd.grad(loss, leaves, materialize_grads=True))

    def outer_gradient(self, flat: Tensor, graph: Graph) -> tuple[float, Derivatives]:
        """F and its derivatives."""
        leaves = self.leaves(flat)
        loss = self.outer(leaves, graph)
        with graph.recording() as tape:
            gradient = _flat_gradient([loss], leaves, graph)
        return loss.item(), Derivatives(gradient, LowRank.from_tape(graph, tape))

    def linearise_inner(self, flat: Tensor, graph: Graph, noise: torch.Generator) -> Linearised:
        """L in first and second order."""
        return _Traced(self, flat, graph, noise)


class _Traced:
    """A gradient built with ``create_graph``, differentiated again when a direction is known."""

    def __init__(self, losses: Losses, flat: Tensor, graph: Graph, noise: torch.Generator) -> None:
        self._graph = graph
        self._leaves = losses.leaves(flat)
        self._gradients = torch.autograd.grad(
            losses.inner(self._leaves, graph, noise),
            self._leaves,
            create_graph=True,
            materialize_grads=True,
        )
        self.gradient = flatten([gradient.detach() for gradient in self._gradients])

    def along(self, direction: Tensor) -> Derivatives:
        parts = direction.split([leaf.numel() for leaf in self._leaves])
        views = [part.view_as(leaf) for part, leaf in zip(parts, self._leaves, strict=True)]
        with self._graph.recording() as tape:
            product = _flat_gradient(self._gradients, self._leaves, self._graph, views)
        return Derivatives(product, LowRank.from_tape(self._graph, tape))


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _flat_gradient(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    graph: Graph,
    cotangents: Sequence[Tensor] | None = None,
) -> Tensor:
    """Gradient of the outputs, or of their inner products with cotangents, by the leaves."""
    *by_leaves, _ = torch.autograd.grad(
        outputs, [*leaves, graph.anchor], grad_outputs=cotangents, materialize_grads=True
    )
    return flatten(by_leaves)
