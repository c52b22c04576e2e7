"""``edgewise demo``: does a learned graph help? On a small table, against the same network."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.machine import limit_threads
from edgewise.cli.output import results
from edgewise.files import require_folder, write_atomically

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgewise.datasets import Dataset
    from edgewise.graph.distribution import EdgeDistribution
    from edgewise.graph.pairs import Pairs
    from edgewise.report.progress import LiveProgress

DATASET = "wine"
# Half the default: on this table the first iterations decide, and a demo should be short.
PATIENCE = 10
PICTURES = (".png", ".pdf", ".svg", ".jpg")


# What is compared: the same network on a fixed and on a learned graph; then both of them once more,
# the network fitted anew to all labels. Learning a graph needs labels of its own, and only the
# second comparison gives the fixed graph's network the use of those.
FIXED = "GCN, fixed graph"
LEARNED = "kNN-LDS, learned graph"
FIXED_REFIT = "GCN, refit on all"
LEARNED_REFIT = "kNN-LDS, refit on all"


@dataclass(frozen=True)
class Outcome:
    """What one split gave: class numbers predicted by each method, and the learned graph."""

    dataset: Dataset
    initial: Pairs
    edges: EdgeDistribution
    predicted: dict[str, NDArray[np.int64]]

    def accuracy(self, method: str) -> float:
        """Share of the test rows that a method predicted correctly."""
        right = self.predicted[method] == self.dataset.labels
        return float(right[self.dataset.test].mean())


def demo(
    seeds: Annotated[int, typer.Option(help="Random splits to average over.", min=1)] = 5,
    picture: Annotated[Path, typer.Option(help="Where the picture goes.", dir_okay=False)] = Path(
        "edgewise-demo.png"
    ),
) -> None:
    """Learn a graph for Wine, and compare it with the fixed nearest-neighbour graph."""
    from edgewise.report.progress import LiveProgress

    if picture.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"--picture {picture} must end in one of {', '.join(PICTURES)}")
    require_folder(picture.parent)
    # One thread: more have nothing to do on so small a table, and get in each other's way.
    with limit_threads(1), LiveProgress(PATIENCE) as watch:
        outcomes = []
        for seed in range(seeds):
            watch.title = f"kNN-LDS on {DATASET}, split {seed + 1} of {seeds}"
            outcomes.append(_outcome(seed, watch))
    _print(outcomes)
    _draw(outcomes, picture)
    results().print(f"Picture: {picture}", soft_wrap=True)


def _outcome(seed: int, watch: LiveProgress) -> Outcome:
    from edgewise.baselines import make_method
    from edgewise.datasets import load
    from edgewise.estimator import LDSClassifier
    from edgewise.graph.construct import knn_pairs

    dataset = load(DATASET, seed=seed)
    table, labels = dataset.features, dataset.masked_labels()
    parts: dict[str, Any] = {
        "validation": dataset.split.validation,
        "early_stopping": dataset.split.early_stopping,
    }
    lds = LDSClassifier(patience=PATIENCE, refit=True, callbacks=[watch], random_state=seed)
    lds.fit(table, labels, **parts)
    assert watch.progress is not None  # it has watched the fit just made
    if watch.progress.interrupted:  # a comparison with half a fit would say nothing
        raise KeyboardInterrupt
    assert watch.progress.best is not None
    same = {"k": lds.k, "metric": lds.metric, "learning_rate": lds.inner_learning_rate}
    fixed, refit = (
        make_method("knn-gcn", **same, refit=refit, random_state=seed).fit(table, labels, **parts)
        for refit in (False, True)
    )
    return Outcome(
        dataset,
        knn_pairs(table, lds.k, metric=lds.metric),
        lds.edges_,
        {
            FIXED: fixed.transduction_,
            LEARNED: lds.classes_[watch.progress.best.probabilities.argmax(axis=1)],
            FIXED_REFIT: refit.transduction_,
            LEARNED_REFIT: lds.transduction_,
        },
    )


def _budget(outcome: Outcome) -> dict[str, str]:
    """How many labels each method fits its network to, fits edges to, and stops by."""
    split = outcome.dataset.split
    train, outer, stop = (
        len(rows) for rows in (split.train, split.validation, split.early_stopping)
    )
    return {
        FIXED: f"{train} / 0 / {outer + stop}",
        LEARNED: f"{train} / {outer} / {stop}",
        FIXED_REFIT: f"{train + outer + stop} / 0 / {stop}",
        LEARNED_REFIT: f"{train + outer + stop} / {outer} / {stop}",
    }


def _print(outcomes: Sequence[Outcome]) -> None:
    import numpy as np
    from rich.table import Table

    dataset = outcomes[0].dataset
    n_labels = int((dataset.masked_labels() >= 0).sum())
    table = Table(
        title=f"{dataset.name}: {dataset.n_nodes} rows, {n_labels} labels. Test accuracy in %.",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    table.add_column("method")
    for name in ("labels: net/edges/stop", "mean ± sd"):
        table.add_column(name, justify="right")
    table.add_column(f"each of {len(outcomes)} splits", overflow="fold")
    for method, budget in _budget(outcomes[0]).items():
        values = [100 * outcome.accuracy(method) for outcome in outcomes]
        spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        each = " ".join(f"{value:.1f}" for value in values)
        table.add_row(method, budget, f"{np.mean(values):.1f}{spread}", each)
    results().print(table)
    for rival, learned, when in (
        (FIXED, LEARNED, "Its network fitted as in the paper"),
        (FIXED_REFIT, LEARNED_REFIT, f"With both refit on all {n_labels} labels"),
    ):
        results().print(_verdict(outcomes, rival, learned, when), soft_wrap=True)


def _verdict(outcomes: Sequence[Outcome], rival: str, learned: str, when: str) -> str:
    import numpy as np

    gains = np.array([100 * (o.accuracy(learned) - o.accuracy(rival)) for o in outcomes])
    return (
        f"{when}, the learned graph was better on {int((gains > 0).sum())} of {len(gains)} "
        f"splits, worse on {int((gains < 0).sum())}: {gains.mean():+.1f} points on average."
    )


def _draw(outcomes: Sequence[Outcome], picture: Path) -> None:
    """Save the picture of a typical split's graphs (that of median gain) and all accuracies."""
    import numpy as np

    from edgewise.report.pictures import DrawnGraph, comparison_figure, spring_layout

    by_gain = sorted(outcomes, key=lambda o: o.accuracy(LEARNED) - o.accuracy(FIXED))
    typical = by_gain[len(by_gain) // 2]
    dataset, initial, n_nodes = typical.dataset, typical.initial, typical.dataset.n_nodes
    rng = np.random.default_rng(0)
    drawn = typical.edges.sample(rng)
    added = _without(drawn, initial, n_nodes)
    gone = _without(initial, drawn, n_nodes)

    def graph(method: str, title: str, pairs: Pairs, new: Pairs) -> DrawnGraph:
        wrong = np.isin(np.arange(n_nodes), dataset.test)
        wrong &= typical.predicted[method] != dataset.labels
        return DrawnGraph(
            f"{title}\ntest accuracy {typical.accuracy(method):.1%}", pairs, new, wrong
        )

    before = f"Fixed graph: {initial.n_pairs:,} edges"
    after = f"Drawn from the learned graph: {added.n_pairs} edges new, {gone.n_pairs} gone"
    figure = comparison_figure(
        [
            graph(FIXED, before, initial, _without(initial, initial, n_nodes)),
            graph(LEARNED, after, drawn, added),
        ],
        spring_layout(initial, n_nodes, rng),
        dataset.labels,
        [f"{dataset.name} {name}".replace("_", " ") for name in dataset.classes],
        dataset.masked_labels() >= 0,
        {
            title: {
                name: [outcome.accuracy(method) for outcome in outcomes]
                for name, method in (("fixed graph", fixed), ("learned graph", learned))
            }
            for title, fixed, learned in (
                (f"{len(outcomes)} splits and their mean", FIXED, LEARNED),
                ("The same, refit on all labels", FIXED_REFIT, LEARNED_REFIT),
            )
        },
    )
    content = io.BytesIO()
    figure.savefig(content, format=picture.suffix[1:].lower())
    write_atomically(picture, content.getvalue())


def _without(pairs: Pairs, others: Pairs, n_nodes: int) -> Pairs:
    """The pairs that are not among the others."""
    import numpy as np

    from edgewise.graph.pairs import Pairs

    key = pairs.rows * n_nodes + pairs.cols
    rest = ~np.isin(key, others.rows * n_nodes + others.cols)
    return Pairs(pairs.rows[rest], pairs.cols[rest])
