from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import FixedMatrix, Graph

DTYPES = [torch.float32, torch.float64]


def random_pairs(rng, n_nodes, share=0.3):
    """Some pairs; the last node is isolated."""
    drawn = np.triu(rng.random((n_nodes, n_nodes)) < share, 1)
    drawn[:, -1] = False
    return Pairs.fold(*np.nonzero(drawn), n_nodes)


def adjacency(pairs, n_nodes, weights=1.0):
    A = np.zeros((n_nodes, n_nodes))
    A[pairs.rows, pairs.cols] = weights
    return A + A.T


def normalised(A):
    """The closed form, D~^{-1/2} (A + I) D~^{-1/2}."""
    with_loops = A + np.eye(len(A))
    root = np.diag(with_loops.sum(axis=1) ** -0.5)
    return root @ with_loops @ root


def as_matrix(graph):
    return (graph @ torch.eye(graph.n_nodes, dtype=graph.scale.dtype)).detach().numpy()


def a_graph(kind, n_nodes, dtype=torch.float64):
    rng = np.random.default_rng(0)
    pairs = random_pairs(rng, n_nodes)
    weights = rng.uniform(0.1, 2.0, pairs.n_pairs)
    if kind == "plain":
        return Graph.from_pairs(pairs, n_nodes, dtype=dtype)
    if kind == "weighted":
        return Graph.from_pairs(pairs, n_nodes, weights=weights, dtype=dtype)
    if kind == "dense":
        return Graph.from_dense(torch.as_tensor(adjacency(pairs, n_nodes, weights), dtype=dtype))
    return Graph.complete(n_nodes, dtype=dtype)


def product_sum(tape):
    """``sum of C H'``."""
    return sum(entry.cotangent @ entry.dense.T for entry in tape)


KINDS = ["plain", "weighted", "dense", "complete"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_nodes", [1, 2, 13])
def test_from_pairs_is_the_closed_form(n_nodes, dtype):
    rng = np.random.default_rng(n_nodes)
    pairs = random_pairs(rng, n_nodes)
    weights = rng.uniform(0.0, 3.0, pairs.n_pairs)
    tolerance = 10 * torch.finfo(dtype).eps
    for given_weights, A in (
        (None, adjacency(pairs, n_nodes)),
        (weights, adjacency(pairs, n_nodes, weights)),
        (weights.tolist(), adjacency(pairs, n_nodes, weights)),
    ):
        graph = Graph.from_pairs(pairs, n_nodes, weights=given_weights, dtype=dtype)
        got = as_matrix(graph)
        assert got.dtype == (np.float32 if dtype == torch.float32 else np.float64)
        assert_allclose(got, normalised(A), atol=tolerance)
        assert_allclose(graph.scale, (1.0 + A.sum(axis=1)) ** -0.5, rtol=tolerance)
        assert got[-1, -1] == 1.0, "an isolated node is its own and only neighbour"


def test_from_pairs_is_a_proper_csr_matrix():
    pairs = random_pairs(np.random.default_rng(1), 40)
    operator = Graph.from_pairs(pairs, 40, dtype=torch.float64).operator.matrix
    # Raises unless rows are sorted, without repetition, and every index is in its range.
    torch.sparse_csr_tensor(
        operator.crow_indices(),
        operator.col_indices(),
        operator.values(),
        operator.shape,
        check_invariants=True,
    )
    assert operator.col_indices().dtype == torch.int32
    assert operator.values().numel() == 2 * pairs.n_pairs + 40


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.data())
def test_all_ways_to_make_a_graph_agree(n_nodes, data):
    node = st.integers(0, n_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    pairs = Pairs.fold([i for i, _ in edges], [j for _, j in edges], n_nodes)
    weights = np.array(
        data.draw(st.lists(st.floats(0.0, 100.0), min_size=pairs.n_pairs, max_size=pairs.n_pairs))
    )
    A = adjacency(pairs, n_nodes, weights)
    from_pairs = Graph.from_pairs(pairs, n_nodes, weights=weights, dtype=torch.float64)
    from_dense = Graph.from_dense(torch.from_numpy(A))
    assert_allclose(as_matrix(from_dense), normalised(A), atol=1e-14)
    assert_allclose(as_matrix(from_pairs), normalised(A), atol=1e-14)
    assert_allclose(from_pairs.scale, from_dense.scale, rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("n_nodes", [1, 2, 9])
def test_complete_graph_is_that_of_equal_entries(n_nodes, weight, dtype):
    complete = Graph.complete(n_nodes, weight=weight, dtype=dtype)
    ones = torch.ones(n_nodes, n_nodes, dtype=dtype) - torch.eye(n_nodes, dtype=dtype)
    explicit = Graph.from_dense(weight * ones)
    rows, cols = np.triu_indices(n_nodes, 1)
    by_pairs = Graph.from_pairs(
        Pairs(rows, cols), n_nodes, weights=np.full(len(rows), weight), dtype=dtype
    )
    H = torch.randn(n_nodes, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
    tolerance = 10 * torch.finfo(dtype).eps
    for other in (explicit, by_pairs):
        assert_allclose((complete @ H).detach(), (other @ H).detach(), atol=tolerance)
        assert_allclose(complete.scale, other.scale, rtol=tolerance)


def test_complete_graph_has_weights_of_one():
    graph = Graph.complete(4, dtype=torch.float64)
    assert_allclose(as_matrix(graph), np.full((4, 4), 0.25))


@pytest.mark.parametrize("kind", KINDS)
def test_first_and_second_derivatives_by_the_input(kind):
    graph = a_graph(kind, 7)
    H = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    H.requires_grad_()
    assert torch.autograd.gradcheck(lambda h: (graph @ torch.tanh(graph @ h)) ** 2, H)
    assert torch.autograd.gradgradcheck(lambda h: (graph @ torch.tanh(graph @ h)) ** 2, H)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["transposed", "expanded", "strided"])
def test_any_memory_layout_of_the_input_and_of_the_cotangent(kind, layout):
    graph, matrix = a_graph(kind, 6), torch.from_numpy(as_matrix(a_graph(kind, 6)))
    base = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    H = {"transposed": base.T, "expanded": base[:, :1].expand(6, 4), "strided": base[:, ::2]}[
        layout
    ]
    H = H.detach().requires_grad_()
    assert_allclose((graph @ H).detach(), (matrix @ H).detach(), atol=1e-14)
    for reduce in (torch.sum, lambda P: (P.T @ P).sum()):
        got = torch.autograd.grad(reduce(graph @ H), H)[0]
        assert_allclose(got, torch.autograd.grad(reduce(matrix @ H), H)[0], atol=1e-13)


class TestTape:
    """``dL/dÂ = sum of C H'`` for first and second derivatives, against dense autograd."""

    @staticmethod
    def loss(operator, H, W):
        return ((operator @ torch.tanh(operator @ (H @ W))) ** 3).sum()

    def tensors(self):
        generator = torch.Generator().manual_seed(3)
        shapes = (7, 4), (4, 3), (4, 3)
        return [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_loss(self, kind):
        H, W, _ = self.tensors()
        graph = a_graph(kind, 7)
        W.requires_grad_()
        loss = self.loss(graph, H, W)
        with graph.recording() as tape:
            torch.autograd.grad(loss, [W, graph.anchor])
        dense = torch.from_numpy(as_matrix(graph)).requires_grad_()
        expected = torch.autograd.grad(self.loss(dense, H, W), dense)[0]
        assert_allclose(product_sum(tape), expected, rtol=1e-11, atol=1e-12)
        assert len(tape) == 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_gradient_along_a_vector(self, kind):
        H, W, along = self.tensors()
        W.requires_grad_()

        def directional(operator):
            gradient = torch.autograd.grad(self.loss(operator, H, W), W, create_graph=True)[0]
            return (gradient * along).sum()

        graph = a_graph(kind, 7)
        slope = directional(graph)
        with graph.recording() as tape:
            by_weights, _ = torch.autograd.grad(slope, [W, graph.anchor])
        dense = torch.from_numpy(as_matrix(graph)).requires_grad_()
        expected_w, expected = torch.autograd.grad(directional(dense), [W, dense])
        got = product_sum(tape)
        # Backward products stand for those with the transpose: equal for the pair {i, j}.
        assert_allclose(got + got.T, expected + expected.T, rtol=1e-10, atol=1e-11)
        assert_allclose(by_weights, expected_w, rtol=1e-10, atol=1e-11)

    def test_of_a_product_with_a_constant(self):
        """Nothing but the anchor tells autograd that this product matters."""
        graph = a_graph("plain", 7)
        H, W, _ = self.tensors()
        with graph.recording() as tape:
            torch.autograd.grad(((graph @ H) @ W).square().sum(), graph.anchor)
        dense = torch.from_numpy(as_matrix(graph)).requires_grad_()
        expected = torch.autograd.grad(((dense @ H) @ W).square().sum(), dense)[0]
        assert len(tape) == 1
        assert_allclose(product_sum(tape), expected, atol=1e-13)

    def test_is_written_only_while_recording_and_holds_no_autograd_graph(self):
        H, W, _ = self.tensors()
        W.requires_grad_()
        graph = a_graph("plain", 7)
        torch.autograd.grad(self.loss(graph, H, W), W)
        with graph.recording() as first:
            assert first == []
            torch.autograd.grad(self.loss(graph, H, W), [W, graph.anchor], create_graph=True)
        n_first = len(first)
        torch.autograd.grad(self.loss(graph, H, W), W)
        assert graph.tape is None
        assert len(first) == n_first > 0
        assert not any(part.requires_grad for entry in first for part in entry)
        with graph.recording() as second:
            assert second == []

    def test_a_product_changed_in_place_is_refused(self):
        """The derivative needs the product: a changed one must not give a wrong derivative."""
        for change in (torch.relu_, lambda product: product.add_(1.0)):
            graph = a_graph("plain", 7)
            W = self.tensors()[1].requires_grad_()
            changed = change(graph @ (self.tensors()[0] @ W))
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                torch.autograd.grad(changed.square().sum(), W)

    def test_is_closed_when_the_derivative_fails(self):
        graph = a_graph("plain", 7)

        def fail():
            with graph.recording():
                raise ValueError("on the way")

        with pytest.raises(ValueError, match="on the way"):
            fail()
        assert graph.tape is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
def test_fixed_matrix_multiplies_and_differentiates_like_a_dense_one(form, dtype):
    rng = np.random.default_rng(4)
    dense = np.where(rng.random((5, 8)) < 0.4, rng.normal(size=(5, 8)), 0.0)
    dense[2] = 0.0
    matrix = FixedMatrix.from_scipy(form(dense), dtype, torch.device("cpu"))
    W = torch.as_tensor(rng.normal(size=(8, 3)), dtype=dtype)
    tolerance = 20 * torch.finfo(dtype).eps
    assert (matrix.shape, matrix.dtype) == ((5, 8), dtype)
    assert_allclose(matrix @ W, dense @ W.numpy(), atol=tolerance)
    if dtype == torch.float64:
        W.requires_grad_()
        assert torch.autograd.gradcheck(lambda w: torch.tanh(matrix @ w), W)
        assert torch.autograd.gradgradcheck(lambda w: torch.tanh(matrix @ w), W)


def test_fixed_matrix_from_unsorted_indices_with_repetitions():
    """SciPy calls such matrices valid: [0, 5, 3] and [0, 0, 7 + 1] here."""
    raw = (np.array([3.0, 5.0, 7.0, 1.0]), np.array([2, 1, 2, 2]), np.array([0, 2, 4]))
    messy = sparse.csr_array(raw, shape=(2, 3))
    matrix = FixedMatrix.from_scipy(messy, torch.float64, torch.device("cpu"))
    W = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
    assert_array_equal((matrix @ W).ravel(), [350.0, 800.0])


def test_fixed_matrix_has_no_effect_on_what_it_was_made_of():
    source = sparse.csr_array(np.eye(3))
    FixedMatrix.from_scipy(source, torch.float32, torch.device("cpu"))
    assert source.dtype == np.float64
    assert_array_equal(source.toarray(), np.eye(3))
