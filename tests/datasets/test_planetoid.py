from __future__ import annotations

import hashlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from edgewise.datasets import ChecksumError, planetoid
from edgewise.datasets.planetoid import read_planetoid, unpickle

# --- What Python 2 wrote, opcode by opcode: Python 3 cannot write such pickles itself. ---


def py2_int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def py2_tuple(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def py2_str(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def py2_array(array: np.ndarray) -> bytes:
    code = array.dtype.str[1:].encode()
    empty = py2_tuple(b"cnumpy\nndarray\n", py2_tuple(py2_int(0)), py2_str(b"b"))
    dtype = b"cnumpy\ndtype\n" + py2_tuple(py2_str(code), py2_int(0), py2_int(1)) + b"R"
    unset = py2_int(-1)
    dtype += py2_tuple(py2_int(3), py2_str(b"<"), b"N", b"N", b"N", unset, unset, py2_int(0)) + b"b"
    shape = py2_tuple(*map(py2_int, array.shape))
    state = py2_tuple(py2_int(1), shape, dtype, b"\x89", py2_str(array.tobytes()))
    return b"cnumpy.core.multiarray\n_reconstruct\n" + empty + b"R" + state + b"b"


def py2_csr(matrix: sp.csr_array) -> bytes:
    state = py2_str(b"_shape") + py2_tuple(*map(py2_int, matrix.shape))
    for name in ("data", "indices", "indptr"):
        state += py2_str(name.encode()) + py2_array(getattr(matrix, name))
    return b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + state + b"ub"


def py2_graph(graph: dict[int, list[int]]) -> bytes:
    items = b"".join(
        py2_int(node) + b"](" + b"".join(map(py2_int, neighbours)) + b"e"
        for node, neighbours in graph.items()
    )
    return (
        b"ccollections\ndefaultdict\n" + py2_tuple(b"c__builtin__\nlist\n") + b"R(" + items + b"u"
    )


def whole(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


# --- A citation graph of ten nodes, node 8 without a row (as 15 nodes of Citeseer). ---

FEATURES = np.zeros((10, 4))
FEATURES[:8, 0] = np.arange(8)  # node 0 has a row of zeros
FEATURES[:8, 2] = [0, 1, 1, 1, 0, 2, 3, 1]
FEATURES[9] = [1, 2, 3, 4]
LABELS = np.array([0, 1, 0, 1, 0, 1, 1, 0, -1, 1])
GRAPH = {0: [1, 1, 0], 1: [0], 2: [9], 9: [2, 8], 8: [9], 3: []}
TEST_INDEX = [9, 6, 7]  # as listed in the file: unsorted


def make_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_hot = np.eye(2, dtype=np.int32)
    parts = {
        "x": py2_csr(sp.csr_array(FEATURES[:2])),
        "y": py2_array(one_hot[LABELS[:2]]),
        "tx": py2_csr(sp.csr_array(FEATURES[TEST_INDEX])),
        "ty": py2_array(one_hot[LABELS[TEST_INDEX]]),
        "allx": py2_csr(sp.csr_array(FEATURES[:6])),
        "ally": py2_array(one_hot[LABELS[:6]]),
        "graph": py2_graph(GRAPH),
    }
    content = {part: whole(body) for part, body in parts.items()}
    content["test.index"] = "".join(f"{node}\n" for node in TEST_INDEX).encode()
    (folder / "planetoid").mkdir()
    for part, data in content.items():
        (folder / "planetoid" / f"ind.tiny.{part}").write_bytes(data)
    digests = {part: hashlib.sha256(data).hexdigest() for part, data in content.items()}
    monkeypatch.setitem(planetoid.DIGESTS, "tiny", digests)
    monkeypatch.setattr(planetoid, "N_VALIDATION", 3)


def test_nodes_find_their_rows_labels_and_edges(folder, monkeypatch):
    make_up(folder, monkeypatch)
    table = read_planetoid("tiny")
    sums = FEATURES.sum(axis=1, keepdims=True)
    expected = np.divide(FEATURES, sums, out=np.zeros_like(FEATURES), where=sums > 0)
    np.testing.assert_allclose(table.features.toarray(), expected, rtol=1e-6)
    assert table.features.dtype == np.float32
    np.testing.assert_array_equal(table.labels, LABELS)
    assert table.pairs is not None
    assert table.pairs.rows.tolist() == [0, 2, 8]
    assert table.pairs.cols.tolist() == [1, 9, 9]
    assert table.public is not None
    assert [part.tolist() for part in table.public] == [[0, 1], [2, 3, 4], [6, 7, 9]]


def test_unpickler_reads_arrays_csr_and_graph():
    array = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(unpickle(whole(py2_array(array))), array)
    np.testing.assert_array_equal(unpickle(whole(py2_csr(sp.csr_array(array)))).toarray(), array)
    assert unpickle(whole(py2_graph({3: [1, 2]}))) == {3: [1, 2]}


class Malicious:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("function", [os.mkdir, eval, np.save, getattr, __import__])
def test_foreign_names_are_refused_and_execute_nothing(tmp_path, function, protocol):
    made = tmp_path / "made"
    arguments = {eval: (f"__import__('os').mkdir({str(made)!r})",), np.save: (made, 1)}
    content = pickle.dumps(Malicious(function, *arguments.get(function, (str(made),))), protocol)
    with pytest.raises(pickle.UnpicklingError, match="no Planetoid file contains"):
        unpickle(content)
    assert not list(tmp_path.iterdir())


def test_foreign_names_within_admitted_objects_are_refused(tmp_path):
    # The old INST opcode calls at once; and a dotted name must not climb out of an admitted module.
    inst = b"(S'" + str(tmp_path / "made").encode() + b"'\nios\nmkdir\n."
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93."
    factory = whole(b"ccollections\ndefaultdict\n" + py2_tuple(b"cos\nabort\n") + b"R")
    for content in (inst, dotted, factory):
        with pytest.raises(pickle.UnpicklingError, match="no Planetoid file contains"):
            unpickle(content)
    assert not list(tmp_path.iterdir())


def test_tampered_file_fails_its_checksum_before_it_is_read(folder, monkeypatch, tmp_path):
    make_up(folder, monkeypatch)
    made = tmp_path / "made"
    path = folder / "planetoid" / "ind.tiny.graph"
    path.write_bytes(pickle.dumps(Malicious(os.mkdir, str(made)), 2))
    with pytest.raises(ChecksumError, match="not the published file"):
        read_planetoid("tiny")
    assert not made.exists()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "missing", "listed"), [("cora", 0, 5429), ("citeseer", 15, 4732), ("pubmed", 0, 44338)]
)
def test_real_citation_graphs(data_folder, name, missing, listed):
    table = read_planetoid(name)
    sums = np.asarray(table.features.sum(axis=1)).ravel()
    zero_rows = np.flatnonzero(sums == 0)
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
    unlabelled = np.flatnonzero(table.labels < 0)
    assert len(unlabelled) == missing
    assert np.isin(unlabelled, zero_rows).all()
    assert table.public is not None
    for part in table.public:
        assert (table.labels[part] >= 0).all()
    assert np.bincount(table.labels[table.public.train]).tolist() == [20] * len(table.classes)
    assert table.pairs is not None
    assert 0 < listed - len(table.pairs.rows) < 200  # the listed edges less repetitions and loops
    # A wrong order of the test rows would leave neighbours no more alike than strangers.
    same = table.labels[table.pairs.rows] == table.labels[table.pairs.cols]
    in_test = np.isin(table.pairs.rows, table.public.test)
    assert same[in_test].mean() > 0.65
