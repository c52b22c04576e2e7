"""Tables, graphs and other people's objects: in and out."""

from __future__ import annotations

from edgewise.io.columns import TablePreprocessor
from edgewise.io.graphs import edge_frame, read_graph, write_edges, write_graphml
from edgewise.io.objects import from_anndata, from_pyg, to_anndata, to_pyg
from edgewise.io.tables import read_table

__all__ = [
    "TablePreprocessor",
    "edge_frame",
    "from_anndata",
    "from_pyg",
    "read_graph",
    "read_table",
    "to_anndata",
    "to_pyg",
    "write_edges",
    "write_graphml",
]
