"""Graphs from and to files: edge lists as CSV and Parquet, GraphML, adjacencies as NPZ.

GraphML is XML, which can declare entities that expand without end or fetch other files. A file
with a document type declaration is refused before anything in it is looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from edgewise.files import write_atomically
from edgewise.graph.distribution import EdgeDistribution
from edgewise.inputs import adjacency_pairs
from edgewise.io.tables import TableError, load_npz, read_table

# Names under which people keep the two ends of an edge, in this order.
_ENDS = (
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("node1", "node2"),
    ("id1", "id2"),
)
_WEIGHTS = ("probability", "weight")
# Characters that XML cannot hold, in whatever way they are written.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# -------------------------------------------------------------------------------------- reading


def read_graph(path: str | os.PathLike[str], ids: Sequence[Hashable]) -> Any:
    """The known part of a graph, in the order of the table's rows.

    Parameters
    ----------
    path : str or path-like
        ``.csv``, ``.tsv``, ``.txt``, ``.parquet`` or ``.feather``: an edge list with columns
        ``source`` and ``target`` (or from/to, src/dst), perhaps ``probability`` or ``weight``.
        ``.graphml``. ``.npz``: an adjacency of `scipy.sparse.save_npz`, or arrays ``source`` and
        ``target``, or ``edges`` of shape (n_edges, 2).
    ids : sequence
        The id of each row, which the ends of edges are compared with as text. An adjacency is in
        the order of the rows.

    Returns
    -------
    scipy.sparse.csr_array, shape (n_rows, n_rows)
        Symmetric, with the probability of each edge.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "edges.csv")
    ...     _ = file.write_text("source,target\\nann,bob\\nbob,cem\\n")
    ...     read_graph(file, ["ann", "bob", "cem"]).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    file = Path(path)
    names = [as_id(name) for name in ids]
    suffix = file.suffix.lower()
    if suffix == ".graphml":
        graph: Any = read_graphml(file)
    elif suffix == ".npz":
        graph = _from_npz(file)
    else:
        table = read_table(file, text=[end for ends in _ENDS for end in ends])
        graph = _edge_frame(file, table.frame)
    if isinstance(graph, pd.DataFrame):
        graph = graph.assign(source=graph["source"].map(as_id), target=graph["target"].map(as_id))
    try:
        pairs, weights = adjacency_pairs(graph, len(names), node_names=names)
    except (TypeError, ValueError) as error:
        raise TableError(f"{file}: {error}") from None
    values = np.ones(pairs.n_pairs) if weights is None else weights
    return symmetric(pairs.rows, pairs.cols, values, len(names))


def symmetric(
    rows: NDArray[np.int64], cols: NDArray[np.int64], values: NDArray[Any], n_nodes: int
) -> Any:
    """Undirected pairs and their values as a symmetric CSR array."""
    both = (np.concatenate([rows, cols]), np.concatenate([cols, rows]))
    entries = np.concatenate([values, values])
    return sparse.coo_array((entries, both), shape=(n_nodes, n_nodes)).tocsr()


def as_id(value: Any) -> str:
    """An id as text, so that 7 in one file is 7.0 in another, where a gap made it a float.

    Examples
    --------
    >>> as_id(7.0), as_id(np.int64(7)), as_id(" 007 ")
    ('7', '7', '007')
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _edge_frame(file: Path, frame: pd.DataFrame) -> pd.DataFrame:
    lower = {str(name).lower(): name for name in frame.columns}
    for source, target in _ENDS:
        if source in lower and target in lower:
            columns = {"source": frame[lower[source]], "target": frame[lower[target]]}
            weight = next((lower[name] for name in _WEIGHTS if name in lower), None)
            if weight is not None:
                columns[_WEIGHTS[0]] = frame[weight]
            return pd.DataFrame(columns)
    raise TableError(
        f"{file} names no ends of edges: rename two of its columns ("
        f"{', '.join(map(str, frame.columns[:6]))}) to source and target."
    )


def _from_npz(file: Path) -> Any:
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: check the name and the folder.")
    arrays = load_npz(file)
    if {"format", "shape", "data"} <= set(arrays):
        return read_table(file).matrix
    if "edges" in arrays and arrays["edges"].ndim == 2 and arrays["edges"].shape[1] == 2:
        ends = arrays["edges"]
        return pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    if {"source", "target"} <= set(arrays):
        return _edge_frame(file, pd.DataFrame(arrays))
    raise TableError(
        f"{file} holds the arrays {', '.join(arrays)}: a graph is an adjacency saved by "
        "scipy.sparse.save_npz, or arrays source and target, or edges of shape (n_edges, 2)."
    )


class _GraphMLReader:
    """Collects nodes and edges while expat goes through a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.nodes: list[str] = []
        self.edges: list[tuple[str, str, float]] = []
        self.directed = False
        self._weight_keys: list[str] = []
        self._defaults: dict[str, float] = {}
        self._ends: tuple[str, str] | None = None
        self._weights: dict[str, float] = {}
        self._key: str | None = None
        self._text = ""
        self._depth = 0

    def refuse_declaration(self, *_: Any) -> None:
        raise TableError(
            f"{self.file} declares a document type, which can make a reader run out of memory or "
            "fetch other files: remove the line <!DOCTYPE ...>."
        )

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if self._depth == 0 and name != "graphml":
            raise TableError(f"{self.file} is no GraphML: its outermost element is <{tag}>.")
        self._depth += 1
        if name == "key" and attributes.get("attr.name") in _WEIGHTS:
            # A probability counts before a weight.
            place = 0 if attributes["attr.name"] == "probability" else len(self._weight_keys)
            self._weight_keys.insert(place, attributes.get("id", ""))
            self._key = attributes.get("id", "")
        elif name == "graph":
            self.directed = attributes.get("edgedefault") == "directed"
        elif name == "node":
            self.nodes.append(attributes["id"])
        elif name == "edge":
            self._ends, self._weights = (attributes["source"], attributes["target"]), {}
        elif name == "data":
            self._key = attributes.get("key")
        elif name == "hyperedge":
            raise TableError(f"{self.file} holds a hyperedge: write it as edges of two nodes.")
        if name in ("data", "default"):
            self._text = ""

    def text(self, characters: str) -> None:
        self._text += characters

    def end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        self._depth -= 1
        if name in ("data", "default") and self._key in self._weight_keys:
            known = self._weights if name == "data" else self._defaults
            known[str(self._key)] = self._number()
        elif name == "edge" and self._ends is not None:
            weights = {**self._defaults, **self._weights}
            weight = next((weights[key] for key in self._weight_keys if key in weights), 1.0)
            self.edges.append((*self._ends, weight))
            self._ends = None

    def _number(self) -> float:
        try:
            return float(self._text)
        except ValueError:
            raise TableError(
                f"{self.file} gives an edge the weight {self._text.strip()[:40]!r}: weights are "
                "numbers between 0 and 1."
            ) from None


def read_graphml(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The edges of a GraphML file, as columns ``source``, ``target`` and ``probability``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "graph.graphml")
    ...     edges = pd.DataFrame({"source": [0], "target": [1], "probability": [0.5]})
    ...     write_graphml(file, edges, ["ann", "bob"])
    ...     read_graphml(file)
      source target  probability
    0    ann    bob          0.5
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: check the name and the folder.")
    reader = _GraphMLReader(file)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.refuse_declaration
    parser.EntityDeclHandler = reader.refuse_declaration
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        with open(file, "rb") as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        raise TableError(f"{file} is no XML ({error}): name a GraphML file.") from None
    except KeyError as error:
        raise TableError(
            f"{file}, line {parser.CurrentLineNumber}: an element lacks its attribute {error}."
        ) from None
    strangers = {end for edge in reader.edges for end in edge[:2]} - set(reader.nodes)
    if strangers:
        raise TableError(f"{file} has an edge to {min(strangers)!r}, which is none of its nodes.")
    columns = ["source", "target", "probability"]
    return pd.DataFrame(reader.edges, columns=columns)


# -------------------------------------------------------------------------------------- writing


def edge_frame(
    edges: EdgeDistribution,
    ids: Sequence[Hashable] | None = None,
    *,
    threshold: float | None = None,
    top: int | None = None,
) -> pd.DataFrame:
    """Edges by falling probability: those above a threshold, or the most probable ones.

    Parameters
    ----------
    edges : EdgeDistribution
    ids : sequence, optional
        Names for the rows; by default their numbers.
    threshold : float, optional
    top : int, optional
        Without either, as many as the distribution expects there to be.

    Returns
    -------
    DataFrame
        With columns ``source``, ``target`` and ``probability``.

    Examples
    --------
    >>> from edgewise.graph.distribution import DenseEdges
    >>> from edgewise.graph.pairs import Pairs
    >>> edges = DenseEdges(3, Pairs.fold([0, 1], [1, 2], n_nodes=3))
    >>> edge_frame(edges, ["ann", "bob", "cem"], top=1)
      source target  probability
    0    ann    bob          1.0
    """
    if threshold is not None and top is not None:
        raise ValueError("give either threshold or top, not both.")
    if threshold is not None:
        frame: pd.DataFrame = edges.to_pandas(threshold)
    else:
        count = round(edges.expected_edges()) if top is None else top
        pairs, probability = edges.top_edges(count)
        frame = pd.DataFrame(
            {"source": pairs.rows, "target": pairs.cols, "probability": probability}
        )
    if ids is not None:
        names = np.empty(len(ids), dtype=object)
        names[:] = list(ids)
        for end in ("source", "target"):
            frame[end] = names[frame[end].to_numpy()]
    return frame


def write_graphml(
    path: str | os.PathLike[str],
    edges: pd.DataFrame,
    ids: Sequence[Hashable],
    attributes: pd.DataFrame | None = None,
) -> None:
    """Write a graph for Gephi, Cytoscape, yEd, igraph and NetworkX.

    Parameters
    ----------
    path : str or path-like
    edges : DataFrame
        Row numbers ``source`` and ``target``, and ``probability``.
    ids : sequence
        The name of each node, also of those without edges.
    attributes : DataFrame, optional
        A column for each further attribute of the nodes, in their order.
    """
    names = [_attribute(as_id(name)) for name in ids]
    table = pd.DataFrame(index=range(len(names))) if attributes is None else attributes
    kinds = {str(name): _graphml_type(table[name]) for name in table.columns}
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>",
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '<key id="p" for="edge" attr.name="probability" attr.type="double"/>',
    ]
    for place, (name, kind) in enumerate(kinds.items()):
        lines.append(
            f'<key id="n{place}" for="node" attr.name={_attribute(name)} attr.type="{kind}"/>'
        )
    lines.append('<graph edgedefault="undirected">')
    # Before pandas 3, a table without columns has no tuples either.
    rows = table.itertuples(index=False, name=None) if kinds else [()] * len(names)
    for node, values in zip(names, rows, strict=True):
        data = "".join(
            f'<data key="n{place}">{_content(value)}</data>'
            for place, value in enumerate(values)
            if not _is_missing(value)
        )
        lines.append(f"<node id={node}>{data}</node>")
    columns = (edges[name].tolist() for name in ("source", "target", "probability"))
    for source, target, probability in zip(*columns, strict=True):
        lines.append(
            f"<edge source={names[source]} target={names[target]}>"
            f'<data key="p">{probability!r}</data></edge>'
        )
    lines += ["</graph>", "</graphml>", ""]
    write_atomically(Path(path), "\n".join(lines).encode())


def _attribute(text: str) -> str:
    # Line breaks in an attribute would be read back as spaces.
    return quoteattr(_NOT_IN_XML.sub("�", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _content(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return escape(_NOT_IN_XML.sub("�", str(value)), {"\r": "&#13;"})


def _is_missing(value: Any) -> bool:
    return value is None or bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _graphml_type(column: pd.Series[Any]) -> str:
    return {"b": "boolean", "i": "long", "u": "long", "f": "double"}.get(
        column.dtype.kind, "string"
    )


def write_edges(path: str | os.PathLike[str], frame: pd.DataFrame) -> None:
    """Write an edge frame as ``.csv`` or ``.parquet``, in one piece.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "edges.csv")
    ...     frame = pd.DataFrame({"source": ["a"], "target": ["b"], "probability": [1.0]})
    ...     write_edges(file, frame)
    ...     print(file.read_text())
    source,target,probability
    a,b,1.0
    """
    import io

    file = Path(path)
    writers: dict[str, Callable[[Any], Any]] = {
        ".csv": lambda buffer: frame.to_csv(buffer, index=False),
        ".parquet": lambda buffer: _uniform_ends(frame).to_parquet(buffer, index=False),
    }
    if file.suffix not in writers:
        raise ValueError(f"{file} must end in {' or '.join(writers)}.")
    buffer = io.BytesIO()
    writers[file.suffix](buffer)
    write_atomically(file, buffer.getvalue())


def _uniform_ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Ends of one type: a column of a Parquet file holds no mixture."""
    ends = frame[["source", "target"]]
    if all(column.dtype.kind in "iu" for _, column in ends.items()):
        return frame
    return frame.assign(source=ends["source"].map(as_id), target=ends["target"].map(as_id))
