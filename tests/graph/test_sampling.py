"""The sampler against independent Bernoulli variables.

All seeds are fixed, so nothing here fails by chance. The level of each test is that of an honest
one: were the seeds free, a right sampler would fail one run in a thousand, whatever the number of
comparisons (Bonferroni).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from edgewise.graph import sampling
from edgewise.graph.sampling import BernoulliSampler, BernoulliSegment, Extent

LEVEL = 1e-3
REALS = [np.float32, np.float64]
# Every branch: impossible, rare, on both sides of one half, nearly certain, certain.
PROBABILITIES = np.array(
    [0.0, 1e-6, 1e-3, 0.02, 0.1, 0.3, 0.499, 0.5, np.nextafter(0.5, 1), 0.6, 0.9, 0.999, 1.0]
)


def whole(values):
    return np.array([0, len(values)], np.int64)


def ragged(values, rng):
    """Blocks of many sizes, empty ones among them."""
    inner = np.sort(rng.integers(0, len(values) + 1, max(1, len(values) // 3)))
    return np.concatenate([[0], inner, inner[-1:], [len(values)]]).astype(np.int64)


def draws(sampler, n_draws, n_values, rng):
    """Indicators of the successes, one row a draw."""
    hits = np.zeros((n_draws, n_values), bool)
    for row in hits:
        row[sampler.draw(rng)] = True
    return hits


def p_values(counts, n_draws, probabilities):
    return np.array(
        [
            stats.binomtest(int(k), n_draws, float(p)).pvalue
            for k, p in zip(counts, probabilities, strict=True)
        ]
    )


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("blocks", ["one block", "ragged blocks"])
def test_marginals_and_pairwise_independence(real, blocks):
    rng = np.random.default_rng(7)
    values = rng.permutation(np.tile(PROBABILITIES, 2)).astype(real)
    bounds = whole(values) if blocks == "one block" else ragged(values, rng)
    n_draws = 12_000
    hits = draws(BernoulliSampler(values, bounds), n_draws, len(values), rng)
    exact = values.astype(float)
    assert not hits[:, exact == 0.0].any()
    assert hits[:, exact == 1.0].all()
    marginal = p_values(hits.sum(axis=0), n_draws, exact)
    assert marginal.min() > LEVEL / len(values)
    # Both of a pair succeed as often as the product of their probabilities says.
    together = hits.T.astype(int) @ hits
    first, second = np.triu_indices(len(values), 1)
    joint = p_values(together[first, second], n_draws, exact[first] * exact[second])
    assert joint.min() > LEVEL / len(joint)


def test_every_subset_of_four_variables_has_its_probability():
    probabilities = np.array([0.15, 0.5, 0.4, 0.7])
    n_draws = 20_000
    rng = np.random.default_rng(11)
    hits = draws(BernoulliSampler(probabilities, whole(probabilities)), n_draws, 4, rng)
    observed = np.bincount(hits @ (1 << np.arange(4)), minlength=16)
    expected = [
        np.prod(np.where((code >> np.arange(4)) & 1, probabilities, 1.0 - probabilities))
        for code in range(16)
    ]
    assert stats.chisquare(observed, n_draws * np.array(expected)).pvalue > LEVEL


@pytest.mark.parametrize("real", REALS)
def test_a_million_variables_of_one_in_a_million(real):
    values = np.full(1_000_000, 1e-6, real)
    values[::1000] = 0.0
    bounds = np.append(np.arange(0, len(values), 64), len(values))
    sampler = BernoulliSampler(values, bounds)
    rng = np.random.default_rng(3)
    n_draws = 3000
    drawn = np.concatenate([sampler.draw(rng) for _ in range(n_draws)])
    n_possible = np.count_nonzero(values)
    assert stats.binomtest(len(drawn), n_draws * n_possible, float(real(1e-6))).pvalue > LEVEL
    assert np.all(drawn % 1000 != 0)
    # Uniform over the variables, ends of blocks included.
    assert stats.kstest(drawn / len(values), "uniform").pvalue > LEVEL
    within = np.bincount(drawn % 64, minlength=64)
    possible = np.bincount(np.flatnonzero(values) % 64, minlength=64)
    expected = possible / possible.sum() * len(drawn)
    assert stats.chisquare(within, expected).pvalue > LEVEL


def test_no_place_is_preferred():
    """Half a million successes of equals: their places tell a distortion of one per cent."""
    values = np.full(700, 0.3)
    rng = np.random.default_rng(13)
    sampler = BernoulliSampler(values, ragged(values, rng))
    n_draws = 2500
    counts = draws(sampler, n_draws, len(values), rng).sum(axis=0)
    assert p_values(counts, n_draws, values).min() > LEVEL / len(values)
    # Sums over the first k variables: a random walk, whose greatest excursion is Kolmogorov's.
    excess = np.cumsum(counts - n_draws * 0.3) / np.sqrt(n_draws * 0.3 * 0.7 * len(values))
    bridge = excess - np.linspace(0.0, 1.0, len(values)) * excess[-1]
    assert stats.kstwobign.sf(np.abs(bridge).max()) > LEVEL
    assert abs(excess[-1]) < 3.3


def test_number_of_successes_has_the_variance_of_independent_variables():
    """Marginals alone would let a sampler pass that fixes, or spreads, the number drawn."""
    values = np.concatenate([np.full(300, 0.04), np.full(30, 0.45), np.full(10, 0.8)])
    rng = np.random.default_rng(5)
    n_draws = 8000
    sampler = BernoulliSampler(values, ragged(values, rng))
    sizes = np.array([len(sampler.draw(rng)) for _ in range(n_draws)])
    mean, variance = values.sum(), (values * (1.0 - values)).sum()
    assert abs(sizes.mean() - mean) < 3.3 * np.sqrt(variance / n_draws)
    assert abs(sizes.var() - variance) < 3.3 * variance * np.sqrt(2.0 / n_draws)


@pytest.mark.parametrize("real", REALS)
def test_changed_values_count_after_refresh(real):
    rng = np.random.default_rng(9)
    values = np.zeros(200, real)
    bounds = np.arange(0, 201, 20)
    sampler = BernoulliSampler(values, bounds)
    assert len(sampler.draw(rng)) == 0
    assert sampler.expected() == 0.0

    values[45], values[47], values[130] = 1.0, 0.25, 0.75
    sampler.refresh(2, 3)  # the block of the first two alone
    assert sampler.expected() == pytest.approx(1.25)
    hits = draws(sampler, 4000, 200, rng)
    assert set(np.flatnonzero(hits.any(axis=0))) == {45, 47}
    assert stats.binomtest(int(hits[:, 47].sum()), 4000, 0.25).pvalue > LEVEL

    sampler.refresh()  # all of them
    assert sampler.expected() == pytest.approx(2.0)
    hits = draws(sampler, 4000, 200, rng)
    assert p_values(hits.sum(axis=0)[[47, 130]], 4000, [0.25, 0.75]).min() > LEVEL / 2

    values[:] = 0.0
    values[199] = 1.0  # from likely to impossible, and the last variable of all
    sampler.sum_blocks(0, 5)
    sampler.sum_blocks(5, 10)
    sampler.index()
    assert_array_equal(sampler.draw(rng), [199])


probabilities = st.one_of(
    st.floats(0.0, 1.0), st.sampled_from([0.0, 1e-300, 1e-6, 0.5, 1.0 - 1e-12, 1.0])
)


@settings(deadline=None)
@given(st.lists(probabilities, max_size=60), st.integers(0, 2**32 - 1), st.sampled_from(REALS))
def test_a_draw_is_a_sorted_set_of_possible_variables_with_all_certain_ones(listed, seed, real):
    values = np.array(listed, real)
    rng = np.random.default_rng(seed)
    bounds = ragged(values, rng) if len(values) else np.zeros(1, np.int64)
    sampler = BernoulliSampler(values, bounds)
    drawn = sampler.draw(rng)
    assert drawn.dtype == np.int64
    assert np.all(np.diff(drawn) > 0)
    assert np.all(values[drawn] > 0.0)
    assert set(np.flatnonzero(values == 1.0)) <= set(drawn)
    assert_allclose(sampler.expected(), values.astype(float).sum(), rtol=1e-6, atol=1e-300)


def test_draws_repeat_with_the_generator_and_leave_the_values_alone():
    values = np.random.default_rng(0).random(500)
    before = values.copy()
    sampler = BernoulliSampler(values, np.arange(0, 501, 50))
    one, two = np.random.default_rng(4), np.random.default_rng(4)
    for _ in range(5):
        assert_array_equal(sampler.draw(one), sampler.draw(two))
    assert_array_equal(values, before)


def test_without_variables_nothing_is_drawn_or_read():
    sampler = BernoulliSampler(np.empty(0), np.zeros(1, np.int64))
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert sampler.draw(rng).tolist() == []
    assert sampler.expected() == 0.0
    # Nothing was proposed either: a proposal would be looked for in memory that is not ours.
    other = np.random.default_rng(0)
    for _ in range(5):
        other.poisson(0.0)
        other.standard_exponential(1)
    assert rng.random() == other.random()


def whole_and_stretches(real, cuts):
    """A sampler, and segments that share out its blocks, each with its first variable."""
    rng = np.random.default_rng(7)
    values = rng.random(97).astype(real) ** 6
    values[rng.random(97) < 0.3] = 0.0
    values[rng.choice(97, 4, replace=False)] = 1.0
    bounds = np.arange(0, 98, 8)
    bounds[-1] = 97
    stretches, extent = [], Extent()
    for first, last in pairwise([0, *cuts, len(bounds) - 1]):
        own = values[bounds[first] : bounds[last]]
        stretch = BernoulliSegment(own, bounds[first : last + 1] - bounds[first])
        stretches.append((stretch, bounds[first]))
        extent = stretch.begin(extent)
    for stretch, _ in stretches:
        stretch.complete(extent)
    return BernoulliSampler(values, bounds), stretches


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("cuts", [[5], [1, 2, 11]])
def test_stretches_draw_together_what_the_whole_draws_to_the_last_bit(real, cuts):
    entire, stretches = whole_and_stretches(real, cuts)
    for stretch, _ in stretches:
        assert stretch.expected() == pytest.approx(entire.expected(), rel=1e-12)
    streams = [np.random.default_rng(3) for _ in range(len(stretches) + 1)]
    for _ in range(200):
        drawn = [
            stretch.draw(stream) + first
            for (stretch, first), stream in zip(stretches, streams, strict=False)
        ]
        assert_array_equal(np.concatenate(drawn), entire.draw(streams[-1]))


@pytest.mark.parametrize("cuts", [[5], [1, 2, 11]])
def test_a_point_that_rounding_puts_on_the_very_end_hits_in_the_last_stretch(cuts, monkeypatch):
    entire, stretches = whole_and_stretches(np.float64, cuts)

    def on_the_end(total, rng):
        return np.array([0.3 * total, total]), np.zeros(2)

    monkeypatch.setattr(sampling, "propose", on_the_end)
    whole = entire.draw(np.random.default_rng(3))
    drawn = [stretch.draw(np.random.default_rng(3)) + first for stretch, first in stretches]
    assert_array_equal(np.concatenate(drawn), whole)
    _, last = stretches[-1]
    assert whole[-1] >= last
