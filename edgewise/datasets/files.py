"""Where data files are: found in a folder, or downloaded; never believed without their checksum.

A file is looked for in the folder ``EDGEWISE_DATA``, then in the cache folder, and is else
downloaded from its original home into the cache folder. Whatever its source, it is verified before
it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0


class DataUnavailableError(OSError):
    """A data file is neither at hand nor downloadable."""


class ChecksumError(ValueError):
    """A data file is not the file it should be."""


@dataclass(frozen=True)
class RemoteFile:
    """A file somebody else publishes.

    Attributes
    ----------
    path : its place below ``EDGEWISE_DATA`` and below the cache folder
    digest : hexadecimal checksum of its content
    url : where it is published; None where no address of this very file is known
    home : what to tell a person who has to fetch it by hand
    algorithm : name of the checksum, as `hashlib` knows it
    max_bytes : a download larger than this is cut off
    """

    path: str
    digest: str
    url: str | None
    home: str
    algorithm: str = "sha256"
    max_bytes: int = 64 << 20


def cache_folder() -> Path:
    """The folder for downloads and for what is computed from them: the user's cache, per platform.

    ``XDG_CACHE_HOME`` is heeded on every platform.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "edgewise"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "edgewise"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "edgewise" / "Cache"
    return Path.home() / ".cache" / "edgewise"


def find(file: RemoteFile) -> Path | None:
    """Where the file is at hand (not yet verified), or None."""
    named = os.environ.get("EDGEWISE_DATA")
    folders = ([Path(named)] if named else []) + [cache_folder()]
    return next(
        (path for path in (folder / file.path for folder in folders) if path.is_file()), None
    )


@contextlib.contextmanager
def open_verified(file: RemoteFile) -> Iterator[BinaryIO]:
    """Open a file that is at hand or downloaded, its checksum verified over the very same handle.

    Raises
    ------
    DataUnavailableError
        if it is neither at hand nor downloadable.
    ChecksumError
        if its content is not what was published.
    """
    path = find(file) or _download(file)
    with path.open("rb") as handle:
        checksum = hashlib.new(file.algorithm)
        while chunk := handle.read(CHUNK_BYTES):
            checksum.update(chunk)
        found = checksum.hexdigest()
        if found != file.digest:
            raise ChecksumError(
                f"{path} is not the published file: its {file.algorithm} is {found}, expected "
                f"{file.digest}. It is damaged or was altered, and was not read. "
                f"Remedy: delete it and load again, to get the original from {file.home}."
            )
        handle.seek(0)
        yield handle


def read_verified(file: RemoteFile) -> bytes:
    """The whole content of a file, verified."""
    with open_verified(file) as handle:
        return handle.read()


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to another HTTPS address."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://"):
            raise OSError(f"{req.full_url} redirects to {newurl}, which is not HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_url(url: str) -> Any:
    if not url.startswith("https://"):
        raise OSError(f"{url} is not an HTTPS address")
    return urllib.request.build_opener(_HttpsOnly).open(url, timeout=TIMEOUT_SECONDS)


def _download(file: RemoteFile) -> Path:
    """Download into the cache folder; the file appears there whole and verified, or not at all."""
    target = cache_folder() / file.path
    if file.url is None:
        raise _unavailable(file, target, "no address of this very file is known")
    try:
        with _open_url(file.url) as response, atomic_file(target) as handle:
            checksum, received = hashlib.new(file.algorithm), 0
            while chunk := response.read(CHUNK_BYTES):
                received += len(chunk)
                if received > file.max_bytes:
                    raise ChecksumError(f"{file.url} is larger than {file.max_bytes:,} bytes")
                checksum.update(chunk)
                handle.write(chunk)
            if checksum.hexdigest() != file.digest:
                raise ChecksumError(
                    f"{file.url} gave a file whose {file.algorithm} is {checksum.hexdigest()}, "
                    f"expected {file.digest}. Nothing was kept. Remedy: try again; if it happens "
                    f"again, get the original from {file.home} and put it at {target}."
                )
    except (OSError, HTTPException) as error:
        raise _unavailable(file, target, f"{file.url} could not be downloaded: {error}") from error
    return target


def _unavailable(file: RemoteFile, target: Path, reason: str) -> DataUnavailableError:
    """The error that says which file is missing, where it was looked for, and what to do."""
    named = os.environ.get("EDGEWISE_DATA")
    place = f"EDGEWISE_DATA ({named})" if named else "EDGEWISE_DATA (not set)"
    return DataUnavailableError(
        f"the data file {file.path} is neither in {place} nor in the cache, and {reason}. "
        f"Remedy: get it from {file.home} and put it at {target}, or set EDGEWISE_DATA to a folder "
        f"that holds {file.path}."
    )


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[BinaryIO]:
    """Write a file so that readers, and a crash at any moment, see all of it or nothing.

    Several processes may write the same target: each has its own temporary file, the last wins.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(number, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def derived(name: str, build: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays that took long to compute from verified files: from the cache folder, else built.

    They are kept as plain arrays (``allow_pickle=False``), so reading them executes nothing. `name`
    has to change with the source files and with the recipe.
    """
    path = derived_path(name)
    if path.is_file():
        # A cache that cannot be read is no reason to fail: it is built and written anew.
        with (
            contextlib.suppress(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
            path.open("rb") as handle,
            np.load(handle, allow_pickle=False) as stored,
        ):
            return {key: stored[key] for key in stored.files}
    arrays = build()
    # Neither is a cache folder that cannot be written: the next call takes longer, that is all.
    with contextlib.suppress(OSError), atomic_file(path) as target:
        np.savez_compressed(target, **arrays)  # type: ignore[arg-type]
    return arrays


def derived_path(name: str) -> Path:
    """Where `derived` keeps its arrays."""
    return cache_folder() / "derived" / f"{name}.npz"
