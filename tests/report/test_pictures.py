"""Pictures: everything is drawn, classes can be told apart, no text covers another."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from edgewise.graph.construct import random_pairs
from edgewise.graph.pairs import Pairs
from edgewise.report import pictures
from edgewise.report.pictures import DrawnGraph, comparison_figure, spring_layout

NO_PAIRS = Pairs.fold([], [], 30)


@pytest.fixture(scope="module")
def figure() -> Figure:
    rng = np.random.default_rng(0)
    before = random_pairs(30, n_pairs=40, rng=rng)
    after = random_pairs(30, n_pairs=50, rng=rng)
    new = Pairs(after.rows[:7], after.cols[:7])
    wrong = np.arange(30) % 5 == 0
    return comparison_figure(
        [
            DrawnGraph("Fixed graph: 40 edges\ntest accuracy 93.2%", before, NO_PAIRS, wrong),
            DrawnGraph("Drawn from the learned graph: 7 new\n95.0%", after, new, wrong),
        ],
        spring_layout(before, 30, rng),
        np.arange(30) % 3,
        ["wine class 0", "wine class 1", "wine class 2"],
        np.arange(30) < 6,
        {
            "5 splits and their mean": {
                "fixed graph": [0.9, 0.91, 0.95, 0.93, 0.92],
                "learned graph": [0.92, 0.95, 0.95, 0.93, 0.97],
            },
            "The same, refit on all labels": {
                "fixed graph": [1.0, 0.91, 0.95, 0.93, 0.92],
                "learned graph": [0.92, 0.95, 0.95, 0.93, 0.1],
            },
        },
    )


def test_all_edges_and_nodes_are_drawn(figure: Figure) -> None:
    for axes, n_pairs, n_new in zip(figure.axes[:2], (40, 50), (0, 7), strict=True):
        lines = [c for c in axes.collections if isinstance(c, LineCollection)]
        assert [len(c.get_segments()) for c in lines] == [n_pairs, n_new]
        rings, *nodes = [c for c in axes.collections if not isinstance(c, LineCollection)]
        assert len(np.asarray(rings.get_offsets())) == 6
        assert sum(len(np.asarray(c.get_offsets())) for c in nodes) == 30


def test_every_value_is_inside_its_chart(figure: Figure) -> None:
    for axes in figure.axes[2:]:
        low, high = axes.get_ylim()
        values = np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines])
        assert low < values.min()
        assert values.max() < high


def test_no_text_covers_another_or_leaves_the_picture(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = {text: text.get_window_extent(canvas.get_renderer()) for text in _texts(figure)}
    assert len(boxes) > 15
    for text, box in boxes.items():
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text
    for (one, first), (two, second) in itertools.combinations(boxes.items(), 2):
        assert not first.overlaps(second), (one, two)


def _texts(figure: Figure) -> list[Text]:
    """All texts that are drawn: titles, numbers, names of axes and ticks, the legend."""
    found: list[Text] = []
    for part in figure.subfigs:
        for legend in part.legends:
            found += legend.get_texts()
    for axes in figure.axes:
        found += [axes.title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = axis.get_view_interval()
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [axis.label, *(tick.label1 for tick in ticks)]
    return [text for text in found if text.get_text()]


def test_it_is_a_picture(figure: Figure, tmp_path: Path) -> None:
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 20_000


def test_classes_differ_in_colour_or_marker_and_the_first_eight_in_both() -> None:
    styles = [tuple(pictures._style(code).values()) for code in range(64)]
    assert len(set(styles)) == 64
    assert (
        len({marker for marker, _ in styles[:8]}) == len({colour for _, colour in styles[:8]}) == 8
    )


def test_layout_puts_neighbours_near() -> None:
    # Two cliques of ten, joined by one edge.
    first, second = np.triu_indices(10, 1)
    rows = np.append(np.concatenate([first, first + 10]), 0)
    cols = np.append(np.concatenate([second, second + 10]), 10)
    place = spring_layout(Pairs.fold(rows, cols, 20), 20, np.random.default_rng(0))
    centres = place[:10].mean(axis=0), place[10:].mean(axis=0)
    radius = np.hypot(*(place[:10] - centres[0]).T).max()
    assert np.hypot(*(centres[0] - centres[1])) > radius
    assert place.min() >= 0
    assert place.max() == pytest.approx(1)


@pytest.mark.parametrize("n_nodes", [0, 1, 2])
def test_layout_of_next_to_nothing(n_nodes: int) -> None:
    place = spring_layout(Pairs.fold([], [], n_nodes), n_nodes, np.random.default_rng(0))
    assert place.shape == (n_nodes, 2)
    assert np.isfinite(place).all()
