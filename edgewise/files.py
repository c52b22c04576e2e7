"""Files that are whole or not there, and clear words where they cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_NO_ROOM = "make room, or name another folder"
_NOT_ALLOWED = "name a folder that you may write to"
_REMEDIES = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
    errno.ENOENT: "its folder does not exist (any more): make it, or name another one",
    errno.ENOTDIR: "a file is in the way of its folder: name another one",
}

_SECONDS_OF_A_STAGE = 3600


def write_atomically(target: Path, data: bytes, *, earlier: Path | None = None) -> None:
    """Write a file that is, at any moment and after any crash, as it was before or complete.

    What it was before is kept as `earlier`, if such a name is given. (A crash may then leave it
    under this name alone.)

    Raises
    ------
    OSError
        If it cannot be written, with the remedy. What was there before is intact.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "note.txt"), b"whole")
    ...     Path(folder, "note.txt").read_bytes()
    b'whole'
    """
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if earlier is not None and target.exists():
            os.replace(target, earlier)
        os.replace(beside, target)
        _sync(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _explained(error, target) from error
        raise


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder to write files to, which then replace those of their names in `folder`, all at once.

    If any of them cannot be written, `folder` stays as it was. (Only a crash between two renames
    could leave new files beside earlier ones.)

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder, staged(Path(folder)) as stage:
    ...     _ = Path(stage, "a.txt").write_text("new")
    ...     _ = Path(stage, "b.txt").write_text("new")
    """
    stage = None
    try:
        for left in folder.glob(".staged-*"):
            # A process was killed that long ago; of another, the stage may be in use.
            if time.time() - left.stat().st_mtime > _SECONDS_OF_A_STAGE:
                shutil.rmtree(left, ignore_errors=True)
        stage = Path(tempfile.mkdtemp(prefix=".staged-", dir=folder))
        yield stage
        for file in sorted(stage.iterdir()):
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        for file in sorted(stage.iterdir()):
            os.replace(file, folder / file.name)
        _sync(folder)
    except OSError as error:
        raise _explained(error, folder) from error
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)


def require_folder(folder: Path) -> None:
    """Make a folder if need be, and see whether it can be written to.

    Best before the work whose results it shall hold.

    Raises
    ------
    OSError
        If not, with the remedy.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     require_folder(Path(parent, "a", "b"))
    ...     Path(parent, "a", "b").is_dir()
    True
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"room?")
            probe.flush()
    except OSError as error:
        raise _explained(error, folder) from error


def _explained(error: OSError, path: Path) -> OSError:
    """The same error, with the remedy and with a name."""
    number = error.errno or errno.EIO
    remedy = _REMEDIES.get(number, "see to the disk, or name another folder")
    message = f"cannot write ({os.strerror(number)}; what was there is intact): {remedy}"
    return OSError(number, message, str(path))


def _sync(folder: Path) -> None:
    """Make new names in a folder survive a power failure."""
    if os.name == "posix":  # elsewhere folders cannot be opened to be synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
