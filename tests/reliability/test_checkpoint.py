"""Fits that are killed and go on: the same result to the last bit, or a clear refusal."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from edgewise import LDSClassifier, files, persistence
from edgewise.baselines import DenseKNNLDSClassifier
from edgewise.checkpoint import CheckpointError
from edgewise.inputs import EdgewiseWarning
from edgewise.learn import Callback

QUICK = {
    "k": 3,
    "n_samples": 2,
    "patience": 20,
    "max_outer_iterations": 4,
    "max_inner_steps": 12,
    "random_state": 0,
}
# Every kind of state: what is learned, in which type, by which inner optimiser.
KINDS = {
    "dense": (LDSClassifier, {}),
    "dense-float64": (LDSClassifier, {"dtype": "float64", "learn_inner_rate": True}),
    "unrolled-refit": (LDSClassifier, {"tau": None, "refit": True, "inner_optimizer": "momentum"}),
    "growing": (LDSClassifier, {"storage": "sparse", "max_edges_per_node": 4}),
    "matrix": (DenseKNNLDSClassifier, {"metric": "euclidean"}),
}


def problem(seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(24) % 2
    X = rng.normal(size=(24, 4)) + 2.0 * truth[:, None]
    y = np.where(np.arange(24) < 15, truth, -1)
    return X, y


class KilledError(Exception):
    """What ends a process, as far as the fit can tell."""


class KilledAfter(Callback):
    def __init__(self, iterations):
        self.iterations = iterations

    def after_iteration(self, edges, progress):
        if len(progress.history) == self.iterations:
            raise KilledError


def make(kind="dense", **parameters):
    cls, own = KINDS[kind]
    return cls(**{**QUICK, **own, **parameters})


@functools.cache
def uninterrupted(kind="dense"):
    return make(kind).fit(*problem())


def without_time(history):
    return [{**record, "seconds": 0} for record in history]


def assert_same(first, second):
    """Equal to the last bit, and equal in all that is drawn afterwards."""
    assert_array_equal(first.label_distributions_, second.label_distributions_)
    assert without_time(first.history_) == without_time(second.history_)
    assert first.best_iteration_ == second.best_iteration_
    assert first.validation_score_ == second.validation_score_
    for one, other in zip(first.weights_, second.weights_, strict=True):
        assert_array_equal(one, other)
    snapshots = first.edges_.snapshot(), second.edges_.snapshot()
    assert snapshots[0].settings == snapshots[1].settings
    assert snapshots[0].arrays.keys() == snapshots[1].arrays.keys()
    for name, array in snapshots[0].arrays.items():
        assert array.dtype == snapshots[1].arrays[name].dtype
        assert array.tobytes() == snapshots[1].arrays[name].tobytes()
    drawn = [model.edges_.sample(np.random.default_rng(1)) for model in (first, second)]
    assert_array_equal(*drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_after_each_outer_iteration(kind, tmp_path):
    X, y = problem()
    path = tmp_path / "state"
    for iteration in range(1, 5):
        with pytest.raises(KilledError):
            make(kind, callbacks=[KilledAfter(iteration)]).fit(X, y, checkpoint=path)
    finished = make(kind).fit(X, y, checkpoint=path)
    assert_same(uninterrupted(kind), finished)
    # The resumed run really took up the earlier ones' work: the clock readings are theirs.
    assert make(kind).fit(X, y, checkpoint=path).history_ == finished.history_


def test_edges_from_features_killed_after_each_look(tmp_path):
    X, y = problem()
    parameters = {**QUICK, "edges": "similarity", "max_inner_steps": 6, "inner_patience": 2}
    whole = LDSClassifier(**parameters).fit(X, y)
    path = tmp_path / "state"
    for look in range(1, whole.n_iter_ + 1):
        with pytest.raises(KilledError):
            LDSClassifier(**parameters, callbacks=[KilledAfter(look)]).fit(X, y, checkpoint=path)
    assert_same(whole, LDSClassifier(**parameters).fit(X, y, checkpoint=path))


def test_a_checkpoint_changes_nothing_about_the_fit(tmp_path):
    X, y = problem()
    assert_same(uninterrupted(), make().fit(X, y, checkpoint=tmp_path / "state"))


def test_a_finished_fit_can_go_further(tmp_path):
    X, y = problem()
    make(max_outer_iterations=2).fit(X, y, checkpoint=tmp_path / "state")
    longer = make(refit=True).fit(X, y, checkpoint=tmp_path / "state")
    assert longer.n_iter_ == 4
    assert_same(make(refit=True).fit(X, y), longer)


def test_an_interrupt_keeps_the_state(tmp_path):
    class Impatient(Callback):
        def after_iteration(self, edges, progress):
            raise KeyboardInterrupt

    X, y = problem()
    with pytest.warns(EdgewiseWarning, match=r"kept the best .* iteration 1 of 1"):
        stopped = make(callbacks=[Impatient()]).fit(X, y, checkpoint=tmp_path / "state")
    assert stopped.n_iter_ == 1
    assert_same(uninterrupted(), make().fit(X, y, checkpoint=tmp_path / "state"))


# ------------------------------------------------------------------------------ real kills

CHILD = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_checkpoint import make, problem
fitted = make(max_outer_iterations=25).fit(*problem(), checkpoint=sys.argv[2])
np.save(sys.argv[3], fitted.label_distributions_)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this platform has no SIGKILL")
def test_killed_at_random_moments(tmp_path):
    X, y = problem()
    whole = make(max_outer_iterations=25).fit(X, y)
    path, result = tmp_path / "state", tmp_path / "result.npy"
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(path), str(result)]
    rng = np.random.default_rng(0)
    for _ in range(3):
        child = subprocess.Popen(command)
        _wait_for_a_new_state(path, child)
        time.sleep(rng.uniform(0.0, 0.1))
        child.kill()
        child.wait()
    assert subprocess.run(command, check=False).returncode == 0
    assert_array_equal(np.load(result), whole.label_distributions_)
    leftovers = {entry.name for entry in tmp_path.iterdir()}
    assert leftovers == {"state", "state.previous", "result.npy"}


def _wait_for_a_new_state(path, child):
    def written():
        try:
            return path.stat().st_mtime_ns
        except FileNotFoundError:  # not yet there, or just becoming the previous one
            return None

    before = written()
    while child.poll() is None and written() == before:
        time.sleep(0.002)


def test_the_command_goes_on_from_a_checkpoint(tmp_path, capsys):
    from edgewise.cli import main

    def fit(*more):
        with pytest.raises(SystemExit) as ended:
            main(["fit", "wine", "--k", "3", "--json", "--checkpoint", str(tmp_path / "w"), *more])
        return int(ended.value.code or 0), *capsys.readouterr()

    code, out, _ = fit("--max-outer-iterations", "1")
    short = json.loads(out)
    assert (code, short["outer_iterations"]) == (0, 1)
    assert (tmp_path / "w").is_file()
    _, out, _ = fit("--max-outer-iterations", "2")
    assert json.loads(out)["outer_iterations"] == 2
    code, out, err = fit("--tau", "3")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "tau was 5 and is 3" in err


# ------------------------------------------------------------------------------ damage


@pytest.fixture
def half_done(tmp_path):
    """A checkpoint after 2 of 4 outer iterations, with the one before it."""
    X, y = problem()
    with pytest.raises(KilledError):
        make(callbacks=[KilledAfter(2)]).fit(X, y, checkpoint=tmp_path / "state")
    return tmp_path / "state"


def damage(path, share, *, truncate):
    content = bytearray(path.read_bytes())
    place = min(int(share * len(content)), len(content) - 1)
    if truncate:
        del content[place:]
    else:
        content[place] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_damage_is_noticed_and_the_previous_state_used(half_done, share, truncate):
    if truncate and share == 1.0:
        share = 0.9999
    X, y = problem()
    damage(half_done, share, truncate=truncate)
    with pytest.warns(EdgewiseWarning, match=r"state is damaged.*one before it is used"):
        fitted = make().fit(X, y, checkpoint=half_done)
    assert_same(uninterrupted(), fitted)


def test_a_state_missing_between_two_renames_is_no_damage(half_done):
    X, y = problem()
    half_done.unlink()
    assert_same(uninterrupted(), make().fit(X, y, checkpoint=half_done))


def test_after_damage_the_good_state_is_never_given_up(half_done, monkeypatch):
    X, y = problem()
    good = half_done.with_name("state.previous").read_bytes()
    damage(half_done, 0.5, truncate=True)
    with pytest.warns(EdgewiseWarning, match="damaged"), pytest.raises(KilledError):
        make(callbacks=[KilledAtUpdate()]).fit(X, y, checkpoint=half_done)
    assert half_done.read_bytes() == good


class KilledAtUpdate(Callback):
    def after_update(self, edges, progress):
        raise KilledError


def test_both_damaged(half_done):
    previous = half_done.with_name("state.previous")
    for path in (half_done, previous):
        damage(path, 0.5, truncate=True)
    before = half_done.read_bytes(), previous.read_bytes()
    with pytest.raises(CheckpointError, match=r"state is damaged.*Delete it to start anew"):
        make().fit(*problem(), checkpoint=half_done)
    assert (half_done.read_bytes(), previous.read_bytes()) == before


def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="no checkpoint at all"):
        make().fit(*problem(), checkpoint=tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def rewrite(path, change):
    """A manifest that somebody has changed on purpose, with a right checksum."""
    line, _, data = path.read_bytes().partition(b"\n")
    manifest = json.loads(line)
    change(manifest)
    manifest["checksum"] = persistence.checksum(manifest)
    path.write_bytes(json.dumps(manifest).encode() + b"\n" + data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(version=2), r"newer Edgewise \(format 2"),
        (lambda manifest: manifest["settings"].pop("edges"), "KeyError"),
        (lambda manifest: manifest["progress"].update(history=[{}]), "KeyError"),
        (lambda manifest: manifest["progress"]["best"].update(scores=[1]), "TypeError"),
        (
            lambda manifest: manifest["settings"]["Randomness"].update(graphs={}),
            "should",
        ),
    ],
)
def test_what_no_checkpoint_holds_is_refused(half_done, change, message):
    rewrite(half_done, change)
    with pytest.raises(CheckpointError, match=message):
        make().fit(*problem(), checkpoint=half_done)


def test_arrays_that_are_none_are_refused(half_done):
    manifest = json.loads(half_done.read_bytes().partition(b"\n")[0])
    data = b"no safetensors"
    manifest.update(bytes=len(data), sha256=persistence.hashlib.sha256(data).hexdigest())
    manifest["checksum"] = persistence.checksum(manifest)
    half_done.write_bytes(json.dumps(manifest).encode() + b"\n" + data)
    with pytest.raises(CheckpointError, match="holds no arrays"):
        make().fit(*problem(), checkpoint=half_done)


# ------------------------------------------------------------------------------ strangers


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tau": 3}, "tau was 5 and is 3"),
        ({"k": 4, "dropout": 0.1}, r"dropout was 0.5 and is 0.1; k was 3 and is 4"),
        ({"random_state": 1}, "random_state was 0 and is 1"),
        ({"dtype": "float64"}, "dtype was 'float32' and is 'float64'"),
    ],
)
def test_other_parameters_are_refused(half_done, parameters, message):
    before = half_done.read_bytes()
    with pytest.raises(CheckpointError, match=message):
        make(**parameters).fit(*problem(), checkpoint=half_done)
    assert half_done.read_bytes() == before


@pytest.mark.parametrize("what", ["features", "labels", "graph", "split", "class"])
def test_another_problem_is_refused(half_done, what):
    (X, y), given, classifier = problem(), {}, make()
    if what == "features":
        X = X + 1e-6
    elif what == "labels":
        y = 1 - y
        y[y == 2] = -1
    elif what == "graph":
        given["graph"] = [(0, 1), (1, 2)]
    elif what == "split":
        given["validation"] = [0, 1, 2, 3]
    else:
        classifier = make("matrix", metric="cosine")
    with pytest.raises(CheckpointError, match=f"another fit: .*{what}"):
        classifier.fit(X, y, checkpoint=half_done, **given)


def test_the_seed_has_to_be_known(tmp_path):
    for state in (None, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="random_state must be an integer"):
            make(random_state=state).fit(*problem(), checkpoint=tmp_path / "state")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (".", IsADirectoryError, "is a folder: name a file in it"),
        ("nowhere/state", FileNotFoundError, "folder that does not exist: make"),
        (3, TypeError, "checkpoint=3 is no path"),
    ],
)
def test_places_that_are_none(tmp_path, name, error, message):
    path = name if isinstance(name, int) else tmp_path / name
    with pytest.raises(error, match=message):
        make().fit(*problem(), checkpoint=path)


# ------------------------------------------------------------------------------ disks


def failing_after(monkeypatch, name, count, number):
    """Let a function of `os` fail from its `count`-th call on."""
    calls, real = iter(range(10_000)), getattr(os, name)

    def call(*arguments):
        if next(calls) >= count:
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(files.os, name, call)


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("count", [4, 5, 6, 7])
def test_a_full_disk_leaves_the_earlier_state(tmp_path, monkeypatch, name, count):
    X, y = problem()
    path = tmp_path / "state"
    failing_after(monkeypatch, name, count, errno.ENOSPC)
    with pytest.raises(OSError, match=r"outer iteration \d.*No space left.*intact: make room") as e:
        make().fit(X, y, checkpoint=path)
    assert (e.value.errno, e.value.filename) == (errno.ENOSPC, str(path))
    monkeypatch.undo()
    assert {entry.name for entry in tmp_path.iterdir()} <= {"state", "state.previous"}
    assert_same(uninterrupted(), make().fit(X, y, checkpoint=path))


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EACCES, PermissionError), (errno.EROFS, OSError)]
)
def test_a_read_only_folder_is_noticed_before_anything_is_learned(
    tmp_path, monkeypatch, number, error
):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "open", refuse, raising=False)
    with pytest.raises(error, match=r"after outer iteration 0 could not .*Name a file in a folder"):
        make(callbacks=[KilledAtUpdate()]).fit(*problem(), checkpoint=tmp_path / "state")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_vanishes(tmp_path):
    class Removes(Callback):
        def after_iteration(self, edges, progress):
            shutil.rmtree(tmp_path / "gone")

    (tmp_path / "gone").mkdir()
    with pytest.raises(FileNotFoundError, match=r"iteration 2 could not .*Name a file in a folder"):
        make(callbacks=[Removes()]).fit(*problem(), checkpoint=tmp_path / "gone" / "state")
    assert not list(tmp_path.iterdir())


def test_a_limit_on_file_sizes_is_a_clear_error(tmp_path):
    """A real refusal by the system, where tests of full disks only play one."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError, match="File too large") as caught:
            make().fit(*problem(), checkpoint=tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_a_parts_state_is_not_shared():
    """Snapshots stay what they were while what they are of goes on."""
    from edgewise.train import Randomness

    randomness = Randomness(0)
    snapshot = randomness.snapshot()
    first = randomness.graphs.random(), torch.rand(2, generator=randomness.weights)
    randomness.restore(snapshot)
    second = randomness.graphs.random(), torch.rand(2, generator=randomness.weights)
    assert first[0] == second[0]
    assert torch.equal(first[1], second[1])
