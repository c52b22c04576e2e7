"""Edges from features: the chain rule against autograd, and what the parameters mean."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import logit

from edgewise.graph.similarity import PairProducts, SimilarityEdges


class FixedSlopes:
    """A gradient with given derivatives at the candidates."""

    def __init__(self, slopes):
        self.slopes = slopes
        self.shift = np.zeros(1)

    def at_pairs(self, rows, cols):
        return self.slopes


def table(kind, n_rows=40, n_features=6):
    features = np.random.default_rng(0).normal(size=(n_rows, n_features))
    if kind == "dense":
        return features
    features[np.abs(features) < 0.8] = 0.0
    features[3] = 0.0
    return sparse.csr_array(features)


def edges_of(kind, metric, **options):
    return SimilarityEdges(
        table(kind),
        n_candidates=8,
        expected_degree=4,
        metric=metric,
        dtype=torch.float64,
        **options,
    )


def reference_probabilities(features, pairs, metric, unit, log_weights, scale, offset):
    """The definition, as dense differentiable PyTorch."""
    weights = log_weights.exp()
    first, second = features[pairs.rows], features[pairs.cols]
    if metric == "euclidean":
        similarity = -(weights * (first - second) ** 2).sum(dim=1) / unit
    else:
        norms = ((weights * first**2).sum(dim=1) * (weights * second**2).sum(dim=1)).sqrt()
        similarity = (weights * first * second).sum(dim=1) / norms.clamp_min(1e-300)
    return torch.sigmoid(scale * (similarity - offset))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_starts_at_the_expected_degree(kind, metric):
    edges = edges_of(kind, metric)
    assert edges.expected_edges() == pytest.approx(4 * 40 / 2, rel=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_descends_along_the_chain_rule(kind, metric, monkeypatch):
    edges = edges_of(kind, metric, pull=0.3)
    slopes = np.random.default_rng(1).normal(size=edges.pairs.n_pairs)
    edges.descend(FixedSlopes(slopes), 1.0)  # away from the start, where all weights are equal
    parameters = [
        torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in edges.parameters
    ]
    dense = table(kind)
    dense = torch.from_numpy(dense if isinstance(dense, np.ndarray) else dense.toarray())
    probability = reference_probabilities(dense, edges.pairs, metric, edges._unit, *parameters)
    np.testing.assert_allclose(edges.probability(*edges.pairs), probability.detach(), atol=1e-12)
    objective = (probability * torch.from_numpy(slopes)).sum()
    objective = objective + 0.15 * parameters[0].square().sum()
    expected = torch.autograd.grad(objective, parameters)
    seen = []
    monkeypatch.setattr(
        edges._optimizer, "step", lambda: seen.extend(p.grad.clone() for p in edges._parameters)
    )
    edges.descend(FixedSlopes(slopes), 1.0)
    for got, want in zip(seen, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_adjoint_of_pair_products_is_the_transpose():
    rng = np.random.default_rng(2)
    for kind in ("dense", "sparse"):
        pairs = edges_of(kind, "cosine").pairs
        products = PairProducts(table(kind), pairs)
        weights, slopes = rng.normal(size=6), rng.normal(size=pairs.n_pairs)
        assert products.inner(weights) @ slopes == pytest.approx(weights @ products.adjoint(slopes))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_attached_copies_of_fitted_rows_have_the_fitted_probabilities(metric):
    features = table("dense")
    edges = edges_of("dense", metric)
    edges.descend(FixedSlopes(np.linspace(-1, 1, edges.pairs.n_pairs)), 1.0)
    found, probability = edges.attach(features[:5], features)
    for query in range(5):
        for neighbour, chance in zip(found[query], probability[query], strict=True):
            if neighbour == query:
                continue
            known = edges.probability([query], [neighbour])[0]
            if known > 0:  # in the union of nearest neighbours
                assert chance == pytest.approx(known, rel=1e-9)


def test_copy_and_pickle_go_on_alike():
    edges = edges_of("dense", "cosine")
    slopes = FixedSlopes(np.linspace(-1, 1, edges.pairs.n_pairs))
    edges.descend(slopes, 1.0)
    twins = [edges.copy(), pickle.loads(pickle.dumps(edges))]
    edges.descend(slopes, 0.5)
    for twin in twins:
        assert not np.array_equal(twin.probability(*twin.pairs), edges.probability(*edges.pairs))
        twin.descend(slopes, 0.5)
        np.testing.assert_array_equal(
            twin.probability(*twin.pairs), edges.probability(*edges.pairs)
        )


def test_zero_rows_have_similarity_zero():
    edges = edges_of("sparse", "cosine")
    _, scale, offset = edges.parameters
    involved = (edges.pairs.rows == 3) | (edges.pairs.cols == 3)
    assert np.isfinite(edges.probability(*edges.pairs)).all()
    np.testing.assert_allclose(
        logit(edges.probability(*edges.pairs)[involved]), -scale * offset, rtol=1e-6
    )
