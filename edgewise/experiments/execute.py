"""Execute a run: load its data, fit its method on what it may see, and only then judge it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from edgewise.baselines import get_method, make_method
from edgewise.datasets import Dataset, load
from edgewise.estimator import LDSClassifier, TransductiveClassifier
from edgewise.experiments.protocol import Labels, Outcome, Run
from edgewise.graph.construct import keep_pairs, knn_pairs
from edgewise.graph.distribution import EdgeDistribution
from edgewise.learn import Callback, Progress
from edgewise.problem import Problem
from edgewise.train import Score, score

_VARIANTS = ("keep_edges", "split", "random_split")
# Decided by the run itself; as parameters they could contradict it.
_DECIDED = {"refit": "the label budget, labels=", "random_state": "the seed"}


@dataclass(frozen=True)
class Exam:
    """The rows to be judged on, and their true labels: what no `fit` ever gets to see.

    Attributes
    ----------
    rows : ndarray of int64
    labels : ndarray of int64, the class number of each of these rows
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: Dataset) -> Exam:
        """The test rows of a data set."""
        return cls(dataset.test, dataset.labels[dataset.test])

    def mark(self, probabilities: NDArray[np.float64]) -> Score:
        """Accuracy and mean log-loss of class probabilities of all rows of the data."""
        own = probabilities[self.rows]
        return score(own, self.labels, np.arange(len(self.rows)))


def execute(run: Run) -> Outcome:
    """Load the data of a run, fit its method, and judge it on the test rows.

    Every method is given the very same parts of the labelled rows. With ``run.labels`` "paper" the
    final fit is on the training rows (LDS fits its graph on the validation rows); with "equal" it
    is on all labelled rows, for every method.

    Parameters
    ----------
    run : Run
        Its `variant` may hold "keep_edges" (the share of the given edges that is kept, drawn by
        the seed), "split": "random" (in place of the public split, one a seed), or "random_split"
        (the number of a random split, whatever the seed).

    Returns
    -------
    Outcome
        See `evaluate`.

    Examples
    --------
    >>> outcome = execute(Run("logreg", "wine", {"C": 1000.0}, seed=0))
    >>> sorted(outcome.accuracies)
    ['early_stopping', 'test', 'train', 'validation']
    >>> outcome.accuracies["test"] > 0.8
    True
    """
    dataset = load_variant(run.dataset, run.seed, run.variant)
    return evaluate(run, dataset.to_problem(), Exam.of(dataset))


def load_variant(name: str, seed: int, variant: Mapping[str, Any]) -> Dataset:
    """Load a data set as a run's `variant` wants it.

    Parameters
    ----------
    name : str
    seed : int
    variant : mapping; see `execute`

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load_variant("wine", 0, {"keep_edges": 0.5})
    Traceback (most recent call last):
    ...
    ValueError: keep_edges=0.5 is about a given graph, but wine has none; leave it out
    """
    unknown = set(variant) - set(_VARIANTS)
    if unknown:
        raise ValueError(
            f"unknown variant {sorted(unknown)[0]!r}; known are {', '.join(_VARIANTS)}"
        )
    dataset = _load(name, seed, _number_of_split(seed, variant))
    share = variant.get("keep_edges", 1)
    if share == 1:
        return dataset
    if dataset.pairs is None:
        raise ValueError(
            f"keep_edges={share} is about a given graph, but {name} has none; leave it out"
        )
    # A stream of its own: which edges are kept depends on nothing but the seed.
    kept = keep_pairs(dataset.pairs, share, np.random.default_rng([seed, 2]))
    return replace(dataset, pairs=kept)


def _number_of_split(seed: int, variant: Mapping[str, Any]) -> int | None:
    number = variant.get("random_split")
    split = variant.get("split", "public")
    if split not in ("public", "random"):
        raise ValueError(f"variant split={split!r}: it must be 'public' or 'random'")
    if split == "random" and number is None:
        return seed
    return None if number is None else int(number)


@lru_cache(maxsize=2)
def _load(name: str, seed: int, random_split: int | None) -> Dataset:
    # A worker makes many runs on the same data, one after the other.
    return load(name, seed=seed, random_split=random_split)


def evaluate(run: Run, problem: Problem, exam: Exam | None) -> Outcome:
    """Fit the method of a run to a problem, then judge it.

    Parameters
    ----------
    run : Run, of which the data set's name and the variant are not looked at
    problem : Problem, whose labels are those that a method may see, and no others
    exam : Exam, which is opened after the fit; None where there is nothing to be judged on

    Returns
    -------
    Outcome
        - "validation" (for LDS: "early_stopping") among `accuracies` and `losses` is the score by
          which the method's parameters may be chosen. It is on all the labelled rows that had no
          part in the fit that it judges, also where the final model was fitted on all labels: for
          LDS, and for others at budget "equal", the early-stopping rows; for others at budget
          "paper" the validation and early-stopping rows together.
        - "early_stopping" of other methods is the score on these rows alone. Where the final fit
          was on them, nobody knows it, and it is missing.
        - "train" is the final model's score on the rows its network, or classifier, was fitted on.
        - `expected_edges` are those of a random or learned graph; ``details["initial_edges"]``
          those of the graph that was given, or found, to start from, or to stay.

    Examples
    --------
    >>> from edgewise.datasets import load
    >>> wine = load("wine", seed=0)
    >>> run = Run("knn-gcn", "wine", {"k": 5}, labels="equal")
    >>> outcome = evaluate(run, wine.to_problem(), Exam.of(wine))
    >>> outcome.accuracies["test"] > 0.8, outcome.details["initial_edges"] > 178 * 5 / 2
    (True, True)
    """
    started = time.perf_counter()
    model = fit_method(run.method, run.parameters, problem, seed=run.seed, labels=run.labels)
    seconds = time.perf_counter() - started
    probabilities = all_classes(model, problem.n_classes)
    scores = _scores(model, probabilities, problem, run.labels)
    if exam is not None:
        scores["test"] = exam.mark(probabilities)
    edges = getattr(model, "edges_", None)
    initial = _initial_edges(model, problem)
    return Outcome(
        accuracies={part: value.accuracy for part, value in scores.items()},
        losses={part: value.loss for part, value in scores.items()},
        expected_edges=None if edges is None else float(edges.expected_edges()),
        details={
            "fit_seconds": round(seconds, 3),
            **({} if initial is None else {"initial_edges": initial}),
            **_labels_used(problem, run.labels),
            **_effort(model),
        },
    )


def fit_method(
    method: str,
    parameters: Mapping[str, Any],
    problem: Problem,
    *,
    seed: int | None,
    labels: Labels = "paper",
) -> TransductiveClassifier:
    """Make a method and fit it to a problem, with the label budget asked for.

    Methods that need no graph are not given one: the kNN methods would leave it aside anyway.

    Parameters
    ----------
    method : str
    parameters : mapping
    problem : Problem
    seed : int or None
    labels : {"paper", "equal"}

    Returns
    -------
    TransductiveClassifier, fitted; its classes are class numbers

    Examples
    --------
    >>> from edgewise.datasets import load
    >>> problem = load("wine", seed=0).to_problem()
    >>> fit_method("rf", {"n_estimators": 30}, problem, seed=0).transduction_.shape
    (178,)
    """
    check_parameters(method, parameters)
    model = make_method(method, **parameters, refit=labels == "equal", random_state=seed)
    watch = _Watch()
    if isinstance(model, LDSClassifier):
        model.set_params(callbacks=[watch])
    model.fit(
        problem.features,
        problem.labels,
        _graph(problem) if get_method(method).needs_graph else None,
        validation=problem.split.validation,
        early_stopping=problem.split.early_stopping,
    )
    if watch.progress is not None and watch.progress.interrupted:
        # On Ctrl-C, LDS is content with the best model so far. A run is what it says, or nothing.
        raise KeyboardInterrupt
    return model


def check_parameters(method: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that no run of the method can have: wrong names, impossible values.

    Examples
    --------
    >>> check_parameters("rf", {"n_estimator": 30})
    Traceback (most recent call last):
    ...
    ValueError: rf has no parameter 'n_estimator'; did you mean 'n_estimators' ...?
    """
    for name, decided_by in _DECIDED.items():
        if name in parameters:
            raise ValueError(f"{name!r} is no parameter of a run: {decided_by} decides it")
    try:
        model = make_method(method, **parameters)
    except TypeError as error:
        raise ValueError(str(error)) from None
    model._validate_params()


class _Watch(Callback):
    """Keeps hold of how far a fit is."""

    progress: Progress | None = None

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        self.progress = progress


def _graph(problem: Problem) -> Any:
    """The given graph in a form that `fit` reads, with its weights where it has some."""
    if problem.pairs is None or problem.weights is None:
        return problem.pairs
    shape = (problem.n_nodes, problem.n_nodes)
    half = coo_array((problem.weights, (problem.pairs.rows, problem.pairs.cols)), shape=shape)
    return half + half.T


def all_classes(model: TransductiveClassifier, n_classes: int) -> NDArray[np.float64]:
    """Class probabilities with a column for every class, also those without a visible label.

    Parameters
    ----------
    model : TransductiveClassifier, fitted on class numbers
    n_classes : int

    Returns
    -------
    ndarray, shape (n_nodes, n_classes)

    Examples
    --------
    >>> model = make_method("logreg").fit([[0.0], [0.1], [0.9], [1.0]], [0, 0, 2, 2])
    >>> all_classes(model, 3)[:, 1]
    array([0., 0., 0., 0.])
    """
    found = model.label_distributions_
    probabilities = np.zeros((len(found), n_classes))
    probabilities[:, model.classes_] = found
    return probabilities


def _scores(
    model: TransductiveClassifier,
    probabilities: NDArray[np.float64],
    problem: Problem,
    labels: Labels,
) -> dict[str, Score]:
    """The scores on labelled rows; what they mean is said in `evaluate`."""
    split = problem.split
    everything = np.flatnonzero(problem.labels >= 0)
    trained_on = everything if labels == "equal" else split.train
    scores = {"train": score(probabilities, problem.labels, trained_on)}
    if isinstance(model, LDSClassifier):
        best = model.history_[model.best_iteration_ - 1]
        scores["validation"] = Score(best["validation_accuracy"], best["validation_loss"])
        scores["early_stopping"] = model.validation_score_
        return scores
    scores["validation"] = model.validation_score_
    if labels == "paper":
        scores["early_stopping"] = score(probabilities, problem.labels, split.early_stopping)
    return scores


def _initial_edges(model: TransductiveClassifier, problem: Problem) -> int | None:
    """Edges of the graph that the model was given, or that it found by itself to start from."""
    known: int | None = getattr(model, "n_edges_", None)
    if known is not None:
        return known
    if getattr(model, "needs_graph", False):
        return None if problem.pairs is None else problem.pairs.n_pairs
    parameters = model.get_params()
    if "k" not in parameters or "metric" not in parameters:
        return None
    return knn_pairs(problem.features, parameters["k"], metric=parameters["metric"]).n_pairs


def _labels_used(problem: Problem, labels: Labels) -> dict[str, int]:
    """How many labels the network, or classifier, was fitted on in the end, and of how many."""
    seen = int((problem.labels >= 0).sum())
    return {
        "labels_seen": seen,
        "labels_fitted": seen if labels == "equal" else len(problem.split.train),
    }


def _effort(model: TransductiveClassifier) -> dict[str, Any]:
    """Iterations, updates and steps, where the method has such."""
    if isinstance(model, LDSClassifier):
        history = model.history_
        best = history[model.best_iteration_ - 1]
        return {
            "iterations": model.n_iter_,
            "best_iteration": model.best_iteration_,
            "outer_updates": int(sum(entry["outer_updates"] for entry in history)),
            "inner_steps": int(sum(entry["inner_steps"] for entry in history)),
            "inner_learning_rate": best["inner_learning_rate"],
        }
    steps = getattr(model, "n_steps_", None)
    return {} if steps is None else {"inner_steps": int(steps)}
