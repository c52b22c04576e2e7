"""What the paper's figures of single fits show: followed while LDS runs, kept as the points drawn.

Each trace is a small JSON file, from which its figure can be drawn again without a fit. The fits
repeat exactly: their seeds and parameters are fixed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from edgewise.baselines import make_method
from edgewise.datasets import Dataset
from edgewise.estimator import LDSClassifier
from edgewise.experiments.execute import fit_method, load_variant
from edgewise.experiments.protocol import Run
from edgewise.files import write_atomically
from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.pairs import Pairs
from edgewise.learn import Callback, Progress
from edgewise.problem import Problem
from edgewise.train import as_features

#: The content of a trace file: JSON values.
Trace: TypeAlias = dict[str, Any]

LDS_PARAMETERS = {
    "tau": 5,
    "outer_learning_rate": 1.0,
    "inner_learning_rate": 0.02,
    "patience": 5,
}
# Figures 3 and 4 of the paper follow LDS on Cora from a quarter of its edges; Figures 5 and 6 are
# about Citeseer without its graph.
OPTIMISATION = Run("lds", "cora", LDS_PARAMETERS, variant={"keep_edges": 0.25})
LEARNED = Run("knn-lds", "citeseer", {**LDS_PARAMETERS, "k": 10, "metric": "cosine"})
RIVALS = (Run("dense-gcn", "citeseer"), Run("knn-gcn", "citeseer", {"k": 10, "metric": "cosine"}))

GROUPS = ("true neighbours", "same class", "other class", "unknown class")
# Bounds of the histograms of log10 probability; what is below, exact zeros above all, is counted
# apart.
BINS = [round(-6 + 0.5 * i, 1) for i in range(13)]
# An example node needs neighbours for their mean to mean something.
_FEWEST_NEIGHBOURS = 3
_MISCLASSIFIED = 3


class EdgeRecorder(Callback):
    """Follows the probabilities of some nodes' edges, as means over groups of other nodes.

    Parameters
    ----------
    groups : mapping of node to a mapping of group name to the nodes in it

    Attributes
    ----------
    updates : list of int, the number of each update of the edges, from 1
    restarts : list of int, the updates after which the inner problem started anew
    means : dict of node to a dict of group to its mean probability after each update
    progress : Progress or None, that of the fit

    Examples
    --------
    >>> from edgewise.graph.distribution import DenseEdges
    >>> edges = DenseEdges(3, Pairs.fold([0], [1], n_nodes=3))
    >>> recorder = EdgeRecorder({0: {"both": np.array([1, 2])}})
    >>> recorder.after_update(edges, Progress(updates=1))
    >>> recorder.updates, recorder.means
    ([1], {0: {'both': [0.5]}})
    """

    def __init__(self, groups: Mapping[int, Mapping[str, NDArray[np.int64]]]) -> None:
        self.groups = groups
        self.updates: list[int] = []
        self.restarts: list[int] = []
        self.progress: Progress | None = None
        self.means: dict[int, dict[str, list[float]]] = {
            node: {name: [] for name in members} for node, members in groups.items()
        }

    def after_update(self, edges: EdgeDistribution, progress: Progress) -> None:
        self.progress = progress
        self.updates.append(progress.updates)
        for node, members in self.groups.items():
            for name, others in members.items():
                mean = float(_probabilities(edges, node, others).mean()) if len(others) else 0.0
                self.means[node][name].append(mean)

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        self.restarts.append(progress.updates)


def _probabilities(
    edges: EdgeDistribution, node: int, others: NDArray[np.int64]
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = edges.probability(np.full(len(others), node), others)
    return found.astype(np.float64)


def example_groups(dataset: Dataset, true_pairs: Pairs, node: int) -> dict[str, NDArray[np.int64]]:
    """Sort the other nodes by what they are to a node.

    Parameters
    ----------
    dataset : Dataset
    true_pairs : Pairs, all edges of the true graph
    node : int

    Returns
    -------
    dict of group to nodes: the true neighbours; of the others, those whose visible label is the
    node's class, those of another class, and those without a visible label
    """
    neighbours = np.concatenate(
        [true_pairs.cols[true_pairs.rows == node], true_pairs.rows[true_pairs.cols == node]]
    )
    rest = np.setdiff1d(np.arange(dataset.n_nodes), [node, *neighbours])
    visible = dataset.masked_labels()[rest]
    own = dataset.labels[node]
    members = (
        np.sort(neighbours),
        rest[visible == own],
        rest[(visible >= 0) & (visible != own)],
        rest[visible < 0],
    )
    return dict(zip(GROUPS, members, strict=True))


def example_nodes(dataset: Dataset, true_pairs: Pairs) -> dict[str, int]:
    """Pick a node of each role: the first with at least three true neighbours.

    Parameters
    ----------
    dataset : Dataset
    true_pairs : Pairs, all edges of the true graph

    Returns
    -------
    dict of role to node
    """
    degree = np.bincount(np.concatenate(true_pairs), minlength=dataset.n_nodes)
    roles = {
        "train": dataset.split.train,
        "validation": dataset.split.validation,
        "test": dataset.test,
    }
    found = {}
    for role, rows in roles.items():
        enough = rows[degree[rows] >= _FEWEST_NEIGHBOURS]
        if not len(enough):
            raise ValueError(
                f"no {role} row of {dataset.name} has {_FEWEST_NEIGHBOURS} true neighbours"
            )
        found[role] = int(enough[0])
    return found


def histogram(probabilities: NDArray[np.float64]) -> dict[str, Any]:
    """Count edge probabilities by their logarithm, as shares of all.

    Parameters
    ----------
    probabilities : ndarray

    Returns
    -------
    dict with "n", "below" (the share of zeros and of what is under the first bin) and "shares"
    (one for each bin of `BINS`)

    Examples
    --------
    >>> histogram(np.array([0.0, 1e-9, 0.5, 1.0]))["below"]
    0.5
    """
    with np.errstate(divide="ignore"):
        logarithms = np.log10(np.minimum(probabilities, 1.0))
    counts, _ = np.histogram(logarithms[logarithms >= BINS[0]], bins=BINS)
    n = max(1, len(probabilities))
    return {
        "n": len(probabilities),
        "below": round(float((logarithms < BINS[0]).sum() / n), 4),
        "shares": [round(float(count / n), 4) for count in counts],
    }


def histograms_of(edges: EdgeDistribution, dataset: Dataset, node: int) -> dict[str, Any]:
    """Histograms of the probabilities of a node's edges: to its own (true) class, and to the rest.

    Parameters
    ----------
    edges : EdgeDistribution
    dataset : Dataset
    node : int

    Returns
    -------
    dict of "same class" and "rest" to what `histogram` gives
    """
    others = np.delete(np.arange(dataset.n_nodes), node)
    same = dataset.labels[others] == dataset.labels[node]
    probabilities = _probabilities(edges, node, others)
    return {
        "same class": histogram(probabilities[same]),
        "rest": histogram(probabilities[~same]),
    }


def trace_optimisation(run: Run = OPTIMISATION) -> dict[str, Trace]:
    """Follow LDS: Figures 3 and 4 of the paper, from one fit.

    Parameters
    ----------
    run : Run of "lds" on data with a graph

    Returns
    -------
    dict with the traces "probabilities" and "histograms"
    """
    dataset = load_variant(run.dataset, run.seed, run.variant)
    whole = load_variant(run.dataset, run.seed, {}).pairs
    if whole is None:
        raise ValueError(f"{run.dataset} has no given graph to compare the learned edges with")
    nodes = example_nodes(dataset, whole)
    groups = {node: example_groups(dataset, whole, node) for node in nodes.values()}
    recorder = EdgeRecorder(groups)
    model = _followed(run, dataset, recorder)
    described: list[Trace] = [
        {"node": node, "role": role, "class": str(dataset.classes[dataset.labels[node]])}
        for role, node in nodes.items()
    ]
    about = {"run": run.describe(), "best_iteration": model.best_iteration_}
    probabilities = [
        {
            **text,
            "sizes": {name: len(others) for name, others in groups[text["node"]].items()},
            "log10_mean": {
                name: [_log10(value) for value in values]
                for name, values in recorder.means[text["node"]].items()
            },
        }
        for text in described
    ]
    histograms = [
        {**text, "histograms": histograms_of(model.edges_, dataset, text["node"])}
        for text in described
    ]
    return {
        "probabilities": {
            **about,
            "updates": recorder.updates,
            "restarts": recorder.restarts,
            "nodes": probabilities,
        },
        "histograms": {**about, "bins": BINS, "nodes": histograms},
    }


def _followed(run: Run, dataset: Dataset, recorder: EdgeRecorder) -> Any:
    """Fit LDS as `fit_method` does, with somebody looking on."""
    model: Any = make_method(run.method, **run.parameters, random_state=run.seed)
    model.set_params(callbacks=[recorder])
    split = dataset.split
    model.fit(
        dataset.features,
        dataset.masked_labels(),
        dataset.pairs,
        validation=split.validation,
        early_stopping=split.early_stopping,
    )
    if recorder.progress is not None and recorder.progress.interrupted:
        # On Ctrl-C, LDS is content with the best model so far; a trace is whole, or is not.
        raise KeyboardInterrupt
    return model


def _log10(value: float) -> float | None:
    """The logarithm to draw; None, a gap, for zero."""
    return round(float(np.log10(value)), 3) if value > 0 else None


def trace_predictions(learned: Run = LEARNED, rivals: Sequence[Run] = RIVALS) -> dict[str, Trace]:
    """Compare what is learned without a graph: Figures 5 and 6 of the paper, from the same fits.

    The nodes to show are picked by their test labels, as in the paper: that illustrates a result
    and decides nothing about it.

    Parameters
    ----------
    learned : Run of "knn-lds"
    rivals : sequence of Run; the last one is the one whose errors are looked at

    Returns
    -------
    dict with the traces "misclassified" and "embeddings"
    """
    dataset = load_variant(learned.dataset, learned.seed, learned.variant)
    runs = [*rivals, learned]
    models: list[Any] = [
        fit_method(run.method, run.parameters, dataset.to_problem(), seed=run.seed) for run in runs
    ]
    *_, rival, lds = models
    test, truth = dataset.test, dataset.labels[dataset.test]
    shown = test[(rival.transduction_[test] != truth) & (lds.transduction_[test] == truth)]
    names = dataset.classes.astype(str)
    nodes = [
        {
            "node": int(node),
            "class": names[dataset.labels[node]],
            "predicted by rival": names[rival.transduction_[node]],
            "histograms": histograms_of(lds.edges_, dataset, int(node)),
        }
        for node in shown[:_MISCLASSIFIED]
    ]
    about = {"runs": [run.describe() for run in runs]}
    panels = [
        {
            "method": run.method,
            "test_accuracy": round(float((model.transduction_[test] == truth).mean()), 4),
            "points": _plane(hidden_layer(model, dataset.to_problem())[test]).tolist(),
        }
        for run, model in zip(runs, models, strict=True)
    ]
    return {
        "misclassified": {**about, "bins": BINS, "candidates": len(shown), "nodes": nodes},
        "embeddings": {**about, "labels": truth.tolist(), "classes": names.tolist(),
                       "panels": panels},
    }  # fmt: skip


def hidden_layer(model: Any, problem: Problem, n_graphs: int = 16) -> NDArray[np.float64]:
    """The last hidden layer of a fitted network, averaged over graphs where these are random.

    Parameters
    ----------
    model : LDSClassifier or NetworkBaseline, fitted to the problem
    problem : Problem
    n_graphs : int, default=16

    Returns
    -------
    ndarray, shape (n_nodes, hidden_units)

    Examples
    --------
    >>> from edgewise.datasets import load
    >>> problem = load("wine").to_problem()
    >>> hidden_layer(fit_method("knn-gcn", {}, problem, seed=0), problem).shape
    (178, 16)
    """
    rng = np.random.default_rng(0)
    if isinstance(model, LDSClassifier):
        unit, weights = 1.0, [torch.as_tensor(part) for part in model.weights_]
        graphs = [model.edges_.draw(rng) for _ in range(n_graphs)]
    else:
        unit, weights = model._unit, model._weights
        graphs = [model._graphs(replace(problem, features=problem.features / unit), rng).draw()]
    features = as_features(problem.features / unit, weights[0].dtype, torch.device("cpu"))
    with torch.no_grad():
        layers = [model._network().hidden(weights, features, graph).double() for graph in graphs]
    mean: NDArray[np.float64] = torch.stack(layers).mean(dim=0).numpy()
    return mean


def _plane(hidden: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two coordinates by t-SNE, rounded to what an eye can see."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(hidden) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    points: NDArray[np.float64] = tsne.fit_transform(hidden).astype(np.float64).round(1)
    return points


#: What makes each trace; the two of a pair come from the same fits.
MAKERS: Mapping[str, Callable[[], dict[str, Trace]]] = {
    "probabilities": trace_optimisation,
    "histograms": trace_optimisation,
    "misclassified": trace_predictions,
    "embeddings": trace_predictions,
}


def load_trace(name: str, folder: Path) -> Trace | None:
    """Read a trace; None where it was not made yet.

    Parameters
    ----------
    name : str
    folder : Path

    Returns
    -------
    dict or None

    Examples
    --------
    >>> load_trace("embeddings", Path("nowhere")) is None
    True
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found: Trace = json.loads(path.read_text(encoding="utf-8"))
    return found


def ensure_trace(name: str, folder: Path) -> Trace:
    """Read a trace, or make it, with the other one that the same fits give.

    Parameters
    ----------
    name : one of `MAKERS`
    folder : Path

    Returns
    -------
    dict
    """
    if name not in MAKERS:
        raise ValueError(f"there is no trace {name!r}; there are {', '.join(MAKERS)}")
    found = load_trace(name, folder)
    if found is not None:
        return found
    made = MAKERS[name]()
    folder.mkdir(parents=True, exist_ok=True)
    for each, trace in made.items():
        text = json.dumps(trace, separators=(",", ":")) + "\n"
        write_atomically(folder / f"{each}.json", text.encode())
    return made[name]
