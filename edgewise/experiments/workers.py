"""Who executes the runs: this process, processes of this machine, or a Ray or Dask cluster."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from types import TracebackType
from typing import Any, Literal, TypeAlias

from edgewise.experiments.protocol import Outcome, Record, Run
from edgewise.experiments.store import encode

Execute: TypeAlias = Callable[[Run], Outcome]
Backend: TypeAlias = Literal["loky", "ray", "dask"]

# What yields records as they are finished, in any order.
_Stream: TypeAlias = Generator[Record, None, None]


@dataclass(frozen=True)
class Crew:
    """The workers: how many, and how their loss shows."""

    size: int
    # What is raised here when a worker dies; an exception of a run itself never gets here.
    losses: tuple[type[BaseException], ...]
    # Makes a joblib.Parallel for so many runs at a time; None: this process does the work.
    parallel: Callable[[int], Any] | None
    is_alive: Callable[[], bool] = lambda: True

    def stream(self, runs: Iterator[Run], execute: Execute, *, alone: bool = False) -> _Stream:
        """Execute the runs, one at a time if `alone`, and yield their records when finished."""
        if self.parallel is None:
            for run in runs:
                yield attempt(execute, run)
            return
        from joblib import delayed

        # Python closes a generator's inner generator with it: joblib then stops the workers.
        yield from self.parallel(1 if alone else self.size)(
            delayed(_in_worker)(execute, run) for run in runs
        )


@contextlib.contextmanager
def open_crew(backend: Backend, jobs: int, address: str | None) -> Iterator[Crew]:
    """Engage the workers for the time of a ``with`` block; the arguments are those of `run_all`.

    Examples
    --------
    >>> with open_crew("loky", 1, None) as crew:
    ...     records = list(crew.stream(iter([Run("rf", "wine")]), lambda run: Outcome({})))
    >>> [record.status for record in records]
    ['ok']
    """
    opened = {"loky": _loky, "ray": _ray, "dask": _dask}[backend]
    with opened(jobs, address) as crew:
        yield crew


@contextlib.contextmanager
def _loky(jobs: int, address: str | None) -> Iterator[Crew]:
    import joblib
    from joblib.externals.loky.process_executor import BrokenProcessPool

    if address is not None:
        raise ValueError("address is for backend='ray' or 'dask'; leave it out with 'loky'")
    size = joblib.cpu_count() if jobs == -1 else jobs
    if size == 1:
        yield Crew(1, (), None)
        return

    def parallel(at_a_time: int) -> Any:
        return joblib.Parallel(
            n_jobs=size, return_as="generator_unordered", batch_size=1, pre_dispatch=at_a_time
        )

    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        yield Crew(size, (BrokenProcessPool,), parallel)


def _on_cluster(jobs: int, workers: int) -> tuple[int, Callable[[int], Any]]:
    """Return the number of runs at a time, and what makes a Parallel of the active backend."""
    import joblib

    size = workers if jobs in (1, -1) else min(jobs, workers)

    def parallel(at_a_time: int) -> Any:
        return joblib.Parallel(
            n_jobs=-1, return_as="generator_unordered", batch_size=1, pre_dispatch=at_a_time
        )

    return size, parallel


@contextlib.contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[Crew]:
    import joblib

    try:
        # By name, so that the types are the same whether Ray, an extra, is installed or not.
        ray = importlib.import_module("ray")
        plain = importlib.import_module("ray.util.joblib.ray_backend").RayBackend
    except ImportError as error:
        raise ImportError("backend='ray' needs Ray: pip install 'edgewise[cluster]'") from error

    class StreamingRayBackend(plain):  # type: ignore[misc, valid-type]
        """Ray's own joblib backend, which returns results in time but does not say so."""

        supports_return_generator = True

    joblib.register_parallel_backend("edgewise-ray", StreamingRayBackend)
    is_ours = not ray.is_initialized()
    if is_ours:
        try:
            ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise ConnectionError(
                f"found no Ray cluster at {address or 'this machine'}: start one with "
                "'ray start --head', and give the address that it prints"
            ) from error
    try:
        workers = int(ray.cluster_resources().get("CPU", 1))
        size, parallel = _on_cluster(jobs, workers)
        with joblib.parallel_config(backend="edgewise-ray", n_jobs=-1):
            yield Crew(size, (ray.exceptions.RayError,), parallel, ray.is_initialized)
    finally:
        if is_ours:
            ray.shutdown()


@contextlib.contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[Crew]:
    import joblib

    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError("backend='dask' needs Dask: pip install 'edgewise[cluster]'") from error
    joblib.register_parallel_backend("edgewise-dask", _dask_backend())
    with contextlib.ExitStack() as stack:
        if address is not None:
            client = stack.enter_context(distributed.Client(address, set_as_default=False))
        else:
            try:
                client = distributed.default_client()
            except ValueError as error:
                raise ValueError(
                    "backend='dask' needs the address of a Dask scheduler: start one with "
                    "'dask scheduler', and give the address that it prints"
                ) from error
        size, parallel = _on_cluster(jobs, max(1, sum(client.ncores().values())))
        lost = (
            distributed.KilledWorker,
            distributed.client.FutureCancelledError,
            distributed.comm.CommClosedError,
        )
        with joblib.parallel_config(backend="edgewise-dask", client=client):
            yield Crew(size, lost, parallel, lambda: bool(client.status == "running"))


@cache
def _dask_backend() -> Any:
    """Joblib's Dask backend, mended where a run that kills its workers would hang the caller."""
    import asyncio

    from joblib._dask import DaskDistributedBackend

    cancelled = importlib.import_module("distributed.client").FutureCancelledError

    class MendedDaskBackend(DaskDistributedBackend):
        def configure(self, *args: Any, **kwargs: Any) -> int:
            # With one worker, joblib would not send the runs at all but execute them here.
            return max(2, int(super().configure(*args, **kwargs)))

        async def _collect(self) -> None:
            while self._continue:
                async for future, result in self.waiting_futures:
                    waiting = self._results.pop(future)
                    callback = self._callbacks.pop(future)
                    if future.status != "finished":
                        # Joblib 1.6 leaves out the callback here, and then waits for it for ever.
                        is_error = isinstance(result, tuple) and len(result) == 3
                        result = result[1] if is_error else cancelled(future.key, "")
                        waiting.set_exception(result)
                    else:
                        waiting.set_result(result)
                    callback(result)
                await asyncio.sleep(0.01)

    return MendedDaskBackend


def _in_worker(execute: Execute, run: Run) -> Record:
    """Execute a run in a worker process of this machine or of a cluster."""
    # Ctrl-C reaches all processes of a terminal; the parent alone decides what to do then.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return attempt(execute, run)


def attempt(execute: Execute, run: Run) -> Record:
    """Execute one run on one thread, and make its record, whatever happens.

    Parameters
    ----------
    execute : callable from Run to Outcome
    run : Run

    Returns
    -------
    Record, failed where `execute` raised an exception or gave back what cannot be recorded

    Examples
    --------
    >>> def execute(run):
    ...     raise ValueError("k=300 is not below the number of rows, 178")
    >>> attempt(execute, Run("knn-gcn", "wine", {"k": 300})).reason
    'ValueError: k=300 is not below the number of rows, 178'
    """
    with _one_thread(), _Peak() as peak:
        start = time.perf_counter()
        try:
            outcome = execute(run)
            record = Record(
                run,
                accuracies=dict(outcome.accuracies),
                losses=dict(outcome.losses),
                expected_edges=outcome.expected_edges,
                details=dict(outcome.details),
            )
            encode(record)  # here, where what is wrong with it can still be put down to the run
        except (Exception, SystemExit) as error:
            record = Record(run, status="failed", reason=_reason(error))
        seconds = time.perf_counter() - start
    return replace(blank(run), seconds=seconds, peak_memory_mb=peak.megabytes, **_result(record))


def _result(record: Record) -> dict[str, Any]:
    names = ("status", "reason", "accuracies", "losses", "expected_edges", "details")
    return {name: getattr(record, name) for name in names}


def blank(run: Run) -> Record:
    """Return a record of the circumstances alone."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Record(run, versions=_versions(), threads=1, host_threads=os.cpu_count(), finished=now)


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("edgewise", "torch", "numpy", "scikit-learn"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"  # Edgewise run from its source folder
    return found


def _reason(error: BaseException) -> str:
    """Say in one line what went wrong; records are published, so paths keep their last part."""
    text = " ".join(str(error).split())
    text = re.sub(r"(?<![\w.:/])/(?:[^\s/:'\"]+/)+", "", text)
    return f"{type(error).__name__}: {text}"[:400]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run on one thread: the processes share the processors, and seconds mean the same."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


class _Peak:
    """The largest resident size of this process during a block, in megabytes."""

    megabytes: float

    def __enter__(self) -> _Peak:
        # Linux can start the count anew; elsewhere it is the peak of the process so far.
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with open("/proc/self/status") as file:
                self.megabytes = int(re.findall(r"VmHWM:\s+(\d+)", file.read())[0]) / 1024
        except (OSError, IndexError):
            unit = 2**20 if sys.platform == "darwin" else 2**10
            self.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
