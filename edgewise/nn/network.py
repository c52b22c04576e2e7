"""What a network is to the rest of the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from edgewise.graph.sampled import FixedMatrix, Graph

#: Features as a network sees them: ``features @ weight`` works for both.
Features: TypeAlias = Tensor | FixedMatrix


class Network(ABC):
    """A function of weights, features and a graph, written so that all can be differentiated.

    Subclass it to put a network of your own under `learn`: keep the weights outside (they are
    outer-loop variables' business), and meet the graph only in ``graph @ H``. Multiply features by
    weights before the graph where you can: the derivative's rank is the width of H.
    """

    @abstractmethod
    def initial_weights(
        self, n_features: int, n_classes: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Fresh weights, drawn on the CPU in float64."""

    @abstractmethod
    def logits(
        self,
        weights: Sequence[Tensor],
        features: Features,
        graph: Graph,
        noise: torch.Generator | None = None,
    ) -> Tensor:
        """Class scores, shape (n_nodes, n_classes); with dropout if `noise` is given."""

    @abstractmethod
    def penalty(self, weights: Sequence[Tensor]) -> Tensor:
        """The squared norm that weight decay multiplies."""


def glorot_uniform(n_in: int, n_out: int, generator: torch.Generator) -> Tensor:
    """Uniform on +-sqrt(6 / (n_in + n_out))."""
    bound = (6.0 / (n_in + n_out)) ** 0.5
    uniform = torch.rand(n_in, n_out, generator=generator, dtype=torch.float64)
    return uniform.mul_(2.0 * bound).sub_(bound)


def dropout(hidden: Tensor, rate: float, noise: torch.Generator | None) -> Tensor:
    """Zero a random share `rate` of the entries and scale up the rest; nothing without `noise`.

    The share is resolved to 2^-16: four entries share the bits of one 64-bit random number, which
    costs a sixth of drawing a uniform number each.
    """
    if noise is None or rate == 0.0:
        return hidden
    bits = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64, device=hidden.device)
    lanes = bits.random_(-(2**63), None, generator=noise).view(torch.int16)
    dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)
    # Clamped to two neighbouring values: a comparison would not be vectorised.
    first_kept = dropped - 2**15
    kept = lanes.clamp_(first_kept - 1, first_kept)[: hidden.numel()].view(hidden.shape)
    scale = 2**16 / (2**16 - dropped)
    return hidden * kept.to(hidden.dtype).sub_(first_kept - 1).mul_(scale)
