"""A live display of a fit on the standard error stream, where that is a terminal."""

from __future__ import annotations

import statistics
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from edgewise.graph.distribution import EdgeDistribution
from edgewise.learn import Callback, Progress

# Seconds between two looks at the number of expected edges, which is not free.
LOOK_EVERY = 0.25


class LiveProgress(Callback):
    """Shows how far a fit has come, while it runs, and disappears when it ends.

    Use it as a context manager around the fit, and hand it over as one of the ``callbacks``. One
    display can watch several fits, one after the other.

    Parameters
    ----------
    patience : int, optional
        Of the fit, to show how much of it is left.
    title : str
        May be changed at any time.
    console : rich.console.Console, optional
        By default the standard error stream.
    max_iterations : int, optional
        Of the fit, which then ends at the latest.

    Attributes
    ----------
    progress : Progress or None
        State of the fit that was last seen, also where there is no display.

    Examples
    --------
    >>> from edgewise import LDSClassifier
    >>> X, y = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], [0, 0, 0, 1, 1, 1]
    >>> with LiveProgress(patience=1) as watch:
    ...     classifier = LDSClassifier(
    ...         k=2, metric="euclidean", patience=1, callbacks=[watch], random_state=0
    ...     ).fit(X, y)
    >>> len(watch.progress.history) == classifier.n_iter_
    True
    """

    def __init__(
        self,
        patience: int | None = None,
        title: str = "",
        console: Console | None = None,
        max_iterations: int | None = None,
    ) -> None:
        self.patience = patience
        self.title = title
        self.max_iterations = max_iterations
        self.progress: Progress | None = None
        self._console = console or Console(stderr=True)
        self._started = time.perf_counter()
        self._looked = -LOOK_EVERY
        self._iteration_began = self._started
        self._edges: float | None = None
        self._spinner = Spinner("dots")
        self._live: Live | None = None

    def __enter__(self) -> LiveProgress:
        self._started = self._iteration_began = time.perf_counter()
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                # Results on the standard output must arrive there untouched.
                redirect_stdout=False,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def after_update(self, edges: EdgeDistribution, progress: Progress) -> None:
        self.progress = progress
        now = time.perf_counter()
        if self._live is not None and now - self._looked >= LOOK_EVERY:
            self._looked, self._edges = now, edges.expected_edges()

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        self.progress = progress
        self._iteration_began = time.perf_counter()
        self._edges = progress.history[-1].expected_edges

    def _render(self) -> Table:
        elapsed = time.perf_counter() - self._started
        display = Table.grid(padding=(0, 1))
        heading = Text(self.title, style="bold")
        display.add_row(self._spinner, heading.append(f"  {elapsed:.0f} s", style="not bold dim"))
        progress = self.progress
        if progress is None:
            display.add_row("", "outer iteration 1 (the first one also compiles)")
            return display
        left = "" if self.patience is None else f"   patience left {self._left(progress)}"
        display.add_row(
            "",
            f"outer iteration {len(progress.history) + 1}   update {progress.updates}   "
            f"expected edges {0.0 if self._edges is None else self._edges:,.0f}{left}",
        )
        if progress.history:
            display.add_row("", self._last_iteration(progress))
            seconds = self._time_left(progress)
            if seconds is not None:
                display.add_row("", f"time left {_clock(seconds)}, longer if the accuracy improves")
        return display

    def _time_left(self, progress: Progress) -> float | None:
        """Seconds until the end, if early-stopping accuracy does not improve any more."""
        ends = []
        if self.patience is not None:
            ends.append(self.patience - progress.since_better)
        if self.max_iterations is not None:
            ends.append(self.max_iterations - len(progress.history))
        if not ends:
            return None
        # The first iteration also compiles, and the last ones are most like those to come.
        a_typical_one = statistics.median(one.seconds for one in progress.history[-5:])
        elapsed = time.perf_counter() - self._iteration_began
        return max(min(ends) * a_typical_one - elapsed, 0.0)

    def _left(self, progress: Progress) -> str:
        assert self.patience is not None
        return f"{self.patience - progress.since_better} of {self.patience}"

    @staticmethod
    def _last_iteration(progress: Progress) -> str:
        last = progress.history[-1]
        train, validation, stopping = last.scores
        best = progress.best
        record = "" if best is None else f" (best {best.scores.early_stopping.accuracy:.1%})"
        return (
            f"losses: inner {train.loss:.3f}, outer {validation.loss:.3f}, early stopping "
            f"{stopping.loss:.3f}   early-stopping accuracy {stopping.accuracy:.1%}{record}"
        )


def _clock(seconds: float) -> str:
    """A duration as on a clock.

    >>> _clock(75.4), _clock(3 * 3600 + 5)
    ('1:15', '3:00:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
