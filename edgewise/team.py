"""Several processes that work on one fit, as torchrun starts them: what they tell each other.

Every process runs the same program. Where one of them needs what another one knows, all of them
call the same method of the `Team`, which counts the bytes. A process that is lost ends the others:
with a `LostProcessError` that names it, and never with a wait without end.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.distributed_c10d import Store

Array = TypeVar("Array", bound=NDArray[Any])

# What torchrun tells each process that it starts.
LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Seconds to wait for another process before it counts as lost; a dead one is noticed at once.
TIMEOUT = float(os.environ.get("EDGEWISE_TIMEOUT", "300"))
# Seconds that processes have, once one is lost, to say that they are there.
ROLL_CALL = 2.0
# Seconds that the first process may take for what it does before all others.
PREPARATION = timedelta(hours=2)


class LostProcessError(ConnectionError):
    """Another process of this fit is gone, does not answer, or has failed."""


class Team:
    """This process and the others.

    Attributes
    ----------
    rank : int
        The number of this process, from 0. Number 0 leads: it speaks to the user.
    size : int
        How many processes there are.
    received : int
        Bytes that came from other processes so far.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        # What is learned lives on the host; only the network's gradients may be on a device.
        on_device = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if on_device else "gloo"
        if on_device:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if not dist.is_initialized():
            dist.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT))
            self._group = dist.group.WORLD
        else:
            self._group = dist.new_group(backend=backend, timeout=timedelta(seconds=TIMEOUT))
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.received = 0
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        c10d = dist.distributed_c10d
        self._store: Store = c10d.PrefixStore(f"edgewise/{attempt}", c10d._get_default_store())

    @property
    def leads(self) -> bool:
        return self.rank == 0

    # ------------------------------------------------------------------------- collective work

    def broadcast(self, array: Array, source: int = 0) -> Array:
        """The array of process `source`; those of the others have its shape and type."""
        import torch

        values = np.ascontiguousarray(array).copy()
        self.broadcast_tensor(torch.from_numpy(values), source)
        return values  # type: ignore[return-value]

    def broadcast_tensor(self, values: Tensor, source: int = 0) -> Tensor:
        """Overwrite a tensor with that of process `source`."""
        import torch.distributed as dist

        with self._reporting_losses():
            dist.broadcast(values, source, group=self._group)
        if self.rank != source:
            self.received += values.numel() * values.element_size()
        return values

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """The arrays of all processes, vectors of one type and of any lengths."""
        import torch
        import torch.distributed as dist

        length = torch.tensor([len(array)])
        lengths = [torch.empty_like(length) for _ in range(self.size)]
        with self._reporting_losses():
            dist.all_gather(lengths, length, group=self._group)
            longest = int(max(lengths))
            padded = torch.from_numpy(np.pad(array, (0, longest - len(array))))
            parts = [torch.empty_like(padded) for _ in range(self.size)]
            if longest:
                dist.all_gather(parts, padded, group=self._group)
        self.received += (self.size - 1) * (8 + longest * array.itemsize)
        return [part[: int(n)].numpy() for part, n in zip(parts, lengths, strict=True)]

    def fence(self) -> None:
        """Wait until all processes are here."""
        self.gather(np.empty(0, np.int64))

    # ------------------------------------------------------------------------ taking turns

    @contextmanager
    def leader_first(self, what: str) -> Iterator[None]:
        """The first process does something, then the others do it, as with a download."""
        if not self.leads:
            with self._reporting_losses():
                self._store.wait([what], PREPARATION)
        yield
        if self.leads:
            self._store.set(what, "")

    def first_to_complain(self) -> bool:
        """Whether no other process has said yet what went wrong; to be asked once."""
        try:
            return self._store.add("complaints", 1) == 1
        except RuntimeError:
            return True  # whoever keeps the book is gone

    # ------------------------------------------------------------------- when things go wrong

    @contextmanager
    def on_duty(self) -> Iterator[None]:
        """While this lasts, being told to stop is an error like others, and failures are told."""
        # Only the main thread may say what signals do.
        in_main = threading.current_thread() is threading.main_thread()
        signals = [signal.SIGTERM, signal.SIGINT] if in_main else []

        def stop(number: int, _: Any) -> NoReturn:
            for each in signals:
                signal.signal(each, signal.SIG_IGN)  # one is enough
            raise LostProcessError(self._diagnosis(signal.Signals(number).name))

        before = {each: signal.signal(each, stop) for each in signals}
        try:
            yield
        except Exception as error:
            if not isinstance(error, LostProcessError):
                self._tell(f"failed/{self.rank}", f"{type(error).__name__}: {error}")
            raise
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def _reporting_losses(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            late = "timed out" in str(error).lower()
            symptom = f"no answer for {TIMEOUT:g} s" if late else "a connection was closed"
            raise LostProcessError(self._diagnosis(symptom)) from error

    def _diagnosis(self, symptom: str) -> str:
        """Who is missing, by roll call; what was noticed, if nobody is."""
        deadline = time.monotonic() + ROLL_CALL
        missing = [rank for rank in range(self.size) if rank != self.rank]
        try:
            self._store.set(f"here/{self.rank}", "")
            while missing and time.monotonic() < deadline:
                for rank in missing:
                    if self._store.check([f"failed/{rank}"]):
                        reason = self._store.get(f"failed/{rank}").decode()
                        return f"process {rank} of {self.size} failed: {reason}"
                missing = [rank for rank in missing if not self._store.check([f"here/{rank}"])]
                time.sleep(0.05)
        except RuntimeError:
            return f"process 0 of {self.size}, or its machine, was lost"
        if not missing:
            return f"the {self.size} processes of this fit were stopped ({symptom})"
        names = " and ".join(str(rank) for rank in missing)
        return f"process {names} of {self.size} was lost, or does not answer ({symptom})"

    def _tell(self, name: str, value: str) -> None:
        with suppress(RuntimeError):  # perhaps nobody is left to be told
            self._store.set(name, value)


@contextmanager
def on_duty() -> Iterator[Team | None]:
    """Join the team for as long as this lasts; nothing but None for a process that is alone."""
    team = join_team()
    with nullcontext() if team is None else team.on_duty():
        yield team


def launched_processes() -> int:
    """How many processes torchrun has started for one fit; 1 without it.

    Examples
    --------
    >>> launched_processes()
    1
    """
    launched = all(name in os.environ for name in LAUNCHED)
    return int(os.environ["WORLD_SIZE"]) if launched else 1


def machines() -> int:
    """How many machines these processes are on.

    Examples
    --------
    >>> machines()
    1
    """
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, launched_processes() // here)


def leads() -> bool:
    """Whether this is the process that speaks to the user.

    Examples
    --------
    >>> leads()
    True
    """
    return launched_processes() == 1 or os.environ["RANK"] == "0"


def first_to_complain() -> bool:
    """Whether this process is to say what went wrong: the first of those that have joined.

    Examples
    --------
    >>> first_to_complain()
    True
    """
    joined = _join.cache_info().currsize > 0
    return _join().first_to_complain() if joined else leads()


def join_team() -> Team | None:
    """The team of this process; None if it is alone. All processes must come to join."""
    return None if launched_processes() == 1 else _join()


@functools.cache
def _join() -> Team:
    import atexit

    import torch.distributed as dist

    theirs = dist.is_initialized()
    try:
        team = Team()
    except RuntimeError as error:
        raise LostProcessError(
            f"the {launched_processes()} processes did not find each other within {TIMEOUT:g} s: "
            "start them all with one torchrun command a machine, with the same --rdzv-endpoint."
        ) from error
    if not theirs:
        atexit.register(dist.destroy_process_group)
    return team
