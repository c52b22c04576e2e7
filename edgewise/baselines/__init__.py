"""Every method of the paper's tables, behind one face; see `list_methods`."""

from __future__ import annotations

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
from edgewise.baselines.registry import Method, get_method, list_methods, make_method
from edgewise.baselines.supervised import (
    LinearSVMClassifier,
    LogRegClassifier,
    RBFSVMClassifier,
    RFClassifier,
)

__all__ = [
    "DenseGCNClassifier",
    "DenseKNNLDSClassifier",
    "FFNNClassifier",
    "GCNClassifier",
    "GraphLDSClassifier",
    "KNNGCNClassifier",
    "KNNLDSClassifier",
    "LPClassifier",
    "LinearSVMClassifier",
    "LogRegClassifier",
    "ManiRegClassifier",
    "Method",
    "RBFGCNClassifier",
    "RBFSVMClassifier",
    "RFClassifier",
    "RandomEdgesGCNClassifier",
    "SemiEmbClassifier",
    "SoftKNNGCNClassifier",
    "SparseGCNClassifier",
    "get_method",
    "list_methods",
    "make_method",
]
