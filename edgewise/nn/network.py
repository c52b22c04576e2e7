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

    Attributes
    ----------
    hops : int or None
        How many products with the graph follow one another, so that nothing farther than so many
        edges from a row matters to its logits. None if unknown: then batches see whole graphs.
    """

    hops: int | None = None

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


def transposed_product(features: Features, dense: Tensor) -> Tensor:
    """``X' dense``."""
    if isinstance(features, FixedMatrix):
        return features.transposed @ dense
    return features.T @ dense


def glorot_uniform(n_in: int, n_out: int, generator: torch.Generator) -> Tensor:
    """Uniform on +-sqrt(6 / (n_in + n_out))."""
    bound = (6.0 / (n_in + n_out)) ** 0.5
    uniform = torch.rand(n_in, n_out, generator=generator, dtype=torch.float64)
    return uniform.mul_(2.0 * bound).sub_(bound)


def dropout(hidden: Tensor, rate: float, noise: torch.Generator | None) -> Tensor:
    """Zero a random share `rate` of the entries and scale up the rest; nothing without `noise`."""
    if noise is None or rate == 0.0:
        return hidden
    return hidden * dropout_mask(hidden, rate, noise)


def dropout_mask(hidden: Tensor, rate: float, noise: torch.Generator) -> Tensor:
    """What `dropout` multiplies by: 0, or the reciprocal of the share that is kept."""
    first_kept, scale = kept_lanes(rate)
    lanes = dropout_lanes(hidden.numel(), noise)
    # Clamped to two neighbouring values: a comparison would not be vectorised.
    kept = lanes.clamp_(first_kept - 1, first_kept).view(hidden.shape)
    return kept.to(hidden.dtype).sub_(first_kept - 1).mul_(scale)


def dropout_lanes(count: int, noise: torch.Generator) -> Tensor:
    """So many random 16-bit numbers.

    Four share the bits of one 64-bit random number, which costs a sixth of drawing a uniform number
    each.
    """
    bits = torch.empty(-(-count // 4), dtype=torch.int64, device=noise.device)
    return bits.random_(-(2**63), None, generator=noise).view(torch.int16)[:count]


def kept_lanes(rate: float) -> tuple[int, float]:
    """The least lane that is kept, of all 2^16, and what a kept entry is scaled by."""
    dropped = min(max(round(rate * 2**16), 1), 2**16 - 1)
    return dropped - 2**15, 2**16 / (2**16 - dropped)
