"""The derivatives of the GCN's losses, written out.

Automatic differentiation of so small a network costs several times its arithmetic. With M the mask
of ReLU and dropout together and `*` entry by entry,

    H1 = X W1,  Z1 = Â H1,  U = Z1 * M,  H2 = U W2,  Z2 = Â H2,
    C2 = dL/dZ2 = (softmax(Z2) - Y) / rows,       B2 = Â C2,  dL/dW2 = U' B2,
    C1 = dL/dZ1 = (B2 W2') * M,                   B1 = Â C1,  dL/dW1 = X' B1 + 2 rho W1,

and ``dL/dÂ = C1 H1' + C2 H2'``. Differentiating each of these along a direction V of the weights (a
d marks that below) gives the Hessian-vector product and, from the last one, the derivative of
``<V, gradient>`` by the graph.

The loss is that of a few rows: C2 is zero elsewhere, and C1 but near them, on their neighbours. So
these two, B2, and what is multiplied with them are kept and computed on those rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.bilevel.losses import Derivatives, flatten
from edgewise.bilevel.lowrank import LowRank, RowProduct
from edgewise.compiled import njit
from edgewise.graph import kernels
from edgewise.graph.sampled import Graph, SparseOperator
from edgewise.nn.network import Features, dropout_lanes, kept_lanes, transposed_product


class LabelledLoss(NamedTuple):
    """`factor` times the mean cross-entropy on some (distinct) rows, plus a squared norm of W1."""

    rows: Tensor
    labels: Tensor
    weight_decay: float = 0.0
    dropout: float = 0.0
    factor: float = 1.0


class GCNLoss:
    """A loss of the GCN at some weights: its value, its gradient, and where that moves.

    Parameters
    ----------
    loss : LabelledLoss
    weights : W1 and W2
    features, graph : X and Â, on the CPU; the graph is sparse
    noise : torch.Generator, optional
        For dropout; without it nothing is dropped.
    everywhere : bool
        Whether to compute the hidden layer on all nodes, and not only near the rows of the loss:
        derivatives by the graph need it.

    Attributes
    ----------
    value : float
    gradient : Tensor, flat
    """

    @torch.no_grad()
    def __init__(
        self,
        loss: LabelledLoss,
        weights: Sequence[Tensor],
        features: Features,
        graph: Graph,
        noise: torch.Generator | None = None,
        *,
        everywhere: bool = False,
    ) -> None:
        assert isinstance(graph.operator, SparseOperator)
        self._loss, self._features, self._graph = loss, features, graph
        self._rows = loss.rows.numpy()
        self._nodes = np.arange(graph.n_nodes)
        self._entries = graph.operator.entries
        self._near = kernels.neighbourhood(*self._entries[:2], self._rows)
        self._W1, self._W2 = weights
        self._H1 = features @ self._W1
        self._forward(noise, everywhere)
        Z2 = self._rows_of_product(self._rows, self._H2)
        self.value, P, C2 = _cross_entropy(Z2.numpy(), loss.labels.numpy(), loss.factor)
        self._Z2, self._P, self._C2 = Z2, torch.from_numpy(P), torch.from_numpy(C2)
        self._B2 = self._product_of_rows(self._rows, self._C2)[self._near]
        self._C1 = (self._B2 @ self._W2.T).mul_(self._M)
        self._B1 = self._product_of_rows(self._near, self._C1)
        by_W1 = transposed_product(features, self._B1)
        if loss.weight_decay:
            self.value += loss.weight_decay * float(self._W1.square().sum())
            by_W1.add_(self._W1, alpha=2.0 * loss.weight_decay)
        self.gradient = flatten([by_W1, self._U.T @ self._B2])

    def _forward(self, noise: torch.Generator | None, everywhere: bool) -> None:
        """Z1, U and M near the rows of the loss; H2 there, or (with Z1 and M) everywhere."""
        least, scale, lanes = 0, 1.0, np.empty(0, np.int16)
        if noise is not None and self._loss.dropout > 0.0:
            least, scale = kept_lanes(self._loss.dropout)
            lanes = dropout_lanes(self._H1.numel(), noise).numpy()
        near = torch.from_numpy(self._near)
        if everywhere:
            nodes, Z1 = self._nodes, self._graph @ self._H1
        else:
            nodes, Z1 = self._near, self._rows_of_product(self._near, self._H1)
        U, M = map(torch.from_numpy, _hidden_layer(Z1.numpy(), nodes, lanes, least, scale))
        if everywhere:
            self._U_all, self._M_all, self._H2 = U, M, U @ self._W2
            self._Z1, self._U, self._M = Z1[near], U[near], M[near]
        else:
            self._Z1, self._U, self._M = Z1, U, M
            self._H2 = U.new_empty(len(self._nodes), self._W2.shape[1])
            self._H2[near] = U @ self._W2

    def _rows_of_product(self, rows: NDArray[np.int64], dense: Tensor) -> Tensor:
        return torch.from_numpy(kernels.rows_of_product(*self._entries, rows, dense.numpy()))

    def _product_of_rows(self, rows: NDArray[np.int64], values: Tensor) -> Tensor:
        return torch.from_numpy(kernels.product_of_rows(*self._entries, rows, values.numpy()))

    def derivatives(self) -> Derivatives:
        """Derivatives of the loss by weights and graph."""
        products = [
            RowProduct(self._near, self._C1, self._Z1, self._H1, self._nodes, self._B1),
            RowProduct(self._rows, self._C2, self._Z2, self._H2, self._near, self._B2),
        ]
        return Derivatives(self.gradient, LowRank.from_rows(self._graph, products))

    @torch.no_grad()
    def along(self, direction: Tensor) -> Derivatives:
        """Derivatives of ``<direction, gradient>`` by weights and graph."""
        graph, W2 = self._graph, self._W2
        V1 = direction[: self._W1.numel()].view_as(self._W1)
        V2 = direction[self._W1.numel() :].view_as(W2)
        dH1 = self._features @ V1
        dZ1 = graph @ dH1
        dU = dZ1 * self._M_all
        dH2 = torch.addmm(self._U_all @ V2, dU, W2)
        dZ2 = self._rows_of_product(self._rows, dH2)
        weighted = self._P * dZ2
        dC2 = (weighted - self._P * weighted.sum(dim=1, keepdim=True)).mul_(
            self._loss.factor / len(dZ2)
        )
        near = torch.from_numpy(self._near)
        dB2 = self._product_of_rows(self._rows, dC2)[near]
        dC1 = torch.addmm(self._B2 @ V2.T, dB2, W2.T).mul_(self._M)
        dB1 = self._product_of_rows(self._near, dC1)
        by_W1 = transposed_product(self._features, dB1)
        by_W1.add_(V1, alpha=2.0 * self._loss.weight_decay)
        by_W2 = torch.addmm(self._U.T @ dB2, dU[near].T, self._B2)
        rows, nodes = self._rows, self._nodes
        products = [
            RowProduct(self._near, dC1, self._Z1, self._H1, nodes, dB1),
            RowProduct(self._near, self._C1, dZ1[near], dH1, nodes, self._B1),
            RowProduct(rows, dC2, self._Z2, self._H2, self._near, dB2),
            RowProduct(rows, self._C2, dZ2, dH2, self._near, self._B2),
        ]
        return Derivatives(flatten([by_W1, by_W2]), LowRank.from_rows(graph, products))


@njit(cache=True)
def _hidden_layer(
    Z1: NDArray[Any],
    nodes: NDArray[np.int64],
    lanes: NDArray[np.int16],
    least: int,
    scale: float,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """U and M: ReLU, and dropout where there are lanes (see `kept_lanes`), those of all nodes."""
    U, M = np.empty_like(Z1), np.empty_like(Z1)
    width = Z1.shape[1]
    zero, kept = Z1.dtype.type(0), Z1.dtype.type(scale)
    for k in range(len(nodes)):
        before, mask, after = Z1[k], M[k], U[k]
        for c in range(width):
            mask[c] = kept if before[c] > zero else zero
        if len(lanes) > 0:
            own = lanes[nodes[k] * width : (nodes[k] + 1) * width]
            for c in range(width):  # apart from the above: only so does either vectorise
                mask[c] = mask[c] if own[c] >= least else zero
        for c in range(width):
            after[c] = before[c] * mask[c]
    return U, M


@njit(cache=True)
def _cross_entropy(
    Z: NDArray[Any], labels: NDArray[np.int64], factor: float
) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """`factor` times the mean cross-entropy of logits, softmax, derivative by the logits."""
    P, C = np.empty_like(Z), np.empty_like(Z)
    loss = 0.0
    for k in range(len(Z)):
        largest = Z[k].max()
        total = Z.dtype.type(0)
        for c in range(Z.shape[1]):
            P[k, c] = np.exp(Z[k, c] - largest)
            total += P[k, c]
        loss += np.log(total) - (Z[k, labels[k]] - largest)
        for c in range(Z.shape[1]):
            P[k, c] /= total
            C[k, c] = (P[k, c] - (c == labels[k])) * factor / len(Z)
    return factor * loss / len(Z), P, C
