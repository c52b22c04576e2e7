from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from edgewise.bilevel import lowrank
from edgewise.bilevel.lowrank import Factors, LowRank
from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import Graph

N = 11
DTYPES = [torch.float32, torch.float64]


def factors(rng, rows, rank, dtype=torch.float64, n_nodes=N):
    rows = np.array(sorted(rows), np.int64)
    left = torch.as_tensor(rng.normal(size=(len(rows), rank)), dtype=dtype)
    return Factors(rows, left, torch.as_tensor(rng.normal(size=(n_nodes, rank)), dtype=dtype))


def dense_factors(gradient):
    """``sum left right'``, written out."""
    G = np.zeros((gradient.n_nodes, gradient.n_nodes))
    for factor in gradient.factors:
        G[factor.rows] += factor.left.double().numpy() @ factor.right.double().numpy().T
    return G


def dense(gradient):
    """``G + G'`` with ``G = sum left right' + r 1'``."""
    G = dense_factors(gradient) + gradient.shift[:, None].astype(float)
    return G + G.T


def upper(n_nodes=N):
    return tuple(index.astype(np.int64) for index in np.triu_indices(n_nodes, 1))


def by_bands(gradient, bounds):
    """The derivative put together from bands; the lower triangle and diagonal are left 0."""
    n = gradient.n_nodes
    whole = np.zeros((n, n))
    for start, stop in itertools.pairwise(bounds):
        band = gradient.band(start, stop)
        assert band.shape == (stop - start, n - start)
        whole[start:stop, start:] = band + gradient.shift[start:stop, None] + gradient.shift[start:]
    return np.triu(whole, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [[0, N], [0, 1, 2, 7, N], list(range(N + 1)), [0, 5, N]])
def test_bands_pairs_and_the_dense_matrix_agree(bounds, dtype):
    rng = np.random.default_rng(0)
    real = np.float32 if dtype == torch.float32 else np.float64
    parts = [[0, 3, 10], [4], range(N), [5, 6, 7]]
    gradient = LowRank(
        [factors(rng, rows, 2 + k, dtype) for k, rows in enumerate(parts)],
        rng.normal(size=N).astype(real),
    )
    assert (gradient.n_nodes, gradient.rank) == (N, 2 + 3 + 4 + 5)
    expected = dense(gradient)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"atol": 1e-12}
    assert_allclose(by_bands(gradient, bounds), np.triu(expected, 1), **tolerance)
    rows, cols = upper()
    assert_allclose(gradient.at_pairs(rows, cols), expected[rows, cols], **tolerance)
    # In either orientation, in any order, with repetitions.
    some = rng.integers(0, len(rows), 20)
    assert_allclose(
        gradient.at_pairs(cols[some], rows[some]), expected[rows[some], cols[some]], **tolerance
    )
    assert gradient.at_pairs(rows, cols).dtype == gradient.band(0, N).dtype == real


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [(0, N), (0, 4), (4, 9), (9, N)])
@pytest.mark.parametrize("rows", [range(N), [0], [1, 2, 8, 9], [3, 4, 10]])
def test_tiles_are_parts_of_the_dense_matrix(rows, columns, dtype):
    rng = np.random.default_rng(0)
    real = np.float32 if dtype == torch.float32 else np.float64
    parts = [[0, 3, 10], [4], range(N), [5, 6, 7]]
    gradient = LowRank(
        [factors(rng, part, 2 + k, dtype) for k, part in enumerate(parts)], np.zeros(N, real)
    )
    tile = gradient.tile(np.array(rows), *columns)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"atol": 1e-12}
    assert_allclose(tile, dense(gradient)[np.array(rows), slice(*columns)], **tolerance)
    assert tile.dtype == real


row_sets = st.sets(st.integers(0, N - 1), min_size=1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.tuples(row_sets, st.integers(1, 4)), max_size=4), min_size=1, max_size=4),
    st.sampled_from([0, 2, lowrank.ADDITION, 10**9]),
)
def test_total_is_the_sum_however_much_is_merged(parts, addition):
    rng = np.random.default_rng(1)
    gradients = [
        LowRank([factors(rng, rows, rank) for rows, rank in part], rng.normal(size=N))
        for part in parts
    ]
    expected = sum(dense(gradient) for gradient in gradients)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowrank, "ADDITION", addition)
        total = LowRank.total(gradients)
        merged = total.factors
    assert sum(gradient.rank for gradient in gradients) == total.rank
    needed, multiplied = (sum(len(f.rows) * f.rank for f in fs) for fs in (total.parts, merged))
    assert multiplied >= needed
    if addition == 0:
        assert multiplied == needed, "no zeros multiplied"
    assert_allclose(dense(total), expected, atol=1e-12)
    rows, cols = upper()
    assert_allclose(total.at_pairs(rows, cols), expected[rows, cols], atol=1e-12)
    assert_allclose(by_bands(total, [0, 4, N]), np.triu(expected, 1), atol=1e-12)
    for factor in total.factors:
        assert np.all(np.diff(factor.rows) > 0)
        assert len(factor.rows) == len(factor.left)


def test_what_shares_rows_is_multiplied_at_once():
    rng = np.random.default_rng(2)
    first = LowRank([factors(rng, [0, 1, 2, 3, 4, 5], 3)], np.zeros(N))
    similar = LowRank([factors(rng, [1, 2, 3, 4, 5, 6], 3)], np.ones(N))
    other = LowRank([factors(rng, [9, 10], 3)], np.ones(N))
    total = LowRank.total([first, similar, other])
    # Rows 1 to 5 are in factors that make up more than half of the rank.
    shapes = [(factor.rows.tolist(), factor.rank) for factor in total.factors]
    assert shapes == [([1, 2, 3, 4, 5], 6), ([0], 3), ([6], 3), ([9, 10], 3)]
    assert_array_equal(total.shift, np.full(N, 2.0))


def test_factors_are_merged_where_that_saves_more_than_it_costs(monkeypatch):
    rng = np.random.default_rng(2)
    # No row is in more than half of them, so that there is no core.
    first, similar = factors(rng, [0, 1, 2, 3, 4, 5], 3), factors(rng, [1, 2, 3, 4, 5, 6], 3)
    others = [factors(rng, [8 + i], 3) for i in range(2)]
    total = LowRank([first, similar, *others], np.zeros(N))
    # Merging saves the addition of 5 rows, and multiplies 1 row of 3 zeros either way.
    for addition, n_factors in ((1, 4), (2, 3)):
        monkeypatch.setattr(lowrank, "ADDITION", addition)
        assert len(LowRank.total([total]).factors) == n_factors


def test_total_does_not_change_its_parts():
    rng = np.random.default_rng(3)
    parts = [LowRank([factors(rng, [0, 1, 2], 2)], rng.normal(size=N)) for _ in range(3)]
    before = [dense(part) for part in parts]
    LowRank.total(parts)
    for part, then in zip(parts, before, strict=True):
        assert_array_equal(dense(part), then)


def test_rows_of_the_right_side_may_be_scaled_later():
    rng = np.random.default_rng(4)
    plain, scale = factors(rng, [2, 5, 6], 3), torch.as_tensor(rng.normal(size=N))
    scaled = Factors(plain.rows, plain.left, plain.right * scale[:, None])
    other = factors(rng, [2, 5, 9], 2)
    expected = dense(LowRank([scaled, other], np.zeros(N)))
    lazy = LowRank([Factors(plain.rows, plain.left, plain.right, scale), other], np.zeros(N))
    assert_allclose(dense(lazy), expected, atol=1e-14)


class TestFromTape:
    pairs = Pairs.fold([0, 1, 2, 3, 4, 0, 7], [1, 2, 3, 4, 5, 6, 8], N)  # 9 and 10 are isolated

    def gradient_and_dense(self, loss, dtype=torch.float64):
        """LowRank of a loss of a graph, and autograd by a dense adjacency."""
        rng = np.random.default_rng(5)
        weights = rng.uniform(0.5, 2.0, self.pairs.n_pairs)
        graph = Graph.from_pairs(self.pairs, N, weights=weights, dtype=dtype)
        H = torch.as_tensor(rng.normal(size=(N, 4)), dtype=dtype).requires_grad_()
        value = loss(graph, H)
        with graph.recording() as tape:
            torch.autograd.grad(value, [H, graph.anchor])
        A = torch.zeros(N, N, dtype=torch.float64)
        A[self.pairs.rows, self.pairs.cols] = torch.as_tensor(weights)
        A = (A + A.T).requires_grad_()
        with_loops = A + torch.eye(N, dtype=torch.float64)
        scale = with_loops.sum(dim=1).rsqrt()
        dense_loss = loss(scale[:, None] * with_loops * scale, H.detach().double())
        (G,) = torch.autograd.grad(dense_loss, A)
        return LowRank.from_tape(graph, tape), (G + G.T).numpy()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_several_products_on_one_graph(self, dtype):
        def loss(operator, H):
            return (operator @ torch.tanh(operator @ H)).pow(3).sum() + (operator @ H)[2:5].sum()

        gradient, expected = self.gradient_and_dense(loss, dtype)
        rows, cols = upper()
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"atol": 1e-11}
        assert_allclose(gradient.at_pairs(rows, cols), expected[rows, cols], **tolerance)
        assert_allclose(by_bands(gradient, [0, 3, N]), np.triu(expected, 1), **tolerance)

    def test_a_masked_loss_is_stored_on_few_rows(self):
        def loss(operator, H):
            return torch.tanh(operator @ torch.sigmoid(operator @ H))[[3, 9]].square().sum()

        gradient, expected = self.gradient_and_dense(loss)
        sizes = {tuple(part.rows) for part in gradient.parts}
        # The masked rows, and theirs with their neighbours: node 9 is isolated.
        assert sizes == {(3, 9), (2, 3, 4, 9)}
        rows, cols = upper()
        assert_allclose(gradient.at_pairs(rows, cols), expected[rows, cols], atol=1e-13)

    def test_the_input_can_be_the_sparser_side(self):
        def loss(operator, H):
            mask = torch.zeros(N, 1, dtype=H.dtype)
            mask[4] = 1.0
            return torch.tanh(operator @ (H * mask)).pow(2).sum()

        gradient, expected = self.gradient_and_dense(loss)
        assert [factor.rows.tolist() for factor in gradient.factors] == [[4]]
        rows, cols = upper()
        assert_allclose(gradient.at_pairs(rows, cols), expected[rows, cols], atol=1e-13)

    def test_a_tape_of_zeros(self):
        """Still a gradient, of rank 0."""
        gradient, expected = self.gradient_and_dense(lambda graph, H: 0.0 * (graph @ H).sum())
        assert not expected.any()
        assert (gradient.rank, gradient.factors, gradient.n_nodes) == (0, (), N)
        assert not gradient.shift.any()
        assert not gradient.band(0, N).any()
        assert not gradient.at_pairs(*upper()).any()
        total = LowRank.total([gradient, gradient])
        assert (total.rank, total.n_nodes) == (0, N)
        assert not total.band(3, 7).any()

    def test_an_empty_tape(self):
        graph = Graph.from_pairs(self.pairs, N)
        with graph.recording() as tape:
            pass
        gradient = LowRank.from_tape(graph, tape)
        assert (gradient.rank, gradient.n_nodes) == (0, N)
        assert not gradient.band(0, N).any()

    def test_is_linear_in_the_tape(self):
        def one(operator, H):
            return torch.tanh(operator @ H)[:4].sum()

        def other(operator, H):
            return (operator @ H)[6:].square().sum()

        both, _ = self.gradient_and_dense(lambda operator, H: one(operator, H) + other(operator, H))
        parts = [self.gradient_and_dense(loss)[0] for loss in (one, other)]
        assert_allclose(dense(both), dense(LowRank.total(parts)), atol=1e-12)


def test_row_bounds_are_no_less_than_the_rows_and_exact_for_one_outer_product():
    rng = np.random.default_rng(4)
    parts = [factors(rng, [0, 1, 2, 5], 3), factors(rng, [1, 5, 7], 2)]
    product = np.zeros((N, N))
    for part in parts:
        product[part.rows] += (part.left @ part.right.T).numpy()
    bounds = LowRank(parts, np.zeros(N)).row_bounds()
    assert np.all(bounds >= np.linalg.norm(product, axis=1) - 1e-12)
    assert_array_equal(np.flatnonzero(bounds), [0, 1, 2, 5, 7])
    one = factors(rng, [2, 3], 1)
    lengths = np.linalg.norm((one.left @ one.right.T).numpy(), axis=1)
    assert_allclose(LowRank([one], np.zeros(N)).row_bounds()[[2, 3]], lengths)
