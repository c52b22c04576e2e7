"""``edgewise reproduce``: the paper, table by table; runs what is missing and keeps the records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.machine import check_jobs, limit_threads
from edgewise.cli.output import notes, results

if TYPE_CHECKING:
    from edgewise.experiments.plans import GridName, Stage
    from edgewise.experiments.protocol import Labels, Run
    from edgewise.experiments.store import Store
    from edgewise.experiments.workers import Backend


class What(str, Enum):
    """The tables and figures."""

    TABLE1 = "table1"
    EDGES = "edges"
    TAU = "tau"
    EDGE_COUNTS = "edge-counts"
    PROBABILITIES = "probabilities"
    HISTOGRAMS = "histograms"
    MISCLASSIFIED = "misclassified"
    EMBEDDINGS = "embeddings"
    DATASETS = "datasets"
    RANDOM_SPLITS = "random-splits"
    EQUAL = "equal"
    ALL = "all"


class GridOption(str, Enum):
    """Sizes of the search."""

    FULL = "full"
    REDUCED = "reduced"
    DEFAULT = "default"


class LabelsOption(str, Enum):
    """Label budgets."""

    PAPER = "paper"
    EQUAL = "equal"


class BackendOption(str, Enum):
    """Who executes the runs."""

    LOKY = "loky"
    RAY = "ray"
    DASK = "dask"


def reproduce(
    what: Annotated[What, typer.Argument(help="The table or figure.", show_default=False)],
    jobs: Annotated[
        int, typer.Option(help="Runs at a time, one thread each; -1: all.", callback=check_jobs)
    ] = 1,
    seeds: Annotated[
        int | None, typer.Option(help="Run this many seeds.", show_default="the plan's", min=1)
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Run only these, for example cora,citeseer.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Run only these, for example gcn,lds.")
    ] = None,
    grid: Annotated[
        GridOption,
        typer.Option(help="Parameters to choose among: the paper's, fewer, or the defaults."),
    ] = GridOption.REDUCED,
    labels: Annotated[
        LabelsOption,
        typer.Option(help="'equal' also fits every method on all labels in the end."),
    ] = LabelsOption.PAPER,
    backend: Annotated[
        BackendOption, typer.Option(help="Processes of this machine, or a cluster.")
    ] = BackendOption.LOKY,
    address: Annotated[str | None, typer.Option(help="Of the Ray or Dask cluster.")] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Tell how much is done, and run nothing.")
    ] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Write tables and figures, and run nothing.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Repeat runs that are recorded as failed.")
    ] = False,
    results_dir: Annotated[
        Path, typer.Option("--results", help="Folder of records and tables.", file_okay=False)
    ] = Path("results"),
) -> None:
    """Reproduce a table or figure of the paper; only what is missing is computed.

    --seeds, --datasets and --methods restrict what is run. The tables show all that is recorded.
    """
    from edgewise.experiments.plans import TRACES, Selection, stages
    from edgewise.experiments.store import Store

    selection = Selection(seeds, _names(datasets), _names(methods), grid.value)
    work = stages(what.value, selection, labels.value)
    store = Store(results_dir / "records")
    if status:
        _print_status(work, store, jobs)
        return
    if not tables_only:
        crew = _Crew(jobs, backend.value, address, retry_failed)
        for stage in work:
            _run_stage(stage, store, crew)
        if what.value in (*TRACES, "all"):
            _make_traces(what.value, results_dir / "traces")
    _publish(what.value, grid.value, labels.value, store, results_dir)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class _Crew:
    """Who executes the runs."""

    jobs: int
    backend: Backend
    address: str | None
    retry_failed: bool

    def run(self, runs: Sequence[Run], store: Store) -> None:
        from edgewise.experiments.execute import execute
        from edgewise.experiments.runner import run_all

        summary = run_all(
            runs,
            execute,
            store,
            jobs=self.jobs,
            backend=self.backend,
            address=self.address,
            retry_failed=self.retry_failed,
        )
        failed = len(summary.failures)
        notes().print(
            f"{summary.computed} runs computed, {summary.present} were there, {failed} failed",
            soft_wrap=True,
        )
        for reason, count in Counter(record.reason for record in summary.failures).most_common(5):
            notes().print(f"  {count} x {reason}", soft_wrap=True)


def _run_stage(stage: Stage, store: Store, crew: _Crew) -> None:
    from edgewise.experiments.plans import equal_runs

    runs = _with_data(stage.runs)
    crew.run(runs, store)
    if stage.equal:
        crew.run(equal_runs(runs, store.records()).runs, store)


def _with_data(runs: Sequence[Run]) -> list[Run]:
    """The runs whose data can be had; downloads here, once, rather than in every worker."""
    from edgewise.datasets import DataUnavailableError, describe, load

    missing = {entry.statistics.name for entry in describe() if not entry.at_hand}
    without: set[str] = set()
    for name in dict.fromkeys(run.dataset for run in runs if run.dataset in missing):
        try:
            load(name)
        except DataUnavailableError as error:
            without.add(name)
            notes().print(f"leaving out {name}: {error}", soft_wrap=True)
    return [run for run in runs if run.dataset not in without]


def _print_status(work: Sequence[Stage], store: Store, jobs: int) -> None:
    from edgewise.experiments.plans import equal_runs
    from edgewise.experiments.progress import status

    if not work:
        results().print("Made of no runs in the store: nothing to wait for.")
        return
    runs = [run for stage in work for run in stage.runs]
    equal = [equal_runs(stage.runs, store.records()) for stage in work if stage.equal]
    runs += [run for known in equal for run in known.runs]
    results().print(status(runs, store, jobs=os.cpu_count() or 1 if jobs == -1 else jobs).table())
    waiting = sum(known.waiting for known in equal)
    if waiting:
        results().print(
            f"{waiting} more runs at equal label budget are not counted: they wait for the choice "
            "of their parameters."
        )


def _make_traces(what: str, folder: Path) -> None:
    from edgewise.experiments.plans import TRACES
    from edgewise.experiments.traces import ensure_trace, load_trace

    for name in TRACES if what == "all" else (what,):
        if load_trace(name, folder) is None:
            notes().print(f"fitting what {name} shows; this takes minutes", soft_wrap=True)
            with limit_threads(1):
                ensure_trace(name, folder)


def _publish(what: str, grid: GridName, labels: Labels, store: Store, folder: Path) -> None:
    """Write the tables and figures asked for, and print the tables."""
    from edgewise.experiments.results_page import publish

    published = publish(what, store.records(), folder, grid=grid, labels=labels)
    for path in published.paths:
        notes().print(f"wrote {path}", soft_wrap=True)
    for table in published.tables:
        print(table.markdown())
    for sentence in published.missing:
        notes().print(sentence, soft_wrap=True)
