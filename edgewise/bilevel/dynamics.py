"""The inner optimiser as a differentiable map: one step Phi, and its adjoint.

A state holds the weights and the optimiser's own memory as flat vectors. `Dynamics.step` applies
``state <- Phi(state, g)`` for a gradient g. `Dynamics.adjoint` carries a cotangent of the new state
back to the old one and to g; the dependence of g itself on weights and graph is not its affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.snapshot import Snapshot


@dataclass(frozen=True)
class State:
    """Weights and optimiser memory after `count` steps.

    The memory holds nothing for gradient descent, the velocity for momentum, and the two moments
    for Adam.
    """

    weights: Tensor
    memory: tuple[Tensor, ...]
    count: int


class Adjoint(NamedTuple):
    """What a cotangent of the new state becomes one step earlier."""

    gradient: Tensor  # cotangent of g
    weights: Tensor  # cotangent of the old weights, without the path through g
    memory: tuple[Tensor, ...]
    learning_rate: Tensor  # derivative with respect to the learning rate, a scalar


class Dynamics(ABC):
    """An inner optimiser.

    Parameters
    ----------
    learning_rate : float
        May be changed between steps: it can be an outer variable itself.
    """

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def snapshot(self) -> Snapshot:
        """What changes between inner optimisations: the learning rate, if it is learned."""
        return Snapshot({"learning_rate": self.learning_rate}, {})

    def restore(self, snapshot: Snapshot) -> None:
        self.learning_rate = float(snapshot.settings["learning_rate"])

    @property
    @abstractmethod
    def n_memory(self) -> int:
        """Number of memory vectors."""

    def start(self, weights: Tensor) -> State:
        """The state before the first step."""
        memory = tuple(torch.zeros_like(weights) for _ in range(self.n_memory))
        return State(weights, memory, 0)

    @abstractmethod
    def step(self, state: State, gradient: Tensor) -> State:
        """Phi: the state after a step along `gradient`."""

    @abstractmethod
    def adjoint(
        self, state: State, gradient: Tensor, weights: Tensor, memory: tuple[Tensor, ...]
    ) -> Adjoint:
        """Pull the cotangent (`weights`, `memory`) of ``step(state, gradient)`` back."""


class SGD(Dynamics):
    """Gradient descent, ``w' = w - lr g``."""

    @property
    def n_memory(self) -> int:
        return 0

    def step(self, state: State, gradient: Tensor) -> State:
        return State(state.weights - self.learning_rate * gradient, (), state.count + 1)

    def adjoint(
        self, state: State, gradient: Tensor, weights: Tensor, memory: tuple[Tensor, ...]
    ) -> Adjoint:
        return Adjoint(-self.learning_rate * weights, weights, (), -(weights @ gradient))


class Momentum(Dynamics):
    """Heavy ball, ``u' = momentum u + g``, ``w' = w - lr u'``."""

    def __init__(self, learning_rate: float, momentum: float = 0.9) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum

    @property
    def n_memory(self) -> int:
        return 1

    def _velocity(self, state: State, gradient: Tensor) -> Tensor:
        return self.momentum * state.memory[0] + gradient

    def step(self, state: State, gradient: Tensor) -> State:
        velocity = self._velocity(state, gradient)
        return State(state.weights - self.learning_rate * velocity, (velocity,), state.count + 1)

    def adjoint(
        self, state: State, gradient: Tensor, weights: Tensor, memory: tuple[Tensor, ...]
    ) -> Adjoint:
        velocity_cotangent = memory[0] - self.learning_rate * weights
        return Adjoint(
            velocity_cotangent,
            weights,
            (self.momentum * velocity_cotangent,),
            -(weights @ self._velocity(state, gradient)),
        )


class Adam(Dynamics):
    """Adam, in the form ``w' = w - a m' / (sqrt(v') + eps)``.

    ``m' = beta1 m + (1 - beta1) g``, ``v' = beta2 v + (1 - beta2) g^2`` and
    ``a = lr sqrt(1 - beta2^t) / (1 - beta1^t)`` for the t-th step.
    """

    def __init__(
        self, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        super().__init__(learning_rate)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    @property
    def n_memory(self) -> int:
        return 2

    def _moments(self, state: State, gradient: Tensor) -> tuple[Tensor, Tensor]:
        first, second = state.memory
        return (
            torch.lerp(gradient, first, self.beta1),
            torch.addcmul(self.beta2 * second, gradient, gradient, value=1.0 - self.beta2),
        )

    def _bias_correction(self, count: int) -> float:
        correction: float = (1.0 - self.beta2**count) ** 0.5 / (1.0 - self.beta1**count)
        return correction

    def step(self, state: State, gradient: Tensor) -> State:
        first, second = self._moments(state, gradient)
        rate = self.learning_rate * self._bias_correction(state.count + 1)
        weights = torch.addcdiv(state.weights, first, second.sqrt() + self.epsilon, value=-rate)
        return State(weights, (first, second), state.count + 1)

    def adjoint(
        self, state: State, gradient: Tensor, weights: Tensor, memory: tuple[Tensor, ...]
    ) -> Adjoint:
        first, second = self._moments(state, gradient)
        correction = self._bias_correction(state.count + 1)
        rate = self.learning_rate * correction
        root = second.sqrt_()
        divisor = root + self.epsilon
        direction = weights / divisor
        slope = direction @ first
        # sqrt is not differentiable at v' = 0. There g and m' are 0 as well, the step is 0 for
        # every rate, and the derivative is taken to be 0 in place of 0/0.
        positive = root.sign()  # 1 or 0: a comparison would not be vectorised
        by_root = first.mul_(direction).div_(divisor).mul_(positive)
        by_square = by_root.div_(root.add_(1.0 - positive))  # but for the factor 1 / 2
        first_cotangent = torch.add(memory[0], direction, alpha=-rate)
        second_cotangent = torch.add(memory[1], by_square, alpha=0.5 * rate)
        by_gradient = gradient * second_cotangent
        return Adjoint(
            by_gradient.mul_(2.0 * (1.0 - self.beta2)).add_(
                first_cotangent, alpha=1.0 - self.beta1
            ),
            weights,
            (first_cotangent.mul_(self.beta1), second_cotangent.mul_(self.beta2)),
            -correction * slope,
        )
