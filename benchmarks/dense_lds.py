"""LDS as one would write it in an evening of PyTorch: what Edgewise is compared with.

Everything is dense: theta and every sampled graph are N x N, Adam is unrolled under autograd with
``create_graph``, and one backward pass gives the gradient by theta. The straight-through estimator
differentiates a sample as if it were theta. (The graphs of the unrolled steps are not drawn anew
for the backward pass, as the paper has it: that would cost this code another unroll.)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class DenseLDS:
    """Theta, the state of the inner optimisation, and one cycle of the algorithm."""

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        train: Tensor,
        validation: Tensor,
        theta: Tensor,
        *,
        hidden_units: int = 16,
        tau: int = 5,
        inner_rate: float = 0.02,
        outer_rate: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.features, self.labels = features, labels
        self.train, self.validation = train, validation
        self.theta = theta.clone().requires_grad_()
        self.tau, self.inner_rate, self.outer_rate = tau, inner_rate, outer_rate
        self.generator = torch.Generator().manual_seed(seed)
        shapes = [(features.shape[1], hidden_units), (hidden_units, int(labels.max()) + 1)]
        self.weights = [
            (torch.rand(shape, generator=self.generator) * 2 - 1) * (6 / sum(shape)) ** 0.5
            for shape in shapes
        ]
        self.moments = [(torch.zeros(shape), torch.zeros(shape)) for shape in shapes]
        self.step = 0

    def operator(self) -> Tensor:
        """The normalised adjacency of a sampled graph."""
        upper = torch.bernoulli(self.theta.detach(), generator=self.generator).triu(1)
        sample = self.theta + (upper + upper.T - self.theta).detach()  # straight through
        with_loops = sample + torch.eye(len(sample))
        scale = with_loops.sum(dim=1).rsqrt()
        return scale[:, None] * with_loops * scale

    def loss(self, weights: list[Tensor], rows: Tensor, *, training: bool) -> Tensor:
        operator = self.operator()
        hidden = torch.relu(operator @ (self.features @ weights[0]))
        logits = operator @ (functional.dropout(hidden, 0.5, training) @ weights[1])
        loss = functional.cross_entropy(logits[rows], self.labels[rows])
        return loss + 2.5e-4 * weights[0].square().sum() if training else loss

    def cycle(self) -> float:
        """Tau inner steps, then a step of theta along the hypergradient through them."""
        weights = [weight.detach().requires_grad_() for weight in self.weights]
        moments = self.moments
        for _ in range(self.tau):
            self.step += 1
            gradients = torch.autograd.grad(
                self.loss(weights, self.train, training=True), weights, create_graph=True
            )
            rate = self.inner_rate * (1 - 0.999**self.step) ** 0.5 / (1 - 0.9**self.step)
            moments = [
                (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g)
                for (m, v), g in zip(moments, gradients, strict=True)
            ]
            weights = [
                w - rate * m / ((v + 1e-16).sqrt() + 1e-8)
                for w, (m, v) in zip(weights, moments, strict=True)
            ]
        outer = self.loss(weights, self.validation, training=False)
        (gradient,) = torch.autograd.grad(outer, self.theta)
        with torch.no_grad():
            self.theta -= self.outer_rate * (gradient + gradient.T)
            self.theta.clamp_(0.0, 1.0).fill_diagonal_(0.0)
        self.weights = [weight.detach() for weight in weights]
        self.moments = [(m.detach(), v.detach()) for m, v in moments]
        return outer.item()
