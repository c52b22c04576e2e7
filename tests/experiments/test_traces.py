"""Traces: who is in which group, what is followed, and that a trace is small and made once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from edgewise.datasets import Dataset
from edgewise.experiments import traces
from edgewise.experiments.execute import fit_method
from edgewise.experiments.protocol import Run
from edgewise.experiments.traces import (
    BINS,
    GROUPS,
    EdgeRecorder,
    ensure_trace,
    example_groups,
    example_nodes,
    hidden_layer,
    histogram,
    load_trace,
    trace_optimisation,
    trace_predictions,
)
from edgewise.graph.construct import keep_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.inputs import EdgewiseWarning
from edgewise.learn import Progress
from edgewise.problem import Split

SHORT = {"patience": 1, "max_outer_iterations": 2, "max_inner_steps": 15}


@pytest.fixture
def dataset():
    """Two noisy blobs with rings of a class as their graph; half of the rows are test rows."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    features = (labels[:, None] * 1.5 + rng.normal(size=(60, 4))).astype(np.float32)
    order = rng.permutation(60)
    parts = [np.sort(order[a:b]) for a, b in ((0, 10), (10, 20), (20, 30), (30, 60))]
    nodes = np.arange(60)
    ring = np.where(nodes % 30 < 28, nodes + 2, nodes - 28)
    following = np.where(nodes % 30 < 29, nodes + 1, nodes - 29)
    pairs = Pairs.fold(np.r_[nodes, nodes], np.r_[following, ring], 60)
    return Dataset(
        "blobs", features, labels, np.array(["a", "b"]), pairs, Split(*parts[:3]), parts[3]
    )


@pytest.fixture
def loaded(dataset, monkeypatch):
    """The made-up data in place of any data set, with a share of its edges where asked."""

    def load(name, seed, variant):
        share = variant.get("keep_edges", 1)
        return replace(dataset, pairs=keep_pairs(dataset.pairs, share, np.random.default_rng(seed)))

    monkeypatch.setattr(traces, "load_variant", load)
    return dataset


def test_groups_are_disjoint_and_sort_by_visible_labels(dataset):
    node = int(dataset.test[0])
    groups = example_groups(dataset, dataset.pairs, node)
    assert tuple(groups) == GROUPS
    everyone = np.concatenate(list(groups.values()))
    assert sorted(everyone) == sorted(set(range(60)) - {node})
    assert len(groups["true neighbours"]) == 4
    visible = dataset.masked_labels()
    assert (visible[groups["same class"]] == dataset.labels[node]).all()
    assert (visible[groups["other class"]] == 1 - dataset.labels[node]).all()
    assert (visible[groups["unknown class"]] == -1).all()


def test_example_nodes_have_their_role_and_neighbours(dataset):
    nodes = example_nodes(dataset, dataset.pairs)
    assert list(nodes) == ["train", "validation", "test"]
    assert nodes["train"] == dataset.split.train[0]
    assert nodes["test"] == dataset.test[0]
    lonely = Pairs.fold([0], [1], 60)
    with pytest.raises(ValueError, match="no train row of blobs has 3 true neighbours"):
        example_nodes(dataset, lonely)


def test_the_recorder_follows_means_and_restarts():
    edges = DenseEdges(4, Pairs.fold([0, 0], [1, 2], 4), np.array([0.8, 0.2]))
    groups = {"near": np.array([1, 2]), "far": np.array([3]), "none": np.array([], int)}
    recorder = EdgeRecorder({0: groups})
    for update in (1, 2, 3):
        recorder.after_update(edges, Progress(updates=update))
    recorder.after_iteration(edges, Progress(updates=3))
    assert recorder.updates == [1, 2, 3]
    assert recorder.restarts == [3]
    assert recorder.means[0]["near"] == pytest.approx([0.5] * 3)
    assert recorder.means[0]["far"] == recorder.means[0]["none"] == [0.0] * 3


def test_histogram_counts_everything_once():
    values = np.array([0.0, 1e-12, 1e-6, 3e-4, 0.05, 0.9, 1.0])
    found = histogram(values)
    assert found["n"] == 7
    assert found["below"] == pytest.approx(2 / 7, abs=1e-4)
    assert found["below"] + sum(found["shares"]) == pytest.approx(1, abs=1e-3)
    assert len(found["shares"]) == len(BINS) - 1
    assert found["shares"][-1] == pytest.approx(2 / 7, abs=1e-4)  # 0.9 and 1
    assert histogram(np.array([]))["shares"] == [0.0] * (len(BINS) - 1)


def test_the_optimisation_is_followed_update_by_update(loaded):
    run = Run("lds", "blobs", {"tau": 5, **SHORT}, variant={"keep_edges": 0.5})
    made = trace_optimisation(run)
    trace = made["probabilities"]
    assert trace["updates"] == list(range(1, 7))  # two iterations of 15 steps, one in 5
    assert trace["restarts"] == [3, 6]
    assert [node["role"] for node in trace["nodes"]] == ["train", "validation", "test"]
    for node in trace["nodes"]:
        assert node["class"] in ("a", "b")
        assert sum(node["sizes"].values()) == 59
        assert {len(values) for values in node["log10_mean"].values()} == {6}
    for node in made["histograms"]["nodes"]:
        counts = {name: shown["n"] for name, shown in node["histograms"].items()}
        assert counts == {"same class": 29, "rest": 30}
    assert trace_optimisation(run) == made  # the same fit, the same trace
    json.dumps(made, allow_nan=False)


def test_an_interrupted_fit_is_no_trace(loaded, monkeypatch):
    def interrupt(self, edges, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(EdgeRecorder, "after_iteration", interrupt)
    with pytest.warns(EdgewiseWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        trace_optimisation(Run("lds", "blobs", {"tau": 5, **SHORT}))


def test_data_without_a_graph_cannot_be_followed(monkeypatch, dataset):
    monkeypatch.setattr(traces, "load_variant", lambda *_: replace(dataset, pairs=None))
    with pytest.raises(ValueError, match="wine has no given graph"):
        trace_optimisation(Run("lds", "wine"))


def test_shown_nodes_are_wrong_with_the_rival_and_right_with_lds(loaded):
    learned = Run("knn-lds", "blobs", {"k": 3, **SHORT})
    rivals = (
        Run("dense-gcn", "blobs", {"max_steps": 5}),
        Run("knn-gcn", "blobs", {"max_steps": 1}),
    )
    made = trace_predictions(learned, rivals)
    shown = made["misclassified"]
    assert shown["candidates"] >= len(shown["nodes"]) > 0
    for node in shown["nodes"]:
        assert node["node"] in loaded.test
        assert node["class"] == loaded.classes[loaded.labels[node["node"]]]
        assert node["predicted by rival"] != node["class"]
    planes = made["embeddings"]
    assert [panel["method"] for panel in planes["panels"]] == ["dense-gcn", "knn-gcn", "knn-lds"]
    assert {np.shape(panel["points"]) for panel in planes["panels"]} == {(30, 2)}
    assert planes["labels"] == loaded.labels[loaded.test].tolist()
    text = json.dumps(planes, allow_nan=False)
    assert "00000" not in text  # rounded, not only in appearance


@pytest.mark.parametrize("method", ["knn-lds", "knn-gcn", "dense-gcn"])
def test_the_hidden_layer_leads_to_the_prediction(dataset, method):
    """Through the second layer by hand, the method's own probabilities must come out."""
    parameters = {"max_inner_steps": 10, "max_outer_iterations": 1} if "lds" in method else {}
    problem = dataset.to_problem()
    model = fit_method(method, parameters, problem, seed=0)
    hidden = hidden_layer(model, problem, n_graphs=400)
    assert hidden.shape == (60, 16)
    assert (hidden >= 0).all()
    if method == "dense-gcn":  # Â of the complete graph in closed form
        last = model._weights[1].detach().double().numpy()
        logits = (hidden + (hidden.sum(0) - hidden) / 59) / 2 @ last
        expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.testing.assert_allclose(model.label_distributions_, expected, atol=1e-5)


def test_a_trace_is_made_once_and_its_twin_with_it(tmp_path, monkeypatch):
    calls = []

    def make():
        calls.append(1)
        return {"probabilities": {"a": 1}, "histograms": {"b": 2}}

    monkeypatch.setattr(traces, "MAKERS", {"probabilities": make, "histograms": make})
    folder = tmp_path / "traces"
    assert load_trace("histograms", folder) is None
    assert ensure_trace("probabilities", folder) == {"a": 1}
    assert ensure_trace("histograms", folder) == {"b": 2}
    assert ensure_trace("probabilities", folder) == {"a": 1}
    assert len(calls) == 1
    assert sorted(path.name for path in folder.iterdir()) == [
        "histograms.json",
        "probabilities.json",
    ]
    with pytest.raises(ValueError, match="no trace 'pictures'; there are probabilities"):
        ensure_trace("pictures", folder)
