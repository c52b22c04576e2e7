"""Pictures of graphs and accuracies, made to be read in black and white as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from edgewise.graph.pairs import Pairs

# Okabe and Ito's colours, which the colour-blind can tell apart, ordered so that neighbours also
# differ in lightness; the marker says the class once more.
COLOURS = ("#0072B2", "#F0E442", "#D55E00", "#56B4E9", "#000000", "#E69F00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


@dataclass(frozen=True)
class DrawnGraph:
    """A graph to be drawn, and what is to be said of it.

    Attributes
    ----------
    title : str
    pairs : Pairs
    added : Pairs
        Those among the pairs that stand out.
    wrong : ndarray of bool, shape (n_nodes,)
        Nodes whose predicted class is wrong.
    """

    title: str
    pairs: Pairs
    added: Pairs
    wrong: NDArray[np.bool_]


def spring_layout(
    pairs: Pairs, n_nodes: int, rng: np.random.Generator, n_steps: int = 300
) -> NDArray[np.float64]:
    """Places for nodes such that neighbours are near and all others far: Fruchterman-Reingold.

    Takes time and memory for all pairs of nodes, so it is for up to some two thousand.

    Parameters
    ----------
    pairs : Pairs
    n_nodes : int
    rng : numpy.random.Generator
        For the places to start from.
    n_steps : int, default=300

    Returns
    -------
    ndarray, shape (n_nodes, 2), within the unit square

    Examples
    --------
    >>> chain = Pairs.fold([0, 1], [1, 2], n_nodes=3)
    >>> place = spring_layout(chain, 3, np.random.default_rng(0))
    >>> bool(np.hypot(*(place[0] - place[1])) < np.hypot(*(place[0] - place[2])))
    True
    """
    adjacency = np.zeros((n_nodes, n_nodes))
    adjacency[pairs.rows, pairs.cols] = adjacency[pairs.cols, pairs.rows] = 1.0
    place = rng.random((n_nodes, 2))
    if n_nodes == 0:
        return place
    ideal = (1.0 / n_nodes) ** 0.5
    for heat in np.linspace(0.1, 0.0, n_steps, endpoint=False):
        apart = place[:, None] - place[None]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
        strength = (ideal / distance) ** 2 - adjacency * distance / ideal
        push = (apart * strength[..., None]).sum(axis=1)
        # Towards the middle, so that separate components do not flee from each other.
        push -= (place - place.mean(axis=0)) * 0.5 * n_nodes * ideal
        length = np.maximum(np.hypot(push[:, 0], push[:, 1]), 1e-9)
        place = place + push * (np.minimum(length, heat) / length)[:, None]
    span = np.ptp(place, axis=0).max()
    return np.asarray((place - place.min(axis=0)) / (span or 1.0))


def draw_graph(
    axes: Axes,
    graph: DrawnGraph,
    place: NDArray[np.float64],
    labels: NDArray[np.int64],
    labelled: NDArray[np.bool_],
) -> None:
    """Draw nodes by class and edges, with what is labelled, wrong or added standing out.

    Parameters
    ----------
    axes : matplotlib Axes
    graph : DrawnGraph
    place : ndarray, shape (n_nodes, 2)
    labels : ndarray of int64, shape (n_nodes,)
        The true classes.
    labelled : ndarray of bool, shape (n_nodes,)
        The nodes whose label was given.
    """
    _draw_pairs(axes, graph.pairs, place, color="0.72", linewidth=0.4, zorder=1)
    _draw_pairs(axes, graph.added, place, color="0.0", linewidth=1.1, zorder=2)
    x, y = place.T
    rings = axes.scatter(x[graph.wrong], y[graph.wrong], s=130, marker="o", zorder=4)
    rings.set(facecolor="none", edgecolor="black")
    for code in np.unique(labels):
        for chosen, size, border in ((~labelled, 22, 0.4), (labelled, 62, 1.8)):
            rows = np.flatnonzero((labels == code) & chosen)
            style = _style(int(code))
            axes.scatter(
                x[rows], y[rows], s=size, linewidths=border, edgecolor="black", zorder=3, **style
            )
    axes.set_title(graph.title, fontsize=10)
    axes.set_aspect("equal")
    axes.margins(0.04)
    axes.set_axis_off()


def _style(code: int) -> dict[str, Any]:
    """Marker and colour of a class; the pair comes again only after 64 classes."""
    return {
        "marker": MARKERS[(code + code // len(COLOURS)) % len(MARKERS)],
        "facecolor": COLOURS[code % len(COLOURS)],
    }


def _draw_pairs(axes: Axes, pairs: Pairs, place: NDArray[np.float64], **style: Any) -> None:
    ends = np.stack([place[pairs.rows], place[pairs.cols]], axis=1)
    axes.add_collection(LineCollection(list(ends), **style))


def draw_slopes(axes: Axes, accuracies: Mapping[str, Sequence[float]], title: str) -> None:
    """One line a seed from method to method, and a thick one for the means.

    Parameters
    ----------
    axes : matplotlib Axes
    accuracies : mapping of method to its accuracy for each seed, as fractions
    title : str
    """
    values = 100.0 * np.array([list(row) for row in accuracies.values()])
    at = np.arange(len(values))
    for seed in values.T:
        axes.plot(at, seed, color="0.6", linewidth=0.9, marker=".", markersize=5)
    means = values.mean(axis=1)
    axes.plot(at, means, color="black", linewidth=2.4, marker="o", markersize=6)
    for method, mean in enumerate(means):
        # Beside the line where there is room, so that no line crosses the number.
        offset, side = ((-9, 0), "right") if method == 0 else ((9, 0), "left")
        axes.annotate(
            f"{mean:.1f}",
            (method, mean),
            textcoords="offset points",
            xytext=offset,
            ha=side,
            va="center",
            fontsize=10,
            fontweight="bold",
        )
    axes.set_xticks(at, list(accuracies), fontsize=8.5)
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.margins(y=0.15)
    axes.set_ylabel("test accuracy, %")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def comparison_figure(
    graphs: Sequence[DrawnGraph],
    place: NDArray[np.float64],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    labelled: NDArray[np.bool_],
    charts: Mapping[str, Mapping[str, Sequence[float]]],
) -> Figure:
    """Graphs side by side in one layout, then charts of the accuracies of all seeds.

    Parameters
    ----------
    graphs : sequence of DrawnGraph
    place, labels, labelled
        See `draw_graph`.
    classes : sequence of str
        Names of the classes.
    charts : mapping of title to accuracies
        See `draw_slopes`.

    Returns
    -------
    matplotlib Figure
        To be saved with ``figure.savefig(path)``.

    Examples
    --------
    >>> pair = Pairs.fold([0], [1], n_nodes=2)
    >>> graph = DrawnGraph("both", pair, Pairs.fold([], [], 2), np.array([False, True]))
    >>> figure = comparison_figure(
    ...     [graph],
    ...     np.array([[0.0, 0.0], [1.0, 1.0]]),
    ...     np.array([0, 1]),
    ...     ["red", "white"],
    ...     np.array([True, False]),
    ...     {"two seeds": {"fixed": [0.8, 0.9], "learned": [0.9, 0.9]}},
    ... )
    >>> len(figure.axes)
    2
    """
    # Figure itself rather than pyplot: no global state, no window system.
    figure = Figure(figsize=(4.4 * len(graphs) + 3.4, 5.2), layout="constrained", dpi=130)
    grid = figure.add_gridspec(1, 2, width_ratios=[4.4 * len(graphs), 3.4])
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    canvases = left.subplots(1, len(graphs), squeeze=False)[0]
    for axes, graph in zip(canvases, graphs, strict=True):
        draw_graph(axes, graph, place, labels, labelled)
    stacked = right.subplots(len(charts), 1, sharey=True, squeeze=False)[:, 0]
    for axes, (title, accuracies) in zip(stacked, charts.items(), strict=True):
        draw_slopes(axes, accuracies, title)
    left.legend(
        handles=_legend(classes, any(graph.added.n_pairs for graph in graphs)),
        loc="outside lower center",
        ncols=len(classes) + 3,
        frameon=False,
        fontsize=9,
        columnspacing=1.2,
    )
    return figure


def _legend(classes: Sequence[str], with_added: bool) -> list[Line2D]:
    def symbol(label: str, marker: str, facecolor: str, size: float, border: float) -> Line2D:
        return Line2D(
            [],
            [],
            linestyle="none",
            marker=marker,
            markerfacecolor=facecolor,
            markeredgecolor="black",
            markersize=size,
            markeredgewidth=border,
            label=label,
        )

    entries = [
        symbol(name, **_style(code), size=6, border=0.6) for code, name in enumerate(classes)
    ]
    entries.append(symbol("label given", "o", "none", 8, 1.8))
    entries.append(symbol("predicted wrongly", "o", "none", 11, 1.0))
    if with_added:
        entries.append(Line2D([], [], color="black", linewidth=1.1, label="edge that is new"))
    return entries
