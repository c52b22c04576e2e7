"""Every script of examples/ runs, without a warning, and comes to what its text says."""

from __future__ import annotations

import runpy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "examples"


def wine(made: dict[str, Any]) -> None:
    assert min(made["accuracy"](made["model"]), made["accuracy"](made["fixed"])) > 0.9
    assert 0 < made["added"].n_pairs < made["start"].n_pairs


def table(made: dict[str, Any]) -> None:
    unsure, sure = made["groups"][0], made["groups"][-1]
    assert made["right"][sure].mean() > made["right"][unsure].mean()
    assert made["right"][~made["known"]].mean() > 0.7


def known_graph(made: dict[str, Any]) -> None:
    for values in made["accuracies"].values():
        assert values == sorted(values)  # the more edges, the better
    fixed, learned = made["accuracies"].values()
    assert learned[0] < fixed[0]
    assert learned[2] > fixed[2] - 0.01


def pyg_gat(made: dict[str, Any]) -> None:
    assert made["data"].edge_weight.min() > 0.05
    assert made["right"][~made["seen"]].float().mean() > 0.85
    assert made["losses"][-1] < 0.5 * made["losses"][0]


def compared(made: dict[str, Any]) -> None:
    result = made["result"]
    assert [method.status for method in result.methods] == ["ok"] * 3
    assert "knn-lds" in result.conclusion


def new_rows(made: dict[str, Any]) -> None:
    model = made["model"]
    assert (model.predict(made["new"]) == made["truth"]).mean() > 0.8
    np.testing.assert_array_equal(model.predict_proba([[40.0, 40.0]]), [[0.5, 0.5]])
    assert 0.0 < made["novel"].mean() < 1.0


def similarity(made: dict[str, Any]) -> None:
    table = made["table"]  # of the last model, that of similarity
    likely = table["probability"] > 0.5
    assert made["joined"][likely].mean() > made["joined"][~likely].mean()
    assert len(made["log_weights"]) == made["n_columns"]


def long_fits(made: dict[str, Any]) -> None:
    assert len(made["stopped"].history_) == 2
    assert made["resumed"].history_[-1]["iteration"] == 6
    np.testing.assert_array_equal(
        made["resumed"].label_distributions_, made["whole"].label_distributions_
    )


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "1_wine": wine,
    "2_table": table,
    "3_known_graph": known_graph,
    "4_pyg_gat": pyg_gat,
    "5_compare": compared,
    "6_new_rows": new_rows,
    "7_similarity": similarity,
    "8_long_fits": long_fits,
}


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    from matplotlib import pyplot

    before = matplotlib.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


def test_every_example_is_checked() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_runs_and_draws(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import pyplot

    if name == "4_pyg_gat":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its use of torch.jit is deprecated
            pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
    made = runpy.run_path(str(FOLDER / f"{name}.py"))
    CHECKS[name](made)
    assert capsys.readouterr().out
    drawn = [axes for number in pyplot.get_fignums() for axes in pyplot.figure(number).axes]
    assert drawn
    assert all(axes.has_data() for axes in drawn)
