"""Edgewise learns a sparse, discrete graph together with the graph neural network that uses it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgewise.baselines import list_methods, make_method
    from edgewise.estimator import LDSClassifier
    from edgewise.experiments.compare import compare
    from edgewise.experiments.tune import tune

__all__ = ["LDSClassifier", "compare", "list_methods", "make_method", "tune"]
__version__ = "0.1.0.dev0"

# Where each public name lives. It is imported when it is first used, so that the command line, and
# whoever wants one name only, need not wait for PyTorch.
_HOMES = {
    "LDSClassifier": "edgewise.estimator",
    "compare": "edgewise.experiments.compare",
    "list_methods": "edgewise.baselines",
    "make_method": "edgewise.baselines",
    "tune": "edgewise.experiments.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
