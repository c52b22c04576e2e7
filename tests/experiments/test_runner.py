"""The runner: only what is missing, exactly once, whatever dies on the way."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter

import pytest
import torch
from rich.console import Console

from edgewise.experiments.progress import Estimator, status
from edgewise.experiments.protocol import Outcome, Record, Run
from edgewise.experiments.runner import run_all
from edgewise.experiments.store import Store
from edgewise.experiments.workers import attempt

RUNS = [Run("rf", "wine", {"n": n}, seed=seed) for n in (1, 2) for seed in range(4)]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "records")


@pytest.fixture(scope="module", autouse=True)
def _no_idle_workers():
    yield
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def make_execute(folder, *, lethal=(), deaths=1, failing=(), seconds=0.0):
    """Return a function, sent to workers by value, that leaves a mark of each execution.

    The first `deaths` executions of a run whose key is lethal kill the worker.
    """
    folder.mkdir(exist_ok=True)
    folder = str(folder)

    def execute(run):
        import os
        import signal
        import time
        import uuid

        from edgewise.experiments.protocol import Outcome

        before = sum(name.startswith(run.key) for name in os.listdir(folder))
        open(f"{folder}/{run.key}-{uuid.uuid4().hex}", "w").close()
        if run.key in lethal and before < deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        if run.seed in failing:
            raise ValueError(f"no luck with seed {run.seed} in {folder}/some.npz")
        time.sleep(seconds)
        return Outcome({"validation": run.seed / 10, "test": 0.5}, expected_edges=7.0)

    return execute


def executions(folder):
    return Counter(name.split("-")[0] for name in os.listdir(folder))


def lines(store):
    return [line for p in store.folder.glob("*/*.jsonl") for line in p.read_text().splitlines()]


def test_only_what_is_missing_is_computed(store, tmp_path):
    execute = make_execute(tmp_path / "marks")
    first = run_all(RUNS[:3], execute, store)
    assert (first.computed, first.present, first.failures) == (3, 0, ())
    second = run_all([*RUNS, RUNS[0]], execute, store)
    assert (second.computed, second.present) == (5, 3)
    assert executions(tmp_path / "marks") == {run.key: 1 for run in RUNS}
    assert run_all(RUNS, execute, store).computed == 0


def test_records_say_how_the_run_was_made(store, tmp_path):
    run_all(RUNS[:1], make_execute(tmp_path / "marks", seconds=0.05), store)
    (record,) = store
    assert record.run == RUNS[0]
    assert record.accuracies == {"validation": 0.0, "test": 0.5}
    assert record.seconds >= 0.05
    assert record.peak_memory_mb > 10
    assert {"python", "torch", "numpy", "scikit-learn", "edgewise"} == set(record.versions)
    assert record.threads == 1
    assert record.finished.endswith("Z")


def test_each_record_is_written_at_once(store):
    seen = []

    def execute(run):
        seen.append(len(store))
        return Outcome({"validation": 1.0})

    run_all(RUNS, execute, store)
    assert seen == list(range(len(RUNS)))


def test_a_failing_run_is_recorded_and_the_others_go_on(store, tmp_path):
    folder = tmp_path / "marks"
    summary = run_all(RUNS, make_execute(folder, failing=(1,)), store)
    assert {record.run.seed for record in summary.failures} == {1}
    # Records are published: the reason keeps the file's name, not the machine's folders.
    assert store.get(RUNS[1]).reason == "ValueError: no luck with seed 1 in some.npz"
    assert Counter(record.status for record in store) == {"ok": 6, "failed": 2}
    # Repeated on request only.
    assert run_all(RUNS, make_execute(folder), store).computed == 0
    again = run_all(RUNS, make_execute(folder), store, retry_failed=True)
    assert (again.computed, again.failures) == (2, ())
    assert {record.status for record in store} == {"ok"}
    assert len(lines(store)) == len(RUNS)


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        Outcome({"test": "high"}),
        Outcome({"test": 0.5}, details={"curve": [0.5] * 20_000}),
        Outcome({"test": 0.5}, details={"array": torch.zeros(3)}),
    ],
)
def test_what_cannot_be_recorded_is_a_failure_of_the_run(outcome):
    record = attempt(lambda run: outcome, RUNS[0])
    assert record.status == "failed"
    assert record.reason


def test_a_run_that_exits_is_a_failure_of_the_run():
    assert attempt(lambda run: sys.exit("gone"), RUNS[0]).reason == "SystemExit: gone"


def test_runs_use_one_thread_and_give_the_others_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        attempt(lambda run: seen.append(torch.get_num_threads()), RUNS[0])
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux")
def test_peak_memory_is_of_the_run_and_not_of_those_before():
    def big(run):
        return Outcome({"validation": float(bytearray(300 * 2**20)[0])})

    large = attempt(big, RUNS[0]).peak_memory_mb
    small = attempt(lambda run: Outcome({"validation": 0.0}), RUNS[0]).peak_memory_mb
    assert large - small > 200


def test_work_of_other_processes_on_the_same_store_is_not_repeated(store):
    other = Store(store.folder)
    calls = []

    def execute(run):
        calls.append(run)
        for later in RUNS[2:5]:
            other.add(Record(later, accuracies={"validation": 0.25}))
        return Outcome({"validation": 0.5})

    summary = run_all(RUNS, execute, store)
    assert calls == [RUNS[0], RUNS[1], *RUNS[5:]]
    assert (summary.computed, summary.present) == (5, 3)
    assert store.get(RUNS[2]).accuracies == {"validation": 0.25}


@pytest.mark.parametrize(
    "bad",
    [{"jobs": 0}, {"jobs": -2}, {"backend": "threads"}, {"attempts": 0}, {"address": "a:1"}],
)
def test_bad_arguments_are_named(store, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        run_all(RUNS, lambda run: Outcome({}), store, **bad)


def test_a_killed_process_of_the_pool_costs_nothing(store, tmp_path):
    folder = tmp_path / "marks"
    summary = run_all(
        RUNS, make_execute(folder, lethal=(RUNS[2].key,), seconds=0.02), store, jobs=2
    )
    assert (summary.computed, summary.failures) == (len(RUNS), ())
    assert [record.run for record in store] == RUNS
    assert len(lines(store)) == len(RUNS)


def test_a_run_that_always_kills_its_worker_is_given_up_and_harms_no_other(store, tmp_path):
    folder = tmp_path / "marks"
    execute = make_execute(folder, lethal=(RUNS[1].key,), deaths=99)
    summary = run_all(RUNS, execute, store, jobs=2, attempts=2)
    assert [record.run for record in summary.failures] == [RUNS[1]]
    assert "worker died 2 times" in summary.failures[0].reason
    assert Counter(record.status for record in store) == {"ok": 7, "failed": 1}
    assert executions(folder)[RUNS[1].key] == 2


def test_an_execute_that_cannot_be_sent_is_an_error_and_not_a_lost_worker(store):
    lock = threading.Lock()

    def execute(run):
        with lock:
            return Outcome({})

    with pytest.raises(Exception, match="pickle"):
        run_all(RUNS, execute, store, jobs=2)
    assert len(store) == 0


PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from edgewise.experiments.protocol import Outcome, Run
from edgewise.experiments.runner import run_all
from edgewise.experiments.store import Store

def execute(run):
    time.sleep(0.05 if run.seed < 3 else 60)
    return Outcome({"validation": 0.5})

try:
    run_all([Run("rf", "wine", seed=s) for s in range(9)], execute, Store(sys.argv[1]), jobs=2)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_program_keeps_what_was_finished(store, blow):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(store.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: len(store) == 3 or program.poll() is not None)
        if blow == signal.SIGINT:
            os.killpg(program.pid, blow)  # a terminal sends Ctrl-C to all processes
        else:
            program.kill()
        program.wait(timeout=30)  # and not the minute that the runs in flight would take
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        out, err = program.communicate()
    assert [record.run.seed for record in store] == [0, 1, 2]
    if blow == signal.SIGINT:
        assert out == "interrupted\n"
        assert "Traceback" not in err


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (extra 'cluster')")


@pytest.fixture
def ray_cluster():
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=80 * 2**20,
    )
    yield None
    ray.shutdown()


@pytest.fixture
def dask_cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


# Both clusters leave sockets and threads behind when their processes are killed, as here.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "backend", [pytest.param("ray", marks=needs("ray")), pytest.param("dask", marks=needs("dask"))]
)
def test_a_cluster_that_loses_a_worker_ends_with_every_record_once(
    backend, store, tmp_path, request
):
    address = request.getfixturevalue(f"{backend}_cluster")
    folder = tmp_path / "marks"
    execute = make_execute(folder, lethal=(RUNS[2].key,), failing=(3,), seconds=0.02)
    summary = run_all(RUNS, execute, store, backend=backend, address=address, progress=False)
    assert summary.computed == len(RUNS)
    assert {record.run.seed for record in summary.failures} == {3}
    assert [record.run for record in store] == RUNS
    assert len(lines(store)) == len(RUNS)
    assert executions(folder)[RUNS[2].key] >= 2  # it was killed, and repeated
    assert run_all(RUNS, execute, store, backend=backend, address=address).computed == 0


@needs("dask")
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_run_that_kills_every_worker_of_dask_is_given_up(store, tmp_path):
    """Joblib's own Dask backend waits for ever here."""
    import dask
    from distributed import LocalCluster

    execute = make_execute(tmp_path / "marks", lethal=(RUNS[1].key,), deaths=99)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        address = cluster.scheduler_address
        summary = run_all(RUNS[:3], execute, store, backend="dask", address=address, attempts=2)
    assert [record.run for record in summary.failures] == [RUNS[1]]
    assert Counter(record.status for record in store) == {"ok": 2, "failed": 1}


@needs("dask")
def test_dask_without_an_address_says_what_to_do(store):
    with pytest.raises(ValueError, match="dask scheduler"):
        run_all(RUNS, lambda run: Outcome({}), store, backend="dask")


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_that_is_not_installed_names_the_extra(store, backend, monkeypatch):
    monkeypatch.setitem(sys.modules, {"ray": "ray", "dask": "distributed"}[backend], None)
    with pytest.raises(ImportError, match=r"edgewise\[cluster\]"):
        run_all(RUNS, lambda run: Outcome({}), store, backend=backend)


def measured(method, dataset, seconds, status="ok"):
    return Record(Run(method, dataset, {"s": seconds}), status=status, seconds=seconds)


def test_time_left_is_taken_from_the_likest_measured_runs():
    estimator = Estimator(
        [
            *(measured("rf", "wine", seconds) for seconds in (1, 2, 90)),
            measured("rf", "cora", 10),
            measured("lds", "cora", 100),
            measured("rf", "wine", 1e6, status="failed"),
        ]
    )
    for run, seconds in [
        (Run("rf", "wine"), 2),  # the median of its own
        (Run("rf", "digits"), 6),  # of its method: 1, 2, 90, 10
        (Run("lp", "cora"), 55),  # of its data set: 10, 100
        (Run("lp", "digits"), 10),  # of all: 1, 2, 90, 10, 100
    ]:
        assert estimator.total([run]) == seconds
    assert estimator.total([Run("rf", "wine"), Run("lp", "cora")]) == 57
    assert estimator.total([]) == 0
    assert Estimator([]).total([Run("rf", "wine")]) is None


def test_status_counts_and_estimates(store):
    store.add(Record(RUNS[0], seconds=10))
    store.add(Record(RUNS[1], seconds=20))
    store.add(Record(RUNS[2], status="failed", reason="no"))
    others = [Run("lds", "cora", seed=seed) for seed in range(2)]
    now = status([*RUNS, *RUNS, *others], store, jobs=2)
    assert (now.total, now.done, now.failed, now.missing) == (10, 2, 1, 7)
    assert now.seconds_left == 7 * 15 / 2
    assert [(line.dataset, line.total, line.done) for line in now.lines] == [
        ("cora", 2, 0),
        ("wine", 8, 2),
    ]
    console = Console(width=100, file=io.StringIO())
    console.print(now.table())
    text = console.file.getvalue()
    assert "2/8" in text
    assert "52 s" in text


def test_progress_is_shown_on_stderr_when_asked_for_and_only_then(store, capfd):
    run_all(RUNS[:2], lambda run: Outcome({"validation": 0.5}), store)
    assert capfd.readouterr() == ("", "")
    run_all(RUNS[2:4], lambda run: Outcome({"validation": 0.5}), store, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err
    assert "time left" in shown.err
