from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import sparse

from edgewise.graph.pairs import Pairs
from edgewise.graph.sampled import FixedMatrix, Graph
from edgewise.nn.gcn import GCN
from edgewise.nn.network import dropout

N = 15


def setting(dtype=torch.float64, hidden_units=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6)) * (rng.random((N, 6)) < 0.5)
    pairs = Pairs.fold(*rng.integers(0, N - 1, (2, 25)), N)  # the last node is isolated
    network = GCN(hidden_units)
    weights = network.initial_weights(6, 3, torch.Generator().manual_seed(1))
    graph = Graph.from_pairs(pairs, N, dtype=dtype)
    return network, [weight.to(dtype) for weight in weights], X, pairs, graph


def closed_form(X, pairs, weights):
    """``Â relu(Â X W1) W2`` in NumPy."""
    A = np.eye(N)
    A[pairs.rows, pairs.cols] = A[pairs.cols, pairs.rows] = 1.0
    root = np.diag(A.sum(axis=1) ** -0.5)
    normalised = root @ A @ root
    W1, W2 = (weight.numpy() for weight in weights)
    hidden = np.maximum(normalised @ X @ W1, 0.0)
    return hidden, normalised @ hidden @ W2


@pytest.mark.parametrize("form", [torch.tensor, "sparse"])
@pytest.mark.parametrize("hidden_units", [1, 4])
def test_logits_are_the_formula_of_the_paper(form, hidden_units):
    network, weights, X, pairs, graph = setting(hidden_units=hidden_units)
    if form == "sparse":
        features = FixedMatrix.from_scipy(sparse.csr_array(X), torch.float64, torch.device("cpu"))
    else:
        features = form(X)
    hidden, logits = closed_form(X, pairs, weights)
    assert_allclose(network.hidden(weights, features, graph).detach(), hidden, atol=1e-14)
    assert_allclose(network.logits(weights, features, graph).detach(), logits, atol=1e-14)


def test_dropout_is_on_the_hidden_layer_and_in_training_only():
    network, weights, X, pairs, graph = setting()
    hidden, _ = closed_form(X, pairs, weights)
    dropped = dropout(torch.tensor(hidden), 0.5, torch.Generator().manual_seed(2)) @ weights[1]
    noise = torch.Generator().manual_seed(2)
    got = network.logits(weights, torch.tensor(X), graph, noise)
    assert_allclose(got.detach(), (graph @ dropped).detach(), atol=1e-13)


def test_weights_penalty_and_their_sizes():
    network, weights, *_ = setting(hidden_units=5)
    assert [tuple(weight.shape) for weight in weights] == [(6, 5), (5, 3)]
    assert network.penalty(weights) == pytest.approx(float((weights[0] ** 2).sum())), "W1 alone"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_isolated_and_empty_rows_get_equal_logits(dtype):
    network, weights, X, _, graph = setting(dtype)
    X[-1] = 0.0
    logits = network.logits(weights, torch.as_tensor(X, dtype=dtype), graph).detach()
    assert logits.dtype == dtype
    assert torch.isfinite(logits).all()
    assert not logits[-1].any()


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_torch_geometric(weighted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of torch.jit is deprecated
        geometric = pytest.importorskip("torch_geometric.nn")
    network, weights, X, pairs, graph = setting()
    edge_index = torch.from_numpy(
        np.stack([np.append(pairs.rows, pairs.cols), np.append(pairs.cols, pairs.rows)])
    )
    edge_weight = None
    if weighted:
        values = np.random.default_rng(3).uniform(0.2, 2.0, pairs.n_pairs)
        graph = Graph.from_pairs(pairs, N, weights=values, dtype=torch.float64)
        edge_weight = torch.from_numpy(np.append(values, values))
    layers = []
    for weight in weights:
        layer = geometric.GCNConv(*weight.shape, bias=False).double()
        with torch.no_grad():
            layer.lin.weight.copy_(weight.T)
        layers.append(layer)
    hidden = torch.relu(layers[0](torch.tensor(X), edge_index, edge_weight))
    expected = layers[1](hidden, edge_index, edge_weight)
    got = network.logits(weights, torch.tensor(X), graph)
    assert_allclose(got.detach(), expected.detach(), atol=1e-13)
    # And so do the gradients by the weights.
    leaves = [weight.clone().requires_grad_() for weight in weights]
    ours = torch.autograd.grad(
        network.logits(leaves, torch.tensor(X), graph).square().sum(), leaves
    )
    theirs = torch.autograd.grad(expected.square().sum(), [layer.lin.weight for layer in layers])
    for one, other in zip(ours, theirs, strict=True):
        assert_allclose(one, other.T, atol=1e-12)
