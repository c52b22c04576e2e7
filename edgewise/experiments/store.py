"""The result store: one JSON line per finished run, safe from kill -9 and concurrent writers.

Layout: ``<folder>/<dataset>/<method>.jsonl``, so that a results commit is reviewed cell by cell.

How nothing is lost. A writer takes an exclusive lock on the file, and appends its line with one
``write`` and an ``fsync``. If it is killed in between, the last line is torn: readers ignore it,
and the next writer, which holds the lock and hence knows that nobody is writing, cuts it off.
Where lines must go (a failed run that succeeded when retried), the file is written anew beside
the old one, synced, and renamed over it. Every line carries a checksum of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from edgewise.experiments.protocol import Record, Run, Settings, canonical

_log = logging.getLogger(__name__)

# A record holds numbers about a run, not its arrays: results are committed to git.
_MAX_LINE_BYTES = 32_768


class StoreError(OSError):
    """A record could not be written; all earlier records are intact."""


class CorruptRecordWarning(UserWarning):
    """A line of a result file cannot be trusted, and was skipped."""


class _BadLineError(ValueError):
    """What is wrong with a line."""


def encode(record: Record) -> str:
    """Write a record as one line of JSON, without the line end.

    Parameters
    ----------
    record : Record

    Returns
    -------
    str

    Examples
    --------
    >>> line = encode(Record(Run("rf", "wine"), accuracies={"test": 0.93}))
    >>> decode(line).accuracies
    {'test': 0.93}
    """
    run = record.run.describe()
    body: dict[str, Any] = {
        **run,
        "key": record.key,
        "status": record.status,
        "accuracies": {part: _round(value, 6) for part, value in record.accuracies.items()},
        "losses": {part: _round(value, 6) for part, value in record.losses.items()},
        "expected_edges": _round(record.expected_edges, 1),
        "details": dict(Settings(record.details)),
        "seconds": round(record.seconds, 3),
        "peak_memory_mb": _round(record.peak_memory_mb, 1),
        "versions": dict(record.versions),
        "threads": record.threads,
        "host_threads": record.host_threads,
        "finished": record.finished,
    }
    if record.status == "failed":
        body["reason"] = record.reason or "no reason given"
    body["check"] = _checksum(body)
    line = json.dumps(body, sort_keys=True, allow_nan=False)
    if len(line.encode()) > _MAX_LINE_BYTES:
        raise ValueError(
            f"the record of {record.run.method} on {record.run.dataset} takes {len(line)} bytes "
            f"(at most {_MAX_LINE_BYTES}): keep arrays out of its details"
        )
    return line


def decode(line: str | bytes) -> Record:
    """Read a record from its line, verifying checksum and key.

    Parameters
    ----------
    line : str or bytes

    Returns
    -------
    Record

    Examples
    --------
    >>> decode(encode(Record(Run("rf", "wine", seed=3)))).run.seed
    3
    """
    try:
        body = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _BadLineError("it is not JSON") from None
    if not isinstance(body, dict):
        raise _BadLineError("it is not a JSON object")
    check = body.pop("check", None)
    if check != _checksum(body):
        raise _BadLineError("its checksum does not match its content")
    try:
        run = Run(**{name: body.pop(name) for name in _RUN_FIELDS})
        key = body.pop("key")
        record = Record(run=run, **body)
    except (KeyError, TypeError, ValueError) as error:
        raise _BadLineError(f"it is not a record ({error})") from None
    if key != run.key:
        raise _BadLineError("its key does not belong to its run")
    return record


_RUN_FIELDS = ("method", "dataset", "parameters", "seed", "labels", "variant")


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(body).encode()).hexdigest()[:8]


def _round(value: float | None, digits: int) -> float | None:
    """Round for the eye of a reviewer; a number that is not finite becomes null."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits)


class Store:
    """Records of finished runs in a folder, at most one per run.

    Any number of processes, and threads, may use stores of the same folder at once.

    Parameters
    ----------
    folder : path, created by the first write

    Examples
    --------
    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> run = Run("rf", "wine", {"n_estimators": 100}, seed=0)
    >>> store.add(Record(run, accuracies={"test": 0.93}))
    True
    >>> store.add(Record(run, accuracies={"test": 0.94}))
    False
    >>> store.get(run).accuracies["test"], len(store)
    (0.93, 1)
    """

    def __init__(self, folder: str | os.PathLike[str] = "results/records") -> None:
        self.folder = Path(folder)
        self._files: dict[Path, _File] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def add(self, record: Record) -> bool:
        """Keep a record, durably, unless its run is recorded already.

        A failed record gives way to any later record of its run; a good one never does.

        Parameters
        ----------
        record : Record

        Returns
        -------
        bool, whether the record was kept
        """
        with self._lock:
            return self._file(record.run.dataset, record.run.method).add(record)

    def get(self, run: Run) -> Record | None:
        """Return the record of a run, good or failed, or None."""
        with self._lock:
            return self._file(run.dataset, run.method).read().get(run.key)

    def records(self, *, method: str | None = None, dataset: str | None = None) -> list[Record]:
        """Return all records, or those of a method or of a data set, in a fixed order."""
        with self._lock:
            for path in sorted(self.folder.glob("*/*.jsonl")):
                self._files.setdefault(path, _File(path))
            found = [r for path in sorted(self._files) for r in self._files[path].read().values()]
        return sorted(
            (
                record
                for record in found
                if method in (None, record.run.method) and dataset in (None, record.run.dataset)
            ),
            key=_order,
        )

    def tidy(self) -> None:
        """Rewrite every file in the fixed order, without corrupt and superseded lines.

        Examples
        --------
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> for seed in (1, 0):
        ...     _ = store.add(Record(Run("rf", "wine", seed=seed)))
        >>> store.tidy()
        >>> text = (store.folder / "wine" / "rf.jsonl").read_text()
        >>> [decode(line).run.seed for line in text.splitlines()]
        [0, 1]
        """
        with self._lock:
            for path in sorted(self.folder.glob("*/*.jsonl")):
                self._files.setdefault(path, _File(path)).tidy()

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return len(self.records())

    def _file(self, dataset: str, method: str) -> _File:
        path = self.folder / _slug(dataset) / f"{_slug(method)}.jsonl"
        return self._files.setdefault(path, _File(path))


def _order(record: Record) -> tuple[str, str, str, str, str, int]:
    run = record.run
    parameters, variant = canonical(dict(run.parameters)), canonical(dict(run.variant))
    return run.dataset, run.method, run.labels, variant, parameters, run.seed


def _slug(name: str) -> str:
    """Make a file name of a name; where characters had to go, a hash keeps names apart."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:60]
    if plain == name:
        return name
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


class _File:
    """One JSON-lines file, and what was read of it so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._warned: set[str] = set()
        # Lines read before: after a replacement, the whole file is read again, mostly unchanged.
        self._decoded: dict[bytes, Record] = {}
        self._forget()

    def _forget(self) -> None:
        self._records: dict[str, Record] = {}
        self._inode = -1
        self._offset = 0  # bytes read, always at the end of a line
        self._lines = 0

    def read(self) -> dict[str, Record]:
        """Return the records by key, reading only what was appended since the last time."""
        try:
            with self.path.open("rb") as file:
                return self._read(file.fileno())
        except FileNotFoundError:
            self._forget()
            return self._records

    def _read(self, descriptor: int) -> dict[str, Record]:
        found = os.fstat(descriptor)
        if found.st_ino != self._inode or found.st_size < self._offset:
            self._forget()
            self._inode = found.st_ino
        data = os.pread(descriptor, found.st_size - self._offset, self._offset)
        whole, end, tail = data.rpartition(b"\n")
        if end:
            first, self._offset = self._lines + 1, self._offset + len(whole) + 1
            self._lines += whole.count(b"\n") + 1
            self._take(whole.split(b"\n"), first)
        # A last line without its end is torn, or being written at this moment. Or an editor left
        # the end out: then it is whole, and counts.
        with contextlib.suppress(_BadLineError):
            self._keep(decode(tail))
        return self._records

    def _take(self, lines: Iterable[bytes], first: int) -> None:
        """Keep the records of some lines, and warn of the others once they are all read."""
        problems = []
        for number, line in enumerate(lines, start=first):
            try:
                if line not in self._decoded:
                    self._decoded[line] = decode(line)
                self._keep(self._decoded[line])
            except _BadLineError as error:
                problems.append((f"{self.path}:{number}", str(error)))
        for where, problem in problems:
            if where not in self._warned:
                self._warned.add(where)
                warnings.warn(
                    f"{where}: skipped a corrupt record: {problem}; the run will be repeated",
                    CorruptRecordWarning,
                    stacklevel=2,
                )

    def _keep(self, record: Record) -> None:
        known = self._records.get(record.key)
        if known is None or known.status == "failed":
            self._records[record.key] = record

    def add(self, record: Record) -> bool:
        line = encode(record).encode() + b"\n"
        with self._writing() as descriptor:
            known = self._read(descriptor).get(record.key)
            if known is None:
                self._append(descriptor, line)
            elif known.status == "failed":
                self._rewrite([*self._lines_without(descriptor, record.key), line])
            else:
                return False
        return True

    def tidy(self) -> None:
        with self._writing() as descriptor:
            records = sorted(self._read(descriptor).values(), key=_order)
            self._rewrite([encode(record).encode() + b"\n" for record in records])

    @contextlib.contextmanager
    def _writing(self) -> Iterator[int]:
        """Hold the exclusive lock on the current file, its tail repaired."""
        try:
            descriptor = self._open_locked()
        except OSError as error:
            raise StoreError(
                error.errno,
                f"cannot write to the result store: {error.strerror}; make the folder writable or "
                "choose another one (records written before are intact)",
                str(self.path),
            ) from error
        try:
            _mend(descriptor, self.path)
            yield descriptor
        finally:
            os.close(descriptor)  # which also unlocks

    def _open_locked(self) -> int:
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _sync_folder(self.path.parent.parent)
        while True:
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                _lock_exclusively(descriptor)
                # Somebody may have renamed a new file over this one while we waited.
                if os.stat(self.path).st_ino == os.fstat(descriptor).st_ino:
                    if is_new:
                        _sync_folder(self.path.parent)
                    return descriptor
            except FileNotFoundError:
                pass  # removed while we waited: once more
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _append(self, descriptor: int, line: bytes) -> None:
        start = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError as error:
            # A full disk: take back the half that was written.
            os.ftruncate(descriptor, start)
            raise self._not_written(error) from error

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        """Put a new file in place of the old one, at once; the caller holds the lock."""
        # One fixed name: a leftover of a killed process is overwritten by the next rewrite.
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                _write_all(descriptor, b"".join(lines))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise self._not_written(error) from error

    def _lines_without(self, descriptor: int, key: str) -> Iterator[bytes]:
        """Return the lines as they are, corrupt ones included, but for those of a run; all read."""
        size = os.fstat(descriptor).st_size
        for line in os.pread(descriptor, size, 0).splitlines(keepends=True):
            known = self._decoded.get(line.rstrip(b"\n"))
            if known is None or known.key != key:
                yield line

    def _not_written(self, error: OSError) -> StoreError:
        return StoreError(
            error.errno,
            f"the record was not written: {error.strerror}; make room and start again, only what "
            "is missing will be computed (records written before are intact)",
            str(self.path),
        )


def _mend(descriptor: int, path: Path) -> None:
    """Repair a last line without an end: whole, it gets its end; torn, it is cut off."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _MAX_LINE_BYTES + 1, max(0, size - _MAX_LINE_BYTES - 1))
    if b"\n" not in tail:
        tail = os.pread(descriptor, size, 0)
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        decode(torn)
        _write_all(descriptor, b"\n")
    except _BadLineError:
        _log.info("%s: cut off a torn last line of %d bytes", path, len(torn))
        os.ftruncate(descriptor, size - len(torn))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    """Make a new or renamed entry of a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_exclusively(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:
        raise OSError("result stores need POSIX file locks: use Linux, macOS or WSL") from None
    # flock and not lockf: it excludes other threads and other stores of this process as well.
    fcntl.flock(descriptor, fcntl.LOCK_EX)
