"""What do rows lose that come only after the fit?

The same rows are predicted twice: once as unlabelled rows that take part in the fit, once as new
rows, by a model that was fitted without them. Run ``python benchmarks/induction.py --help``.
"""

from __future__ import annotations

import argparse

import numpy as np

from edgewise import LDSClassifier
from edgewise.datasets import Dataset, load


def accuracies(
    dataset: Dataset, share: float, seed: int, parameters: dict[str, object]
) -> tuple[float, float, float]:
    """Accuracy on held-out rows when they took part, and when not; and the share of novel ones."""
    rng = np.random.default_rng([seed, 1])
    n_out = min(round(share * dataset.n_nodes), len(dataset.test))
    out = np.sort(rng.choice(dataset.test, n_out, replace=False))
    kept = np.setdiff1d(np.arange(dataset.n_nodes), out)
    place = np.full(dataset.n_nodes, -1)
    truth = dataset.labels[out]

    def fitted(rows: np.ndarray) -> LDSClassifier:
        place[rows] = np.arange(len(rows))
        split = dataset.split
        return LDSClassifier(**parameters, random_state=seed).fit(
            dataset.features[rows],
            dataset.masked_labels()[rows],
            validation=place[split.validation],
            early_stopping=place[split.early_stopping],
        )

    transductive = fitted(np.arange(dataset.n_nodes)).transduction_[out]
    without = fitted(kept)
    inductive = without.predict(dataset.features[out])
    novel = without.novelty(dataset.features[out])
    return (transductive == truth).mean(), (inductive == truth).mean(), novel.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["digits", "cora"])
    parser.add_argument("--edges", nargs="+", default=["free", "similarity"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.15, help="of the rows that is held out")
    parser.add_argument("--patience", type=int, default=5)
    arguments = parser.parse_args()
    print("data set    edges       seed  transductive  inductive    lost   novel", flush=True)
    for name in arguments.datasets:
        for edges in arguments.edges:
            parameters = {"edges": edges, "patience": arguments.patience}
            rows = []
            for seed in range(arguments.seeds):
                rows.append(accuracies(load(name, seed=seed), arguments.share, seed, parameters))
                report(name, edges, str(seed), *rows[-1])
            report(name, edges, "mean", *np.mean(rows, axis=0))


def report(name: str, edges: str, seed: str, before: float, after: float, novel: float) -> None:
    print(
        f"{name:10}  {edges:10}  {seed:>4}  {before:12.1%} {after:10.1%} {before - after:8.1%}"
        f" {novel:7.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
