"""Fitted classifiers as a folder on disk: a JSON manifest, and arrays in safetensors. No pickle.

Loading executes nothing that it reads, verifies checksums first, and then every shape and index
before a kernel may rely on it.

How a model is never half there: arrays go to a file named by their checksum; the manifest, which
names that file, is replaced last and in one piece (written beside, synced, renamed). Whoever reads
at whatever moment finds the earlier model or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from edgewise.files import require_folder, write_atomically
from edgewise.graph.candidates import CandidateEdges
from edgewise.graph.distribution import DenseEdges, EdgeDistribution
from edgewise.graph.growing import GrowingEdges
from edgewise.graph.similarity import SimilarityEdges
from edgewise.graph.similarity_matrix import SimilarityMatrix
from edgewise.nn.gcn import GCN
from edgewise.nn.network import Network
from edgewise.problem import Split
from edgewise.snapshot import Snapshot
from edgewise.train import Score

FORMAT = "edgewise-model"
VERSION = 1
MANIFEST = "manifest.json"
_ARRAYS = re.compile(r"arrays-[0-9a-f]{16}\.safetensors")

# What may be built from a file, by name: nothing else is.
_EDGES: dict[str, type[EdgeDistribution]] = {
    kind.__name__: kind
    for kind in (DenseEdges, CandidateEdges, GrowingEdges, SimilarityEdges, SimilarityMatrix)
}
_NETWORKS: dict[str, type[Network]] = {"GCN": GCN}
_SPLIT = ("train", "validation", "early_stopping")


class ModelFileError(ValueError):
    """A folder is no model that this version of Edgewise can read."""


# ---------------------------------------------------------------------------------- writing


def save_classifier(classifier: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted `LDSClassifier` to a folder, replacing a model that is there."""
    from safetensors.numpy import save

    folder = Path(path)
    _refuse_other_contents(folder)
    arrays: dict[str, NDArray[Any]] = {}
    content = _describe(classifier, arrays)
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(data).hexdigest()
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {
            "file": f"arrays-{digest[:16]}.safetensors",
            "bytes": len(data),
            "sha256": digest,
        },
        **content,
    }
    manifest["checksum"] = checksum(manifest)
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    _commit(folder, manifest["arrays"]["file"], data, text.encode())


def _refuse_other_contents(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: a model is saved as a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise FileExistsError(
            f"{folder} holds files, and none of them is {MANIFEST}: name a new folder, an empty "
            "one, or that of an earlier model."
        )


def _describe(classifier: Any, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """All that is fitted: short things as JSON, the others added to `arrays`."""
    edges: EdgeDistribution = classifier.edges_
    if _EDGES.get(type(edges).__name__) is not type(edges):
        raise TypeError(
            f"edges_ is a {type(edges).__name__}, and only {', '.join(_EDGES)} can be saved; "
            "joblib.dump can save it."
        )
    state = edges.snapshot()
    arrays.update({f"edges.{name}": array for name, array in state.arrays.items()})
    for number, weight in enumerate(classifier.weights_):
        arrays[f"weights.{number}"] = weight
    for role in _SPLIT:
        arrays[f"split.{role}"] = getattr(classifier.split_, role)
    arrays["labels"] = classifier._fitted_labels
    arrays["label_distributions"] = classifier.label_distributions_
    arrays["class_frequencies"] = classifier.class_frequencies_
    arrays["reach"] = classifier._reach
    names = getattr(classifier, "feature_names_in_", None)
    return {
        "class": type(classifier).__name__,
        "parameters": describe_parameters(classifier),
        "classes": {
            "dtype": classifier.classes_.dtype.str,
            "values": plain(classifier.classes_.tolist()),
        },
        "features": _describe_rows(classifier._fitted_rows, arrays),
        "feature_names": None if names is None else list(map(str, names)),
        "edges": {
            "kind": type(edges).__name__,
            "n_nodes": edges.n_nodes,
            "settings": plain(state.settings),
        },
        "n_weights": len(classifier.weights_),
        "history": plain(classifier.history_),
        "best_iteration": classifier.best_iteration_,
        "validation_score": plain(classifier.validation_score_),
        "far": plain(classifier._far),
        "seed": classifier._seed,
    }


def _describe_rows(rows: Any, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    if isinstance(rows, np.ndarray):
        arrays["features"] = rows
        return {"layout": "dense", "shape": list(rows.shape)}
    for part in ("data", "indices", "indptr"):
        arrays[f"features.{part}"] = getattr(rows, part)
    return {"layout": "csr", "shape": list(rows.shape)}


def describe_parameters(classifier: Any) -> dict[str, Any]:
    """The parameters of an `LDSClassifier` in JSON's types."""
    parameters = classifier.get_params(deep=False)
    # Whoever looks on while a graph is learned has nothing to do with the result; a generator's
    # state at some later time would not repeat the fit.
    parameters["callbacks"] = None
    if not isinstance(parameters["random_state"], (int, np.integer)):
        parameters["random_state"] = None
    parameters["network"] = _describe_network(parameters["network"])
    described = {}
    for name, value in parameters.items():
        try:
            described[name] = plain(value)
        except TypeError as error:
            raise TypeError(f"the parameter {name} cannot be saved: {error}") from None
    return described


def _describe_network(network: Network | None) -> dict[str, Any] | None:
    if network is None:
        return None
    kind = type(network)
    if _NETWORKS.get(kind.__name__) is not kind:
        return {"kind": kind.__qualname__, "known": False}
    own = {name: plain(getattr(network, name)) for name in signature(kind).parameters}
    return {"kind": kind.__name__, "known": True, "parameters": own}


def plain(value: Any) -> Any:
    """A value in JSON's types; floats that JSON lacks as ``{"float": "nan"}``.

    Examples
    --------
    >>> plain({"loss": np.float64("inf"), "rows": (1, np.int64(2))})
    {'loss': {'float': 'inf'}, 'rows': [1, 2]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    raise TypeError(
        f"a {type(value).__name__} is neither a number, a text, a truth value nor a list of these."
    )


def unplain(value: Any) -> Any:
    """The inverse of `plain`.

    Examples
    --------
    >>> unplain([1, {"float": "-inf"}, {"loss": 0.5}])
    [1, -inf, {'loss': 0.5}]
    """
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float(value["float"])
        return {name: unplain(item) for name, item in value.items()}
    return [unplain(item) for item in value] if isinstance(value, list) else value


def checksum(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest of JSON's types, but for its own entry ``checksum``.

    Examples
    --------
    >>> checksum({"version": 1}) == checksum({"version": 1, "checksum": "any"})
    True
    """
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _commit(folder: Path, arrays_name: str, arrays: bytes, manifest: bytes) -> None:
    """Make the new model the one that is there; if that fails, leave everything as it was."""
    is_new = not folder.exists()
    require_folder(folder)
    earlier = {entry.name for entry in folder.iterdir() if _ARRAYS.fullmatch(entry.name)}
    try:
        write_atomically(folder / arrays_name, arrays)
        write_atomically(folder / MANIFEST, manifest)
    except BaseException:
        with contextlib.suppress(OSError):
            # Unless the manifest is in place, and only its folder could not be synced.
            if arrays_name not in earlier and not _holds(folder / MANIFEST, manifest):
                (folder / arrays_name).unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    for name in earlier - {arrays_name}:
        (folder / name).unlink(missing_ok=True)


def _holds(file: Path, content: bytes) -> bool:
    return file.exists() and file.read_bytes() == content


# ---------------------------------------------------------------------------------- reading


def load_classifier(
    cls: type[Any],
    path: str | os.PathLike[str],
    *,
    network: Network | None = None,
    device: str | None = None,
) -> Any:
    """Read what `save_classifier` wrote; see `LDSClassifier.load`."""
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest.get("class") != cls.__name__:
        raise ModelFileError(
            f"{folder} holds a {manifest.get('class')}, not a {cls.__name__}: load it with "
            f"{manifest.get('class')}.load."
        )
    arrays = _read_arrays(folder, manifest)
    parameters = unplain(manifest["parameters"])
    parameters["network"] = _network(parameters["network"], network, folder)
    if device is not None:
        parameters["device"] = device
    try:
        classifier = cls(**parameters)
        _restore(classifier, manifest, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        # Checksums are right, so the file is what somebody wrote; but not what we write.
        raise ModelFileError(
            f"{folder} does not hold what a model should ({type(error).__name__}: {error})."
        ) from error
    return classifier


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a saved model, verified."""
    if not folder.exists():
        raise FileNotFoundError(f"there is no model at {folder}: no such folder.")
    file = folder / MANIFEST
    if not file.is_file():
        raise ModelFileError(f"{folder} is no saved model: it holds no {MANIFEST}.")
    try:
        manifest = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise ModelFileError(f"{file} is damaged (no JSON): restore it, or save again.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{file} is not of an Edgewise model.")
    version = manifest.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ModelFileError(
            f"{folder} was saved by a newer Edgewise (format {version}, this one reads up to "
            f"{VERSION}): upgrade Edgewise."
        )
    if manifest.get("checksum") != checksum(manifest):
        raise ModelFileError(f"{file} is damaged (wrong checksum): restore it, or save again.")
    return manifest


def _read_arrays(folder: Path, manifest: dict[str, Any]) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    about = manifest["arrays"]
    if not _ARRAYS.fullmatch(about["file"]):
        raise ModelFileError(f"{folder / MANIFEST} names a strange file: {about['file']!r}.")
    file = folder / about["file"]
    if not file.is_file():
        raise ModelFileError(f"{folder} is incomplete: {file.name} is missing.")
    data = file.read_bytes()
    if len(data) != about["bytes"]:
        raise ModelFileError(
            f"{file} is damaged ({len(data)} bytes instead of {about['bytes']}): restore it, or "
            "save again."
        )
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise ModelFileError(f"{file} is damaged (wrong checksum): restore it, or save again.")
    try:
        arrays: dict[str, NDArray[Any]] = load(data)
    except SafetensorError as error:
        raise ModelFileError(f"{file} is no safetensors file ({error}).") from None
    return arrays


def _network(described: Any, given: Network | None, folder: Path) -> Network | None:
    if given is not None:
        return given
    if described is None:
        return None
    if not described["known"]:
        raise ModelFileError(
            f"{folder} was fitted with a network of your own, {described['kind']}, which a file "
            "cannot hold: pass it as load(path, network=...)."
        )
    if described["kind"] not in _NETWORKS:
        raise ModelFileError(f"{folder} names an unknown network: {described['kind']!r}.")
    return _NETWORKS[described["kind"]](**described["parameters"])


def _restore(classifier: Any, manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Set every fitted attribute, after a check of all that later code relies on."""
    n_rows, n_features = manifest["features"]["shape"]
    classifier._fitted_rows = _rows(manifest["features"], arrays, classifier._dtype())
    classes = manifest["classes"]
    classifier.classes_ = np.array(classes["values"], dtype=np.dtype(classes["dtype"]))
    n_classes = len(classifier.classes_)
    classifier.n_features_in_ = n_features
    if manifest["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(manifest["feature_names"], dtype=object)
        _require(len(classifier.feature_names_in_) == n_features, "feature names")
    classifier.label_distributions_ = arrays["label_distributions"]
    _require(classifier.label_distributions_.shape == (n_rows, n_classes), "predictions")
    classifier.transduction_ = classifier.classes_[classifier.label_distributions_.argmax(axis=1)]
    classifier.class_frequencies_ = arrays["class_frequencies"]
    _require(classifier.class_frequencies_.shape == (n_classes,), "class frequencies")
    classifier._fitted_labels = arrays["labels"]
    _require(classifier._fitted_labels.shape == (n_rows,), "labels")
    classifier.split_ = Split(*(arrays[f"split.{role}"] for role in _SPLIT))
    classifier.weights_ = [arrays[f"weights.{i}"] for i in range(manifest["n_weights"])]
    classifier.edges_ = _edges(manifest["edges"], arrays, n_rows, classifier)
    classifier.history_ = unplain(manifest["history"])
    classifier.n_iter_ = len(classifier.history_)
    classifier.best_iteration_ = manifest["best_iteration"]
    classifier.validation_score_ = Score(*unplain(manifest["validation_score"]))
    classifier._far = unplain(manifest["far"])
    classifier._reach = arrays["reach"]
    _require(classifier._reach.shape == (n_rows,), "distances")
    classifier._seed = manifest["seed"]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"its {what} do not fit the rest")


def _rows(described: dict[str, Any], arrays: dict[str, Any], dtype: str) -> Any:
    shape = tuple(described["shape"])
    if described["layout"] == "dense":
        dense = arrays["features"]
        _require(dense.shape == shape and dense.dtype == dtype, "rows")
        return dense
    parts = tuple(arrays[f"features.{part}"] for part in ("data", "indices", "indptr"))
    _require(parts[0].dtype == dtype, "rows")
    rows: Any = sparse.csr_array(parts, shape=shape)
    rows.check_format(full_check=True)
    return rows


def _edges(described: Any, arrays: dict[str, Any], n_nodes: int, classifier: Any) -> Any:
    _require(described["n_nodes"] == n_nodes, "edges")
    own = {name[6:]: array for name, array in arrays.items() if name.startswith("edges.")}
    kind = _EDGES[described["kind"]]
    dtype = getattr(torch, classifier.dtype)
    try:
        return kind.from_snapshot(
            Snapshot(unplain(described["settings"]), own),
            n_nodes,
            classifier._fitted_rows,
            dtype=dtype,
            device=classifier.device,
        )
    except ValueError as error:
        raise ValueError(f"its edges do not fit the rest: {error}") from error
