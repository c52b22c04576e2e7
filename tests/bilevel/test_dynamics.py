from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from edgewise.bilevel.dynamics import SGD, Adam, Momentum, State

DYNAMICS = {
    "sgd": lambda: SGD(0.1),
    "momentum": lambda: Momentum(0.05, momentum=0.8),
    "adam": lambda: Adam(0.02),
    "adam, other constants": lambda: Adam(0.1, beta1=0.6, beta2=0.9, epsilon=1e-3),
}


def normal(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def torch_optimiser(dynamics, weights):
    rate = dynamics.learning_rate
    if isinstance(dynamics, SGD):
        return torch.optim.SGD([weights], lr=rate)
    if isinstance(dynamics, Momentum):
        return torch.optim.SGD([weights], lr=rate, momentum=dynamics.momentum)
    return torch.optim.Adam([weights], lr=rate, betas=(dynamics.beta1, dynamics.beta2))


@pytest.mark.parametrize("name", DYNAMICS)
def test_steps_are_those_of_torch_optim(name):
    dynamics = DYNAMICS[name]()
    state = dynamics.start(normal(0, 9))
    reference = state.weights.clone().requires_grad_()
    optimiser = torch_optimiser(dynamics, reference)
    for t in range(1, 30):
        gradient = normal(t, 9) * 10.0 ** float(normal(100 + t, 1))
        if isinstance(dynamics, Adam):
            # PyTorch divides by sqrt(v') / sqrt(1 - beta2^t) + eps', so the paper's epsilon (of
            # TensorFlow's form) is eps' = eps / sqrt(1 - beta2^t).
            optimiser.param_groups[0]["eps"] = dynamics.epsilon / (1 - dynamics.beta2**t) ** 0.5
        reference.grad = gradient.clone()
        optimiser.step()
        state = dynamics.step(state, gradient)
        assert state.count == t
        assert_allclose(state.weights, reference.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", DYNAMICS)
def test_a_step_leaves_the_old_state_alone(name):
    dynamics = DYNAMICS[name]()
    state = dynamics.step(dynamics.start(normal(0, 5)), normal(1, 5))
    before = [slot.clone() for slot in (state.weights, *state.memory)]
    gradient = normal(2, 5)
    dynamics.adjoint(state, gradient, normal(3, 5), tuple(normal(4, 5) for _ in state.memory))
    dynamics.step(state, gradient)
    for now, then in zip((state.weights, *state.memory), before, strict=True):
        assert torch.equal(now, then)
    assert torch.equal(gradient, normal(2, 5))


def plain_step(dynamics, rate, weights, memory, count, gradient):
    """Phi written out once more, for autograd."""
    if isinstance(dynamics, SGD):
        return (weights - rate * gradient,)
    if isinstance(dynamics, Momentum):
        velocity = dynamics.momentum * memory[0] + gradient
        return weights - rate * velocity, velocity
    b1, b2, t = dynamics.beta1, dynamics.beta2, count + 1
    m = b1 * memory[0] + (1 - b1) * gradient
    v = b2 * memory[1] + (1 - b2) * gradient**2
    a = rate * (1 - b2**t) ** 0.5 / (1 - b1**t)
    return weights - a * m / (v.sqrt() + dynamics.epsilon), m, v


@pytest.mark.parametrize("name", DYNAMICS)
@pytest.mark.parametrize("count", [0, 1, 17])
def test_adjoint_is_that_of_autograd(name, count):
    dynamics = DYNAMICS[name]()
    n_memory = dynamics.n_memory
    weights, gradient = normal(1, 6), normal(2, 6)
    memory = (normal(3, 6), normal(4, 6).square())[:n_memory]
    if count == 0:
        memory = tuple(torch.zeros_like(slot) for slot in memory)
    cotangents = [normal(5 + k, 6) for k in range(1 + n_memory)]

    rate = torch.tensor(dynamics.learning_rate, dtype=torch.float64)
    inputs = [tensor.clone().requires_grad_() for tensor in (gradient, weights, *memory, rate)]
    g, w, *m, r = inputs
    new = plain_step(dynamics, r, w, m, count, g)
    expected = torch.autograd.grad(new, inputs, grad_outputs=cotangents, materialize_grads=True)

    state = State(weights, memory, count)
    step = dynamics.step(state, gradient)
    for got, value in zip((step.weights, *step.memory), new, strict=True):
        assert_allclose(got, value.detach(), rtol=1e-13, atol=1e-15)
    back = dynamics.adjoint(state, gradient, cotangents[0], tuple(cotangents[1:]))
    assert len(back.memory) == n_memory
    got = (back.gradient, back.weights, *back.memory, back.learning_rate)
    for one, other in zip(got, expected, strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_adam_where_nothing_has_ever_moved():
    """g = 0 and v' = 0: the square root has no derivative, the step has one."""
    dynamics = Adam(0.1, epsilon=1e-4)
    state = dynamics.start(torch.ones(3, dtype=torch.float64))
    gradient = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    new = dynamics.step(state, gradient)
    assert torch.isfinite(new.weights).all()
    assert new.weights[0] == 1.0
    cotangent = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    memory = (torch.zeros(3, dtype=torch.float64), torch.full((3,), 7.0, dtype=torch.float64))
    back = dynamics.adjoint(state, gradient, cotangent, memory)
    for part in (back.gradient, back.weights, *back.memory, back.learning_rate):
        assert torch.isfinite(part).all()
    # Close to g = 0 the first step is -lr c (1 - beta1) g / eps, so its derivative is known.
    c = (1 - dynamics.beta2) ** 0.5 / (1 - dynamics.beta1)
    assert back.gradient[0] == pytest.approx(-0.1 * c * (1 - dynamics.beta1) / 1e-4)
    assert back.gradient[2] == 0.0
    h = 1e-12
    bump = torch.tensor([h, 0.0, 0.0], dtype=torch.float64)
    moved = dynamics.step(state, gradient + bump).weights - dynamics.step(state, gradient).weights
    assert float(moved[0]) / h == pytest.approx(float(back.gradient[0]), rel=1e-3)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-40, -1e-23, 1e-20, 1e-8, -1e-3, 1.0, 1e4, -1e10]), min_size=1
    ),
    st.sampled_from(sorted(DYNAMICS)),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_no_gradient_makes_a_nan(gradients, name, dtype):
    """Tiny ones, whose squares vanish in float32, included."""
    dynamics = DYNAMICS[name]()
    states = [dynamics.start(torch.ones(2, dtype=dtype))]
    used = [torch.tensor([value, 0.0], dtype=dtype) for value in gradients]
    for gradient in used:
        states.append(dynamics.step(states[-1], gradient))
    weights = torch.tensor([1.0, -1.0], dtype=dtype)
    memory = tuple(torch.zeros_like(weights) for _ in range(dynamics.n_memory))
    for state, gradient in zip(reversed(states[:-1]), reversed(used), strict=True):
        assert torch.isfinite(state.weights).all()
        back = dynamics.adjoint(state, gradient, weights, memory)
        weights, memory = back.weights, back.memory
        for part in back.gradient, *back.memory, back.learning_rate:
            assert not part.isnan().any()


def test_the_learning_rate_may_change_between_steps():
    dynamics = SGD(0.5)
    state = dynamics.step(dynamics.start(torch.zeros(1)), torch.ones(1))
    dynamics.learning_rate = 0.25
    state = dynamics.step(state, torch.ones(1))
    np.testing.assert_allclose(state.weights, [-0.75])


def test_constants_unless_others_are_given():
    assert Momentum(0.1).momentum == 0.9
    adam = Adam(0.1)
    assert (adam.beta1, adam.beta2, adam.epsilon) == (0.9, 0.999, 1e-8)


def test_a_state_cannot_be_changed():
    """A trajectory keeps states to differentiate at them later."""
    state = SGD(0.1).start(normal(0, 3))
    with pytest.raises(AttributeError, match="count"):
        state.count = 5
