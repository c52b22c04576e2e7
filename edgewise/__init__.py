"""Edgewise learns a sparse, discrete graph together with the graph neural network that uses it."""

from __future__ import annotations

from edgewise.estimator import LDSClassifier

__all__ = ["LDSClassifier"]
__version__ = "0.1.0.dev0"
