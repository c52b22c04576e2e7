"""The denoising term: its derivative by the graph against dense autograd, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from edgewise.denoising import Denoiser, Masked
from edgewise.graph.construct import random_pairs
from edgewise.graph.sampled import Graph

N_NODES, N_FEATURES = 25, 12


def table(kind):
    rng = np.random.default_rng(0)
    if kind == "dense":
        return rng.normal(size=(N_NODES, N_FEATURES))
    return sparse.csr_array((rng.random((N_NODES, N_FEATURES)) < 0.3).astype(np.float64))


def denoiser_of(kind, **options):
    generator = torch.Generator().manual_seed(0)
    return Denoiser(table(kind), generator, hidden_units=5, dtype=torch.float64, **options)


class DenseGraph:
    """The normalised adjacency as a dense differentiable matrix."""

    def __init__(self, adjacency):
        scale = (1.0 + adjacency.sum(dim=1)).rsqrt()
        self.matrix = scale[:, None] * (adjacency + torch.eye(N_NODES)) * scale

    def __matmul__(self, dense):
        return self.matrix @ dense


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_gradient_equals_dense_autograd(kind, monkeypatch):
    pairs = random_pairs(N_NODES, n_pairs=60, rng=np.random.default_rng(1))
    weights = [w.clone() for w in weights_of(denoiser_of(kind))]
    gradient = denoiser_of(kind).gradient(
        lambda: Graph.from_pairs(pairs, N_NODES, dtype=torch.float64), np.random.default_rng(2)
    )
    adjacency = torch.zeros(N_NODES, N_NODES, dtype=torch.float64)
    adjacency[pairs.rows, pairs.cols] = adjacency[pairs.cols, pairs.rows] = 1.0
    adjacency.requires_grad_()
    masked = denoiser_of(kind)._mask(np.random.default_rng(2))
    loss = dense_loss(kind, weights, masked, DenseGraph(adjacency))
    (by_adjacency,) = torch.autograd.grad(loss, adjacency)
    rows, cols = (ends.astype(np.int64) for ends in np.triu_indices(N_NODES, 1))
    expected = (by_adjacency + by_adjacency.T)[rows, cols]
    np.testing.assert_allclose(gradient.at_pairs(rows, cols), expected, atol=1e-12)


def weights_of(denoiser):
    sizes = [shape.numel() for shape in denoiser._shapes]
    parts = denoiser._state.weights.split(sizes)
    return [part.view(shape) for part, shape in zip(parts, denoiser._shapes, strict=True)]


def dense_loss(kind, weights, masked: Masked, graph):
    """The definition of the loss, in plain PyTorch."""
    first, second, bias = weights
    features = masked.features if kind == "dense" else masked.features.toarray()
    deep = graph @ torch.relu(graph @ (torch.from_numpy(features) @ first))
    told = (deep @ second.T + bias[:, 0])[masked.rows, masked.cols]
    targets = torch.from_numpy(masked.targets)
    if kind == "dense":
        return ((told - targets) ** 2).mean()
    return torch.nn.functional.binary_cross_entropy_with_logits(told, targets)


def test_hidden_words_are_hidden_and_asked_for():
    features = table("sparse")
    masked = denoiser_of("sparse", hidden_share=0.5, zeros_per_entry=3)._mask(
        np.random.default_rng(3)
    )
    asked = masked.targets == 1.0
    dense = features.toarray()
    assert 0 < asked.sum() < features.nnz
    assert (dense[masked.rows[asked], masked.cols[asked]] > 0).all()
    assert (masked.features.toarray()[masked.rows[asked], masked.cols[asked]] == 0).all()
    assert masked.features.toarray().sum() == features.nnz - asked.sum()
    assert (~asked).sum() == 3 * asked.sum()


def test_hidden_values_are_standardised_targets():
    features = table("dense")
    standardised = (features - features.mean(axis=0)) / features.std(axis=0)
    masked = denoiser_of("dense")._mask(np.random.default_rng(3))
    np.testing.assert_allclose(masked.targets, standardised[masked.rows, masked.cols])
    assert (masked.features[masked.rows, masked.cols] == 0).all()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_network_learns_to_reconstruct(kind):
    pairs = random_pairs(N_NODES, n_pairs=60, rng=np.random.default_rng(1))
    graph = Graph.from_pairs(pairs, N_NODES, dtype=torch.float64)
    denoiser = denoiser_of(kind)
    rng = np.random.default_rng(4)

    def loss():
        masked = denoiser._mask(np.random.default_rng(5))
        return dense_loss(kind, weights_of(denoiser), masked, graph).item()

    before = loss()
    for _ in range(60):
        denoiser.gradient(lambda: graph, rng)
    assert loss() < before


def test_constant_columns_and_empty_rows_give_finite_gradients():
    features = table("dense")
    features[:, 0] = 7.0
    words = table("sparse").toarray()
    words[4] = 0.0
    for data in (features, sparse.csr_array(words)):
        denoiser = Denoiser(
            data, torch.Generator().manual_seed(0), hidden_units=3, dtype=torch.float64
        )
        graph = Graph.from_pairs(
            random_pairs(N_NODES, n_pairs=20, rng=np.random.default_rng(0)),
            N_NODES,
            dtype=torch.float64,
        )
        gradient = denoiser.gradient(lambda graph=graph: graph, np.random.default_rng(0))
        assert np.isfinite(gradient.band(0, N_NODES)).all()
        assert np.isfinite(gradient.shift).all()
