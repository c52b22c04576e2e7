from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from edgewise.nn.network import dropout, glorot_uniform


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75, 0.999])
def test_dropout_zeroes_independent_entries_and_keeps_the_mean(rate):
    n_masks, shape = 400, (33, 7)  # an odd number of entries: random bits come in fours
    rng = generator()
    ones = torch.ones(shape, dtype=torch.float64)
    masks = torch.stack([dropout(ones, rate, rng) for _ in range(n_masks)]).reshape(n_masks, -1)
    kept = (masks > 0).numpy()
    # What is kept is scaled up, alike everywhere.
    assert masks[masks > 0].unique().tolist() == pytest.approx([1.0 / (1.0 - rate)], rel=0.02)
    # Marginals: each entry, and all of them together.
    level = 1e-3
    each = [stats.binomtest(int(k), n_masks, 1.0 - rate).pvalue for k in kept.sum(axis=0)]
    assert min(each) > level / len(each)
    assert stats.binomtest(int(kept.sum()), kept.size, 1.0 - rate).pvalue > level
    # Neighbours, which share the bits of one random number, are independent of each other, and so
    # are masks in succession.
    for first, second in [
        *((kept[:, :-lag], kept[:, lag:]) for lag in (1, 2, 3, 4)),
        (kept[:-1], kept[1:]),
    ]:
        expected = first.size * (1.0 - rate) ** 2
        # Sums of products of neighbours: their variance is at most three times the binomial one.
        assert abs((first & second).sum() - expected) < 3.3 * np.sqrt(3.0 * max(1.0, expected))


def test_no_dropout_without_noise_or_rate():
    hidden = torch.randn(4, 3, generator=generator())
    assert dropout(hidden, 0.5, None) is hidden
    rng = generator()
    before = rng.get_state()
    assert dropout(hidden, 0.0, rng) is hidden
    assert torch.equal(rng.get_state(), before), "nothing was drawn"


def test_dropout_masks_are_those_of_the_generator_in_either_precision():
    double, single = torch.ones(50, 3, dtype=torch.float64), torch.ones(50, 3)
    mask = dropout(double, 0.5, generator(3))
    assert torch.equal(mask, dropout(double, 0.5, generator(3)))
    assert torch.equal(mask.float(), dropout(single, 0.5, generator(3)))
    assert not torch.equal(mask, dropout(double, 0.5, generator(4)))


def test_dropout_is_linear_in_its_input():
    hidden = torch.randn(9, 5, dtype=torch.float64, generator=generator()).requires_grad_()
    mask = dropout(torch.ones(9, 5, dtype=torch.float64), 0.4, generator(1))
    dropped = dropout(hidden, 0.4, generator(1))
    assert torch.equal(dropped, hidden * mask)
    (gradient,) = torch.autograd.grad(dropped.sum(), hidden)
    assert torch.equal(gradient, mask)


def test_dropout_of_nothing():
    assert dropout(torch.ones(0, 3), 0.5, generator()).shape == (0, 3)


def test_glorot_uniform():
    weight = glorot_uniform(300, 200, generator())
    bound = np.sqrt(6.0 / 500.0)
    assert (weight.shape, weight.dtype) == ((300, 200), torch.float64)
    scaled = (weight.numpy().ravel() + bound) / (2.0 * bound)
    assert stats.kstest(scaled, "uniform").pvalue > 1e-3
    assert weight.abs().max() <= bound
    assert torch.equal(weight, glorot_uniform(300, 200, generator()))
