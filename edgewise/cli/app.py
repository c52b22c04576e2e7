"""The frame of the command: its subcommands, what it says on errors, where it says it.

Results go to the standard output; progress, warnings and errors to the standard error stream. An
error is one line and exit code 2; ``--debug`` shows its traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from edgewise import __version__
from edgewise.cli import (
    compare,
    datasets,
    demo,
    doctor,
    fit,
    methods,
    predict,
    report,
    reproduce,
)
from edgewise.team import (
    LostProcessError,
    first_to_complain,
    launched_processes,
    leads,
    machines,
)

FAILURE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells and Typer have it
UNREAD = 1  # Typer's code for output that nobody reads

app = typer.Typer(
    name="edgewise",
    help="Learn a graph together with the graph neural network that uses it (LDS).",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("datasets")(datasets.datasets)
app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.command("reproduce")(reproduce.reproduce)
app.command("compare")(compare.compare)
app.command("methods")(methods.methods)
app.command("doctor")(doctor.doctor)
app.command("report")(report.report)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgewise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of the command itself; `main` handles ``--debug``, wherever it stands."""
    command = context.invoked_subcommand
    if launched_processes() > 1 and command != "fit":
        raise ValueError(
            f"edgewise {command} works in one process: start it without torchrun (of several "
            "processes only edgewise fit makes use)"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and leave the process with its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Examples
    --------
    >>> from edgewise.cli import main
    >>> try:
    ...     main(["--version"])
    ... except SystemExit as exit:
    ...     print("exit code", exit.code)
    edgewise ...
    exit code 0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    with _warnings_in_one_line():
        sys.exit(_run([argument for argument in given if argument != "--debug"], debug))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        # Not standalone, so that errors in the arguments are reported like all others.
        code = int(app(arguments, prog_name="edgewise", standalone_mode=False) or 0)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough; nothing must be written at the exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        message = _in_one_line(error)  # empty where help was shown
        if debug and message:
            traceback.print_exc()
        elif first_to_complain() and message:
            hint = _how_to_go_on(arguments) if isinstance(error, LostProcessError) else ""
            print(f"edgewise: {message}{hint}", file=sys.stderr)
        return FAILURE
    if code == INTERRUPTED and leads():
        print("edgewise: interrupted", file=sys.stderr)
    return code


def _in_one_line(error: Exception) -> str:
    # Errors in the arguments know which argument it was.
    format_message = getattr(error, "format_message", None)
    message = " ".join(str(format_message() if format_message else error).split())
    expected = (ValueError, OSError, ImportError, MemoryError, FloatingPointError)
    if isinstance(error, expected) or format_message:
        return message
    # Whatever else comes up here is likely to be our fault.
    return f"{type(error).__name__}: {message} (--debug shows where)"


def _how_to_go_on(arguments: Sequence[str]) -> str:
    """What to do after one of several processes was lost."""
    if not any(argument.split("=")[0] == "--checkpoint" for argument in arguments):
        return ". Nothing was kept: with --checkpoint FILE a fit can go on after that"
    if machines() > 1:
        return ". To go on, give the same torchrun command on every machine"
    processes = launched_processes()
    command = f"torchrun --nproc-per-node {processes} -m edgewise {shlex.join(arguments)}"
    return f". To go on: {command}"


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if leads():
            print(f"edgewise: warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
