"""What a command takes of the machine: threads and memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

# Far beyond any use, and few enough that the system gives them: PyTorch dies where it does not.
MAX_THREADS = 256


def check_jobs(jobs: int) -> int:
    """The value of ``--jobs``, if it can be one.

    Examples
    --------
    >>> check_jobs(-1)
    -1
    """
    if jobs < -1 or jobs == 0:
        raise typer.BadParameter(f"{jobs} is neither a number of processes nor -1 (for all)")
    return jobs


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many threads in this block; with None, as many as the libraries think right.

    Examples
    --------
    >>> with limit_threads(1):
    ...     threads_in_use()
    1
    """
    if threads is None:
        yield
        return
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)


def threads_in_use() -> int:
    """How many threads tensor operations are computed with."""
    import torch

    return torch.get_num_threads()


def peak_rss_mb() -> float | None:
    """The most memory this process has ever held, in megabytes; None where nobody counts.

    Examples
    --------
    >>> peak_rss_mb() > 1
    True
    """
    try:
        # Not getrusage here: on Linux it counts what the parent held before this program started.
        with open("/proc/self/status") as status:
            found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
        if found is not None:
            return int(found[1]) / 1024
    except OSError:
        pass  # no Linux: the system is asked below
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
