"""Edges from features against soft-knn-gcn, without a graph, at equal labels: five seeds.

python benchmarks/similarity.py cora citeseer     # writes similarity.json, and goes on from it
python benchmarks/similarity.py --table           # what is there, as Markdown

Labels: training rows and one half of the validation rows to learn from, the other half to stop on,
for both methods. No test label chooses anything: a stage's figure is the test accuracy of what
the early-stopping loss would have kept, had the fit ended there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import LDSClassifier, make_method
from edgewise.datasets import load
from edgewise.learn import Callback
from edgewise.learn_similarity import SimilaritySchedule

RESULTS = Path(__file__).with_suffix(".json")
DEGREE, HIDDEN = 15, 64
STAGES = {
    "start": 1,
    "denoised": len(SimilaritySchedule(rotations=0).stages()),
    "rotated": len(SimilaritySchedule().stages()),
}
RIVAL = "soft-knn-gcn"
Record = dict[str, Any]


class Looks(Callback):
    """The test accuracy of the best model so far, after each look at the edges."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.test: list[float] = []
        self.loss: list[float] = []

    def after_iteration(self, edges: Any, progress: Any) -> None:
        predicted = progress.best.probabilities.argmax(axis=1)
        test = self._data.test
        self.test.append(float((predicted == self._data.labels)[test].mean()))
        self.loss.append(progress.history[-1].scores.early_stopping.loss)


def ours(data: Any, seed: int) -> Record:
    looks = Looks(data)
    LDSClassifier(
        DEGREE, edges="similarity", hidden_units=HIDDEN, callbacks=[looks], random_state=seed
    ).fit(
        data.features,
        data.masked_labels(),
        validation=data.split.validation,
        early_stopping=data.split.early_stopping,
    )
    kept = {stage: looks.test[last - 1] for stage, last in STAGES.items()}
    return {**kept, "test by look": looks.test, "loss by look": looks.loss}


def rival(data: Any, seed: int) -> Record:
    """At the same labels: all but the early-stopping rows train."""
    halves = np.array_split(data.split.early_stopping, 2)
    found: Record = {}
    for hidden in (16, HIDDEN):
        for degree in (7.0, float(DEGREE)):
            model = make_method(
                RIVAL, expected_degree=degree, hidden_units=hidden, random_state=seed
            )
            model.fit(
                data.features,
                data.masked_labels(),
                validation=halves[0],
                early_stopping=halves[1],
            )
            right = (model.transduction_ == data.labels)[data.test]
            name = f"degree {degree:g}, {hidden} units"
            found[name] = [float(right.mean()), model.validation_score_.loss]
    chosen = min(found, key=lambda name: found[name][1])
    return {"chosen": chosen, "test": found[chosen][0], "all": found}


def measure(name: str, seed: int) -> Record:
    data = load(name, seed=seed)
    started = time.process_time()
    mine = ours(data, seed)
    seconds = round(time.process_time() - started, 1)
    return {"data": name, "seed": seed, "ours": mine, "seconds": seconds, RIVAL: rival(data, seed)}


def percent(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * spread:.1f}"


def table(records: list[Record]) -> str:
    by_data = defaultdict(list)
    for record in records:
        by_data[record["data"]].append(record)
    lines = [
        f"| test % | seeds | {RIVAL} | {' | '.join(STAGES)} |",
        "| --- | --- | --- |" + " --- |" * len(STAGES),
    ]
    for name, runs in by_data.items():
        stages = [percent([run["ours"][stage] for run in runs]) for stage in STAGES]
        theirs = percent([run[RIVAL]["test"] for run in runs])
        lines.append(f"| {name} | {len(runs)} | {theirs} | {' | '.join(stages)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    records: list[Record] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if options.table:
        print(table(records))
        return
    torch.set_num_threads(1)
    done = {(record["data"], record["seed"]) for record in records}
    for seed in range(options.seeds):
        for name in options.data:
            if (name, seed) not in done:
                records.append(measure(name, seed))
                RESULTS.write_text(json.dumps(records, indent=1) + "\n")
                print(records[-1], flush=True)


if __name__ == "__main__":
    main()
