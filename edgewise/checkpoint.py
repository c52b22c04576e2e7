"""The state of an unfinished fit in a file, from which it goes on as if nothing had happened.

After each outer iteration everything that changes is written: the edges and the best model so far
to the last bit, the history and the counters, the inner learning rate, and where each stream of
random numbers is. (The inner optimiser's memory starts anew with each outer iteration.) So a
resumed fit gives what the uninterrupted one gives, to the last bit, on the same machine and with
the same versions; only the seconds in the history differ. At most one outer iteration is lost.

A file is one line of JSON with checksums, and arrays in the safetensors format after it: reading
executes nothing. It is replaced in one piece, and the one before it stays beside it, with
``.previous`` at the end of its name, for the case that the newer one is damaged.

A finished fit leaves its checkpoint: the same call gives the same at once, and with a greater
`patience` or `max_outer_iterations` goes on. Delete both files when they are of no more use. Only
one fit at a time may use a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from edgewise.files import write_atomically
from edgewise.graph.distribution import EdgeDistribution
from edgewise.inputs import EdgewiseWarning
from edgewise.learn import Model, OuterIteration, Progress, Scores
from edgewise.persistence import checksum, plain, unplain
from edgewise.problem import Problem
from edgewise.snapshot import Snapshot, Stateful
from edgewise.team import Team
from edgewise.train import Score

FORMAT = "edgewise-checkpoint"
VERSION = 1


class CheckpointError(ValueError):
    """A file is no checkpoint, or not one of this fit."""


class _DamagedError(CheckpointError):
    """The content of a file is not what was written."""


class _Content(NamedTuple):
    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class Checkpoint:
    """Keeps the state of a fit in a file (a `Keeper` of `edgewise.learn`).

    Parameters
    ----------
    path : str or path-like
        The file, in an existing folder.
    identity : dict
        What the fit is: all that has a say in its course, by name. A checkpoint of another one is
        refused. See `describe_problem`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from edgewise import LDSClassifier
    >>> X = np.random.default_rng(0).normal(size=(12, 3))
    >>> classifier = LDSClassifier(2, patience=1, max_inner_steps=10, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = classifier.fit(X, [0, 1] * 6, checkpoint=f"{folder}/lds").n_iter_
    ...     # As after a crash, with nothing left to do:
    ...     classifier.fit(X, [0, 1] * 6, checkpoint=f"{folder}/lds").n_iter_ == first
    True
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"checkpoint={path!r} is no path: name a file.")
        self.path = Path(path)
        self._identity = json.loads(json.dumps(plain(identity)))
        if self.path.is_dir():
            raise IsADirectoryError(f"checkpoint={self.path} is a folder: name a file in it.")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={self.path} is in a folder that does not exist: make "
                f"{self.path.parent} first, or name another."
            )

    @property
    def previous(self) -> Path:
        """The state before the newest one."""
        return self.path.with_name(f"{self.path.name}.previous")

    # ------------------------------------------------------------------------------ writing

    def keep(self, progress: Progress, edges: EdgeDistribution, *others: Stateful) -> None:
        """Write the present state; an earlier one stays until this one is complete.

        Raises
        ------
        OSError
            If it cannot be written, with what is to be done.
        """
        parts: dict[str, Stateful] = {"edges": edges}
        parts.update({type(part).__name__: part for part in others})
        arrays: dict[str, NDArray[Any]] = {}
        content = {
            "identity": self._identity,
            "progress": _describe_progress(progress, arrays),
            "settings": {name: _put(part, name, arrays) for name, part in parts.items()},
        }
        data = _encode(content, arrays)
        try:
            write_atomically(self.path, data, earlier=self.previous)
        except OSError as error:
            self._explain(error, len(progress.history))

    def _explain(self, error: OSError, iteration: int) -> NoReturn:
        left = [path for path in (self.path, self.previous) if path.exists()]
        remedy = (
            f"The earlier one ({left[0].name}) is intact: make room, or its folder writable, and "
            "fit again with the same arguments to go on from there"
            if left
            else "Name a file in a folder with room that can be written to"
        )
        raise OSError(
            error.errno or errno.EIO,
            f"the checkpoint after outer iteration {iteration} could not be written "
            f"({os.strerror(error.errno or errno.EIO)}). {remedy}",
            str(self.path),
        ) from error

    # ------------------------------------------------------------------------------ reading

    def resume(self, progress: Progress, edges: EdgeDistribution, *others: Stateful) -> None:
        """Put everything to where an earlier fit stopped; if there was none, keep the beginning.

        Raises
        ------
        CheckpointError
            If the file is no checkpoint, is of another fit, or is damaged like the previous one.
        """
        with contextlib.suppress(OSError):
            self._sweep()
        content = self._newest()
        if content is None:
            # Now, rather than after the first outer iteration: can the place be written to?
            self.keep(progress, edges, *others)
            return
        self._refuse_another(content.manifest["identity"])
        try:
            settings = content.manifest["settings"]
            _restore_progress(progress, content, edges)
            edges.restore(_get("edges", settings["edges"], content.arrays))
            for part in others:
                name = type(part).__name__
                part.restore(_get(name, settings[name], content.arrays))
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            # Checksums are right, so this is what somebody wrote; but not what we write.
            raise CheckpointError(
                f"{self.path} does not hold what a checkpoint should ({type(error).__name__}: "
                f"{error}): delete it, or name another file."
            ) from error

    def _sweep(self) -> None:
        """Remove what processes left that were killed while they wrote."""
        for entry in self.path.parent.iterdir():
            if entry.name.startswith(f".{self.path.name}.") and entry.name.endswith(".tmp"):
                entry.unlink(missing_ok=True)

    def _newest(self) -> _Content | None:
        """The newest undamaged state, under the name `path`; None if there never was any."""
        complaint = ""
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                content = _decode(path)
            except _DamagedError as error:
                complaint = complaint or str(error)
                continue
            if complaint:
                warnings.warn(
                    f"{complaint} The one before it is used: an outer iteration is done again.",
                    EdgewiseWarning,
                    stacklevel=2,
                )
            if path == self.previous:
                # Else the next state to be written would push a damaged one over the good one.
                os.replace(self.previous, self.path)
            return content
        if complaint:
            raise CheckpointError(f"{complaint} Delete it to start anew, or name another file.")
        return None

    def _refuse_another(self, identity: Mapping[str, Any]) -> None:
        unlike = _differences(identity, self._identity)
        if unlike:
            raise CheckpointError(
                f"{self.path} is the checkpoint of another fit: {'; '.join(unlike)}. Fit with "
                "what it was made with to go on, or name another file (or delete this one) to "
                "start anew."
            )


class SharedCheckpoint(Checkpoint):
    """Keeps the state of a fit on several processes: each of them has a file of its own.

    The first process has the file that was named, the others one beside it, with
    ``.process-1`` ... at the end of its name; the folder may be shared or every machine's own. No
    process goes on before all have written, so one may be ahead of others by one iteration at
    most; then it takes up its previous state, and all go on from the same iteration.

    Parameters
    ----------
    team : Team
    path, identity
        As for `Checkpoint`, the same in all processes.
    """

    def __init__(
        self, team: Team, path: str | os.PathLike[str], identity: Mapping[str, Any]
    ) -> None:
        super().__init__(path, {**identity, "processes": team.size})
        self._team = team
        if not team.leads:
            self.path = self.path.with_name(f"{self.path.name}.process-{team.rank}")

    def keep(self, progress: Progress, edges: EdgeDistribution, *others: Stateful) -> None:
        super().keep(progress, edges, *others)
        self._team.fence()

    def _newest(self) -> _Content | None:
        content = super()._newest()
        if content is not None:
            self._refuse_another(content.manifest["identity"])
        own = _iterations(content)
        reached = [int(of_one) for (of_one,) in self._team.gather(np.array([own]))]
        if min(reached) < 0 < max(reached):
            raise CheckpointError(
                f"the checkpoints {self.path.name} ... do not belong together: process "
                f"{reached.index(min(reached))} has none, and process "
                f"{reached.index(max(reached))} one after {max(reached)} outer iterations. Put all "
                "of them where they were written, or delete them to start anew."
            )
        if min(reached) < 0:
            return None
        if own > min(reached) and self.previous.exists():
            # This process was the faster one when all were ended: what was before?
            os.replace(self.previous, self.path)
            content = _decode(self.path)
        if _iterations(content) != min(reached):
            raise CheckpointError(
                f"{self.path} is of outer iteration {own}, and that of process "
                f"{reached.index(min(reached))} of {min(reached)}: delete them all to start anew."
            )
        return content


def _iterations(content: _Content | None) -> int:
    """How many outer iterations were done; -1 if there is nothing."""
    return -1 if content is None else len(content.manifest["progress"]["history"])


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    found = []
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new)
        elif any(isinstance(value, str) and len(value) == 64 for value in (old, new)):
            found.append(f"other {name}")  # checksums tell nobody anything
        else:
            found.append(f"{name} was {old!r} and is {new!r}")
    return found


def describe_problem(problem: Problem) -> dict[str, str]:
    """A checksum of each part of a problem.

    Examples
    --------
    >>> from edgewise.problem import Split
    >>> rows = np.arange(3)
    >>> problem = Problem(np.eye(3), np.zeros(3, int), np.arange(1), Split(rows, rows, rows))
    >>> sorted(describe_problem(problem))
    ['features', 'graph', 'labels', 'split']
    """
    rows = problem.features
    dense = isinstance(rows, np.ndarray)
    features = (rows,) if dense else (rows.data, rows.indices, rows.indptr)
    given = () if problem.pairs is None else problem.pairs
    weights = () if problem.weights is None else (problem.weights,)
    return {
        "features": _digest(np.array(rows.shape), *features),
        "labels": _digest(problem.labels),
        "split": _digest(*asdict(problem.split).values()),
        "graph": _digest(*given, *weights),
    }


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# ------------------------------------------------------------------------------- the content


def _put(part: Stateful, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Add a part's arrays to `arrays`; its settings."""
    snapshot = part.snapshot()
    arrays.update({f"{name}.{key}": array for key, array in snapshot.arrays.items()})
    return plain(snapshot.settings)


def _get(name: str, settings: Any, arrays: Mapping[str, NDArray[Any]]) -> Snapshot:
    prefix = f"{name}."
    own = {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }
    return Snapshot(unplain(settings), own)


def _describe_progress(progress: Progress, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    described = {
        "history": [plain(asdict(entry)) for entry in progress.history],
        "updates": progress.updates,
        "since_better": progress.since_better,
        "best": None,
    }
    if (best := progress.best) is not None:
        arrays["best.weights"] = best.weights.cpu().numpy()
        arrays["best.probabilities"] = best.probabilities
        described["best"] = {
            "iteration": best.iteration,
            "scores": plain(best.scores),
            "edges": _put(best.edges, "best.edges", arrays),
        }
    return described


def _restore_progress(progress: Progress, content: _Content, edges: EdgeDistribution) -> None:
    described, arrays = content.manifest["progress"], content.arrays
    for record in unplain(described["history"]):
        scores = _scores(record.pop("scores"))
        progress.history.append(OuterIteration(**record, scores=scores))
    progress.updates = described["updates"]
    progress.since_better = described["since_better"]
    if (best := described["best"]) is not None:
        twin = edges.copy()
        twin.restore(_get("best.edges", best["edges"], arrays))
        progress.best = Model(
            torch.from_numpy(arrays["best.weights"]).to(edges.device),
            twin,
            arrays["best.probabilities"],
            _scores(unplain(best["scores"])),
            best["iteration"],
        )


def _scores(parts: Any) -> Scores:
    # asdict keeps the named tuples' fields in order, JSON makes lists of them.
    return Scores(*(Score(*part) for part in parts))


# ---------------------------------------------------------------------------------- the file


def _encode(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    data: bytes = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        **content,
    }
    manifest["checksum"] = checksum(manifest)
    return json.dumps(manifest, allow_nan=False).encode() + b"\n" + data


def _decode(path: Path) -> _Content:
    """The content of a file, verified."""
    line, _, data = path.read_bytes().partition(b"\n")
    try:
        manifest = json.loads(line)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _DamagedError(f"{path} is damaged, or no checkpoint at all.")
    version = manifest.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"{path} was written by a newer Edgewise (format {version}, this one reads up to "
            f"{VERSION}): upgrade Edgewise, or name another file."
        )
    if manifest.get("checksum") != checksum(manifest):
        raise _DamagedError(f"{path} is damaged (wrong checksum).")
    if len(data) != manifest["bytes"] or hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise _DamagedError(f"{path} is damaged (wrong checksum of its arrays).")
    try:
        return _Content(manifest, load(data))
    except SafetensorError as error:
        raise CheckpointError(f"{path} holds no arrays ({error}): delete it.") from None
