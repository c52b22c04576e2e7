"""Asking for memory before it is taken."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int | None:
    """Bytes that this process may still take, as the system estimates; None where nobody tells.

    The smaller of what the kernel calls available and what the control group leaves.
    """
    amounts = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        amounts += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        if limit != "max":
            amounts.append(max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        # Not Linux, or not readable: what is known so far has to do.
        return min(amounts, default=None)
    return min(amounts, default=None)


def require_memory(n_bytes: int, purpose: str, remedy: str) -> None:
    """Refuse work that cannot fit, before it starts.

    Raises
    ------
    MemoryError
        With the estimate, what is available, and the setting that would help.

    Examples
    --------
    >>> require_memory(10**18, "an edge for every pair of 10^9 rows", "Use storage='sparse'.")
    Traceback (most recent call last):
    ...
    MemoryError: an edge for every pair of 10^9 rows takes about 1000000000.0 GB, ...
    """
    free = available_memory()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{purpose} takes about {n_bytes / 1e9:.1f} GB, but only {free / 1e9:.1f} GB of memory "
            f"are available. {remedy}"
        )
