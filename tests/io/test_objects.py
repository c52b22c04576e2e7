"""Objects of other packages, in and out; each test is skipped where the package is not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from edgewise import LDSClassifier
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.inputs import adjacency_pairs, check_features, encode_labels
from edgewise.io.objects import from_anndata, from_pyg, to_anndata, to_pyg

QUICK = {"k": 3, "patience": 1, "max_outer_iterations": 1, "max_inner_steps": 10}


def rows(n_rows=20):
    rng = np.random.default_rng(0)
    truth = np.arange(n_rows) % 2
    return rng.normal(size=(n_rows, 3)) + 2 * truth[:, None], truth


@pytest.fixture
def pairs():
    return Pairs.fold([0, 1, 4], [1, 2, 7], 20)


@pytest.mark.parametrize("kind", [DenseEdges, CandidateEdges])
def test_a_seed_or_a_generator_draws_the_same(pairs, kind):
    edges = kind(20, pairs, np.array([0.5, 0.5, 0.5]))
    for seed in range(5):
        drawn = edges.sample(seed)
        np.testing.assert_array_equal(drawn, edges.sample(np.random.default_rng(seed)))
    assert len({edges.sample(seed).n_pairs for seed in range(20)}) > 1


def test_learned_graphs_go_to_pyg_and_back(pairs):
    geometric = pytest.importorskip("torch_geometric")
    probability = np.array([1.0, 0.5, 0.25])
    edges = DenseEdges(20, pairs, probability)
    X, truth = rows()
    data = to_pyg(edges, X, truth, threshold=0.3)
    assert isinstance(data, geometric.data.Data)
    assert data.validate()
    assert data.is_undirected()
    assert data.num_nodes == 20
    assert data.x.dtype == torch.float32
    back = from_pyg(data)
    found, weights = adjacency_pairs(back["graph"], 20)
    np.testing.assert_array_equal(found, [pairs.rows[:2], pairs.cols[:2]])
    np.testing.assert_array_equal(weights, probability[:2])
    np.testing.assert_array_equal(back["y"], truth)
    assert edges.to_pyg().edge_weight.tolist() == to_pyg(edges).edge_weight.tolist()
    assert to_pyg(edges, sparse.csr_array(X)).x.shape == (20, 3)


def test_pyg_data_is_fitted_without_a_look_at_test_labels():
    geometric = pytest.importorskip("torch_geometric")
    X, truth = rows()
    place = torch.arange(20)
    data = geometric.data.Data(
        x=torch.from_numpy(X),
        y=torch.from_numpy(truth)[:, None],
        edge_index=torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 1, 1]]),
        train_mask=place < 6,
        val_mask=(place >= 6) & (place < 12),
    )
    arguments = from_pyg(data)
    assert (arguments["y"][12:] == -1).all()
    assert arguments["graph"].max() == 1.0
    fitted = LDSClassifier(**QUICK, random_state=0).fit(**arguments)
    assert set(fitted.split_.train) == set(range(6))
    assert "graph" not in from_pyg(data, use_graph=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "data has no x"),
        ({"y": torch.zeros(3, 4)}, r"shape \(3, 4\): give one class"),
        ({"train_mask": torch.ones(3, 10)}, r"choose one split.*train_mask\[:, 0\]"),
    ],
)
def test_pyg_data_that_cannot_be_used(changes, message):
    data = {"x": torch.eye(3), "y": torch.tensor([0, 1, 0]), **changes}
    with pytest.raises(ValueError, match=message):
        from_pyg(SimpleNamespace(**data))


@pytest.mark.filterwarnings("default")  # of packages that anndata imports
def test_anndata_in_and_out():
    anndata = pytest.importorskip("anndata")
    X, truth = rows()
    types = pd.Categorical(np.where(np.arange(20) < 12, np.array(["B", "T"])[truth], None))
    table = anndata.AnnData(X, obs=pd.DataFrame({"type": types}, index=map(str, range(20))))
    table.obsp["known"] = sparse.csr_matrix(([0.5, 0.5], ([0, 1], [1, 0])), shape=(20, 20))
    table.obsm["pca"] = X[:, :2]
    arguments = from_anndata(table, "type", graph="known", layer="pca")
    assert arguments["X"].shape == (20, 2)
    assert arguments["y"].tolist()[10:14] == ["B", "T", None, None]
    fitted = LDSClassifier(**QUICK, random_state=0).fit(**arguments)
    to_anndata(fitted, table, key="lds")
    assert table.obs["lds"].tolist() == fitted.transduction_.tolist()
    assert abs(table.obsp["lds_connectivities"] - fitted.edges_.to_scipy()).nnz == 0
    np.testing.assert_array_equal(table.obsm["lds"], fitted.label_distributions_)
    with pytest.raises(ValueError, match="19 rows, but the classifier was fitted on 20"):
        to_anndata(fitted, table[:19].copy())


@pytest.mark.parametrize("wrong", [{"label": "x"}, {"graph": "x"}, {"layer": "x"}])
def test_what_is_not_in_an_anndata_is_named(wrong):
    obs = pd.DataFrame({"type": ["a", "b"]})
    table = SimpleNamespace(X=np.eye(2), obs=obs, obsp={"g": 1}, obsm={}, layers={"l": 1})
    with pytest.raises(KeyError, match=r"='x': .* holds"):
        from_anndata(table, **{"label": "type", **wrong})


def test_polars_frames_are_fitted_with_their_names():
    polars = pytest.importorskip("polars")
    X, truth = rows()
    frame = polars.DataFrame(X, schema=["a", "b", "c"])
    labels = polars.Series("y", [int(c) if i < 12 else None for i, c in enumerate(truth)])
    fitted = LDSClassifier(**QUICK, random_state=0).fit(frame, labels)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert fitted.classes_.dtype == np.int64
    same = LDSClassifier(**QUICK, random_state=0).fit(X, np.where(np.arange(20) < 12, truth, -1))
    np.testing.assert_array_equal(fitted.predict_proba(frame), same.label_distributions_)
    graph = polars.DataFrame({"source": [0, 1], "target": [1, 2], "probability": [0.5, 1.0]})
    assert adjacency_pairs(graph, 20)[1].tolist() == [0.5, 1.0]
    with pytest.raises(ValueError, match="column 'b'"):
        check_features(frame.with_columns(b=polars.lit("x")))
    assert encode_labels(polars.Series(["x", None, "y"]))[0].tolist() == [0, -1, 1]
