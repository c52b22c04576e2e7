"""Cora, Citeseer and Pubmed from the raw Planetoid files, which are Python-2 pickles.

A pickle can name any function to be called. The unpickler here admits the few names these files
really contain, so a file that names anything else is refused before anything is called.
"""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from edgewise.datasets.dataset import PublicSplit, Table
from edgewise.datasets.files import RemoteFile, read_verified
from edgewise.graph.pairs import Pairs

N_VALIDATION = 500
HOME = "github.com/kimiyoung/planetoid (folder data)"
URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
DIGESTS = {
    "cora": {
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    },
    "citeseer": {
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    },
    "pubmed": {
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    },
}


def planetoid_files(name: str) -> dict[str, RemoteFile]:
    """The eight raw files of a citation graph, by the part each holds."""
    return {
        part: RemoteFile(f"planetoid/ind.{name}.{part}", digest, f"{URL}ind.{name}.{part}", HOME)
        for part, digest in DIGESTS[name].items()
    }


class _SparseState:
    """Receives the state of a pickled csr_matrix: SciPy's class never gets foreign state."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    _shape: tuple[int, int]

    def to_csr(self) -> Any:
        arrays = (self.data, self.indices, self.indptr)
        return sp.csr_array(arrays, shape=self._shape, dtype=np.float64)


def _dtype(code: str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Python 2 wrote the flags as integers, which NumPy warns about.
    return np.dtype(code, align=bool(align), copy=bool(copy))


_ADMITTED: dict[tuple[str, str], Any] = {
    # NumPy moved this function twice; an array's own __reduce__ says where it is today.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("scipy.sparse.csr", "csr_matrix"): _SparseState,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
}


class PlanetoidUnpickler(pickle.Unpickler):
    """Reads the Planetoid pickles and refuses every name that they do not contain."""

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up among those admitted; nothing is ever imported."""
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"this file names {module}.{name}, which no Planetoid file contains; it was "
                "refused, and nothing in it was executed. Remedy: delete it and get the original "
                f"from {HOME}."
            ) from None


def unpickle(content: bytes) -> Any:
    """The array, CSR array or graph dictionary that a Planetoid file holds."""
    found = PlanetoidUnpickler(io.BytesIO(content), encoding="latin1").load()
    return found.to_csr() if isinstance(found, _SparseState) else found


def read_planetoid(name: str) -> Table:
    """Read a citation graph: rows of X sum to 1, the public split, the undirected graph.

    The nodes are numbered as the published split expects: training rows first, then validation;
    the rows of the test nodes lie in their own file, in the order of ``test.index``.
    """
    content = {part: read_verified(file) for part, file in planetoid_files(name).items()}
    test = np.array(content.pop("test.index").split(), dtype=np.int64)
    parts = {part: unpickle(data) for part, data in content.items()}
    # Citeseer has 15 test nodes without a row (gaps in test.index): features 0, no label, no test.
    n_nodes = max(int(test.max()) + 1, parts["allx"].shape[0] + len(test))
    labels = np.full(n_nodes, -1, dtype=np.int64)
    for rows, one_hot in ((np.arange(len(parts["ally"])), parts["ally"]), (test, parts["ty"])):
        labels[rows] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    n_train = len(parts["y"])
    return Table(
        features=normalise_rows(_stack(parts["allx"], parts["tx"], test, n_nodes)),
        labels=labels,
        classes=np.arange(parts["ally"].shape[1]),
        pairs=_fold(parts["graph"], n_nodes),
        public=PublicSplit(
            train=np.arange(n_train),
            validation=np.arange(n_train, n_train + N_VALIDATION),
            test=np.sort(test),
        ),
    )


def _stack(known: Any, tested: Any, test: NDArray[np.int64], n_nodes: int) -> Any:
    """All feature rows in the order of the nodes; a node without a row gets zeros."""
    known, tested = known.tocoo(), tested.tocoo()
    rows = np.concatenate([known.row, test[tested.row]])
    columns = np.concatenate([known.col, tested.col])
    values = np.concatenate([known.data, tested.data])
    entries = (values, (rows.astype(np.int32), columns.astype(np.int32)))
    return sp.csr_array(entries, shape=(n_nodes, known.shape[1]))


def _fold(graph: dict[int, list[int]], n_nodes: int) -> Pairs:
    rows = [node for node, neighbours in graph.items() for _ in neighbours]
    columns = [neighbour for neighbours in graph.values() for neighbour in neighbours]
    return Pairs.fold(rows, columns, n_nodes)


def normalise_rows(features: Any) -> Any:
    """Divide each row of a sparse matrix by its sum, as float32; rows of zeros stay zeros.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> normalise_rows(sp.csr_array(np.array([[1.0, 3.0], [0.0, 0.0]]))).toarray()
    array([[0.25, 0.75],
           [0.  , 0.  ]], dtype=float32)
    """
    sums = np.asarray(features.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    return sp.csr_array(features.multiply(scale[:, None]), dtype=np.float32)
