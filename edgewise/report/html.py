"""The report on a run: one HTML page that needs nothing else, not even a network.

What comes from data goes into the page as one block of JSON, from which the page's own script takes
it as text, never as HTML (see ``page.html``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from edgewise import __version__
from edgewise.files import require_folder, write_atomically
from edgewise.report.layout import sampled_layout
from edgewise.report.run_files import LEAST_PROBABILITY, Edges, RunFiles, read_run

# Nodes and edges that a browser draws at ease, and that fit into the page.
MAX_NODES = 5_000
MAX_DRAWN_EDGES = 20_000
TOP_CLASSES = 8
TOP_FEATURES = 4
N_UNSURE = 25
LONGEST_TEXT = 80
FEW_LABELS = 5
N_BINS = 10
GRID = 10_000
ROLES = {
    "train": "label given, to train",
    "validation": "label given, to fit the edges",
    "early_stopping": "label given, to stop",
    "test": "held out",
    "": "no label",
}
LABELLED = ("train", "validation", "early_stopping")
_DATA = "@DATA@"


def write_report(folder: Path, output: Path) -> None:
    """Write the report on a run.

    Parameters
    ----------
    folder : Path
        What ``edgewise fit ... --out folder`` wrote.
    output : Path
        The HTML file.
    """
    page = render(report_data(read_run(folder)))
    require_folder(output.parent)
    # Half of a surrogate pair, which JSON can hold, is no character and cannot be written.
    write_atomically(output, page.encode("utf-8", "replace"))


def render(data: dict[str, Any]) -> str:
    """The page that shows some data.

    Examples
    --------
    >>> page = render({"name": "</script><script>alert(1)</script>"})
    >>> "alert(1)</script>" in page
    False
    """
    template = files("edgewise.report").joinpath("page.html").read_text(encoding="utf-8")
    before, _, after = template.partition(_DATA)
    return before + _script_safe(data) + after


def _script_safe(data: Any) -> str:
    """JSON in which no browser finds the end of a script, a comment or an entity."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def report_data(run: RunFiles) -> dict[str, Any]:
    """All that the page shows, in JSON's types."""
    nodes = _chosen_nodes(run)
    edges = _edges_between(run.edges, nodes, run.n_rows)
    place = sampled_layout(
        edges.sources[:MAX_DRAWN_EDGES],
        edges.targets[:MAX_DRAWN_EDGES],
        edges.probability[:MAX_DRAWN_EDGES],
        run.predicted[nodes],
        np.random.default_rng(0),
    )
    headline, context = _headline(run)
    roles = list(dict.fromkeys([*ROLES.values(), *(_role(role) for role in run.roles)]))
    return {
        "name": _short(run.name),
        "headline": headline,
        "context": context,
        "facts": _facts(run),
        "warnings": warnings_of(run),
        "graph_note": _graph_note(run, len(nodes), edges),
        "classes": [_short(name) for name in run.classes],
        "roles": roles,
        "labelled_roles": [roles.index(ROLES[role]) for role in LABELLED],
        "nodes": _nodes(run, nodes, place, roles),
        "features": _features(run, nodes),
        "edges": {
            "sources": edges.sources.tolist(),
            "targets": edges.targets.tolist(),
            "shares": np.rint(1000 * edges.probability).astype(int).tolist(),
            "threshold": _first_threshold(run, edges),
        },
        "history": _history(run),
        "calibration": _calibration(run),
        **_unsure(run, nodes),
        "made": f"Made by edgewise {__version__}; it loads nothing from the network.",
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _role(role: str) -> str:
    return ROLES.get(role, _short(role))


# ------------------------------------------------------------------------------------ in words


def _headline(run: RunFiles) -> tuple[str, list[str]]:
    """How well it went in one sentence, and what that has to be compared with."""
    test = run.rows_of("test")
    if not len(test):
        return _headline_without_test(run), [_against_baseline(run, None, 0)]
    right = run.predicted[test] == run.labels[test]
    accuracy, n_rows = float(right.mean()), len(test)
    low, high = _wilson(int(right.sum()), n_rows)
    most = np.bincount(run.labels[test]).max() / n_rows
    headline = (
        f"With a learned graph of about {_expected_edges(run):,.0f} edges, "
        f"{accuracy:.1%} of {n_rows:,} held-out rows are predicted right."
    )
    chance = (
        f"95% interval for rows like these: {low:.1%} to {high:.1%}. Always naming the most "
        f"frequent class would be right in {most:.1%}."
    )
    return headline, [_against_baseline(run, accuracy, n_rows), chance]


def _headline_without_test(run: RunFiles) -> str:
    accuracy = run.metrics.get("early_stopping_accuracy")
    learned = f"A graph of about {_expected_edges(run):,.0f} edges was learned; "
    if not isinstance(accuracy, (int, float)):
        return learned + "how good it is, is not known: no labelled rows were held out."
    return learned + (
        f"{accuracy:.1%} of the early-stopping rows are predicted right. As the model was chosen "
        "by these, that is an optimistic figure."
    )


def _against_baseline(run: RunFiles, accuracy: float | None, n_rows: int) -> str:
    """The baseline of metrics.json, or the conclusion of a comparison in the same folder."""
    baseline = run.metrics.get("baseline")
    if isinstance(baseline, dict) and accuracy is not None:
        other = baseline.get("test_accuracy")
        if isinstance(other, (int, float)):
            name = _short(str(baseline.get("method", "the same network on the fixed graph")))
            return _difference(accuracy, float(other), n_rows, name)
    if run.comparison is not None and run.comparison.get("conclusion"):
        return str(run.comparison["conclusion"])[:1000]
    return (
        "This run holds no fixed-graph baseline, so it does not tell whether learning the graph "
        "was of any use. The command edgewise compare, on the same data, does."
    )


def _difference(accuracy: float, other: float, n_rows: int, name: str) -> str:
    mean = (accuracy + other) / 2
    # Two standard errors of a difference, as if the two erred on different rows.
    chance = 2.0 * math.sqrt(2.0 * mean * (1.0 - mean) / n_rows)
    points = 100 * (accuracy - other)
    verdict = "better" if points > 0 else "worse"
    said = f"The fixed-graph baseline ({name}) gets {other:.1%}: "
    if abs(accuracy - other) <= chance:
        return said + (
            f"a difference of {points:+.1f} points, which on {n_rows:,} rows can be chance."
        )
    return said + f"the learned graph is {abs(points):.1f} points {verdict}."


def _wilson(n_right: int, n_rows: int) -> tuple[float, float]:
    """Bounds of a share at 95 %, also for few rows and shares near 1."""
    z, share = 1.96, n_right / n_rows
    middle = share + z * z / (2 * n_rows)
    half = z * math.sqrt(share * (1 - share) / n_rows + z * z / (4 * n_rows**2))
    scale = 1 + z * z / n_rows
    return (middle - half) / scale, (middle + half) / scale


def _expected_edges(run: RunFiles) -> float:
    expected = run.metrics.get("expected_edges")
    if isinstance(expected, (int, float)):
        return float(expected)
    return float(run.edges.probability.sum())


def _facts(run: RunFiles) -> list[list[str]]:
    """Short figures: name and value."""
    metrics = run.metrics
    given = {role: sum(own == role for own in run.roles) for role in LABELLED}
    facts = [["rows", f"{run.n_rows:,}"], ["classes", f"{len(run.classes):,}"]]
    if any(given.values()):
        facts.append(["labels: train / edges / stop", " / ".join(f"{n:,}" for n in given.values())])
    forms = {
        "balanced_accuracy": ("balanced accuracy", "{:.1%}"),
        "macro_f1": ("macro F1", "{:.3f}"),
        "log_loss": ("log loss", "{:.3f}"),
        "initial_edges": ("edges to start from", "{:,.0f}"),
        "expected_edges": ("expected edges now", "{:,.0f}"),
        "outer_iterations": ("outer iterations", "{:,.0f}"),
        "seconds": ("seconds to fit", "{:,.1f}"),
    }
    for key, (name, form) in forms.items():
        value = metrics.get(key, metrics.get(f"test_{key}"))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            facts.append([name, form.format(value)])
    return facts


def _graph_note(run: RunFiles, n_nodes: int, edges: Edges) -> str:
    shown = "All rows are shown"
    if n_nodes < run.n_rows:
        shown = (
            f"{n_nodes:,} of {run.n_rows:,} rows are shown: those with labels and the least sure "
            "ones first, then others at random"
        )
    return (
        f"{shown}, with the {edges.n_edges:,} edges between them that are kept here (the most "
        f"probable ones, none below {LEAST_PROBABILITY:.0%}). Colour and shape are the predicted "
        "class. Places start by class and then follow the edges, so what lies together is joined."
    )


# ------------------------------------------------------------------------------------ warnings


def warnings_of(run: RunFiles) -> list[str]:
    """What speaks against trusting the result, a sentence or two each."""
    found = list(run.problems)
    if run.metrics.get("interrupted") is True:
        found.append("The fit was interrupted; this is the best model until then.")
    found += [
        f"The column {_short(name)} alone all but determines the label. If it is only known "
        "afterwards, the accuracy means nothing: leave it out with --drop and fit again."
        for name in _leaking(run)
    ]
    found += _scarce(run)
    if over := _over_fitted(run):
        found.append(over)
    if not len(run.rows_of("test")):
        found.append(
            "No labelled rows were held out, so nothing here says how good the predictions are "
            "on new rows: fit again with --test-fraction."
        )
    given = run.metrics.get("warnings")
    return found + [str(one)[:1000] for one in given] if isinstance(given, list) else found


def _leaking(run: RunFiles) -> list[str]:
    """Columns that the metrics name, else what the features themselves show."""
    named = run.metrics.get("leaking_columns")
    if isinstance(named, list):
        return [
            str(one["name"] if isinstance(one, dict) and "name" in one else one) for one in named
        ]
    if run.features is None:
        return []
    from edgewise.io.tables import leaking_columns

    names = run.feature_names or [f"number {i}" for i in range(run.features.shape[1])]
    return [name for name, _ in leaking_columns(run.features, names, run.labels)][:10]


def _scarce(run: RunFiles) -> list[str]:
    """Classes with too few labels to learn from."""
    given = [role in LABELLED for role in run.roles]
    labels = run.labels[np.array(given, dtype=bool)] if any(given) else run.labels
    counts = np.bincount(labels[labels >= 0], minlength=len(run.classes))
    few = [code for code in np.argsort(counts, kind="stable") if counts[code] < FEW_LABELS]
    if not few or not counts.any():
        return []
    shown = ", ".join(f"{_short(run.classes[code])} ({counts[code]})" for code in few[:10])
    more = f" and {len(few) - 10} more" if len(few) > 10 else ""
    return [
        f"Classes with fewer than {FEW_LABELS} labels to learn from: {shown}{more}. Predictions of "
        "these are little more than guesses: label more rows of them."
    ]


def _over_fitted(run: RunFiles) -> str | None:
    """Whether the edges fit the rows of the outer objective, and no others."""
    if not run.history or len(run.classes) < 2:
        return None
    record = run.history[_best_place(run)]
    fitted, fresh = record.get("validation_loss"), record.get("early_stopping_loss")
    if fitted is None or fresh is None:
        return None
    # A quarter of what knowing nothing costs.
    if fitted > 0.05 or fresh < max(10 * fitted, 0.25 * math.log(len(run.classes))):
        return None
    return (
        f"The edges over-fit: their own objective, the validation loss, is down to {fitted:.3f}, "
        f"while the loss on the early-stopping rows is {fresh:.2f}. Label more rows, or learn "
        "fewer parameters with edges='similarity'."
    )


# ------------------------------------------------------------------------------ nodes and edges


def _chosen_nodes(run: RunFiles) -> NDArray[np.int64]:
    """All rows, or of too many: labelled ones, the least sure ones and some at random."""
    if run.n_rows <= MAX_NODES:
        return np.arange(run.n_rows)
    unsure = np.argsort(run.probabilities.max(axis=1), kind="stable")[:N_UNSURE]
    labelled = [row for row, role in enumerate(run.roles) if role in LABELLED]
    rest = np.random.default_rng(0).permutation(run.n_rows)
    order = np.concatenate([unsure, np.array(labelled, dtype=np.int64)[: MAX_NODES // 2], rest])
    _, first = np.unique(order, return_index=True)
    return np.sort(order[np.sort(first)[:MAX_NODES]])


def _edges_between(edges: Edges, nodes: NDArray[np.int64], n_rows: int) -> Edges:
    """The edges between chosen rows, by their places among these."""
    place = np.full(n_rows, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    sources, targets = place[edges.sources], place[edges.targets]
    kept = (sources >= 0) & (targets >= 0)
    return Edges(sources[kept], targets[kept], edges.probability[kept])


def _first_threshold(run: RunFiles, edges: Edges) -> float:
    """From which on about as many edges are drawn as are expected."""
    wanted = min(round(_expected_edges(run)), MAX_DRAWN_EDGES)
    if wanted >= edges.n_edges:
        return 0.0
    return min(math.ceil(100 * float(edges.probability[wanted])) / 100, 0.99)


def _nodes(
    run: RunFiles, nodes: NDArray[np.int64], place: NDArray[np.float64], roles: Sequence[str]
) -> dict[str, Any]:
    probabilities = run.probabilities[nodes]
    top = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP_CLASSES]
    shares = np.rint(1000 * np.take_along_axis(probabilities, top, axis=1)).astype(int)
    x, y = np.rint(GRID * place).astype(int).T
    return {
        "ids": [_short(run.ids[row]) for row in nodes],
        "x": x.tolist(),
        "y": y.tolist(),
        "predicted": run.predicted[nodes].tolist(),
        "labels": run.labels[nodes].tolist(),
        "roles": [roles.index(_role(run.roles[row])) for row in nodes],
        "top_codes": top.tolist(),
        "top_shares": shares.tolist(),
    }


def _features(run: RunFiles, nodes: NDArray[np.int64]) -> dict[str, Any] | None:
    """The features in which each row stands out most."""
    if run.features is None or not run.features.shape[1]:
        return None
    chosen = run.features[nodes]
    if sparse.issparse(chosen):
        columns, values = _rarest_entries(chosen, run.features)
    else:
        mean, scale = run.features.mean(axis=0), run.features.std(axis=0)
        if run.feature_columns is not None:
            scale[:] = 1.0  # the table's columns are scaled; else rare words would outdo numbers
        unusual = np.abs(chosen - mean) / np.where(scale > 0, scale, 1.0)
        top = np.argsort(-unusual, axis=1, kind="stable")[:, :TOP_FEATURES]
        columns, values = top.tolist(), np.take_along_axis(chosen, top, axis=1).tolist()
    used = sorted({column for row in columns for column in row})
    code = {column: place for place, column in enumerate(used)}
    names, owners = run.feature_names, run.feature_columns
    return {
        "names": [_short(names[i]) if names else f"feature {i}" for i in used],
        "codes": [[code[column] for column in row] for row in columns],
        "values": [
            [
                f"{value:.3g}" if owners is None else owners[column].in_words(value)
                for column, value in zip(own, row, strict=True)
            ]
            for own, row in zip(columns, values, strict=True)
        ],
    }


def _rarest_entries(chosen: Any, features: Any) -> tuple[list[list[int]], list[list[float]]]:
    """Of each sparse row the largest entries, weighed by how few rows have them."""
    table = features.tocsc()
    rarity = np.log(features.shape[0] / np.maximum(np.diff(table.indptr), 1)) + 1e-9
    columns, values = [], []
    chosen = chosen.tocsr()
    for start, stop in zip(chosen.indptr[:-1], chosen.indptr[1:], strict=True):
        own, content = chosen.indices[start:stop], chosen.data[start:stop]
        top = np.argsort(-np.abs(content) * rarity[own], kind="stable")[:TOP_FEATURES]
        columns.append(own[top].tolist())
        values.append(content[top].tolist())
    return columns, values


# ------------------------------------------------------------------------------------- figures


def _best_place(run: RunFiles) -> int:
    """Where in the history the iteration is that was kept: by default the last one."""
    best = run.metrics.get("best_iteration")
    places = [i for i, record in enumerate(run.history) if record["iteration"] == best]
    return places[-1] if places else len(run.history) - 1


def _history(run: RunFiles) -> dict[str, Any] | None:
    """A list for each quantity, and the iteration that was kept."""
    if not run.history:
        return None
    wanted = [
        f"{part}_{what}" for part in ("train", "validation", "early_stopping") for what in _SCORES
    ]
    names = ["iteration", *wanted, "expected_edges"]
    columns: dict[str, Any] = {
        name: [record.get(name) for record in run.history]
        for name in names
        if any(record.get(name) is not None for record in run.history)
    }
    return {**columns, "best": run.metrics.get("best_iteration")}


_SCORES = ("loss", "accuracy")


def _calibration(run: RunFiles) -> dict[str, Any] | None:
    """How often held-out rows are right, by the probability of the predicted class."""
    test = run.rows_of("test")
    if not len(test):
        return None
    said = run.probabilities[test].max(axis=1)
    right = run.predicted[test] == run.labels[test]
    place = np.minimum((said * N_BINS).astype(int), N_BINS - 1)
    bins, error = [], 0.0
    for number in np.unique(place):
        inside = place == number
        confidence, accuracy = float(said[inside].mean()), float(right[inside].mean())
        error += abs(confidence - accuracy) * inside.mean()
        bins.append(
            {
                "low": number / N_BINS,
                "high": (number + 1) / N_BINS,
                "n": int(inside.sum()),
                "confidence": round(confidence, 4),
                "accuracy": round(accuracy, 4),
            }
        )
    of_truth = run.probabilities[test, run.labels[test]]
    score = float(-np.log(np.maximum(of_truth, 1e-6)).mean())
    return {"bins": bins, "error": round(float(error), 4), "n": len(test), "score": score}


def _unsure(run: RunFiles, nodes: NDArray[np.int64]) -> dict[str, Any]:
    """Places among the nodes of the rows whose label nobody gave and that could be anything."""
    without = np.array([run.roles[row] not in LABELLED for row in nodes], dtype=bool)
    candidates = np.flatnonzero(without)
    sure = run.probabilities[nodes[candidates]].max(axis=1)
    order = candidates[np.argsort(sure, kind="stable")][:N_UNSURE]
    note = (
        f"The {len(order)} rows without a given label whose predicted class is least probable. "
        "Labelling some of these by hand is likely to teach the model most."
        if len(order)
        else "Every row has a label."
    )
    return {"unsure": order.tolist(), "unsure_note": note}
