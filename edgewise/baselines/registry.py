"""Every method by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from edgewise.baselines.base import SearchSpace
from edgewise.baselines.embedding import SemiEmbClassifier
from edgewise.baselines.lds import DenseKNNLDSClassifier, GraphLDSClassifier, KNNLDSClassifier
from edgewise.baselines.manifold import ManiRegClassifier
from edgewise.baselines.networks import (
    DenseGCNClassifier,
    FFNNClassifier,
    GCNClassifier,
    KNNGCNClassifier,
    RandomEdgesGCNClassifier,
    RBFGCNClassifier,
    SoftKNNGCNClassifier,
    SparseGCNClassifier,
)
from edgewise.baselines.propagation import LPClassifier
from edgewise.baselines.supervised import (
    LinearSVMClassifier,
    LogRegClassifier,
    RBFSVMClassifier,
    RFClassifier,
)
from edgewise.estimator import TransductiveClassifier


@dataclass(frozen=True)
class Method:
    """A line of ``edgewise methods``.

    Attributes
    ----------
    name : str
    description : str, one line
    needs_graph : bool
        Whether `fit` must be given a graph; methods that do not need one leave it aside.
    search_space : mapping of each tuned parameter to the values to try
    factory : callable
        Takes the method's parameters and returns an estimator.
    """

    name: str
    description: str
    needs_graph: bool
    search_space: SearchSpace
    factory: Callable[..., TransductiveClassifier]

    @property
    def tuned(self) -> tuple[str, ...]:
        """Names of the tuned parameters."""
        return tuple(self.search_space)


_CLASSES: dict[str, tuple[Any, str]] = {
    "logreg": (LogRegClassifier, "logistic regression on the labelled rows"),
    "linear-svm": (LinearSVMClassifier, "linear support vector machine on the labelled rows"),
    "rbf-svm": (RBFSVMClassifier, "support vector machine with a Gaussian kernel"),
    "rf": (RFClassifier, "random forest on the labelled rows"),
    "ffnn": (FFNNClassifier, "the two-layer network without a graph"),
    "lp": (LPClassifier, "label propagation over a Gaussian or kNN kernel"),
    "manireg": (
        ManiRegClassifier,
        "least squares, regularised to be smooth over the kNN graph",
    ),
    "semiemb": (SemiEmbClassifier, "semi-supervised embedding: hidden layer smooth over kNN"),
    "sparse-gcn": (SparseGCNClassifier, "GCN on a sparse random graph"),
    "dense-gcn": (DenseGCNClassifier, "GCN on the complete graph with equal weights"),
    "rbf-gcn": (RBFGCNClassifier, "GCN on a dense Gaussian kernel of the features"),
    "knn-gcn": (KNNGCNClassifier, "GCN on the kNN graph"),
    "gcn": (GCNClassifier, "GCN on the given graph"),
    "gcn-rnd": (
        RandomEdgesGCNClassifier,
        "GCN on the given graph plus fresh random edges each step",
    ),
    "soft-knn-gcn": (SoftKNNGCNClassifier, "GCN on a stochastic kNN graph, drawn anew each step"),
    "lds": (GraphLDSClassifier, "LDS: learns a graph, starting from the given one"),
    "knn-lds": (KNNLDSClassifier, "LDS: learns a graph, starting from the kNN graph"),
    "knn-lds-dense": (
        DenseKNNLDSClassifier,
        "LDS with a dense matrix of similarities, from the kNN graph",
    ),
}
_METHODS = {
    name: Method(name, description, kind.needs_graph, kind.search_space, kind)
    for name, (kind, description) in _CLASSES.items()
}


def list_methods() -> tuple[Method, ...]:
    """All methods, in the order of the paper's tables.

    Examples
    --------
    >>> from edgewise.baselines import list_methods
    >>> [method.name for method in list_methods() if method.needs_graph]
    ['gcn', 'gcn-rnd', 'lds']
    """
    return tuple(_METHODS.values())


def get_method(name: str) -> Method:
    """The method of that name.

    Examples
    --------
    >>> from edgewise.baselines import get_method
    >>> get_method("knn-lds").tuned
    ('k', 'metric', 'tau', 'inner_learning_rate', 'outer_learning_rate')
    """
    if name not in _METHODS:
        raise ValueError(f"there is no method {name!r}{_hint(name, _METHODS)}")
    return _METHODS[name]


def make_method(name: str, **params: Any) -> TransductiveClassifier:
    """An estimator of the method of that name.

    Parameters
    ----------
    name : str, one of those in `list_methods`
    **params
        Its parameters, where they are not to be the defaults.

    Returns
    -------
    TransductiveClassifier

    Examples
    --------
    >>> from edgewise.baselines import make_method
    >>> make_method("knn-gcn", k=20)
    KNNGCNClassifier(k=20)
    >>> make_method("knn-gnc")
    Traceback (most recent call last):
    ...
    ValueError: there is no method 'knn-gnc'; did you mean 'knn-gcn' or ...?
    """
    factory: Any = get_method(name).factory
    known = factory._get_param_names()
    for param in params:
        if param not in known:
            raise TypeError(f"{name} has no parameter {param!r}{_hint(param, known)}")
    model: TransductiveClassifier = factory(**params)
    return model


def _hint(wrong: str, known: Iterable[str]) -> str:
    near = get_close_matches(wrong, known, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(repr(name) for name in near)}?"
    return f"; known are {', '.join(known)}"
