"""Does a bound on the candidates cost accuracy? Dense against sparse storage, five seeds.

python benchmarks/sparse_accuracy.py              # writes sparse_accuracy.json, and goes on from it
python benchmarks/sparse_accuracy.py --table      # what is there, as Markdown

Half of the given edges, patience 5, all else as by default. The same seeds give both storages the
same split, the same kept edges and the same initial weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import LDSClassifier
from edgewise.datasets import load
from edgewise.graph.construct import keep_pairs

RESULTS = Path(__file__).with_suffix(".json")
DATA_SETS = ("cora", "citeseer")
# Candidates a row; for all pairs where there is none.
STORAGES = {"dense": None, "sparse": 20}


def measure(name: str, storage: str, seed: int) -> dict[str, Any]:
    data = load(name, seed=seed)
    assert data.pairs is not None
    given = keep_pairs(data.pairs, 0.5, np.random.default_rng(seed))
    started = time.perf_counter()
    candidates = STORAGES[storage]
    parameters: dict[str, Any] = {"storage": "dense"}
    if candidates:
        parameters = {"storage": "sparse", "max_edges_per_node": candidates}
    model = LDSClassifier(**parameters, patience=5, random_state=seed).fit(
        data.features,
        data.masked_labels(),
        given,
        validation=data.split.validation,
        early_stopping=data.split.early_stopping,
    )
    right = model.transduction_ == data.labels
    return {
        "data": name,
        "storage": storage,
        "seed": seed,
        "test accuracy": float(right[data.test].mean()),
        "early-stopping accuracy": model.validation_score_.accuracy,
        "expected edges": model.edges_.expected_edges(),
        "outer iterations": model.n_iter_,
        "seconds": round(time.perf_counter() - started, 1),
    }


def table(records: list[dict[str, Any]]) -> str:
    lines = [
        "| half of the edges, test % | storage | seeds | accuracy | beside dense, by seed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in DATA_SETS:
        accuracy: dict[str, dict[int, float]] = {storage: {} for storage in STORAGES}
        for record in records:
            if record["data"] == name:
                accuracy[record["storage"]][record["seed"]] = 100 * record["test accuracy"]
        for storage, found in accuracy.items():
            seeds = sorted(set(found) & set(accuracy["dense"]))
            if len(seeds) < 2:
                continue
            values = [found[seed] for seed in seeds]
            beside = [found[seed] - accuracy["dense"][seed] for seed in seeds]
            each = ", ".join(f"{difference:+.1f}" for difference in beside)
            mean = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
            difference = f"{each} (mean {statistics.mean(beside):+.1f})"
            difference = "" if storage == "dense" else difference
            lines.append(f"| {name} | {storage} | {len(seeds)} | {mean} | {difference} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if options.table:
        print(table(records))
        return
    torch.set_num_threads(1)
    done = {(record["data"], record["storage"], record["seed"]) for record in records}
    for seed in range(options.seeds):
        for name in DATA_SETS:
            for storage in STORAGES:
                if (name, storage, seed) not in done:
                    records.append(measure(name, storage, seed))
                    RESULTS.write_text(json.dumps(records, indent=1) + "\n")
                    print(records[-1], flush=True)


if __name__ == "__main__":
    main()
