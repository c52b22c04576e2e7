from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import Bunch

from edgewise.datasets import ChecksumError, DataUnavailableError, load, newsgroups
from edgewise.datasets.files import derived_path
from edgewise.datasets.newsgroups import NEWSGROUPS_FILE, read_newsgroups, vectorise


def test_vectorise_drops_stop_words_and_rare_words():
    documents = ["the graph learns edges"] * 20 + ["the graph has nodes"] * 20 + ["rareword graph"]
    vectors, words = vectorise(documents)
    assert words == ["edges", "graph", "learns", "nodes"]
    np.testing.assert_allclose(np.sqrt(vectors.multiply(vectors).sum(axis=1)), 1)
    # smooth_idf=False: idf = ln(n / df) + 1
    row = vectors[[0]].toarray().ravel()
    assert row[0] / row[1] == pytest.approx((np.log(41 / 20) + 1) / (np.log(41 / 41) + 1))


def bunch(order: list[int]) -> Bunch:
    texts = ["car wheel", "goal ice", "car engine", "goal puck"]
    names = ["a/rec.autos/7", "a/rec.sport/9", "b/rec.autos/10", "b/rec.sport/11"]
    return Bunch(
        data=[texts[i] for i in order],
        target=np.array([[0, 1, 0, 1][i] for i in order]),
        filenames=np.array([names[i] for i in order]),
    )


def test_order_of_the_documents_does_not_depend_on_the_source(monkeypatch, cache):
    tables = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        monkeypatch.setattr(
            newsgroups, "_fetch", lambda home, *, download, order=order: bunch(order)
        )
        tables.append(read_newsgroups())
        derived_path(newsgroups.DERIVED_NAME).unlink()
    np.testing.assert_array_equal(tables[0].features.toarray(), tables[1].features.toarray())
    assert tables[0].labels.tolist() == tables[1].labels.tolist() == [0, 0, 1, 1]
    assert tables[0].feature_names == ("car", "engine", "goal", "ice", "puck", "wheel")


def test_tampered_pickle_is_refused_and_executes_nothing(folder, tmp_path):
    made = tmp_path / "made"

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(made),)

    path = folder / NEWSGROUPS_FILE.path
    path.parent.mkdir()
    path.write_bytes(zlib.compress(pickle.dumps(Malicious())))
    with pytest.raises(ChecksumError, match="not the published file"):
        load("20news")
    assert not made.exists()


def test_download_is_left_to_scikit_learn_and_its_pickle_is_not_kept(monkeypatch, cache):
    homes: list[Path] = []

    def fetch(home: Path, *, download: bool) -> Bunch:
        assert download
        homes.append(home)
        (home / "20news-bydate_py3.pkz").write_bytes(b"a pickle")
        return bunch([0, 1, 2, 3])

    monkeypatch.setattr(newsgroups, "_fetch", fetch)
    read_newsgroups()
    read_newsgroups()
    assert len(homes) == 1
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept == [derived_path(newsgroups.DERIVED_NAME)]


def test_without_network_the_error_says_what_to_do(monkeypatch, cache):
    def fetch(home: Path, *, download: bool) -> Bunch:
        raise OSError("no network")

    monkeypatch.setattr(newsgroups, "_fetch", fetch)
    with pytest.raises(DataUnavailableError, match=r"no network.*Remedy.*EDGEWISE_DATA"):
        load("20news")


@pytest.mark.data
def test_real_newsgroups(monkeypatch, data_folder, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built, cached = read_newsgroups(), read_newsgroups()
    assert built.features.shape == (9607, 236)
    sizes = np.bincount(built.labels)
    assert (sizes.min(), sizes.max(), len(sizes)) == (799, 999, 10)
    assert built.features.dtype == cached.features.dtype == np.float32
    np.testing.assert_array_equal(built.features.toarray(), cached.features.toarray())
    assert built.feature_names == cached.feature_names
