"""Twenty newsgroups: the ten groups of the paper as TF-IDF vectors."""

from __future__ import annotations

import tempfile
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from edgewise.datasets.dataset import Table
from edgewise.datasets.files import (
    DataUnavailableError,
    RemoteFile,
    cache_folder,
    derived,
    find,
    open_verified,
)

GROUPS = (
    "alt.atheism",
    "comp.sys.ibm.pc.hardware",
    "misc.forsale",
    "rec.autos",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "talk.politics.guns",
)
# scikit-learn's own cache, a compressed pickle that `fetch_20newsgroups` would execute: it is
# handed over only when it is, byte for byte, the file whose checksum stands here.
NEWSGROUPS_FILE = RemoteFile(
    path="sklearn/20news-bydate_py3.pkz",
    digest="7f74e31b8322e1960867eafe1d5e30275689613d176fef0c3d0383d56ef2bdbd",
    url=None,
    home="scikit-learn's fetch_20newsgroups",
)
# Changes with the recipe below, so that vectors of an older recipe are never taken for new ones.
DERIVED_NAME = "20news-tfidf-1"


def _fetch(data_home: Path, *, download: bool) -> Any:
    from sklearn.datasets import fetch_20newsgroups

    return fetch_20newsgroups(
        data_home=data_home,
        subset="all",
        categories=GROUPS,
        shuffle=False,
        download_if_missing=download,
    )


def _fetch_verified() -> Any:
    """The documents, from the file at hand, else downloaded by scikit-learn.

    scikit-learn verifies the SHA-256 of the archive it downloads. The pickle it makes of it holds
    the paths of this machine, so no checksum can vouch for it later: it is made in a temporary
    folder and not kept; the vectors are (see `derived`).
    """
    path = find(NEWSGROUPS_FILE)
    if path is not None:
        with open_verified(NEWSGROUPS_FILE):
            return _fetch(path.parent, download=False)
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            return _fetch(Path(folder), download=True)
    except (OSError, HTTPException) as error:
        raise DataUnavailableError(
            f"20news needs {NEWSGROUPS_FILE.path}, which is neither in EDGEWISE_DATA nor in "
            f"{cache_folder()}, and scikit-learn could not download the original: {error}. "
            "Remedy: try again with a connection to the internet, or set EDGEWISE_DATA to a folder "
            f"that holds the file whose SHA-256 is {NEWSGROUPS_FILE.digest}."
        ) from error


def vectorise(documents: list[str]) -> tuple[Any, list[str]]:
    """TF-IDF of the words in at least 5 % of the documents, without English stop words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(stop_words="english", min_df=0.05, smooth_idf=False)
    vectors = vectorizer.fit_transform(documents)
    return sp.csr_array(vectors), [str(word) for word in vectorizer.get_feature_names_out()]


def _build() -> dict[str, NDArray[Any]]:
    bunch = _fetch_verified()
    # One order of the documents whatever file they came from, so that a seed means the same split:
    # by group, then by the name of the article (the last part of its path).
    articles = [Path(name).name for name in bunch.filenames]
    order = sorted(range(len(articles)), key=lambda row: (bunch.target[row], articles[row]))
    vectors, words = vectorise([bunch.data[row] for row in order])
    return {
        "data": vectors.data.astype(np.float32),
        "indices": vectors.indices,
        "indptr": vectors.indptr,
        "shape": np.array(vectors.shape),
        "labels": bunch.target[order].astype(np.int64),
        "words": np.array(words),
    }


def read_newsgroups() -> Table:
    """Ten newsgroups: 9,607 documents, 236 words."""
    arrays = derived(DERIVED_NAME, _build)
    csr = (arrays["data"], arrays["indices"], arrays["indptr"])
    return Table(
        features=sp.csr_array(csr, shape=tuple(arrays["shape"])),
        labels=arrays["labels"],
        classes=np.array(GROUPS),
        feature_names=tuple(str(word) for word in arrays["words"]),
    )
