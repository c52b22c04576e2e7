"""How far an experiment is: counts, and the time left from what was measured."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from edgewise.experiments.protocol import Record, Run
from edgewise.experiments.store import Store

if TYPE_CHECKING:
    from rich.table import Table


class Estimator:
    """Seconds that runs will take, from the measured seconds of like runs.

    Parameters
    ----------
    records : iterable of Record

    Examples
    --------
    >>> estimator = Estimator([Record(Run("rf", "wine"), seconds=2.0)])
    >>> estimator.total([Run("rf", "wine", seed=1), Run("rf", "digits")])
    4.0
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._seconds: dict[tuple[str | None, str | None], list[float]] = defaultdict(list)
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Take a measured run into account; a failed one tells nothing."""
        if record.status == "ok":
            method, dataset = record.run.method, record.run.dataset
            for like in ((method, dataset), (method, None), (None, dataset), (None, None)):
                self._seconds[like].append(record.seconds)

    def total(self, runs: Iterable[Run]) -> float | None:
        """Return the seconds of all runs, one after the other; None where nothing is known."""
        counts = Counter((run.method, run.dataset) for run in runs)
        total = 0.0
        for (method, dataset), count in counts.items():
            for like in ((method, dataset), (method, None), (None, dataset), (None, None)):
                if self._seconds.get(like):
                    total += count * statistics.median(self._seconds[like])
                    break
            else:
                return None
        return total


@dataclass(frozen=True)
class StatusLine:
    """How far the runs of one method on one data set are."""

    method: str
    dataset: str
    total: int
    done: int
    failed: int
    seconds_left: float | None


@dataclass(frozen=True)
class Status:
    """How far an experiment is, and what is left of it.

    Attributes
    ----------
    total, done, failed, missing : int; ``total == done + failed + missing``
    seconds_left : float or None, estimated from measured runs; None while nothing is measured
    lines : tuple of StatusLine, by data set and method
    """

    total: int
    done: int
    failed: int
    missing: int
    seconds_left: float | None
    lines: tuple[StatusLine, ...]

    def table(self) -> Table:
        """Return the status as a table of Rich."""
        from rich.table import Table

        table = Table()
        table.add_column("data set")
        table.add_column("method")
        for name in ("done", "failed", "missing", "time left"):
            table.add_column(name, justify="right")
        for line in self.lines:
            missing = line.total - line.done - line.failed
            counts = (f"{line.done}/{line.total}", str(line.failed), str(missing))
            table.add_row(line.dataset, line.method, *counts, format_time(line.seconds_left))
        table.add_section()
        counts = (f"{self.done}/{self.total}", str(self.failed), str(self.missing))
        table.add_row("all", "", *counts, format_time(self.seconds_left))
        return table


def status(runs: Iterable[Run], store: Store, *, jobs: int = 1) -> Status:
    """Tell how much of some runs is recorded, and estimate the time for the rest.

    A missing run is taken to need the median seconds of its method on its data set; lacking
    that, of its method; then of its data set; then of all runs.

    Parameters
    ----------
    runs : iterable of Run
    store : Store
    jobs : int, processes at a time

    Returns
    -------
    Status

    Examples
    --------
    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> runs = [Run("rf", "wine", seed=seed) for seed in range(5)]
    >>> _ = store.add(Record(runs[0], seconds=30))
    >>> now = status(runs, store, jobs=2)
    >>> now.done, now.missing, format_time(now.seconds_left)
    (1, 4, '1 min')
    """
    wanted = list({run.key: run for run in runs}.values())
    known = {record.key: record for record in store.records()}
    estimator = Estimator(known.values())
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in wanted:
        groups[run.dataset, run.method].append(run)
    lines = []
    for (dataset, method), group in sorted(groups.items()):
        found = Counter(known[run.key].status for run in group if run.key in known)
        left = estimator.total(run for run in group if run.key not in known)
        seconds = None if left is None else left / jobs
        counts = (len(group), found["ok"], found["failed"])
        lines.append(StatusLine(method, dataset, *counts, seconds))
    done, failed = sum(line.done for line in lines), sum(line.failed for line in lines)
    left = estimator.total(run for run in wanted if run.key not in known)
    return Status(
        total=len(wanted),
        done=done,
        failed=failed,
        missing=len(wanted) - done - failed,
        seconds_left=None if left is None else left / jobs,
        lines=tuple(lines),
    )


def format_time(seconds: float | None) -> str:
    """Write a duration for a person.

    Parameters
    ----------
    seconds : float or None

    Returns
    -------
    str

    Examples
    --------
    >>> [format_time(s) for s in (None, 12, 754, 9000, 200000)]
    ['unknown', '12 s', '13 min', '2.5 h', '2.3 days']
    """
    if seconds is None:
        return "unknown"
    for limit, unit, name, digits in ((60, 1, "s", 0), (3600, 60, "min", 0), (86400, 3600, "h", 1)):
        if seconds < limit:
            return f"{seconds / unit:.{digits}f} {name}"
    return f"{seconds / 86400:.1f} days"


class Display:
    """A line of progress on stderr: done, failed, time left.

    Parameters
    ----------
    runs : sequence of Run, those to be done
    store : Store, whose records tell how long runs take
    size : int, runs at a time
    progress : bool or None, show it or not; None shows it on a terminal only

    Examples
    --------
    >>> import tempfile
    >>> run = Run("rf", "wine")
    >>> with Display([run], Store(tempfile.mkdtemp()), 1, progress=False) as display:
    ...     display.advance(run, Record(run, seconds=1.0))
    """

    def __init__(self, runs: Sequence[Run], store: Store, size: int, progress: bool | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True)
        self._pending = {run.key: run for run in runs}
        self._estimator = Estimator(store.records())
        self._size = size
        self._failed = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not (console.is_terminal if progress is None else progress),
        )
        self._task = self._progress.add_task("runs", total=len(runs), note=self._note())

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def advance(self, run: Run, record: Record | None) -> None:
        """Count a run as done; without a record, it was done by somebody else."""
        self._pending.pop(run.key, None)
        if record is not None:
            self._estimator.learn(record)
            self._failed += record.status == "failed"
        self._progress.update(self._task, advance=1, note=self._note())

    def _note(self) -> str:
        left = self._estimator.total(self._pending.values())
        note = f"time left: {format_time(None if left is None else left / self._size)}"
        return f"{note}, failed: {self._failed}" if self._failed else note
