"""Figures of results, made to be read: units on the axes, a look of its own for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from edgewise.experiments import paper, plans
from edgewise.experiments.statistics import mean_std
from edgewise.experiments.tables import Book, Entry
from edgewise.experiments.traces import GROUPS, Trace
from edgewise.files import staged


class Look(NamedTuple):
    """How a line looks: apart from all others by its colour, and by its marker as well."""

    name: str
    colour: str
    marker: str


# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, RED, SKY, GREEN, PINK, YELLOW, BLACK = (
    "#0072B2", "#E69F00", "#D55E00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#000000",
)  # fmt: skip
METHODS: Mapping[str, Look] = {
    "gcn": Look("GCN", BLUE, "o"),
    "gcn-rnd": Look("GCN-RND", ORANGE, "s"),
    "lds": Look("LDS", RED, "^"),
    "dense-gcn": Look("Dense-GCN", SKY, "P"),
    "knn-gcn": Look("kNN-GCN", GREEN, "D"),
    "knn-lds": Look("kNN-LDS", PINK, "v"),
}
_TAUS = {
    0: Look("τ = 0 (alternating)", BLACK, "X"),
    1: Look("τ = 1", SKY, "o"),
    5: Look("τ = 5", RED, "^"),
    20: Look("τ = 20", GREEN, "s"),
}
_GROUPS: dict[str, tuple[str, Any]] = dict(
    zip(
        GROUPS,
        ((RED, "-"), (BLUE, "--"), (BLACK, ":"), (GREEN, "-.")),
        strict=True,
    )
)
# Of classes: neighbours also differ in lightness.
_CLASSES = tuple(
    zip(
        (BLUE, YELLOW, RED, SKY, BLACK, ORANGE, GREEN, PINK),
        ("o", "s", "^", "D", "v", "P", "X", "p"),
        strict=True,
    )
)
_TITLES = {"cora": "Cora", "citeseer": "Citeseer"}
_ROLES = {"train": "training node", "validation": "validation node", "test": "test node"}


def _canvas(panels: int, *, height: float = 4.3, width: float = 4.6) -> tuple[Figure, list[Axes]]:
    # Figure itself rather than pyplot: no global state, no window system.
    figure = Figure(figsize=(width * panels, height), layout="constrained", dpi=130)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def edges(book: Book) -> Figure | None:
    """Figure 2, left and centre: accuracy by the share of the edges that is known.

    Parameters
    ----------
    book : Book

    Returns
    -------
    matplotlib Figure, or None where nothing is recorded yet

    Examples
    --------
    >>> edges(Book([])) is None
    True
    """
    if not any(entry.test for entry in book.entries("edges").values()):
        return None
    figure, panels = _canvas(len(plans.CITATION))
    for axes, dataset in zip(panels, plans.CITATION, strict=True):
        for i, method in enumerate(plans.EDGES_METHODS):
            found = [
                book.entry("edges", method, dataset, keep_edges=share) for share in plans.KEPT_EDGES
            ]
            _curve(axes, found, METHODS[method], shift=1.2 * (i - 1))
        if book.labels == "paper":
            _published(axes, dataset)
        axes.set_title(_TITLES[dataset])
        _share_axis(axes)
    panels[0].set_ylabel("accuracy, %")
    star: dict[str, Any] = {
        "marker": "*",
        "markersize": 11,
        "markerfacecolor": "white",
        "color": "black",
    }
    in_paper = Line2D([], [], linestyle="none", label="LDS in the paper, test", **star)
    looks = [METHODS[method] for method in plans.EDGES_METHODS]
    _legend(figure, looks, [in_paper] if book.labels == "paper" else [])
    return figure


_STAR: Mapping[str, Any] = {
    "marker": "*",
    "markersize": 11,
    "markerfacecolor": "white",
    "color": "black",
}


def _published(axes: Axes, dataset: str) -> None:
    published = paper.LDS_KEPT_EDGES[dataset]
    at, means = [100 * share for share in published], [number.mean for number in published.values()]
    axes.plot(at, means, linestyle="none", zorder=4, **_STAR)


def tau(book: Book) -> Figure | None:
    """Figure 2, right: accuracy of LDS on Citeseer by the length of the unrolled stretch.

    Parameters
    ----------
    book : Book

    Returns
    -------
    matplotlib Figure, or None where nothing is recorded yet
    """
    entries = book.tau_entries()
    if not any(entry.test for entry in entries.values()):
        return None
    figure, (axes,) = _canvas(1, width=6.4)
    for i, (value, look) in enumerate(_TAUS.items()):
        found = [entries[value, share] for share in plans.KEPT_EDGES]
        _curve(axes, found, look, shift=1.2 * (i - 1.5))
    axes.set_title("LDS on Citeseer")
    axes.set_ylabel("accuracy, %")
    _share_axis(axes)
    _legend(figure, list(_TAUS.values()), [])
    return figure


def _curve(axes: Axes, entries: Sequence[Entry], look: Look, shift: float) -> None:
    """Test accuracy with its deviation, solid; accuracy on the rows that decided, dashed."""
    at = [100 * share for share in plans.KEPT_EDGES]
    for values, style in (
        ([entry.test for entry in entries], "-"),
        ([entry.stopping for entry in entries], "--"),
    ):
        pairs = [mean_std([100 * value for value in seeds.values()]) for seeds in values]
        means, deviations = zip(*pairs, strict=True)
        axes.errorbar(
            np.array(at) + shift,
            means,
            yerr=np.nan_to_num(deviations) if style == "-" else None,
            color=look.colour,
            marker=look.marker,
            markersize=6,
            markerfacecolor=look.colour if style == "-" else "white",
            linestyle=style,
            linewidth=1.6 if style == "-" else 1.1,
            capsize=3,
        )


def _share_axis(axes: Axes) -> None:
    axes.set_xticks([100 * share for share in plans.KEPT_EDGES])
    axes.set_xlabel("edges kept, %")
    _clean(axes)


def _legend(figure: Figure, looks: Sequence[Look], more: Sequence[Line2D]) -> None:
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, label=look.name) for look in looks
    ]
    handles += [
        Line2D([], [], color="0.3", linestyle="-", label="test"),
        Line2D([], [], color="0.3", linestyle="--", label="validation or early stopping"),
        *more,
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def probabilities(trace: Trace) -> Figure:
    """Figure 3: mean probability of a node's edges, by group, over the optimisation.

    Parameters
    ----------
    trace : the trace "probabilities"

    Returns
    -------
    matplotlib Figure
    """
    nodes = trace["nodes"]
    figure, panels = _canvas(len(nodes))
    for axes, node in zip(panels, nodes, strict=True):
        for end in trace["restarts"]:
            axes.axvline(end, color="0.75", linewidth=0.9, zorder=0)
        for name, (colour, style) in _GROUPS.items():
            values = [np.nan if value is None else value for value in node["log10_mean"][name]]
            axes.plot(trace["updates"], values, color=colour, linestyle=style, linewidth=1.6)
        axes.set_title(f"{_ROLES[node['role']]} {node['node']}", fontsize=11)
        axes.set_xlabel("updates of the edges")
        _clean(axes)
    low = min(axes.get_ylim()[0] for axes in panels)
    for axes in panels:
        axes.set_ylim(low, 0.1)
    panels[0].set_ylabel("log10 of mean edge probability")
    handles = [
        Line2D([], [], color=colour, linestyle=style, linewidth=1.6, label=name)
        for name, (colour, style) in _GROUPS.items()
    ]
    handles.append(Line2D([], [], color="0.75", label="the inner problem restarts"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def histograms(trace: Trace) -> Figure:
    """Figures 4 and 5: how probable a node's edges are, to its own class and to the rest.

    Parameters
    ----------
    trace : the trace "histograms" or "misclassified"

    Returns
    -------
    matplotlib Figure
    """
    nodes, bins = trace["nodes"], trace["bins"]
    figure, panels = _canvas(max(1, len(nodes)))
    width = bins[1] - bins[0]
    below = bins[0] - 1.5 * width  # the bar of what is under the first bin, a little apart
    sides = (("same class", RED, "", 0.0), ("rest", "#FFFFFF", "////", 0.5))
    for axes, node in zip(panels, nodes, strict=False):
        for name, colour, hatch, side in sides:
            shown = node["histograms"][name]
            axes.bar(
                [at + side * width for at in (below, *bins[:-1])],
                [100 * share for share in (shown["below"], *shown["shares"])],
                width=0.43 * width,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.7,
            )
        axes.set_title(_node_title(node), fontsize=11)
        axes.set_yscale("log")
        axes.set_ylim(0.02, 120)
        axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        ticks = [tick for tick in bins if float(tick).is_integer()]
        axes.set_xticks(
            [below + width / 2, *ticks[1:]], ["≈ 0", *(f"{tick:.0f}" for tick in ticks[1:])]
        )
        axes.set_xlabel("log10 of edge probability")
        _clean(axes)
    panels[0].set_ylabel("share of the pairs, %")
    handles = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="black", label=name)
        for name, colour, hatch, _ in sides
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _node_title(node: Mapping[str, Any]) -> str:
    if "role" in node:
        return f"{_ROLES[node['role']]} {node['node']}"
    return (
        f"test node {node['node']} of class {node['class']}\n"
        f"(kNN-GCN says {node['predicted by rival']})"
    )


def embeddings(trace: Trace) -> Figure:
    """Figure 6: the last hidden layer of each method, in two dimensions by t-SNE.

    Parameters
    ----------
    trace : the trace "embeddings"

    Returns
    -------
    matplotlib Figure
    """
    figure, panels = _canvas(len(trace["panels"]), height=4.9)
    labels = np.array(trace["labels"])
    for axes, panel in zip(panels, trace["panels"], strict=True):
        points = np.array(panel["points"])
        for code, (colour, marker) in _looks(trace):
            x, y = points[labels == code].T
            # A thousand markers are a picture, not a drawing: else the SVG is large.
            axes.scatter(
                x,
                y,
                s=16,
                marker=marker,
                facecolors=colour,
                edgecolors="black",
                linewidths=0.3,
                rasterized=True,
            )
        name = METHODS[panel["method"]].name
        axes.set_title(f"{name}: test accuracy {panel['test_accuracy']:.1%}", fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel("t-SNE, first coordinate (no unit)")
    panels[0].set_ylabel("t-SNE, second coordinate (no unit)")
    handles = [
        Line2D([], [], linestyle="none", marker=marker, markersize=7, color=colour,
               markeredgecolor="black", label=f"class {trace['classes'][code]}")
        for code, (colour, marker) in _looks(trace)
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure


def _looks(trace: Trace) -> list[tuple[int, tuple[str, str]]]:
    """Number, colour and marker of each class; beyond eight classes the looks begin anew."""
    return [(code, _CLASSES[code % len(_CLASSES)]) for code in range(len(trace["classes"]))]


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save a figure as SVG and PNG, the same bytes for the same figure.

    Parameters
    ----------
    figure : matplotlib Figure
    folder : Path, made if need be
    name : str, of the files

    Returns
    -------
    list of Path
    """
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = f"{name}.svg", f"{name}.png"
    with staged(folder) as stage:
        with matplotlib.rc_context({"svg.hashsalt": "edgewise"}):
            figure.savefig(stage / svg, metadata={"Date": None})
        figure.savefig(stage / png)
    return [folder / svg, folder / png]
