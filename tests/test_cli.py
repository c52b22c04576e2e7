"""The command: what it prints and where, what it leaves behind, how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from edgewise import LDSClassifier, __version__
from edgewise.cli import app, demo, main
from edgewise.cli.output import plain
from edgewise.datasets import Dataset, describe, load
from edgewise.experiments import execute
from edgewise.graph.construct import knn_pairs, random_pairs
from edgewise.graph.pairs import Pairs
from edgewise.problem import Split
from edgewise.report.progress import LiveProgress

QUICK = ("--k", "3", "--max-outer-iterations", "2", "--threads", "1")


class Run(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        """The JSON object in the last line of the standard output."""
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    def run(*arguments: str) -> Run:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Run(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def small_graph(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A data set with a graph, in place of any that is asked for."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    features = (labels[:, None] * 3 + rng.normal(size=(40, 3))).astype(np.float32)
    parts = [np.sort(part) for part in np.split(rng.permutation(40), [6, 12, 18])]
    dataset = Dataset(
        "small",
        features,
        labels,
        np.array(["no", "yes"]),
        random_pairs(40, n_pairs=60, rng=rng),
        Split(*parts[:3]),
        parts[3],
    )
    monkeypatch.setattr(execute, "_load", lambda name, seed, number: dataset)
    return dataset


# ------------------------------------------------------------------------------------ frame


def test_version(run: Callable[..., Run]) -> None:
    assert run("--version") == (0, f"edgewise {__version__}\n", "")


def test_without_a_command_it_shows_what_there_is(run: Callable[..., Run]) -> None:
    result = run()
    assert result.code == 2
    assert all(name in result.out for name in ("demo", "datasets", "fit"))
    assert result.err == ""


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("fit", "nope"), "there is no data set 'nope'; known are wine"),
        (("fit",), "source"),
        (("bogus",), "bogus"),
        (("fit", "wine", "--bogus"), "--bogus"),
        (("fit", "wine", "--tau", "many"), "'many' is neither a number nor 'full'"),
        (("fit", "wine", "--tau", "-1"), "'tau'"),
        (("fit", "wine", "--metric", "taxi"), "taxi"),
        (("fit", "wine", "--k", "178"), "178"),
        (("fit", "wine", "--inner-lr", "0"), "'inner_learning_rate'"),
        (("fit", "wine", "--keep-edges", "0.5"), "wine has none"),
        (("fit", "wine", "--top-edges", "3"), "--out"),
        (("fit", "wine", "--top-edges", "3", "--edge-threshold", "0", "--out", "x"), "not both"),
    ],
)
def test_an_error_is_one_line_that_names_the_culprit(
    run: Callable[..., Run], arguments: tuple[str, ...], culprit: str
) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"edgewise: .*\n", result.err)
    assert culprit in result.err


def test_debug_shows_the_traceback_wherever_it_stands(run: Callable[..., Run]) -> None:
    for arguments in (("--debug", "fit", "nope"), ("fit", "nope", "--debug")):
        result = run(*arguments)
        assert result.code == 2
        assert "Traceback" in result.err
        assert "ValueError: there is no data set 'nope'" in result.err


def test_an_error_of_ours_says_its_type_and_how_to_see_more(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Dataset:
        raise ZeroDivisionError("on two\nlines")

    monkeypatch.setattr(execute, "_load", fail)
    result = run("fit", "wine")
    assert result.code == 2
    assert result.err == "edgewise: ZeroDivisionError: on two lines (--debug shows where)\n"


def test_an_interrupt_before_there_is_a_model_ends_without_a_traceback(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Dataset:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "_load", interrupt)
    assert run("fit", "wine") == (130, "", "edgewise: interrupted\n")


def test_warnings_are_one_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = warnings.showwarning
    with app._warnings_in_one_line(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("of two\nlines", stacklevel=1)
    assert capsys.readouterr() == ("", "edgewise: warning: of two lines\n")
    assert warnings.showwarning is before


def test_as_a_module_with_a_reader_that_has_had_enough() -> None:
    command = [sys.executable, "-m", "edgewise", "datasets", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == app.UNREAD


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    value = {"a": [np.int64(1), np.nan, np.inf], "b": (True, None, "text"), 3: {"c": 0.5}}
    assert plain(value) == {"a": [1, None, None], "b": [True, None, "text"], "3": {"c": 0.5}}


# --------------------------------------------------------------------------------- datasets


def test_datasets_lists_every_data_set(run: Callable[..., Run]) -> None:
    result = run("datasets")
    assert result.code == 0
    lines = result.out.splitlines()
    for entry in describe():
        (line,) = [line for line in lines if line.startswith(f"{entry.statistics.name} ")]
        assert f"{entry.statistics.nodes:,}" in line
        assert f" {'yes' if entry.at_hand else 'no'} " in line


def test_datasets_as_json(run: Callable[..., Run]) -> None:
    listed = run("datasets", "--json").record["datasets"]
    described = describe()
    assert [entry["name"] for entry in listed] == [d.statistics.name for d in described]
    assert [entry["at_hand"] for entry in listed] == [d.at_hand for d in described]
    assert listed[0]["edges"] is None
    assert listed[3]["edges"] == 5278
    assert listed[0]["label_rate"] == pytest.approx(30 / 178)


# -------------------------------------------------------------------------------------- fit


def test_fit_says_what_the_estimator_finds(run: Callable[..., Run]) -> None:
    result = run("fit", "wine", *QUICK, "--seed", "1", "--json")
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 1

    wine = load("wine", seed=1)
    classifier = LDSClassifier(k=3, max_outer_iterations=2, random_state=1).fit(
        wine.features,
        wine.masked_labels(),
        validation=wine.split.validation,
        early_stopping=wine.split.early_stopping,
    )
    history = pd.DataFrame(classifier.history_)
    right = classifier.transduction_ == wine.labels
    record = result.record
    assert record["test_accuracy"] == right[wine.test].mean()
    assert record["early_stopping_accuracy"] == right[wine.split.early_stopping].mean()
    assert record["expected_edges"] == classifier.edges_.expected_edges()
    assert record["initial_edges"] == knn_pairs(wine.features, 3, metric="cosine").n_pairs
    assert record["outer_iterations"] == classifier.n_iter_ == 2
    assert record["best_iteration"] == classifier.best_iteration_
    assert record["outer_updates"] == history["outer_updates"].sum()
    assert record["inner_steps"] == history["inner_steps"].sum()
    assert record["labels"] == {"train": 10, "validation": 10, "early_stopping": 10, "test": 148}
    assert (record["dataset"], record["method"], record["seed"]) == ("wine", "knn-lds", 1)
    assert record["parameters"]["k"] == 3
    assert record["threads"] == 1
    # What time and memory are, no test can know; but the parts cannot be more than the whole.
    assert 0 < record["seconds_per_update"] < record["seconds"]
    assert record["peak_rss_mb"] > 10


def test_the_defaults_are_those_of_the_estimator(
    run: Callable[..., Run], small_graph: Dataset
) -> None:
    record = run("fit", "small", "--no-graph", "--patience", "1", "--threads", "1", "--json").record
    defaults = LDSClassifier(patience=1).get_params()
    for name in ("callbacks", "network", "random_state"):
        del defaults[name]
    assert record["parameters"] == defaults
    assert LDSClassifier().patience == 20
    assert "[default: 20]" in re.sub(r"[│\s]+", " ", run("fit", "--help").out)


def test_fit_passes_every_option_on(run: Callable[..., Run], small_graph: Dataset) -> None:
    record = run(
        *("fit", "small", "--no-graph", "--k", "4", "--metric", "euclidean", "--tau", "full"),
        *("--outer-lr", "0.1", "--inner-lr", "0.01", "--patience", "2", "--threads", "1"),
        *("--max-outer-iterations", "3", "--json"),
    ).record
    chosen = {
        "k": 4,
        "metric": "euclidean",
        "tau": None,
        "outer_learning_rate": 0.1,
        "inner_learning_rate": 0.01,
        "patience": 2,
        "max_outer_iterations": 3,
    }
    assert chosen.items() <= record["parameters"].items()
    assert record["outer_updates"] == record["outer_iterations"]  # one at the end of each
    assert record["method"] == "knn-lds"


def test_a_given_graph_is_used_and_may_be_thinned_by_the_seed(
    run: Callable[..., Run], small_graph: Dataset, tmp_path: Path
) -> None:
    kept = []
    for seed in ("0", "0", "1"):
        result = run(
            *("fit", "small", "--keep-edges", "0.5", "--seed", seed, "--max-outer-iterations", "1"),
            *("--edge-threshold", "0", "--out", str(tmp_path), "--json", "--threads", "1"),
        )
        assert result.record["method"] == "lds"
        assert result.record["keep_edges"] == 0.5
        assert result.record["initial_edges"] == 30
        assert not {"k", "metric"} & set(result.record["parameters"])
        edges = pd.read_csv(tmp_path / "edges.csv").query("initial")
        kept.append(set(zip(edges["source"], edges["target"], strict=True)))
    assert small_graph.pairs is not None
    given = set(zip(*(end.tolist() for end in small_graph.pairs), strict=True))
    assert kept[0] == kept[1] != kept[2]
    assert all(edges <= given for edges in kept)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("--k", "3"), "comes with a graph, so --k and --metric would change nothing"),
        (("--no-graph", "--keep-edges", "0.5"), "--no-graph drops it"),
        (("--keep-edges", "1.5"), "--keep-edges"),
    ],
)
def test_options_that_contradict_the_data(
    run: Callable[..., Run], small_graph: Dataset, arguments: tuple[str, ...], culprit: str
) -> None:
    result = run("fit", "small", *arguments)
    assert result.code == 2
    assert culprit in result.err


def test_the_folder_holds_what_was_found(run: Callable[..., Run], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    result = run("fit", "wine", *QUICK, "--out", str(folder), "--json")
    assert result.code == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == result.record

    history = pd.read_csv(folder / "history.csv")
    assert len(history) == metrics["outer_iterations"]
    best = history.iloc[metrics["best_iteration"] - 1]
    assert best["early_stopping_accuracy"] == metrics["early_stopping_accuracy"]
    assert best["expected_edges"] == pytest.approx(metrics["expected_edges"])

    rows = pd.read_csv(folder / "predictions.csv")
    test = rows[rows["role"] == "test"]
    assert (test["label"] == test["predicted"]).mean() == metrics["test_accuracy"]
    assert rows["role"].value_counts().to_dict() == metrics["labels"]
    probabilities = rows.filter(like="probability_")
    assert probabilities.sum(axis=1).to_numpy() == pytest.approx(np.ones(178), abs=1e-5)
    predicted = probabilities.idxmax(axis=1).str.removeprefix("probability_")
    assert (predicted == rows["predicted"]).all()

    edges = pd.read_csv(folder / "edges.csv")
    assert len(edges) == round(metrics["expected_edges"])
    assert (edges["source"] < edges["target"]).all()
    assert edges["probability"].is_monotonic_decreasing
    initial = knn_pairs(load("wine").features, 3, metric="cosine")
    key = edges["source"] * 178 + edges["target"]
    assert (edges["initial"] == np.isin(key, initial.rows * 178 + initial.cols)).all()


def test_how_many_edges_are_written(run: Callable[..., Run], tmp_path: Path) -> None:
    arguments = ("fit", "wine", *QUICK, "--out", str(tmp_path))
    run(*arguments, "--top-edges", "7")
    assert len(pd.read_csv(tmp_path / "edges.csv")) == 7
    run(*arguments, "--edge-threshold", "0.9")
    above = pd.read_csv(tmp_path / "edges.csv")
    assert len(above) > 7
    assert (above["probability"] > 0.9).all()
    run(*arguments, "--top-edges", "0")
    empty = pd.read_csv(tmp_path / "edges.csv")
    assert len(empty) == 0
    assert list(empty) == ["source", "target", "probability", "initial"]


def test_without_json_there_is_a_summary(run: Callable[..., Run], tmp_path: Path) -> None:
    record = run("fit", "wine", *QUICK, "--json").record
    result = run("fit", "wine", *QUICK, "--out", str(tmp_path))
    assert result.err == ""
    assert f"{record['test_accuracy']:.1%} of 148 rows" in result.out
    assert "10 to train, 10 to fit the edges, 10 to stop" in result.out
    assert f"{record['expected_edges']:,.1f} expected now" in result.out
    assert str(tmp_path) in result.out


def test_a_profile_goes_to_stderr(run: Callable[..., Run]) -> None:
    result = run("fit", "wine", *QUICK, "--profile", "--json")
    assert result.record["outer_iterations"] == 2
    for phase in ("sample edges", "build graph", "inner step", "hypergradient", "apply to edges"):
        assert phase in result.err
    # Calls of the hypergradient are the updates.
    calls = re.search(r"hypergradient\s+│\s+(\d+)", result.err)
    assert calls is not None
    assert int(calls[1]) == result.record["outer_updates"]


def test_threads_are_limited_for_the_fit_only(run: Callable[..., Run]) -> None:
    before = torch.get_num_threads()
    record = run("fit", "wine", *QUICK[:-1], "3", "--json").record
    assert record["threads"] == 3
    assert torch.get_num_threads() == before


@pytest.mark.filterwarnings("default::edgewise.inputs.EdgewiseWarning")
def test_an_interrupted_fit_keeps_the_best_model_and_says_so(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = LiveProgress.after_iteration

    def interrupt(self: LiveProgress, edges: Any, progress: Any) -> None:
        watched(self, edges, progress)
        if len(progress.history) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(LiveProgress, "after_iteration", interrupt)
    result = run("fit", "wine", "--k", "3", "--threads", "1", "--json")
    assert result.code == 0
    assert result.record["interrupted"] is True
    assert result.record["outer_iterations"] == 2
    best = result.record["best_iteration"]
    assert result.err == (
        "edgewise: warning: the fit was interrupted; kept the best model so far, of outer "
        f"iteration {best} of 2\n"
    )


# ------------------------------------------------------------------------------------- demo


def test_demo(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "PATIENCE", 1)
    result = run("demo", "--seeds", "2", "--picture", str(tmp_path / "demo.png"))
    assert (result.code, result.err) == (0, "")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    means = {}
    for method in (demo.FIXED, demo.LEARNED, demo.FIXED_REFIT, demo.LEARNED_REFIT):
        (line,) = [line for line in result.out.splitlines() if line.startswith(f"{method} ")]
        found = re.search(r"(\S+) ± \S+\s+(\S+) (\S+)$", line.rstrip())
        assert found is not None
        mean, first, second = (float(number) for number in found.groups())
        assert mean == pytest.approx((first + second) / 2, abs=0.11)
        means[method] = mean
    gains = [float(gain) for gain in re.findall(r"([+-]\d+\.\d) points on average", result.out)]
    assert gains == pytest.approx(
        [
            means[demo.LEARNED] - means[demo.FIXED],
            means[demo.LEARNED_REFIT] - means[demo.FIXED_REFIT],
        ],
        abs=0.11,
    )


def test_demo_counts_labels_alike_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    wine = load("wine")
    nothing = Pairs.fold([], [], wine.n_nodes)
    budget = demo._budget(demo.Outcome(wine, nothing, None, {}))  # type: ignore[arg-type]
    numbers = {method: [int(n) for n in text.split("/")] for method, text in budget.items()}
    assert sum(numbers[demo.FIXED]) == sum(numbers[demo.LEARNED]) == 30
    assert numbers[demo.FIXED_REFIT][0] == numbers[demo.LEARNED_REFIT][0] == 30
