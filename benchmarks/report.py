"""Measure all data sets, each in a process of its own, and print the tables as Markdown.

python benchmarks/report.py                      # everything; about ten minutes
python benchmarks/report.py cora --no-fits
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

DATA_SETS = ("wine", "digits", "cora", "citeseer", "20news", "pubmed")
STAGES = (
    "sample", "build graph", "gradient", "inner step", "hypergradient", "apply",
    "sampler refresh", "evaluation", "cycle",
)  # fmt: skip
SCRIPT = Path(__file__).with_name("stages.py")


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    printed, errors = process.communicate()
    if process.returncode:
        return {"failed": errors.strip().splitlines()[-1]}
    result: dict[str, Any] = json.loads(printed)
    return result


def machine() -> str:
    """The processor and the load: what a reader needs to judge the numbers by."""
    model = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def table(headers: list[str], rows: list[list[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in [headers, ["---"] * len(headers), *rows]
    )


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def stage_table(results: list[dict[str, Any]]) -> str:
    rows = [[stage, *(number(r["stages"].get(stage)) for r in results)] for stage in STAGES]
    rows += [
        [f"floor: {stage}", *(number(r["floor"].get(stage)) for r in results)]
        for stage in ("inner step", "hypergradient", "apply", "cycle")
    ]
    rows.append(["PyG training step", *(number(r["pyg step"]) for r in results)])
    rows.append(["dense LDS cycle", *(number(r.get("dense cycle")) for r in results)])

    def ratio(one: float | None, other: float) -> str:
        return "" if one is None else f"{one / other:.2f}"

    rows += [
        ["**cycle / floor**", *(ratio(r["stages"]["cycle"], r["floor"]["cycle"]) for r in results)],
        [
            "**inner step / PyG**",
            *(ratio(r["stages"]["inner step"], r["pyg step"]) for r in results),
        ],
        [
            "**dense / cycle**",
            *(ratio(r.get("dense cycle"), r["stages"]["cycle"]) for r in results),
        ],
        ["peak memory, MB", *(number(r["memory"]) for r in results)],
        ["of which imports, MB", *(number(r["memory before"]) for r in results)],
    ]
    return table(["ms", *(f"{r['name']} ({r['rows']:,})" for r in results)], rows)


def fit_table(results: list[dict[str, Any]]) -> str:
    keys = [key for key in results[0] if key != "name"]
    rows = [
        [r["name"], *(f"{r[key]:.3g}" if r[key] < 1 else f"{r[key]:.0f}" for key in keys)]
        for r in results
    ]
    return table(["whole fit", *keys], rows)


def side_by_side(name: str, seconds: str = "20") -> str:
    alone = outcome(start(name, "--only-cycle", seconds))
    pair = [start(name, "--only-cycle", seconds) for _ in range(2)]
    together = [outcome(process) for process in pair]
    lost = [100 * (each["milliseconds"] / alone["milliseconds"] - 1) for each in together]
    times = ", ".join(f"{each['milliseconds']:.0f} ms" for each in together)
    return (
        f"One process: {alone['milliseconds']:.0f} ms a cycle of wall time; two side by side: "
        f"{times} ({lost[0]:+.0f} %, {lost[1]:+.0f} %)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DATA_SETS))
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each number")
    parser.add_argument("--no-fits", action="store_true")
    parser.add_argument("--fits", nargs="*", default=["wine", "digits", "cora"])
    options = parser.parse_args()
    print(f"{machine()}; one thread.\n")
    measured = []
    for name in options.names:
        print(f"measuring {name} ...", file=sys.stderr)
        result = outcome(start(name, "--budget", str(options.budget)))
        if "failed" in result:
            print(f"{name}: skipped, {result['failed']}\n")
        else:
            measured.append(result)
    if measured:
        print(stage_table(measured), "\n")
    if not options.no_fits:
        fits = [outcome(start(name, "--fit")) for name in options.fits]
        print(fit_table([fit for fit in fits if "failed" not in fit]), "\n")
        print(side_by_side("cora"))
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
