"""``edgewise datasets``: what can be fitted by name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from edgewise.cli.output import print_json, results


def datasets(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the data sets with their statistics, and whether they are at hand."""
    from edgewise.datasets import describe

    described = describe()
    if json:
        print_json(
            {
                "datasets": [
                    {
                        **asdict(entry.statistics),
                        "label_rate": entry.statistics.label_rate,
                        "about": entry.about,
                        "at_hand": entry.at_hand,
                        "source": entry.source,
                    }
                    for entry in described
                ]
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name")
    for name in ("nodes", "features", "classes", "edges", "train / outer / stop", "test"):
        table.add_column(name, justify="right")
    table.add_column("at hand")
    table.add_column("what it is")
    for entry in described:
        figures = entry.statistics
        table.add_row(
            figures.name,
            f"{figures.nodes:,}",
            f"{figures.features:,}",
            str(figures.classes),
            "-" if figures.edges is None else f"{figures.edges:,}",
            f"{figures.train} / {figures.validation} / {figures.early_stopping}",
            f"{figures.test:,}",
            "yes" if entry.at_hand else "no",
            entry.about,
        )
    results().print(table)
