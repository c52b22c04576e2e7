"""Saved models: the same predictions to the last bit, or a clear refusal."""

from __future__ import annotations

import errno
import json
import os
import pickle
import zipfile

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from edgewise import LDSClassifier, files, persistence
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.pairs import Pairs
from edgewise.nn.gcn import GCN
from edgewise.persistence import MANIFEST, ModelFileError, plain, unplain

QUICK = {"k": 3, "patience": 1, "max_outer_iterations": 2, "max_inner_steps": 15}


def small(n_rows=24, n_features=5, seed=0, names=("a", "b")):
    rng = np.random.default_rng(seed)
    truth = np.arange(n_rows) % len(names)
    X = np.abs(rng.normal(size=(n_rows, n_features))) + 3 * np.eye(n_features)[truth]
    y = np.array([names[code] for code in truth], dtype=object)
    y[n_rows // 2 :] = None
    return X, y


def fit(X, y, **parameters):
    return LDSClassifier(**{**QUICK, "random_state": 0, **parameters}).fit(X, y)


@pytest.fixture(scope="module")
def fitted():
    return fit(*small())


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def assert_same(first, second, new):
    np.testing.assert_array_equal(first.classes_, second.classes_)
    assert first.classes_.dtype == second.classes_.dtype
    np.testing.assert_array_equal(first.label_distributions_, second.label_distributions_)
    np.testing.assert_array_equal(first.transduction_, second.transduction_)
    np.testing.assert_array_equal(first.predict_proba(new), second.predict_proba(new))
    np.testing.assert_array_equal(first.novelty(new), second.novelty(new))
    assert first.history_ == second.history_
    assert first.n_iter_ == second.n_iter_
    assert first.best_iteration_ == second.best_iteration_
    assert first.validation_score_ == second.validation_score_
    for role in ("train", "validation", "early_stopping"):
        np.testing.assert_array_equal(getattr(first.split_, role), getattr(second.split_, role))
    assert abs(first.edges_.to_scipy() - second.edges_.to_scipy()).nnz == 0
    rng = np.random.default_rng(5), np.random.default_rng(5)
    np.testing.assert_array_equal(first.edges_.sample(rng[0]), second.edges_.sample(rng[1]))


@pytest.mark.parametrize(
    "names",
    [("a", "b"), (3, 10**12), (True, False), (0.0, 2.0), ("ä\u2028", "<script>\ud800")],
    ids=["text", "integers", "truth", "floats", "odd-text"],
)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_loaded_model_predicts_the_same_to_the_last_bit(names, layout, tmp_path):
    X, y = small(names=names)
    fitted = fit(layout(X), y, dtype="float64" if names[0] == "a" else "float32")
    fitted.save(tmp_path / "model")
    loaded = LDSClassifier.load(tmp_path / "model")
    assert_same(fitted, loaded, layout(np.vstack([X[:4], small(seed=1)[0], -X[:1]])))
    assert loaded.get_params() == fitted.get_params()


@settings(max_examples=10)
@given(
    n_rows=st.integers(8, 20),
    n_features=st.integers(2, 6),
    seed=st.integers(0, 1000),
    metric=st.sampled_from(["cosine", "euclidean"]),
    refit=st.booleans(),
    given_graph=st.booleans(),
)
def test_any_small_problem_survives(
    tmp_path_factory, n_rows, n_features, seed, metric, refit, given_graph
):
    X, y = small(n_rows, n_features, seed)
    graph = [(0, 1), (1, 2), (4, 7)] if given_graph else None
    fitted = LDSClassifier(**QUICK, metric=metric, refit=refit, random_state=seed).fit(X, y, graph)
    folder = tmp_path_factory.mktemp("any") / "model"
    fitted.save(folder)
    new = small(6, n_features, seed + 1)[0]
    probabilities = fitted.predict_proba(new)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_same(fitted, LDSClassifier.load(folder), np.vstack([X, new]))


def test_names_of_columns_are_kept(tmp_path):
    X, y = small()
    frame = pd.DataFrame(X, columns=["a", "b", "ü", "<d>", "e f"])
    fit(frame, y).save(tmp_path / "model")
    loaded = LDSClassifier.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert loaded.n_features_in_ == 5
    loaded.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


def test_losses_that_are_no_numbers_are_kept():
    history = [{"loss": float("nan"), "accuracy": 0.5}, {"loss": float("-inf"), "n": 3}]
    back = unplain(json.loads(json.dumps(plain(history), allow_nan=False)))
    assert repr(back) == repr(history)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_plain_and_back(value):
    back = unplain(json.loads(json.dumps(plain(value), allow_nan=False)))
    assert repr(back) == repr(value)


def test_joblib_works_as_for_any_estimator(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "model.joblib")
    assert_same(fitted, joblib.load(tmp_path / "model.joblib"), small(seed=1)[0])


def test_nothing_in_the_folder_is_a_pickle(saved):
    assert sorted(entry.suffix for entry in saved.iterdir()) == [".json", ".safetensors"]
    for entry in saved.iterdir():
        assert not zipfile.is_zipfile(entry)
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(entry.read_bytes())


def test_a_known_network_comes_back_and_an_own_one_is_asked_for(tmp_path):
    class Mine(GCN):
        pass

    X, y = small()
    fit(X, y, network=GCN(7, 0.25)).save(tmp_path / "known")
    loaded = LDSClassifier.load(tmp_path / "known")
    assert (loaded.network.hidden_units, loaded.network.dropout) == (7, 0.25)
    own = fit(X, y, network=Mine(7))
    own.save(tmp_path / "own")
    with pytest.raises(ModelFileError, match=r"Mine, which a file cannot hold: .*network="):
        LDSClassifier.load(tmp_path / "own")
    assert_same(own, LDSClassifier.load(tmp_path / "own", network=Mine(7)), small(seed=1)[0])


def test_only_fitted_models_are_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        LDSClassifier().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---------------------------------------------------------------------- damage and strangers


def test_any_changed_byte_is_noticed(saved):
    rng = np.random.default_rng(0)
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        for place in rng.integers(len(whole), size=25):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            if file.name == MANIFEST and _says_the_same(damaged, whole):
                continue  # white space between the values
            with pytest.raises(ModelFileError, match="model"):
                LDSClassifier.load(saved)
        file.write_bytes(whole)
    LDSClassifier.load(saved)


def _says_the_same(damaged, whole):
    try:
        return json.loads(damaged) == json.loads(whole)
    except ValueError:
        return False


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncation_is_noticed(saved, share):
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ModelFileError, match="damaged"):
            LDSClassifier.load(saved)
        file.write_bytes(whole)


def rewrite(folder, **changes):
    """A manifest that somebody has changed on purpose, with a right checksum."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest.update(changes)
    manifest["checksum"] = persistence.checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "newer Edgewise .format 2.*upgrade"),
        ({"version": "1"}, "newer Edgewise"),
        ({"format": "pickle"}, "not of an Edgewise model"),
        ({"class": "Other"}, "holds a Other, not a LDSClassifier"),
        ({"arrays": {"file": "../../etc/passwd"}}, "strange file"),
        ({"arrays": {"file": "arrays-0123456789abcdef.safetensors"}}, "is missing"),
        ({"edges": {"kind": "DenseEdges", "n_nodes": 10**9}}, "edges do not fit"),
        ({"edges": {"kind": "os.system", "n_nodes": 24}}, "KeyError"),
        ({"features": {"layout": "dense", "shape": [24, 6]}}, "rows do not fit"),
        ({"features": {"layout": "csr", "shape": [24, 5]}}, "KeyError"),
        ({"parameters": {"network": None, "__class__": "x"}}, "TypeError"),
        ({"parameters": {"network": {"known": True, "kind": "eval"}}}, "unknown network: 'eval'"),
        ({"classes": {"dtype": "|O", "values": ["a"]}}, "predictions do not fit"),
        ({"history": 5}, "TypeError"),
    ],
)
def test_what_no_model_holds_is_refused(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(ModelFileError, match=message):
        LDSClassifier.load(saved)


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("edges.positions", lambda positions: positions + 24 * 23 // 2),
        ("edges.positions", lambda positions: positions[::-1].copy()),
        ("edges.positions", lambda positions: positions.astype(np.int32)),
        ("edges.theta", lambda theta: theta + 1),
        ("edges.theta", lambda theta: theta * np.float32("nan")),
        ("edges.theta", lambda theta: theta.astype(np.float64)),
        ("edges.theta", lambda theta: theta[1:]),
    ],
)
def test_edges_that_none_can_be_are_refused(tmp_path, array, change):
    from safetensors.numpy import load, save

    classifier, saved = fit(*small()), tmp_path / "model"
    classifier.edges_ = DenseEdges(24, Pairs.fold([0, 1, 2], [5, 6, 7], 24))  # few, by position
    classifier.save(saved)
    (file,) = saved.glob("arrays-*")
    arrays = load(file.read_bytes())
    arrays[array] = change(arrays[array])
    file.write_bytes(data := save(arrays))
    about = {
        "file": file.name,
        "bytes": len(data),
        "sha256": persistence.hashlib.sha256(data).hexdigest(),
    }
    rewrite(saved, arrays=about)
    with pytest.raises(ModelFileError, match="edges do not fit"):
        LDSClassifier.load(saved)


def test_places_without_a_model(tmp_path, saved):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        LDSClassifier.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match=r"holds no manifest\.json"):
        LDSClassifier.load(tmp_path / "empty")
    with pytest.raises(ModelFileError, match="is no saved model"):
        LDSClassifier.load(saved / MANIFEST)
    for text in ("[]", "not json", "[" * 100_000, '{"format": 1}'):
        (tmp_path / "empty" / MANIFEST).write_text(text)
        with pytest.raises(ModelFileError, match=r"damaged|not of an Edgewise"):
            LDSClassifier.load(tmp_path / "empty")


# -------------------------------------------------------------------------- writing safely


def test_foreign_folders_and_files_are_left_alone(fitted, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="name a new folder"):
        fitted.save(tmp_path / "thesis")
    with pytest.raises(NotADirectoryError, match="is a file"):
        fitted.save(tmp_path / "thesis" / "chapter.txt")
    assert [entry.name for entry in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_a_second_save_replaces_the_first_and_leaves_nothing_of_it(saved):
    X, y = small(seed=3)
    second = fit(X, y)
    second.save(saved)
    assert len(list(saved.iterdir())) == 2
    assert_same(second, LDSClassifier.load(saved), X)


@pytest.mark.parametrize("fails_at", range(5))
def test_a_full_disk_leaves_the_earlier_model_intact(saved, fitted, monkeypatch, fails_at):
    before = {entry.name: entry.read_bytes() for entry in saved.iterdir()}
    calls = iter(range(100))
    real = {"fsync": os.fsync, "replace": os.replace}

    def failing(name):
        def call(*arguments):
            if next(calls) == fails_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real[name](*arguments)

        return call

    X, y = small(seed=3)
    second = fit(X, y)
    monkeypatch.setattr(files.os, "fsync", failing("fsync"))
    monkeypatch.setattr(files.os, "replace", failing("replace"))
    with pytest.raises(OSError, match="No space left"):
        second.save(saved)
    monkeypatch.undo()
    assert {entry.name: entry.read_bytes() for entry in saved.iterdir()} == before
    assert_same(fitted, LDSClassifier.load(saved), X)


def test_a_model_in_place_is_kept_when_its_folder_cannot_be_synced(saved, monkeypatch):
    """The last step: the manifest names the new arrays already, so these must not be removed."""
    X, y = small(seed=3)
    second, calls, real = fit(X, y), iter(range(100)), os.fsync

    def failing(descriptor):
        if next(calls) == 3:  # arrays, folder, manifest, folder
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output error"):
        second.save(saved)
    monkeypatch.undo()
    assert_same(second, LDSClassifier.load(saved), X)


def test_a_failed_first_save_leaves_no_folder(fitted, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
