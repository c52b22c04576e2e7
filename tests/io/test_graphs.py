"""Known graphs from files, learned ones to files, and XML that must not be trusted."""

from __future__ import annotations

import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.io.graphs import (
    edge_frame,
    read_graph,
    read_graphml,
    write_edges,
    write_graphml,
)
from edgewise.io.tables import TableError

IDS = ["ann", "bob", "007", "dan"]
ADJACENCY = np.array([[0, 0.5, 0, 0], [0.5, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
FRAME = pd.DataFrame(
    {"source": ["ann", "bob"], "target": ["bob", "007"], "probability": [0.5, 1.0]}
)


def write_npz(file):
    ends = {name: FRAME[name].to_numpy().astype("U") for name in ("source", "target")}
    np.savez(file, **ends, probability=FRAME["probability"].to_numpy())


WRITERS = {
    "e.csv": lambda file: FRAME.to_csv(file, index=False),
    "e.tsv": lambda file: FRAME.to_csv(file, index=False, sep="\t"),
    "e.txt": lambda file: FRAME.set_axis(["From", "To", "weight"], axis=1).to_csv(
        file, index=False
    ),
    "e.parquet": lambda file: FRAME.to_parquet(file),
    "e.graphml": lambda file: networkx.write_graphml(
        networkx.from_pandas_edgelist(FRAME, edge_attr="probability"), file
    ),
    "e.npz": write_npz,
    "a.npz": lambda file: sparse.save_npz(file, sparse.csr_array(ADJACENCY)),
}


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_format_gives_the_same_graph(tmp_path, name):
    WRITERS[name](tmp_path / name)
    np.testing.assert_array_equal(read_graph(tmp_path / name, IDS).toarray(), ADJACENCY)


def test_edges_as_an_array_of_ids(tmp_path):
    np.savez(tmp_path / "e.npz", edges=np.array([[10, 20], [20, 30]]))
    found = read_graph(tmp_path / "e.npz", [10, 20.0, "30"]).toarray()
    assert found.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", "source,target\nann,eve\n", r"e\.csv: graph refers to edge end 'eve'"),
        ("e.csv", "source,target,weight\nann,bob,2\n", "greater than 1.*'?ann'? and '?bob"),
        ("e.csv", "source,target,weight\nann,bob,much\n", "no real numbers"),
        ("e.csv", "one,two\nann,bob\n", r"names no ends of edges: rename two.*one, two"),
        ("e.graphml", "ann,bob", "is no XML"),
        ("e.graphml", "<html></html>", "outermost element is <html>"),
        ("e.graphml", "<graphml><graph><node/></graph></graphml>", "line 1: .*lacks.*'id'"),
        (
            "e.graphml",
            '<graphml><graph><node id="ann"/><edge source="ann" target="x"/></graph></graphml>',
            "an edge to 'x', which is none of its nodes",
        ),
        (
            "e.graphml",
            '<graphml><key id="w" attr.name="weight"/><graph><node id="ann"/><node id="bob"/>'
            '<edge source="ann" target="bob"><data key="w">big</data></edge></graph></graphml>',
            "the weight 'big'",
        ),
        ("e.graphml", "<graphml><graph><hyperedge/></graph></graphml>", "hyperedge"),
    ],
)
def test_graphs_that_cannot_be_are_explained(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises((TableError, ValueError, TypeError), match=message) as caught:
        read_graph(tmp_path / name, IDS)
    assert name in str(caught.value)


def test_graphs_that_are_not_there(tmp_path):
    for name in ("e.csv", "e.graphml", "e.npz"):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            read_graph(tmp_path / name, IDS)
    np.savez(tmp_path / "e.npz", other=np.ones(3))
    with pytest.raises(TableError, match="holds the arrays other"):
        read_graph(tmp_path / "e.npz", IDS)


BILLION_LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>\n'
    '<graphml><graph><node id="&b;"/></graph></graphml>'
)
OTHER_FILE = (
    '<!DOCTYPE graphml [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    '<graphml><graph><node id="a">&x;</node></graph></graphml>'
)


@pytest.mark.parametrize(
    "content",
    [BILLION_LAUGHS, OTHER_FILE, '<!DOCTYPE graphml SYSTEM "http://x/y.dtd"><graphml/>'],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_document_types_are_refused(tmp_path, content, encoding):
    (tmp_path / "e.graphml").write_bytes(content.encode(encoding))
    with pytest.raises(TableError, match="declares a document type"):
        read_graphml(tmp_path / "e.graphml")


def test_weights_of_graphml_have_defaults(tmp_path):
    (tmp_path / "e.graphml").write_text(
        '<graphml><key id="w" for="edge" attr.name="weight"><default>0.25</default></key>'
        '<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>'
        '<edge source="a" target="b"/>'
        '<edge source="b" target="c"><data key="w"> 0.75 </data></edge></graph></graphml>'
    )
    assert read_graphml(tmp_path / "e.graphml")["probability"].tolist() == [0.25, 0.75]


# --------------------------------------------------------------------------------------- writing


@pytest.fixture
def edges():
    pairs = Pairs.fold([0, 1, 0], [1, 2, 3], 4)
    return DenseEdges(4, pairs, np.array([0.5, 0.25, 1.0]))


def test_edge_frames(edges):
    assert edge_frame(edges)["probability"].tolist() == [1.0, 0.5]  # 1.75 expected
    assert edge_frame(edges, top=1).to_numpy().tolist() == [[1.0, 2.0, 1.0]]
    above = edge_frame(edges, IDS, threshold=0.3)
    assert above.to_numpy().tolist() == [["bob", "007", 1.0], ["ann", "bob", 0.5]]
    with pytest.raises(ValueError, match="not both"):
        edge_frame(edges, top=1, threshold=0.5)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "graphml"])
def test_what_is_written_is_read_back(edges, tmp_path, suffix):
    file = tmp_path / f"e.{suffix}"
    if suffix == "graphml":
        write_graphml(file, edge_frame(edges, top=9), IDS)
    else:
        write_edges(file, edge_frame(edges, IDS, top=9))
    found = read_graph(file, IDS).toarray()
    np.testing.assert_array_equal(found, edges.to_scipy().toarray())


def test_mixed_ids_fit_into_parquet(edges, tmp_path):
    write_edges(tmp_path / "e.parquet", edge_frame(edges, [1, "b", 2.5, "d"], top=9))
    assert pd.read_parquet(tmp_path / "e.parquet")["source"].tolist() == ["b", "1", "1"]
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        write_edges(tmp_path / "e.xlsx", edge_frame(edges))


def test_networkx_reads_graphml_with_attributes(edges, tmp_path):
    attributes = pd.DataFrame(
        {
            "label": ["a", None, "<b>", "&c"],
            "certain": [True, False, True, False],
            "p": [0.5, np.nan, 1.0, 0.0],
        }
    )
    write_graphml(tmp_path / "e.graphml", edge_frame(edges, top=9), IDS, attributes)
    graph = networkx.read_graphml(tmp_path / "e.graphml")
    assert dict(graph.nodes["ann"]) == {"label": "a", "certain": True, "p": 0.5}
    assert dict(graph.nodes["bob"]) == {"certain": False}
    assert graph.nodes["007"]["label"] == "<b>"
    assert graph.edges["ann", "bob"]["probability"] == 0.5


@given(
    st.lists(st.text(min_size=1, max_size=5).map(str.strip), min_size=2, max_size=5, unique=True)
)
def test_any_id_survives_graphml(tmp_path_factory, ids):
    file = tmp_path_factory.mktemp("graphml") / "e.graphml"
    frame = pd.DataFrame({"source": [0], "target": [1], "probability": [0.125]})
    write_graphml(file, frame, ids)
    found = read_graphml(file)
    assert found["probability"].tolist() == [0.125]
    for end, name in (("source", ids[0]), ("target", ids[1])):
        if name.isprintable():
            assert found[end].tolist() == [name]
