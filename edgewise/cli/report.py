"""``edgewise report``: one HTML page on what a fit left in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.output import results


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `fit --out` wrote.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The HTML file to write.", show_default="RUN/report.html", dir_okay=False
        ),
    ] = None,
) -> None:
    """Write one HTML page on a run: what was learned, how well, and the graph to look at."""
    from edgewise.report.html import write_report

    target = folder / "report.html" if output is None else output
    write_report(folder, target)
    size = target.stat().st_size / 1e6
    results().print(f"written to {target} ({size:.1f} MB)", soft_wrap=True, markup=False)
