"""Semi-supervised embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.baselines.base import (
    COUNT,
    KNN_SPACE,
    METRICS,
    NON_NEGATIVE,
    POSITIVE,
    Metric,
    SearchSpace,
)
from edgewise.baselines.manifold import laplacian
from edgewise.baselines.networks import NetworkBaseline, RowNetworkBaseline
from edgewise.graph.construct import knn_pairs
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import FixedMatrix, Graph
from edgewise.nn.gcn import GCN
from edgewise.problem import Problem
from edgewise.train import Objective


class EmbeddingObjective(Objective):
    """The inner loss of the paper plus Weston's penalty on the hidden layer.

    Parameters
    ----------
    pairs : Pairs
        Neighbours.
    embedding_weight, margin : float
    **options
        Of `Objective`.
    """

    def __init__(
        self,
        problem: Problem,
        network: GCN,
        pairs: Pairs,
        *,
        embedding_weight: float,
        margin: float,
        **options: Any,
    ) -> None:
        super().__init__(problem, network, **options)
        self.network: GCN = network
        self.embedding_weight = embedding_weight
        self.margin = margin
        self._n_nodes = problem.n_nodes
        mean = laplacian(pairs, problem.n_nodes) / max(1, pairs.n_pairs)
        self._roughness = FixedMatrix.from_scipy(mean, self.dtype, self.device)
        keys = pairs.rows * problem.n_nodes + pairs.cols
        self._keys = torch.from_numpy(keys).to(self.device)

    def inner(self, weights: Sequence[Tensor], graph: Graph, noise: torch.Generator) -> Tensor:
        """Cross-entropy, weight decay, and the penalty on the hidden layer without dropout."""
        hidden = self.network.hidden(weights, self.features, graph)
        penalty = embedding_penalty(hidden, self._roughness, self._strangers(noise), self.margin)
        return super().inner(weights, graph, noise) + self.embedding_weight * penalty

    def _strangers(self, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many random pairs as there are rows, without those that are neighbours."""
        first, second = torch.randint(
            self._n_nodes, (2, self._n_nodes), generator=noise, device=self.device
        )
        keys = torch.minimum(first, second) * self._n_nodes + torch.maximum(first, second)
        strange = ~torch.isin(keys, self._keys) & (first != second)
        return first[strange], second[strange]


def embedding_penalty(
    hidden: Tensor, roughness: FixedMatrix, far: tuple[Tensor, Tensor], margin: float
) -> Tensor:
    """Weston's loss: neighbours are pulled together, other pairs pushed apart up to a margin.

    The mean of ``|h_i - h_j|^2`` over neighbours, plus the mean of ``max(0, margin - |h_i -
    h_j|)^2`` over `far`; a mean over no pairs counts 0.

    Parameters
    ----------
    roughness : FixedMatrix
        The neighbours' Laplacian over their number: ``tr(H' roughness H)`` is the first mean.

    Examples
    --------
    >>> hidden = torch.tensor([[0.0], [0.5], [0.75]])
    >>> one_pair = laplacian(Pairs.fold([0], [1], n_nodes=3), n_nodes=3)
    >>> roughness = FixedMatrix.from_scipy(one_pair, torch.float32, torch.device("cpu"))
    >>> embedding_penalty(hidden, roughness, (torch.tensor([0]), torch.tensor([2])), margin=1.0)
    tensor(0.3125)
    """
    near = (hidden * (roughness @ hidden)).sum()
    if not len(far[0]):
        return near
    first, second = (hidden.index_select(0, side) for side in far)
    squared = (first - second).square().sum(dim=1)
    # The root has no derivative at 0, where rows that coincide have no direction to part in.
    apart = squared > 0
    distance = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
    return near + torch.relu(margin - distance).square().mean()


@dataclass(kw_only=True, eq=False, repr=False)
class SemiEmbClassifier(RowNetworkBaseline):
    """Semi-supervised embedding (Weston, Ratle, Mobahi and Collobert, 2008).

    The two-layer network without a graph, whose hidden layer is pulled together over the pairs of
    the kNN graph and pushed apart up to a margin over random other pairs, drawn at every step.
    The graph shapes the weights; predictions need none.

    Parameters
    ----------
    k : int, default=10
        Neighbours a row.
    metric : {"cosine", "euclidean"}, default="cosine"
    embedding_weight : float, default=10.0
        Factor of the penalty.
    margin : float, default=1.0

    Other parameters are those of `NetworkBaseline`.

    Examples
    --------
    >>> from edgewise.baselines import SemiEmbClassifier
    >>> X, y = [[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]], [0, 0, 0, 1, 1, -1]
    >>> SemiEmbClassifier(2, metric="euclidean", random_state=0).fit(X, y).predict([[-0.7], [0.7]])
    array([0, 1])
    """

    k: int = field(default=10, kw_only=False)
    metric: Metric = "cosine"
    embedding_weight: float = 10.0
    margin: float = 1.0

    search_space: ClassVar[SearchSpace] = {
        **KNN_SPACE,
        **NetworkBaseline.search_space,
        "embedding_weight": (0.01, 0.1, 1.0, 10.0, 100.0),
        "margin": (0.3, 1.0, 3.0),
    }
    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's convention
        **NetworkBaseline._parameter_constraints,
        "k": COUNT,
        "metric": METRICS,
        "embedding_weight": NON_NEGATIVE,
        "margin": POSITIVE,
    }

    def _objective(self, problem: Problem) -> Objective:
        return EmbeddingObjective(
            problem,
            self._network(),
            knn_pairs(problem.features, self.k, metric=self.metric),
            embedding_weight=self.embedding_weight,
            margin=self.margin,
            weight_decay=self.weight_decay,
            dtype=self._torch_dtype(),
            device=self.device,
        )
