"""Where the time of a fit goes: a clock of whole cycles, and a stopwatch around their parts."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.table import Table

from edgewise import learn as algorithm
from edgewise.bilevel.dynamics import Dynamics
from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.sampled import Graph
from edgewise.learn import Callback, Progress
from edgewise.train import Objective

T = TypeVar("T")

#: The parts of a cycle, and the functions that each consists of: (owner, attribute). Calls of the
#: first one are counted.
PHASES: dict[str, tuple[tuple[Any, str], ...]] = {
    "sample edges": ((EdgeDistribution, "sample"),),
    "build graph": ((Graph, "from_pairs"),),
    "inner step": ((Objective, "inner_gradient"), (Dynamics, "step")),
    "hypergradient": ((algorithm, "unrolled_hypergradient"),),
    "apply to edges": ((EdgeDistribution, "descend"),),
    "evaluation": ((Objective, "probabilities"),),
}


class CycleClock(Callback):
    """Wall time of whole cycles: tau inner steps, hypergradient, update of theta, sampler.

    A cycle goes from one update to the next. The evaluation that ends an outer iteration, and the
    first cycle of the next one, which begins with it, are left out.

    Attributes
    ----------
    seconds : list of float
        Of each cycle.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._mark: float | None = None

    def after_update(self, edges: EdgeDistribution, progress: Progress) -> None:
        now = time.perf_counter()
        if self._mark is not None:
            self.seconds.append(now - self._mark)
        self._mark = now

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        self._mark = None

    def median(self) -> float | None:
        """The typical one, free of what else the machine did; None before there are any."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclass
class Profile:
    """Seconds and calls of each phase; what a phase calls of another one counts there only.

    Attributes
    ----------
    seconds, calls : dict of phase to number
    total : float
        Seconds inside `profiled`, whatever they were spent on.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    total: float = 0.0
    _inside: list[float] = field(default_factory=list)

    @property
    def rest(self) -> float:
        """Seconds that no phase accounts for."""
        return self.total - sum(self.seconds.values())

    def timed(
        self, phase: str, function: Callable[..., T], *, counted: bool = True
    ) -> Callable[..., T]:
        """The function, with its own time added to a phase, and perhaps its calls."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> T:
            self._inside.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - started
                self.seconds[phase] += spent - self._inside.pop()
                self.calls[phase] += counted
                if self._inside:
                    self._inside[-1] += spent

        return wrapper

    def table(self, updates: int) -> Table:
        """As a table, with the time of each phase in one cycle (of `updates`)."""
        table = Table(title="Where the time went", title_justify="left")
        table.add_column("phase")
        for name in ("calls", "ms a call", "ms a cycle", "seconds", "share"):
            table.add_column(name, justify="right")
        for phase, seconds in self.seconds.items():
            calls = self.calls[phase]
            a_call = f"{1e3 * seconds / calls:.2f}" if calls else ""
            table.add_row(phase, f"{calls:,}", a_call, *self._figures(seconds, updates))
        table.add_row("everything else", "", "", *self._figures(self.rest, updates))
        table.add_section()
        table.add_row("total", "", "", *self._figures(self.total, updates))
        return table

    def _figures(self, seconds: float, updates: int) -> tuple[str, str, str]:
        return (
            f"{1e3 * seconds / max(updates, 1):.1f}",
            f"{seconds:.2f}",
            f"{seconds / max(self.total, 1e-9):.1%}",
        )


@contextmanager
def profiled() -> Iterator[Profile]:
    """Measure the phases of every fit in this block.

    The functions of `PHASES` are replaced for its time, so that Algorithm 1 itself stays free of
    stopwatches.

    Examples
    --------
    >>> import numpy as np
    >>> from edgewise.graph.distribution import DenseEdges
    >>> from edgewise.graph.pairs import Pairs
    >>> edges = DenseEdges(3, Pairs.fold([0], [1], n_nodes=3))
    >>> with profiled() as profile:
    ...     graph = edges.draw(np.random.default_rng(0))
    >>> profile.calls["sample edges"], profile.calls["build graph"]
    (1, 1)
    """
    profile = Profile()
    with ExitStack() as replaced:
        for phase, functions in PHASES.items():
            for owner, name in functions:
                counted = (owner, name) == functions[0]
                watch = functools.partial(profile.timed, phase, counted=counted)
                for place in _definitions(owner, name):
                    _replace(place, name, watch, replaced)
        started = time.perf_counter()
        try:
            yield profile
        finally:
            profile.total = time.perf_counter() - started


def _definitions(owner: Any, name: str) -> Iterator[Any]:
    """The module or class itself, and the subclasses, in which the function is defined."""
    if name in vars(owner):
        yield owner
    subclasses: list[type] = owner.__subclasses__() if isinstance(owner, type) else []
    for subclass in subclasses:
        yield from _definitions(subclass, name)


def _replace(
    owner: Any, name: str, change: Callable[[Callable[..., Any]], Any], undone: ExitStack
) -> None:
    original = vars(owner)[name]
    changed = (
        classmethod(change(original.__func__))
        if isinstance(original, classmethod)
        else change(original)
    )
    setattr(owner, name, changed)
    undone.callback(setattr, owner, name, original)
