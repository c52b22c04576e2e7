"""The compiled loops against the plain NumPy that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from edgewise.graph import kernels

REALS = [np.float32, np.float64]


def cut(rng, length, n_blocks):
    """Random block bounds, some blocks empty."""
    inner = np.sort(rng.integers(0, length + 1, n_blocks - 1))
    return np.concatenate([[0], inner, [length]]).astype(np.int64)


def packed_offsets(n_nodes):
    return np.concatenate([[0], np.cumsum(np.arange(n_nodes - 1, -1, -1))]).astype(np.int64)


@pytest.mark.parametrize("real", REALS)
def test_block_masses_and_likely_values(real):
    rng = np.random.default_rng(0)
    values = rng.random(200).astype(real)
    values[[3, 77, 150]] = 0.5, 0.0, 1.0  # one half counts as unlikely
    bounds = cut(rng, len(values), 12)
    mass, likely = np.full(12, -1.0), np.full(12, -1, np.int32)
    kernels.block_masses(values, bounds, 2, 9, mass, likely)
    for block in range(12):
        part = values[bounds[block] : bounds[block + 1]].astype(float)
        if 2 <= block < 9:
            assert mass[block] == pytest.approx(part[part <= 0.5].sum(), rel=1e-12)
            assert likely[block] == (part > 0.5).sum()
        else:
            assert (mass[block], likely[block]) == (-1.0, -1), "other blocks are left alone"
    kernels.block_masses(values, bounds, 0, 12, mass, likely)
    found = kernels.collect_likely(values, bounds, likely)
    assert_array_equal(found, np.flatnonzero(values > 0.5))


@pytest.mark.parametrize("real", REALS)
def test_locate_proposes_in_proportion_and_thins_to_the_poisson_intensity(real):
    """On a fine grid in place of random points: share of e = -log(1 - value_e) / (rate * total)."""
    values = np.array([0.2, 0.0, 0.5, 0.9, 1e-3, 0.35, 0.0, 1.0, 0.05], real)
    bounds = np.array([0, 3, 3, 5, 7, 9], np.int64)
    rate = 2.0 * np.log(2.0)
    mass, likely = np.zeros(5), np.zeros(5, np.int32)
    kernels.block_masses(values, bounds, 0, 5, mass, likely)
    cumulative = np.cumsum(mass)
    n_targets, n_levels = 20_000, 50
    targets = (np.arange(n_targets) + 0.5) / n_targets * cumulative[-1]
    levels = (np.arange(n_levels) + 0.5) / n_levels
    points = np.repeat(targets, n_levels)
    blocks = kernels.locate_blocks(cumulative, 0.0, kernels.guide(cumulative, 0.0, 3), points)
    found = kernels.locate(
        values, bounds, cumulative, 0.0, blocks, points, np.tile(levels, n_targets), rate
    )
    share = np.bincount(found, minlength=len(values)) / (n_targets * n_levels)
    unlikely = np.where(values <= 0.5, values, 0.0).astype(float)
    # Nothing above one half, and nothing impossible, is ever proposed ...
    assert_array_equal(share == 0.0, unlikely == 0.0)
    # ... and the rest comes out, up to the width of the grid.
    proposed = unlikely / unlikely.sum()
    expected = -np.log1p(-unlikely) / (rate * unlikely.sum())
    assert np.all(np.abs(share - expected) <= 2.0 / n_targets + proposed / n_levels)
    # At one half every proposal is kept: the rate is the smallest that works.
    assert share[2] == pytest.approx(proposed[2], abs=2.0 / n_targets)


@pytest.mark.parametrize("before", [0.0, 3.3])
@pytest.mark.parametrize("n_entries", [1, 2, 7, 40, 1000])
def test_blocks_are_found_as_by_bisection(n_entries, before):
    rng = np.random.default_rng(n_entries)
    mass = np.where(rng.random(60) < 0.6, 0.0, rng.exponential(size=60) ** 4)
    cumulative = before + np.cumsum(mass)
    drawn = rng.uniform(before, cumulative[-1], 500)
    ends = np.concatenate([[before], cumulative[cumulative < cumulative[-1]]])
    starts = before + (cumulative[-1] - before) * np.arange(n_entries) / n_entries
    targets = np.concatenate([drawn, ends, np.nextafter(ends, 0.0), starts])
    table = kernels.guide(cumulative, before, n_entries)
    blocks = kernels.locate_blocks(cumulative, before, table, targets)
    assert_array_equal(blocks, np.searchsorted(cumulative, targets, side="right"))


def test_locate_at_the_ends_of_the_line_and_of_blocks():
    values = np.array([0.0, 0.1, 0.0, 0.1, 0.0])
    bounds = np.array([0, 2, 5], np.int64)
    cumulative = np.array([0.1, 0.2])

    def located(targets):
        targets = np.array(targets)
        blocks = kernels.locate_blocks(cumulative, 0.0, kernels.guide(cumulative, 0.0, 4), targets)
        found = kernels.locate(values, bounds, cumulative, 0.0, blocks, targets, 0.0 * targets, 1.0)
        return found.tolist()

    assert located([0.0, np.nextafter(0.1, 0), 0.1, 0.15]) == [1, 1, 3, 3]
    # Rounding may put a point on or beyond the end; that it then hits nothing impossible is all
    # that matters.
    assert set(located([np.nextafter(0.2, 0), 0.2, 0.2000001])) <= {3}
    values[3], cumulative[1] = 0.9, 0.1
    assert located([0.1, 0.2]) == []


@pytest.mark.parametrize("real", REALS)
def test_nonzero_rows(real):
    matrix = np.zeros((6, 3), real)
    matrix[1, 2], matrix[3, 0], matrix[4, 1] = 1e-30, -2.0, np.nan
    assert_array_equal(kernels.nonzero_rows(matrix), [1, 3, 4])
    assert_array_equal(kernels.nonzero_rows(np.asfortranarray(matrix)), [1, 3, 4])


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("start", [0, 3, 8])
def test_descend_rows_updates_and_clips_its_rows_only(real, start):
    rng = np.random.default_rng(1)
    n_nodes, n_rows = 9, 9 - start if start == 8 else 4
    offsets = packed_offsets(n_nodes)
    rows, cols = np.triu_indices(n_nodes, 1)
    before = rng.random(len(rows)).astype(real)
    band = rng.normal(size=(n_rows, n_nodes - start)).astype(real)
    shift = rng.normal(size=n_nodes).astype(real)
    theta = before.copy()
    kernels.descend_rows(theta, offsets, start, band, shift, 0.7)
    expected = before.copy()
    for e, (i, j) in enumerate(zip(rows, cols, strict=True)):
        if start <= i < start + n_rows:
            gradient = band[i - start, j - start] + shift[i] + shift[j]
            expected[e] = np.clip(before[e] - real(0.7) * gradient, 0.0, 1.0)
    assert_allclose(theta, expected, rtol=10 * np.finfo(real).eps, atol=np.finfo(real).eps)
    if start == 0:
        assert {0.0, 1.0} <= set(theta.tolist()), "both bounds are met"


@pytest.mark.parametrize("real", REALS)
def test_additions_to_rows_and_columns(real):
    rng = np.random.default_rng(2)
    band = rng.normal(size=(5, 7)).astype(real)
    rows, columns = np.array([0, 3]), np.array([1, 2, 6])
    by_rows, by_columns = rng.normal(size=(2, 7)).astype(real), rng.normal(size=(5, 3)).astype(real)
    expected = band.copy()
    expected[rows] += by_rows
    expected[:, columns] += by_columns
    kernels.add_rows(band, rows, by_rows)
    kernels.add_columns(band, columns, by_columns)
    assert_allclose(band, expected, rtol=4 * np.finfo(real).eps)


@pytest.mark.parametrize("real", REALS)
def test_add_at_pairs(real):
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(2, 4)).astype(real), rng.normal(size=(6, 4)).astype(real)
    whole = np.zeros((6, 4), real)
    whole[[1, 4]] = left
    position = np.array([-1, 0, -1, -1, 1, -1])
    rows, cols = np.triu_indices(6, 1)
    out = np.ones(len(rows), real)
    kernels.add_at_pairs(out, rows, cols, position, left, right)
    G = whole @ right.T
    assert_allclose(out, 1.0 + (G + G.T)[rows, cols], rtol=20 * np.finfo(real).eps)


@given(st.integers(2, 12), st.data())
def test_unpack_inverts_the_packing(n_nodes, data):
    rows, cols = np.triu_indices(n_nodes, 1)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    got_rows, got_cols = kernels.unpack(np.array(chosen, np.int64), packed_offsets(n_nodes))
    assert_array_equal(got_rows, rows[chosen])
    assert_array_equal(got_cols, cols[chosen])


def joined_pairs(rng, n_nodes, n_pairs):
    """Different pairs, and where each node finds its own."""
    every = np.stack(np.triu_indices(n_nodes, 1), axis=1)
    rows, cols = rng.permutation(every)[:n_pairs].T.astype(np.int64)
    return rows, cols, kernels.incidence(rows, cols, n_nodes)


def test_pairs_of_some_nodes_are_decided_once():
    rng = np.random.default_rng(0)
    rows, cols, (start, slots, _) = joined_pairs(rng, 9, 20)
    decided = rng.random(20) < 0.3
    before, nodes = decided.copy(), np.array([2, 5, 6])
    found = kernels.undecided(nodes, start, slots, decided)
    touched = np.isin(rows, nodes) | np.isin(cols, nodes)
    assert sorted(found.tolist()) == np.flatnonzero(touched & ~before).tolist()
    assert_array_equal(decided, before | touched)
    assert len(kernels.undecided(nodes, start, slots, decided)) == 0


def test_nodes_are_reached_once_and_along_open_pairs():
    rng = np.random.default_rng(1)
    rows, cols, (start, slots, others) = joined_pairs(rng, 9, 20)
    is_open, nodes = rng.random(20) < 0.5, np.array([0, 4])
    reached = np.isin(np.arange(9), [0, 4, 7])
    before = reached.copy()
    found = kernels.newly_reached(nodes, start, slots, others, is_open, reached)
    joined = np.zeros((9, 9), bool)
    joined[rows[is_open], cols[is_open]] = joined[cols[is_open], rows[is_open]] = True
    expected = joined[nodes].any(axis=0) & ~before
    assert 0 < expected.sum() < 6
    assert sorted(found.tolist()) == np.flatnonzero(expected).tolist()
    assert_array_equal(reached, before | expected)


@pytest.mark.parametrize("real", REALS)
def test_entries_of_a_product(real):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(6, 3)).astype(real), rng.normal(size=(8, 3)).astype(real)
    rows, cols = rng.integers(6, size=10), rng.integers(8, size=10)
    out = np.full(10, np.nan, real)
    kernels.entries_of_product(left, right, rows, cols, out)
    assert_allclose(out, (left @ right.T)[rows, cols], rtol=1e-5 if real == np.float32 else 1e-12)
