"""What ``edgewise fit --out DIR`` leaves in the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.cli.output import plain

if TYPE_CHECKING:
    import pandas as pd

    from edgewise.cli.fit import Task
    from edgewise.cli.fitting import Fitted
    from edgewise.graph.distribution import EdgeDistribution
    from edgewise.graph.pairs import Pairs

FILES = ("metrics.json", "history.csv", "predictions.csv", "edges.csv")


def write_run(
    folder: Path,
    task: Task,
    fitted: Fitted,
    metrics: dict[str, Any],
    top: int | None,
    threshold: float | None,
) -> None:
    """Write all the `FILES`, over those of an earlier run.

    Parameters
    ----------
    folder : Path
        An existing folder.
    task, fitted, metrics
        What was to be done, what came of it, and its figures.
    top, threshold
        Which edges are written; see `edge_table`.
    """
    import pandas as pd

    from edgewise.files import staged

    edges = edge_table(fitted.classifier.edges_, fitted.initial, top, threshold)
    with staged(folder) as stage:
        (stage / "metrics.json").write_text(json.dumps(plain(metrics), indent=2) + "\n")
        pd.DataFrame(fitted.classifier.history_).to_csv(stage / "history.csv", index=False)
        prediction_table(task, fitted).to_csv(stage / "predictions.csv", index=False)
        edges.to_csv(stage / "edges.csv", index=False)


def prediction_table(task: Task, fitted: Fitted) -> pd.DataFrame:
    """Each row's role, true and predicted class, and its class probabilities."""
    import numpy as np
    import pandas as pd

    dataset, classifier = task.dataset, fitted.classifier
    roles = np.full(dataset.n_nodes, "", dtype=object)
    for role in ("train", "validation", "early_stopping"):
        roles[getattr(dataset.split, role)] = role
    roles[dataset.test] = "test"
    names = np.append(dataset.classes.astype(object), "")  # the last one for label -1
    columns = {
        "row": np.arange(dataset.n_nodes),
        "role": roles,
        "label": names[dataset.labels],
        "predicted": names[classifier.transduction_],
    }
    probabilities = {
        f"probability_{names[code]}": classifier.label_distributions_[:, column].round(6)
        for column, code in enumerate(classifier.classes_)
    }
    return pd.DataFrame({**columns, **probabilities})


def edge_table(
    edges: EdgeDistribution, initial: Pairs, top: int | None = None, threshold: float | None = None
) -> pd.DataFrame:
    """The most probable edges, by falling probability, and whether they were there initially.

    Parameters
    ----------
    edges : EdgeDistribution
    initial : Pairs
    top : int, optional
        How many. By default as many as the distribution expects there to be.
    threshold : float, optional
        In place of `top`: all edges more probable than this.

    Examples
    --------
    >>> from edgewise.graph.distribution import DenseEdges
    >>> from edgewise.graph.pairs import Pairs
    >>> chain = Pairs.fold([0, 1], [1, 2], n_nodes=3)
    >>> edge_table(DenseEdges(3, chain), chain, top=1)
       source  target  probability  initial
    0       0       1          1.0     True
    """
    import numpy as np

    if threshold is not None:
        frame: pd.DataFrame = edges.to_pandas(threshold)
    else:
        import pandas as pd

        pairs, probability = edges.top_edges(round(edges.expected_edges()) if top is None else top)
        columns = {"source": pairs.rows, "target": pairs.cols, "probability": probability}
        frame = pd.DataFrame(columns)
    key = frame["source"].to_numpy() * edges.n_nodes + frame["target"].to_numpy()
    frame["initial"] = np.isin(key, initial.rows * edges.n_nodes + initial.cols)
    return frame
