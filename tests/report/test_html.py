"""The report page: what it says, that data cannot break out of it, that it stays small."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from edgewise import LDSClassifier
from edgewise.cli import main
from edgewise.io.columns import TablePreprocessor, save_table_settings
from edgewise.report import html
from edgewise.report.html import render, report_data, write_report
from edgewise.report.layout import sampled_layout
from edgewise.report.run_files import MAX_EDGES, RunFolderError, read_run

EVIL = "</script><script>alert(1)</script><!--&amp;"


def write_run(
    folder: Path,
    n_rows: int = 60,
    *,
    ids: list[str] | None = None,
    classes: tuple[str, ...] = ("no", "yes"),
    n_test: int = 20,
    **metrics: Any,
) -> Path:
    """A made-up run whose predictions are right on three rows of four."""
    rng = np.random.default_rng(0)
    labels = np.arange(n_rows) % len(classes)
    wrong = np.arange(n_rows) % 4 == 0
    predicted = np.where(wrong, (labels + 1) % len(classes), labels)
    sure = rng.uniform(0.6, 0.95, n_rows)
    shares = np.repeat(((1 - sure) / (len(classes) - 1))[:, None], len(classes), axis=1)
    shares[np.arange(n_rows), predicted] = sure
    roles = np.full(n_rows, "", dtype=object)
    order = rng.permutation(n_rows)
    for start, role in ((0, "train"), (6, "validation"), (12, "early_stopping")):
        roles[order[start : start + 6]] = role
    roles[order[18 : 18 + n_test]] = "test"
    table = {
        "id" if ids else "row": ids or np.arange(n_rows),
        "role": roles,
        "label": np.where(roles == "", "", np.array(classes)[labels]),
        "predicted": np.array(classes)[predicted],
    }
    shown = {f"probability_{name}": shares[:, code].round(6) for code, name in enumerate(classes)}
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({**table, **shown}).to_csv(folder / "predictions.csv", index=False)
    write_edges(folder, np.array(ids) if ids else np.arange(n_rows), labels, rng)
    record = {"test_accuracy": 0.75, "best_iteration": 2, "expected_edges": 2.0 * n_rows}
    (folder / "metrics.json").write_text(json.dumps({**record, **metrics}))
    lines = [json.dumps(iteration(number)) for number in (1, 2, 3)]
    (folder / "log.jsonl").write_text("\n".join(lines))
    return folder


def write_edges(folder: Path, names: Any, labels: Any, rng: np.random.Generator) -> None:
    n_rows = len(names)
    sources = rng.integers(n_rows, size=6 * n_rows)
    targets = rng.integers(n_rows, size=6 * n_rows)
    kept = (sources < targets) & (
        (labels[sources] == labels[targets]) | (rng.random(6 * n_rows) < 0.2)
    )
    pairs = np.unique(np.stack([sources[kept], targets[kept]], axis=1), axis=0)
    columns = {"source": names[pairs[:, 0]], "target": names[pairs[:, 1]]}
    frame = pd.DataFrame({**columns, "probability": rng.random(len(pairs))})
    frame.to_csv(folder / "edges.csv", index=False)


def iteration(number: int, validation: float = 0.3) -> dict[str, float]:
    return {
        "iteration": number,
        "train_loss": 0.2 / number,
        "validation_loss": validation / number,
        "early_stopping_loss": 0.5,
        "train_accuracy": 1.0,
        "validation_accuracy": 0.9,
        "early_stopping_accuracy": 0.8,
        "expected_edges": 100.0 + number,
    }


def shown(page: str) -> dict[str, Any]:
    """What a browser would find in the block of data."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    content: dict[str, Any] = json.loads(match.group(1))
    return content


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    return lambda *args, **kwargs: write_run(tmp_path / "run", *args, **kwargs)


# ------------------------------------------------------------------------------------ escaping


def test_no_text_from_data_can_end_the_block_it_stands_in(run: Callable[..., Path]) -> None:
    folder = run(
        ids=[f"{EVIL}{row}" for row in range(60)],
        classes=(EVIL, "yes"),
        dataset=EVIL,
        leaking_columns=[EVIL],
        warnings=[EVIL],
        baseline={"method": EVIL, "test_accuracy": 0.5},
    )
    page = render(report_data(read_run(folder)))
    assert "alert(1)</script>" not in page
    assert "<!--&" not in page
    assert page.count("</script>") == render({}).count("</script>")
    data = shown(page)
    assert data["name"] == EVIL
    assert data["classes"] == [EVIL, "yes"]
    assert data["nodes"]["ids"][7] == f"{EVIL}7"
    assert EVIL in data["warnings"]
    assert any(EVIL in line for line in data["context"])


def test_the_page_asks_the_network_for_nothing() -> None:
    page = render({})
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    assert "innerHTML" not in page
    assert set(re.findall(r"https?://[^\s\"')]+", page)) == {"http://www.w3.org/2000/svg"}


# -------------------------------------------------------------------------------------- content


def test_a_run_of_a_data_set_names_rows_by_their_numbers(run: Callable[..., Path]) -> None:
    data = report_data(read_run(run(dataset="wine")))
    assert data["name"] == "wine"
    assert data["nodes"]["ids"] == [str(row) for row in range(60)]
    assert data["history"]["iteration"] == [1.0, 2.0, 3.0]  # the torn line is left out
    assert data["history"]["best"] == 2
    roles = [data["roles"][role] for role in data["nodes"]["roles"]]
    assert roles.count("held out") == 20


def test_edges_of_a_table_join_rows_by_their_ids(run: Callable[..., Path]) -> None:
    folder = run(ids=[f"00{row}" for row in range(60)])
    table = pd.read_csv(folder / "edges.csv", dtype={"source": str, "target": str})
    edges = read_run(folder).edges
    told = {
        (f"00{a}", f"00{b}", round(p, 9))
        for a, b, p in zip(edges.sources, edges.targets, edges.probability, strict=True)
    }
    assert told == {
        (a, b, round(p, 9))
        for a, b, p in table[["source", "target", "probability"]].itertuples(index=False)
    }
    assert (np.diff(edges.probability) <= 0).all()


def test_the_headline_is_the_accuracy_on_held_out_rows(run: Callable[..., Path]) -> None:
    folder = run()
    read = read_run(folder)
    test = read.rows_of("test")
    accuracy = (test % 4 != 0).mean()
    data = report_data(read)
    assert f"{accuracy:.1%} of 20 held-out rows" in data["headline"]
    assert "no fixed-graph baseline" in data["context"][0]


@pytest.mark.parametrize(
    ("other", "n_rows", "verdict"),
    [(0.2, 400, "55.0 points better"), (0.97, 400, "22.0 points worse"), (0.74, 400, "chance")],
)
def test_the_baseline_is_compared_with(other: float, n_rows: int, verdict: str) -> None:
    assert verdict in html._difference(0.75, other, n_rows, "gcn")


def test_a_comparison_in_the_folder_stands_for_the_baseline(run: Callable[..., Path]) -> None:
    folder = run()
    (folder / "comparison.json").write_text('{"conclusion": "It did not help."}')
    assert report_data(read_run(folder))["context"][0] == "It did not help."


def test_calibration_counts_every_held_out_row_once(run: Callable[..., Path]) -> None:
    read = read_run(run())
    calibration = report_data(read)["calibration"]
    assert sum(part["n"] for part in calibration["bins"]) == calibration["n"] == 20
    test = read.rows_of("test")
    share = sum(part["n"] * part["accuracy"] for part in calibration["bins"]) / 20
    assert share == pytest.approx((read.predicted[test] == read.labels[test]).mean(), abs=1e-3)


def test_without_held_out_rows_it_says_so(run: Callable[..., Path]) -> None:
    data = report_data(read_run(run(n_test=0, early_stopping_accuracy=0.9)))
    assert data["calibration"] is None
    assert "optimistic" in data["headline"]
    assert any("--test-fraction" in line for line in data["warnings"])


def test_the_least_sure_rows_are_ones_without_a_label(run: Callable[..., Path]) -> None:
    read = read_run(run())
    data = report_data(read)
    assert len(data["unsure"]) == html.N_UNSURE
    assert all(read.roles[row] in ("", "test") for row in data["unsure"])
    sure = read.probabilities.max(axis=1)
    others = [row for row in range(60) if read.roles[row] in ("", "test")]
    assert sorted(sure[data["unsure"]]) == sorted(sure[others])[: html.N_UNSURE]


# ------------------------------------------------------------------------------------- warnings


def test_it_warns_of_scarce_classes_and_of_an_interrupt(run: Callable[..., Path]) -> None:
    warnings = report_data(read_run(run(classes=("a", "b", "c", "d", "e"), interrupted=True)))
    said = " ".join(warnings["warnings"])
    assert "fewer than 5 labels" in said
    assert "interrupted" in said
    assert not report_data(read_run(run(n_rows=60)))["warnings"]


@pytest.mark.parametrize(("validation", "warned"), [(0.01, True), (0.3, False)])
def test_it_warns_of_over_fitted_edges(
    run: Callable[..., Path], validation: float, warned: bool
) -> None:
    folder = run()
    lines = [json.dumps(iteration(number, validation)) for number in (1, 2)]
    (folder / "log.jsonl").write_text("\n".join(lines))
    said = " ".join(report_data(read_run(folder))["warnings"])
    assert ("over-fit" in said) == warned


def test_damaged_lines_of_the_log_are_left_out_and_counted(run: Callable[..., Path]) -> None:
    folder = run()
    with (folder / "log.jsonl").open("a") as log:
        log.write('\n{"iteration": 4, "val\n' + "[" * 100_000)
    data = report_data(read_run(folder))
    assert data["history"]["iteration"] == [1, 2, 3]
    assert "log.jsonl has 2 damaged lines" in " ".join(data["warnings"])


# ----------------------------------------------------------------------------------- saved model


@pytest.fixture(scope="module")
def fitted() -> LDSClassifier:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["height", EVIL])
    labels = np.arange(60) % 2
    frame["height"] += 4.0 * labels
    given = np.where(np.arange(60) < 24, labels, -1)
    classifier = LDSClassifier(
        k=4, metric="euclidean", max_outer_iterations=1, max_inner_steps=10, random_state=0
    )
    classifier.fit(frame, given)
    return classifier


def test_a_saved_model_gives_edges_features_and_the_leak(
    run: Callable[..., Path], fitted: LDSClassifier
) -> None:
    folder = run()
    fitted.save(folder / "model")
    (folder / "edges.csv").unlink()
    (folder / "log.jsonl").unlink()
    read = read_run(folder)
    rows, cols = read.edges.sources, read.edges.targets
    np.testing.assert_allclose(
        fitted.edges_.probability(rows, cols), read.edges.probability, rtol=1e-6
    )
    data = report_data(read)
    assert set(data["features"]["names"]) == {"height", EVIL}
    assert len(data["history"]["iteration"]) == fitted.n_iter_
    # 60 rows 4 standard deviations apart: the height alone tells the class.
    assert any("height" in line and "--drop" in line for line in data["warnings"])


def test_a_damaged_model_is_a_warning(run: Callable[..., Path], fitted: LDSClassifier) -> None:
    folder = run()
    fitted.save(folder / "model")
    next((folder / "model").glob("*.safetensors")).write_bytes(b"broken")
    data = report_data(read_run(folder))
    assert data["features"] is None
    assert len(data["edges"]["sources"]) > 0  # those of the file
    assert any("damaged" in line for line in data["warnings"])


def test_features_of_a_table_have_the_names_of_its_columns(
    run: Callable[..., Path], fitted: LDSClassifier
) -> None:
    folder = run()
    table = pd.DataFrame({"city": ["Rome", "Oslo"] * 30, "age": range(40, 100)})
    table.loc[59, "age"] = 30  # else it would look like a row number
    preprocessor = TablePreprocessor()
    features = preprocessor.fit_transform(table)
    classifier = LDSClassifier(
        k=4, metric="euclidean", max_outer_iterations=1, max_inner_steps=5, random_state=0
    )
    classifier.fit(features, np.where(np.arange(60) < 24, np.arange(60) % 2, -1))
    classifier.save(folder / "model")
    save_table_settings(folder / "table.json", {"preprocessor": preprocessor.to_dict()})
    read = read_run(folder)
    assert read.feature_names == ["city=Oslo", "city=Rome", "age"]
    shown = report_data(read)["features"]
    names = [shown["names"][code] for code in shown["codes"][0]]
    said = dict(zip(names, shown["values"][0], strict=True))
    assert said == {"city=Oslo": "no", "city=Rome": "yes", "age": "40"}


# ------------------------------------------------------------------------------------------ size


def test_five_thousand_rows_stay_below_five_megabytes(run: Callable[..., Path]) -> None:
    ids = [f"customer number {row:06d} of the Zürich region" + 40 * "→" for row in range(5000)]
    folder = run(5000, ids=ids, classes=tuple(f"class {code}" for code in range(12)))
    rng = np.random.default_rng(0)
    ends = np.array(ids)[rng.integers(5000, size=(MAX_EDGES + 1, 2))]
    edges = pd.DataFrame(ends, columns=["source", "target"])
    edges.assign(probability=rng.random(len(ends))).to_csv(folder / "edges.csv", index=False)
    write_report(folder, folder / "report.html")
    assert (folder / "report.html").stat().st_size < 5e6
    data = shown((folder / "report.html").read_text(encoding="utf-8"))
    assert len(data["nodes"]["ids"]) == 5000
    assert len(data["edges"]["sources"]) == MAX_EDGES


def test_of_more_rows_it_shows_the_labelled_and_the_least_sure(
    run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "MAX_NODES", 50)
    read = read_run(run())
    data = report_data(read)
    ids = set(map(int, data["nodes"]["ids"]))
    assert len(ids) == 50
    assert ids >= {row for row, role in enumerate(read.roles) if role in html.LABELLED}
    assert "50 of 60 rows are shown" in data["graph_note"]
    ends = np.array([data["edges"]["sources"], data["edges"]["targets"]])
    assert ends.max() < 50
    known = set(zip(read.edges.sources.tolist(), read.edges.targets.tolist(), strict=True))
    numbers = [int(id_) for id_ in data["nodes"]["ids"]]
    assert {(numbers[a], numbers[b]) for a, b in ends.T} <= known


def test_the_layout_brings_joined_nodes_together() -> None:
    # Two cliques, whose nodes start in each other's place.
    clique = np.arange(40) % 2
    sources, targets = np.nonzero(np.triu(clique[:, None] == clique[None], 1))
    groups = (np.arange(40) // 2) % 2
    place = sampled_layout(
        sources, targets, np.ones(len(sources)), groups, np.random.default_rng(0)
    )
    apart = np.hypot(*np.moveaxis(place[:, None] - place[None], 2, 0))
    same = clique[:, None] == clique[None]
    assert apart[same].mean() < 0.5 * apart[~same].mean()
    assert ((place >= 0) & (place <= 1)).all()


# --------------------------------------------------------------------------------------- command


def test_the_command_writes_one_file(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run()
    for arguments, target in (
        ([str(folder)], folder / "report.html"),
        ([str(folder), "--output", str(tmp_path / "page.html")], tmp_path / "page.html"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", *arguments])
        assert ended.value.code == 0
        assert str(target) in capsys.readouterr().out
        assert shown(target.read_text())["name"] == "run"


@pytest.mark.parametrize(
    ("name", "content", "culprit"),
    [
        ("metrics.json", None, "holds no metrics.json"),
        ("metrics.json", "[1", "is damaged"),
        ("predictions.csv", None, "holds no predictions.csv"),
        ("predictions.csv", "a,b\n1,2\n", "columns probability_"),
        ("predictions.csv", "row,probability_a\n1,x\n", "is damaged"),
        ("predictions.csv", "id,probability_a\n7,1\n7,1\n", "two rows of one id"),
        ("edges.csv", "source,target\n1,2\n", "no column 'probability'"),
        ("edges.csv", "source,target,probability\n1,900,0.5\n", "the row '900'"),
    ],
)
def test_an_error_names_the_file(
    run: Callable[..., Path], name: str, content: str | None, culprit: str
) -> None:
    folder = run()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(RunFolderError, match=re.escape(culprit)):
        read_run(folder)


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no folder"):
        read_run(tmp_path / "nowhere")
