"""Objects of other packages as arguments of `fit`, and what was learned put back into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from edgewise.graph.distribution import EdgeDistribution

UNLABELLED = -1


def from_pyg(data: Any, *, use_graph: bool = True) -> dict[str, Any]:
    """A PyTorch Geometric `Data` as the arguments of `LDSClassifier.fit`.

    Labels of nodes outside ``train_mask`` and ``val_mask`` are left out, so that nothing is
    fitted on test nodes; without masks all labels count.

    Parameters
    ----------
    data : torch_geometric.data.Data
        With ``x`` and ``y``, perhaps ``edge_index`` and ``edge_weight`` (probabilities),
        ``train_mask`` and ``val_mask``.
    use_graph : bool, default=True
        Whether its edges are the known part of the graph, or are to be learned from nothing.

    Returns
    -------
    dict
        ``X``, ``y``, ``graph`` and ``validation``, as far as there are such.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(
    ...     x=torch.eye(3), y=torch.tensor([1, 0, 1]), edge_index=torch.tensor([[0, 1], [1, 0]]),
    ...     train_mask=torch.tensor([True, True, False]),
    ... )
    >>> arguments = from_pyg(data)
    >>> arguments["y"], arguments["graph"].nnz
    (array([ 1,  0, -1]), 2)
    """
    for name in ("x", "y"):
        if getattr(data, name, None) is None:
            raise ValueError(f"data has no {name}: set data.{name} before the conversion.")
    labels = data.y.detach().cpu().numpy().copy()
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"data.y has shape {labels.shape}: give one class for each node (its number)."
        )
    train, validation = (_mask(data, name, len(labels)) for name in ("train_mask", "val_mask"))
    if train is not None:
        seen = train if validation is None else train | validation
        labels[~seen] = UNLABELLED
    arguments: dict[str, Any] = {"X": data.x.detach().cpu(), "y": labels}
    if use_graph and getattr(data, "edge_index", None) is not None:
        arguments["graph"] = _adjacency(data, len(labels))
    if validation is not None and validation.any():
        arguments["validation"] = validation
    return arguments


def _mask(data: Any, name: str, n_nodes: int) -> NDArray[np.bool_] | None:
    mask = getattr(data, name, None)
    if mask is None:
        return None
    values: NDArray[np.bool_] = mask.detach().cpu().numpy()
    if values.shape != (n_nodes,):
        raise ValueError(
            f"data.{name} has shape {values.shape}: choose one split, for example "
            f"data.{name}[:, 0]."
        )
    return values


def _adjacency(data: Any, n_nodes: int) -> Any:
    rows, cols = data.edge_index.detach().cpu().numpy()
    weight = getattr(data, "edge_weight", None)
    values = np.ones(len(rows)) if weight is None else weight.detach().cpu().numpy()
    # Repeated edges must not add up to more than one.
    entries: dict[tuple[int, int], float] = {}
    for row, col, value in zip(rows.tolist(), cols.tolist(), values.tolist(), strict=True):
        entries[row, col] = max(value, entries.get((row, col), 0.0))
    ends = np.array(list(entries), dtype=np.int64).reshape(-1, 2)
    probability = np.array(list(entries.values()), dtype=np.float64)
    return sparse.csr_array((probability, (ends[:, 0], ends[:, 1])), shape=(n_nodes, n_nodes))


def to_pyg(edges: EdgeDistribution, X: Any = None, y: Any = None, *, threshold: float = 0.0) -> Any:
    """A learned graph, with features and labels, for the models of PyTorch Geometric.

    Parameters
    ----------
    edges : EdgeDistribution
    X : array-like or sparse matrix, optional
    y : array-like of int, optional
    threshold : float, default=0.0
        Edges with more probability than this become ``edge_index``, both ways.

    Returns
    -------
    torch_geometric.data.Data
        ``edge_weight`` holds the probabilities.
    """
    data = edges.to_pyg(threshold)
    if X is not None:
        is_sparse: bool = sparse.issparse(X)
        table: Any = X.toarray() if is_sparse else np.asarray(X)
        data.x = torch.as_tensor(np.ascontiguousarray(table), dtype=edges.dtype)
    if y is not None:
        data.y = torch.as_tensor(np.ascontiguousarray(y), dtype=torch.long)
    return data


def from_anndata(
    table: Any, label: str, *, graph: str | None = None, layer: str | None = None
) -> dict[str, Any]:
    """An AnnData as the arguments of `LDSClassifier.fit`.

    Parameters
    ----------
    table : anndata.AnnData
    label : str
        The column of ``obs`` with the classes; missing where unknown.
    graph : str, optional
        Key of ``obsp``: the known part of the graph, with weights between 0 and 1.
    layer : str, optional
        Key of ``obsm`` or ``layers`` to take features from, in place of ``X``.

    Returns
    -------
    dict
        ``X``, ``y`` and perhaps ``graph``.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import pandas as pd
    >>> cells = SimpleNamespace(X=np.eye(2), obs=pd.DataFrame({"type": ["T", None]}))
    >>> from_anndata(cells, "type")["y"].tolist()
    ['T', None]
    """
    _require(table.obs, label, "obs", "label")
    labels = table.obs[label].astype(object).to_numpy()
    features = table.X
    if layer is not None:
        place = "obsm" if layer in table.obsm else "layers"
        _require(getattr(table, place), layer, "obsm and layers", "layer")
        features = getattr(table, place)[layer]
    arguments = {"X": features, "y": np.array([None if _nan(v) else v for v in labels], object)}
    if graph is not None:
        _require(table.obsp, graph, "obsp", "graph")
        arguments["graph"] = sparse.csr_array(table.obsp[graph])
    return arguments


def _nan(value: Any) -> bool:
    return value is None or value != value


def _require(mapping: Mapping[str, Any], key: str, where: str, argument: str) -> None:
    if key not in mapping:
        raise KeyError(f"{argument}={key!r}: {where} holds {', '.join(map(str, mapping))}.")


def to_anndata(
    classifier: Any, table: Any, *, key: str = "edgewise", threshold: float = 0.0
) -> None:
    """Put what a fitted classifier learned into the AnnData that it was fitted on.

    Writes the graph to ``obsp[f"{key}_connectivities"]`` (where Scanpy's tools look for it, if
    told the key), the predicted class to ``obs[key]`` and class probabilities to ``obsm[key]``.

    Parameters
    ----------
    classifier : LDSClassifier
    table : anndata.AnnData
        Changed in place.
    key : str, default="edgewise"
    threshold : float, default=0.0
        Less probable edges are left out.
    """
    n_rows = len(classifier.transduction_)
    if table.n_obs != n_rows:
        raise ValueError(
            f"the table has {table.n_obs} rows, but the classifier was fitted on {n_rows}: give "
            "the table of the fit."
        )
    table.obsp[f"{key}_connectivities"] = sparse.csr_matrix(classifier.edges_.to_scipy(threshold))
    table.obs[key] = classifier.transduction_
    table.obsm[key] = classifier.label_distributions_
    table.uns[key] = {"connectivities_key": f"{key}_connectivities"}
