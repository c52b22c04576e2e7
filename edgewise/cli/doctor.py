"""``edgewise doctor``: what this machine computes with, and whether it computes right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from edgewise.cli.machine import MAX_THREADS, limit_threads
from edgewise.cli.output import print_json, results

if TYPE_CHECKING:
    from edgewise.doctor import SelfTest


class SelfTestError(ValueError):
    """This machine computes otherwise than others."""


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads to compute with.", show_default="all", min=1, max=MAX_THREADS),
    ] = None,
) -> None:
    """Print versions, threads, devices and data at hand; run a self-test of some five seconds."""
    from edgewise.doctor import data_state, environment, self_test

    with limit_threads(threads):
        about, data = environment(), data_state()
        outcome = self_test()
    if json:
        print_json({**about, "data": data, "self_test": _described(outcome)})
    else:
        _print(about, data, outcome)
    _complain(outcome)


def _described(outcome: SelfTest) -> dict[str, Any]:
    return {
        "passed": outcome.passed,
        "repeats": outcome.repeats,
        "seconds": outcome.seconds,
        "found": {figure.name: figure.found for figure in outcome.figures},
        "stored": {figure.name: figure.stored for figure in outcome.figures},
    }


def _print(about: dict[str, Any], data: dict[str, Any], outcome: SelfTest) -> None:
    installed = {name: found for name, found in about["packages"].items() if found}
    absent = [name for name, found in about["packages"].items() if not found]
    at_hand = [name for name, there in data["datasets"].items() if there]
    missing = [name for name, there in data["datasets"].items() if not there]
    named = data["EDGEWISE_DATA"] or "not set"
    if data["EDGEWISE_DATA"] and not data["EDGEWISE_DATA_exists"]:
        named += " (no such folder)"
    lines = {
        "edgewise": about["edgewise"],
        "python": f"{about['python']} on {about['platform']}",
        "packages": ", ".join(f"{name} {found}" for name, found in installed.items()),
        "not installed": ", ".join(absent) or "-",
        "threads": f"{about['threads']} of {about['processor_count']} processors",
        "devices": ", ".join(about["devices"]),
        "EDGEWISE_DATA": named,
        "cache": f"{data['cache']} ({data['cache_bytes'] / 1e6:.1f} MB)",
        "data at hand": ", ".join(at_hand),
        "to be downloaded": ", ".join(missing) or "-",
        "self-test": f"{'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.1f} s",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, text in lines.items():
        table.add_row(name, text)
    results().print(table)


def _complain(outcome: SelfTest) -> None:
    if not outcome.repeats:
        raise SelfTestError(
            "the same fit twice gave different bits: with --threads 1 it should not; if it still "
            "does, reinstall torch and numba."
        )
    wrong = [figure for figure in outcome.figures if not figure.agrees]
    if wrong:
        first = wrong[0]
        raise SelfTestError(
            f"the self-test gave other results than were stored: {first.name} is {first.found:.9g} "
            f"and should be {first.stored:.9g} (and {len(wrong) - 1} more). Results of this "
            "machine will differ from published ones: compare the versions above with those of "
            "a machine that passes, and reinstall what differs."
        )
