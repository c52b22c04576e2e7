"""``edgewise methods``: what can be compared, by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from edgewise.cli.output import print_json, results


def methods(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the methods: what they are, whether they need a graph, which parameters are tuned."""
    from edgewise.baselines import list_methods

    if json:
        print_json(
            {
                "methods": [
                    {
                        "name": method.name,
                        "description": method.description,
                        "needs_graph": method.needs_graph,
                        "tuned": method.search_space,
                    }
                    for method in list_methods()
                ]
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for name in ("graph", "what it is", "tuned parameters"):
        table.add_column(name)
    for method in list_methods():
        needs = "needed" if method.needs_graph else "no"
        table.add_row(method.name, needs, method.description, ", ".join(method.tuned))
    results().print(table)
