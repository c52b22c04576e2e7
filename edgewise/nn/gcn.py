"""The graph convolutional network of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graph.sampled import Graph
from edgewise.nn.network import Features, Network, dropout, glorot_uniform


class GCN(Network):
    """Two graph convolutions without bias: ``softmax(Â relu(Â X W1) W2)``.

    Parameters
    ----------
    hidden_units : int, default=16
    dropout : float, default=0.5
        Share of the hidden layer that is dropped in training.

    Examples
    --------
    >>> import torch
    >>> from edgewise.graph.pairs import Pairs
    >>> network = GCN(hidden_units=4)
    >>> weights = network.initial_weights(3, 2, torch.Generator().manual_seed(0))
    >>> graph = Graph.from_pairs(Pairs.fold([0], [1], 3), 3, dtype=torch.float64)
    >>> network.logits(weights, torch.eye(3, dtype=torch.float64), graph).shape
    torch.Size([3, 2])
    """

    hops = 2

    def __init__(self, hidden_units: int = 16, dropout: float = 0.5) -> None:
        self.hidden_units = hidden_units
        self.dropout = dropout

    def initial_weights(
        self, n_features: int, n_classes: int, generator: torch.Generator
    ) -> list[Tensor]:
        return [
            glorot_uniform(n_features, self.hidden_units, generator),
            glorot_uniform(self.hidden_units, n_classes, generator),
        ]

    def hidden(self, weights: Sequence[Tensor], features: Features, graph: Graph) -> Tensor:
        """The hidden layer ``relu(Â X W1)``, shape (n_nodes, hidden_units)."""
        return torch.relu(graph @ (features @ weights[0]))

    def logits(
        self,
        weights: Sequence[Tensor],
        features: Features,
        graph: Graph,
        noise: torch.Generator | None = None,
    ) -> Tensor:
        hidden = dropout(self.hidden(weights, features, graph), self.dropout, noise)
        return graph @ (hidden @ weights[1])

    def penalty(self, weights: Sequence[Tensor]) -> Tensor:
        return weights[0].square().sum()
