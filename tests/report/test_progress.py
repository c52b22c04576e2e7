"""The live display: what it shows on a terminal, and that it is silent elsewhere."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from edgewise import LDSClassifier
from edgewise.report.progress import LiveProgress


def fit(watch: LiveProgress) -> LDSClassifier:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 15)
    X = rng.normal(size=(30, 3)) + 3 * y[:, None]
    with watch:
        classifier = LDSClassifier(
            k=3, patience=2, max_outer_iterations=3, callbacks=[watch], random_state=0
        )
        return classifier.fit(X, y)


def text(watch: LiveProgress) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(watch._render())
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    fit(LiveProgress(2, "a title", Console(file=file)))
    assert file.getvalue() == ""


def test_by_default_it_writes_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    fit(LiveProgress(2))
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_it_shows_the_fit_and_vanishes() -> None:
    file = io.StringIO()
    watch = LiveProgress(2, "a title", Console(file=file, force_terminal=True, width=120))
    fit(watch)
    written = file.getvalue()
    assert "a title" in written
    assert "outer iteration" in written
    # Up a line and erase it: a transient display takes back what it wrote.
    assert written.rstrip().endswith("\x1b[1A\x1b[2K")


def test_what_it_shows() -> None:
    watch = LiveProgress(patience=2, title="a title")
    assert "compiles" in text(watch)
    classifier = fit(watch)
    shown = text(watch)
    last = classifier.history_[-1]
    assert f"outer iteration {classifier.n_iter_ + 1}" in shown
    assert f"update {sum(r['outer_updates'] for r in classifier.history_)}" in shown
    assert f"expected edges {last['expected_edges']:,.0f}" in shown
    assert f"early stopping {last['early_stopping_loss']:.3f}" in shown
    assert f"early-stopping accuracy {last['early_stopping_accuracy']:.1%}" in shown
    assert watch.progress is not None
    assert f"patience left {2 - watch.progress.since_better} of 2" in shown


def test_without_patience_nothing_is_said_of_it() -> None:
    watch = LiveProgress()
    fit(watch)
    assert "patience" not in text(watch)


def test_the_time_left_follows_from_patience_or_from_the_bound() -> None:
    def iteration(seconds: float) -> SimpleNamespace:
        return SimpleNamespace(seconds=seconds)

    # The first iteration, which compiles, is not typical.
    progress = SimpleNamespace(history=[iteration(60.0), *[iteration(2.0)] * 3], since_better=1)
    for patience, most, seconds in ((9, 1000, 16), (9, 5, 2), (None, 10, 12)):
        watch = LiveProgress(patience, max_iterations=most)
        watch._iteration_began = time.perf_counter()
        assert watch._time_left(progress) == pytest.approx(seconds, abs=0.5)  # type: ignore[arg-type]
    assert LiveProgress()._time_left(progress) is None  # type: ignore[arg-type]


def test_the_time_left_is_shown_after_the_first_iteration() -> None:
    watch = LiveProgress(2)
    fit(watch)
    assert "time left 0:0" in text(watch)


def test_expected_edges_are_known_within_the_first_iteration() -> None:
    file = io.StringIO()
    watch = LiveProgress(console=Console(file=file, force_terminal=True))
    seen: list[float | None] = []
    after_update = watch.after_update

    class Spy(LiveProgress):
        def after_update(self, edges, progress):  # type: ignore[no-untyped-def]
            after_update(edges, progress)
            seen.append(watch._edges)

    X, y = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], [0, 0, 0, 1, 1, 1]
    with watch:
        LDSClassifier(
            k=2, metric="euclidean", max_outer_iterations=1, callbacks=[Spy()], random_state=0
        ).fit(X, y)
    assert seen[0] is not None
    assert seen[0] > 0
