"""Time and memory of a fit against the number of rows, each size in a process of its own.

python benchmarks/scaling.py made-up --rows 10000 30000 100000   # whole fits; or --updates 40
python benchmarks/scaling.py pubmed --graph                      # a whole fit; or without its graph
python benchmarks/scaling.py updates --rows 10000 30000 100000   # of the edges, nothing else
python benchmarks/scaling.py neighbours --rows 30000 100000      # recall of the approximate search
python benchmarks/scaling.py storages                            # dense and sparse, at Cora's size
python benchmarks/scaling.py figure                              # scaling.png, and the slopes

Each run writes a record to scaling.json, in place of that of the same run before.

Times are of the processor, all threads together (one thread here), unless they are called wall:
what else the machine does lengthens these less. Memory is the peak of the whole process; what it
was after all imports is stated separately and subtracted where a slope is fitted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).with_suffix(".json")
COLUMNS, CLASSES, BLOBS = 64, 10, 40
# Arrays above 32 MB are else taken from the system each time, page by page: on a virtual machine
# that costs more than what is done with them.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4000000000"}
Record = dict[str, Any]


def made_up(n_rows: int) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Rows in 40 blobs, four a class; the true classes, and labels of 1 % of the rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(BLOBS, COLUMNS))
    blob = rng.integers(BLOBS, size=n_rows)
    rows = (0.5 * centres[blob] + rng.normal(size=(n_rows, COLUMNS))).astype(np.float32)
    classes = blob % CLASSES
    labels = np.full(n_rows, -1)
    known = rng.permutation(n_rows)[: n_rows // 100]
    labels[known] = classes[known]
    return rows, classes, labels


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


class Clock:
    """Processor and wall time since it was made, and the peak of memory before."""

    def __init__(self) -> None:
        self.imports = peak_megabytes()
        self.processor, self.wall = time.process_time(), time.perf_counter()

    def record(self) -> Record:
        return {
            "seconds": round(time.process_time() - self.processor, 2),
            "wall seconds": round(time.perf_counter() - self.wall, 2),
            "peak MB": round(peak_megabytes(), 1),
            "imports MB": round(self.imports, 1),
            "load": round(os.getloadavg()[0], 1),
        }


def warm_up(approximate: bool = False) -> None:
    """Compile what is compiled at first use, so that it counts as imports."""
    from edgewise import LDSClassifier
    from edgewise.graph import construct

    rows, _, labels = made_up(1500)
    for dense in ("sparse", "dense"):
        LDSClassifier(
            storage=dense, max_outer_iterations=1, max_inner_steps=10, n_samples=1, random_state=0
        ).fit(rows, labels)
    if not approximate:
        return
    usual, construct.EXACT_UP_TO = construct.EXACT_UP_TO, 0
    construct.knn_pairs(rows, 10, metric="cosine")
    construct.EXACT_UP_TO = usual


def fit_made_up(options: argparse.Namespace) -> Record:
    """A whole fit, or so many updates of the edges."""
    from edgewise import LDSClassifier
    from edgewise.graph.construct import EXACT_UP_TO, knn_pairs

    warm_up(approximate=options.size > EXACT_UP_TO)
    rows, classes, labels = made_up(options.size)
    parameters: Record = {"storage": "sparse", "random_state": 0, "batch_size": options.batch_size}
    if options.updates:
        parameters |= {"max_outer_iterations": 1, "max_inner_steps": 5 * options.updates}
        parameters |= {"inner_patience": 10**6}
    else:
        parameters |= {"patience": options.patience}
    clock = Clock()
    pairs = knn_pairs(rows, 10, metric="cosine")
    neighbours = clock.record()
    model = LDSClassifier(**parameters).fit(rows, labels, pairs)
    unknown = labels < 0
    return {
        "kind": "made-up",
        "rows": options.size,
        "updates wanted": options.updates,
        "batch size": options.batch_size,
        "patience": None if options.updates else options.patience,
        "neighbours seconds": neighbours["seconds"],
        "outer iterations": model.n_iter_,
        "updates": int(sum(entry["outer_updates"] for entry in model.history_)),
        "accuracy": float((model.transduction_ == classes)[unknown].mean()),
        "expected edges": model.edges_.expected_edges(),
        **clock.record(),
    }


def time_updates(options: argparse.Namespace) -> Record:
    """Seconds of an update of the edges, its five inner steps included, from random edges."""
    from edgewise import LDSClassifier
    from edgewise.graph.construct import random_pairs

    warm_up()
    rows, _, labels = made_up(options.size)
    pairs = random_pairs(options.size, n_pairs=8 * options.size, rng=np.random.default_rng(0))
    clock, seconds = Clock(), []
    for updates in (4, 14):  # the difference leaves out what comes once a fit
        start = time.process_time()
        LDSClassifier(
            storage="sparse",
            max_outer_iterations=1,
            max_inner_steps=5 * updates,
            inner_patience=10**6,
            n_samples=1,
            random_state=0,
        ).fit(rows, labels, pairs)
        seconds.append(time.process_time() - start)
    an_update = (seconds[1] - seconds[0]) / 10
    return {
        "kind": "updates",
        "rows": options.size,
        "seconds an update": round(an_update, 4),
        **clock.record(),
    }


def fit_pubmed(options: argparse.Namespace) -> Record:
    """Whole fits on the public split, refitted on all labels, beside a GCN with these labels."""
    from edgewise import LDSClassifier, make_method
    from edgewise.datasets import load

    warm_up()
    data = load("pubmed", seed=options.seed)
    given = data.pairs if options.graph else None
    labels = data.masked_labels()
    roles = {
        "validation": data.split.validation,
        "early_stopping": data.split.early_stopping,
    }

    def accuracy(model: Any) -> float:
        return float((model.transduction_ == data.labels)[data.test].mean())

    clock = Clock()
    model = LDSClassifier(
        outer_learning_rate=options.rate,
        patience=options.patience,
        refit=True,
        random_state=options.seed,
        batch_size=options.batch_size,
    ).fit(data.features, labels, given, **roles)
    cost = clock.record()
    rival = make_method(
        "gcn" if options.graph else "knn-gcn", refit=True, random_state=options.seed
    )
    rival.fit(data.features, labels, given, **roles)
    return {
        "kind": "pubmed",
        "rows": len(data.labels),
        "graph": options.graph,
        "seed": options.seed,
        "outer learning rate": options.rate,
        "patience": options.patience,
        "batch size": options.batch_size,
        "outer iterations": model.n_iter_,
        "updates": int(sum(entry["outer_updates"] for entry in model.history_)),
        "early-stopping accuracy": model.validation_score_.accuracy,
        "early-stopping loss": model.validation_score_.loss,
        "test accuracy": accuracy(model),
        "GCN test accuracy": accuracy(rival),
        **cost,
    }


def recall(options: argparse.Namespace) -> Record:
    """How many of the 10 nearest rows the approximate search finds, for 1,000 of the rows."""
    from edgewise.graph import construct

    warm_up(approximate=True)
    rows, _, _ = made_up(options.size)
    asked = np.random.default_rng(1).choice(options.size, 1000, replace=False)
    exact, _ = construct.nearest_neighbours(rows[asked], rows, 11, "cosine")
    construct.EXACT_UP_TO = 0
    clock = Clock()
    found, _ = construct.neighbours_within(rows, 10, "cosine")
    cost = clock.record()
    hits = [
        len(np.intersect1d(mine, row[row != own])) / 10
        for own, mine, row in zip(asked, found[asked], exact, strict=True)
    ]
    return {"kind": "neighbours", "rows": options.size, "recall": float(np.mean(hits)), **cost}


def compare_storages(options: argparse.Namespace) -> Record:
    """Milliseconds of the processor an update, five inner steps included; half of Cora's edges."""
    from edgewise import LDSClassifier
    from edgewise.datasets import load
    from edgewise.graph.construct import keep_pairs

    warm_up()
    data = load("cora", seed=0)
    assert data.pairs is not None
    given = keep_pairs(data.pairs, 0.5, np.random.default_rng(0))
    record: Record = {"kind": "storages", "rows": len(data.labels)}
    for storage in ("dense", "sparse") * 2:
        model = LDSClassifier(
            storage=storage,
            max_outer_iterations=1,
            max_inner_steps=100,
            inner_patience=10**6,
            n_samples=1,
            random_state=0,
        )
        clock = Clock()
        model.fit(data.features, data.masked_labels(), given)
        milliseconds = 1e3 * (time.process_time() - clock.processor) / 20
        record[storage] = min(milliseconds, record.get(storage, np.inf))
    return record | clock.record()


KINDS = {
    "made-up": fit_made_up,
    "updates": time_updates,
    "pubmed": fit_pubmed,
    "neighbours": recall,
    "storages": compare_storages,
}


def in_own_process(arguments: list[str]) -> None:
    """Measure, and add the record to the results."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | KEEP_MEMORY
    command = [sys.executable, __file__, *arguments, "--here"]
    printed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    record = json.loads(printed.splitlines()[-1])
    print(record, flush=True)
    others = [other for other in load_results() if what(other) != what(record)]
    RESULTS.write_text(json.dumps([*others, record], indent=1) + "\n")


def what(record: Record) -> tuple[Any, ...]:
    """What was run, without what came of it."""
    asked = ("kind", "rows", "updates wanted", "batch size", "patience", "graph")
    asked += ("seed", "outer learning rate")
    return tuple(record.get(name) for name in asked)


def load_results() -> list[Record]:
    found: list[Record] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return found


def slope(rows: list[float], values: list[float]) -> float:
    """Of the line through the logarithms."""
    return float(np.polyfit(np.log(rows), np.log(values), 1)[0])


def series(records: list[Record]) -> dict[str, list[Record]]:
    """The records of made-up data with a fixed number of updates, by size, one line a setting."""
    lines: dict[str, list[Record]] = {}
    chosen = [r for r in records if r["kind"] == "made-up" and r["updates wanted"]]
    for record in sorted(chosen, key=lambda r: r["rows"]):
        batch = record["batch size"]
        name = "full batch" if batch is None else f"batches of {batch}"
        lines.setdefault(f"{name}, {record['updates']} updates", []).append(record)
    return {name: line for name, line in lines.items() if len(line) > 1}


def name_of_fit(record: Record) -> str:
    """What a whole fit is called in the figure."""
    if record["kind"] == "made-up":
        return "whole fits, made-up"
    return "whole fits, Pubmed with its graph" if record["graph"] else "whole fits, Pubmed without"


def whole_fits(records: list[Record]) -> dict[str, list[Record]]:
    """The records of whole fits, by what was fitted."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        if record["kind"] == "pubmed" or (
            record["kind"] == "made-up" and not record["updates wanted"]
        ):
            kinds.setdefault(name_of_fit(record), []).append(record)
    return kinds


def measures(records: list[Record]) -> tuple[list[float], list[float], list[float]]:
    """Rows, processor seconds, and megabytes beside what imports took."""
    return (
        [record["rows"] for record in records],
        [record["seconds"] for record in records],
        [record["peak MB"] - record["imports MB"] for record in records],
    )


def figure() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    records = load_results()
    for name, line in series(records).items():
        rows, *both = measures(line)
        for axis, values in zip(axes, both, strict=True):
            bend = slope(rows, values)
            axis.loglog(rows, values, "o-", label=f"{name}: slope {bend:.2f}")
            print(f"{name}: {values} slope {bend:.2f}")
    updates = sorted((r for r in records if r["kind"] == "updates"), key=lambda r: r["rows"])
    if len(updates) > 1:
        rows = [record["rows"] for record in updates]
        values = [record["seconds an update"] for record in updates]
        bend = slope(rows, values)
        axes[0].loglog(rows, values, "v--", label=f"one update: slope {bend:.2f}")
        print(f"one update: {values} slope {bend:.2f}")
    for number, (name, fits) in enumerate(whole_fits(records).items()):
        rows, *both = measures(fits)
        for axis, values in zip(axes, both, strict=True):
            axis.loglog(rows, values, "sd^"[number], color=f"C{7 + number}", label=name)
    for axis, title in zip(axes, ("processor seconds", "peak MB, without imports"), strict=True):
        axis.set_xlabel("rows")
        axis.set_ylabel(title)
        axis.legend(fontsize=8)
        axis.grid(True, which="both", alpha=0.3)
    picture.savefig(RESULTS.with_suffix(".png"), dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, "figure"])
    parser.add_argument("--rows", type=int, nargs="*", default=[0])
    parser.add_argument("--updates", type=int, help="updates of the edges, not a whole fit")
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--seed", type=int, default=0, help="pubmed")
    parser.add_argument("--rate", type=float, default=1.0, help="pubmed: of the edges")
    parser.add_argument("--graph", action="store_true", help="pubmed: with its graph")
    parser.add_argument("--here", action="store_true", help="measure in this process, and print")
    options = parser.parse_args()
    if options.kind == "figure":
        figure()
    elif options.here:
        import torch

        torch.set_num_threads(1)
        options.size = options.rows[0]
        print(json.dumps(KINDS[options.kind](options)))
    else:
        passed = sys.argv[1:]
        if "--rows" in passed:
            at = passed.index("--rows")
            passed = passed[:at] + passed[at + 1 + len(options.rows) :]
        for rows in options.rows:
            in_own_process([*passed, "--rows", str(rows)])


if __name__ == "__main__":
    main()
