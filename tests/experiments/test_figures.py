"""Figures: what is drawn is what is recorded, every axis says its unit, and files repeat."""

from __future__ import annotations

import numpy as np
import pytest

from edgewise.experiments import figures, paper, plans
from edgewise.experiments.plans import equal_runs, plan
from edgewise.experiments.protocol import Record, criterion_of
from edgewise.experiments.tables import Book
from edgewise.experiments.traces import BINS, GROUPS


def recorded(run, test):
    return Record(run, accuracies={criterion_of(run.method): test + 0.02, "test": test})


def all_recorded(what):
    return [
        recorded(run, 0.5 + run.variant.get("keep_edges", 1) / 5 + run.seed / 100)
        for run in plan(what)
    ]


def histograms_trace(**node):
    shares = [0.0] * (len(BINS) - 1)
    counted = {"n": 5, "below": 0.6, "shares": [0.4, *shares[1:]]}
    shown = {"same class": counted, "rest": counted}
    return {"bins": BINS, "nodes": [{"node": 7, "class": "a", "histograms": shown, **node}] * 3}


MEANS = {name: [None, -3.0, -2.0, -1.0] for name in GROUPS}
PROBABILITIES = {
    "updates": [1, 2, 3, 4],
    "restarts": [2, 4],
    "nodes": [
        {"node": node, "role": role, "log10_mean": MEANS}
        for node, role in enumerate(("train", "validation", "test"))
    ],
}
EMBEDDINGS = {
    "labels": [0, 1, 0, 2],
    "classes": ["0", "1", "2"],
    "panels": [
        {"method": method, "test_accuracy": 0.7, "points": [[0, 1], [2, 3], [4, 5], [6, 7]]}
        for method in ("dense-gcn", "knn-gcn", "knn-lds")
    ],
}
TRACES = {
    "probabilities": (figures.probabilities, PROBABILITIES),
    "histograms": (figures.histograms, histograms_trace(role="test")),
    "misclassified": (figures.histograms, histograms_trace(**{"predicted by rival": "b"})),
    "embeddings": (figures.embeddings, EMBEDDINGS),
}


def texts_overlap(figure):
    """Pairs of texts outside the plots (titles, labels, legend) that lie over each other."""
    figure.draw_without_rendering()
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    return [
        (a, b)
        for i, (a, first) in enumerate(boxes)
        for b, second in boxes[i + 1 :]
        if first.shrunk(0.9, 0.9).overlaps(second.shrunk(0.9, 0.9))
    ]


@pytest.mark.parametrize("name", [*TRACES, "edges", "tau"])
def test_figures_have_units_a_legend_and_no_overlapping_text(name):
    if name in TRACES:
        draw, trace = TRACES[name]
        figure = draw(trace)
    else:
        figure = {"edges": figures.edges, "tau": figures.tau}[name](Book(all_recorded(name)))
    assert figure.axes[0].get_ylabel()
    assert all(axes.get_xlabel() and axes.get_title() for axes in figure.axes)
    assert figure.legends
    assert texts_overlap(figure) == []


def test_edges_figure_shows_the_recorded_means_and_the_papers():
    figure = figures.edges(Book(all_recorded("edges")))
    cora = figure.axes[0]
    lines = [line for line in cora.get_lines() if len(line.get_xdata()) == 4]
    test_of_lds = [
        line for line in lines if line.get_marker() == "^" and line.get_linestyle() == "-"
    ]
    (line,) = test_of_lds
    assert line.get_ydata() == pytest.approx([57.0, 62.0, 67.0, 72.0])
    stars = next(line for line in lines if line.get_marker() == "*")
    assert list(stars.get_ydata()) == [p.mean for p in paper.LDS_KEPT_EDGES["cora"].values()]


def test_the_papers_numbers_are_not_drawn_at_another_label_budget():
    runs = plan("edges")
    records = all_recorded("edges")
    records += [recorded(run, 0.8) for run in equal_runs(runs, records).runs]
    figure = figures.edges(Book(records, labels="equal"))
    assert "*" not in {line.get_marker() for axes in figure.axes for line in axes.get_lines()}
    assert "paper" not in " ".join(t.get_text() for t in figure.legends[0].get_texts())


def test_a_partly_filled_store_leaves_gaps():
    records = [r for r in all_recorded("edges") if r.run.method == "gcn" and r.run.seed == 0]
    records = [r for r in records if r.run.variant.get("keep_edges") == 0.25]
    figure = figures.edges(Book(records))
    circles = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    drawn = np.array([line.get_ydata() for line in circles], float)
    assert np.isfinite(drawn).sum() == 2  # test and validation, at one share
    figure.draw_without_rendering()


def test_nothing_recorded_is_no_figure():
    assert figures.edges(Book([])) is None
    assert figures.tau(Book([])) is None


def test_restarts_are_grey_lines_and_zeros_gaps():
    figure = figures.probabilities(PROBABILITIES)
    axes = figure.axes[0]
    grey = [line for line in axes.get_lines() if line.get_color() == "0.75"]
    assert [line.get_xdata()[0] for line in grey] == [2, 4]
    curves = [line for line in axes.get_lines() if line not in grey]
    assert len(curves) == len(GROUPS)
    assert np.isnan(curves[0].get_ydata()[0])


def test_fewer_nodes_than_panels_can_be_drawn():
    figure = figures.histograms({"bins": BINS, "nodes": []})
    figure.draw_without_rendering()


@pytest.mark.parametrize("looks", [figures.METHODS, figures._TAUS])
def test_lines_differ_by_colour_and_also_without_colour(looks):
    for part in ("name", "colour", "marker"):
        assert len({getattr(look, part) for look in looks.values()}) == len(looks)
    assert len({style for _, style in figures._GROUPS.values()}) == len(GROUPS)
    assert set(plans.EDGES_METHODS) <= set(figures.METHODS)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    contents = [
        [path.read_bytes() for path in figures.save(figures.embeddings(EMBEDDINGS), folder, "a")]
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert contents[0] == contents[1]
    assert contents[0][0].startswith(b"<?xml")
    assert contents[0][1].startswith(b"\x89PNG")
