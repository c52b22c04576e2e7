"""Compute what is missing: on this machine's processors, or on a Ray or Dask cluster.

The parent alone writes to the store, each record as it arrives. A worker needs no shared disk,
and a kill at any moment, of whatever process, costs the runs in flight and nothing else.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from edgewise.experiments.progress import Display
from edgewise.experiments.protocol import Record, Run
from edgewise.experiments.store import Store
from edgewise.experiments.workers import Backend, Crew, Execute, blank, open_crew


@dataclass(frozen=True)
class Summary:
    """What a call of `run_all` did.

    Attributes
    ----------
    computed : int, runs that were executed and are now recorded, failed ones included
    present : int, runs that were recorded before
    failures : tuple of the records of runs that failed just now
    """

    computed: int
    present: int
    failures: tuple[Record, ...]


def run_all(
    runs: Iterable[Run],
    execute: Execute,
    store: Store,
    *,
    jobs: int = 1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: bool | None = None,
    retry_failed: bool = False,
    attempts: int = 3,
) -> Summary:
    """Execute the runs that the store lacks, and record each as soon as it is finished.

    A run that raises becomes a failed record with its reason, and the others go on. A run that
    takes its worker down with it (out of memory, killed) is repeated, alone, so that it cannot
    harm others again; after `attempts` lost workers it is recorded as failed. Ctrl-C stops the
    workers and raises KeyboardInterrupt; everything finished is kept.

    Parameters
    ----------
    runs : iterable of Run; repeated ones count once
    execute : callable from Run to Outcome; it is sent to the workers
    store : Store
    jobs : int, processes at a time, one thread each; -1 for one a processor. On a cluster: runs
        at a time, where 1, the default, and -1 mean as many as the cluster takes.
    backend : {"loky", "ray", "dask"}: processes here, or a running cluster
    address : str or None, of the cluster; None for the one this process is connected to
        (Ray: or one that runs on this machine)
    progress : bool or None, show progress on stderr; None shows it on a terminal only
    retry_failed : bool, execute runs again whose record says failed
    attempts : int, workers that a run may take down before it is given up

    Returns
    -------
    Summary

    Examples
    --------
    >>> import tempfile
    >>> from edgewise.experiments.protocol import Outcome
    >>> def execute(run):
    ...     return Outcome({"validation": run.seed / 10})
    >>> store = Store(tempfile.mkdtemp())
    >>> summary = run_all([Run("rf", "wine", seed=s) for s in (0, 1)], execute, store)
    >>> summary.computed, [record.accuracies["validation"] for record in store]
    (2, [0.0, 0.1])
    """
    _check(jobs, backend, attempts)
    wanted = list({run.key: run for run in runs}.values())
    pending = [run for run in wanted if not _is_done(store, run, retry_failed)]
    if not pending:
        return Summary(0, len(wanted), ())
    kept: list[Record] = []
    losses: Counter[str] = Counter()
    with (
        open_crew(backend, jobs, address) as crew,
        Display(pending, store, crew.size, progress) as display,
    ):

        def keep(record: Record) -> None:
            store.add(record)
            kept.append(record)
            display.advance(record.run, record)

        while pending:
            # A run that lost its worker is a suspect: the suspects go last, one at a time.
            batch = [run for run in pending if not losses[run.key]] or pending
            wave = _Wave(batch, store, execute, retry_failed)
            wave.work(crew, keep, alone=losses[batch[0].key] > 0)
            for run in wave.lost:
                losses[run.key] += 1
                if losses[run.key] >= attempts:
                    keep(_given_up(run, attempts, wave.error))
                    wave.settled.add(run.key)
            for run in wave.present:
                display.advance(run, None)
            pending = [run for run in pending if run.key not in wave.settled]
    failures = tuple(record for record in kept if record.status == "failed")
    return Summary(len(kept), len(wanted) - len(kept), failures)


def _check(jobs: int, backend: str, attempts: int) -> None:
    if jobs < -1 or jobs == 0:
        raise ValueError(f"jobs must be a positive number, or -1 for all processors, got {jobs}")
    if backend not in ("loky", "ray", "dask"):
        raise ValueError(f"backend must be 'loky', 'ray' or 'dask', got {backend!r}")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")


def _is_done(store: Store, run: Run, retry_failed: bool) -> bool:
    record = store.get(run)
    return record is not None and (record.status == "ok" or not retry_failed)


def _given_up(run: Run, attempts: int, error: BaseException | None) -> Record:
    reason = f"its worker died {attempts} times, out of memory perhaps ({type(error).__name__})"
    return replace(blank(run), status="failed", reason=reason)


class _Wave:
    """One round of runs, until all are finished or a worker is lost."""

    def __init__(
        self, runs: Sequence[Run], store: Store, execute: Execute, retry_failed: bool
    ) -> None:
        self.runs = runs
        self.store = store
        self.execute = execute
        self.retry_failed = retry_failed
        self.settled: set[str] = set()
        self.present: list[Run] = []  # recorded meanwhile, by another process on the same store
        self.lost: list[Run] = []
        self.error: BaseException | None = None
        self._in_flight: dict[str, Run] = {}

    def _feed(self) -> Iterator[Run]:
        """Hand out the runs; pulled by joblib's threads whenever a worker is free."""
        for run in self.runs:
            # Looked up again: others may work on the same grid, and finish runs before us.
            if _is_done(self.store, run, self.retry_failed):
                self.settled.add(run.key)
                self.present.append(run)
                continue
            self._in_flight[run.key] = run
            yield run

    def work(self, crew: Crew, keep: Callable[[Record], None], *, alone: bool) -> None:
        stream = crew.stream(self._feed(), self.execute, alone=alone)
        try:
            while True:
                try:
                    record = next(stream)
                except StopIteration:
                    return
                except crew.losses as error:
                    # With nobody at work, it is not a worker that was lost but the cluster.
                    if not self._in_flight or not crew.is_alive():
                        raise
                    self.lost, self.error = list(self._in_flight.values()), error
                    return
                keep(record)
                self.settled.add(record.key)
                del self._in_flight[record.key]
        finally:
            with warnings.catch_warnings():
                # Ending early is meant: joblib need not warn of results that nobody fetched.
                warnings.simplefilter("ignore", UserWarning)
                stream.close()
