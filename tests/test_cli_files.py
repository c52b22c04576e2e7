"""``edgewise fit FILE`` and ``edgewise predict``: what they leave behind, and how they fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss

from edgewise import LDSClassifier, make_method
from edgewise.cli import main
from edgewise.io.columns import TablePreprocessor, load_table_settings
from edgewise.io.graphs import read_graph

QUICK = ("--k", "4", "--max-outer-iterations", "2", "--threads", "1")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def customers(n_rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    churned = rng.integers(0, 2, n_rows)
    return pd.DataFrame(
        {
            "customer": [f"{number:04}" for number in rng.permutation(10 * n_rows)[:n_rows]],
            "age": rng.normal(40, 5, n_rows) + 15 * churned,
            "plan": np.where(rng.random(n_rows) < 0.2 + 0.6 * churned, "basic", "gold"),
            "spent": rng.lognormal(3, 0.5, n_rows) * (1 + 2 * churned),
            "churned": np.where(np.arange(n_rows) < 40, np.array(["no", "yes"])[churned], ""),
        }
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    customers().to_csv(folder / "customers.csv", index=False)
    arguments = ["--target", "churned", "--id", "customer", "--test-fraction", "0.25"]
    with pytest.raises(SystemExit) as ended:
        main(
            ["fit", str(folder / "customers.csv"), *arguments, "--out", str(folder / "run"), *QUICK]
        )
    assert not ended.value.code
    return folder


def predictions(fitted: Path) -> pd.DataFrame:
    return pd.read_csv(fitted / "run" / "predictions.csv", dtype={"id": str, "label": str})


def test_a_fit_leaves_everything_in_its_folder(fitted: Path) -> None:
    assert sorted(entry.name for entry in (fitted / "run").iterdir()) == [
        "edges.csv",
        "edges.parquet",
        "graph.graphml",
        "log.jsonl",
        "metrics.json",
        "model",
        "predictions.csv",
        "report.html",
    ]


def test_predictions_have_a_line_for_each_row(fitted: Path) -> None:
    table = predictions(fitted)
    assert table["id"].tolist() == customers()["customer"].tolist()
    assert set(table["predicted"]) <= {"no", "yes"}
    shares = table[["probability_no", "probability_yes"]].to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=2e-6)
    assert (table["role"] == "test").sum() == 10
    assert table["role"].isna().sum() == 20
    assert table["label"].isna().sum() == 20


def test_figures_are_those_of_the_held_out_rows(fitted: Path) -> None:
    metrics = json.loads((fitted / "run" / "metrics.json").read_text())
    test = predictions(fitted).query("role == 'test'")
    truth, predicted = test["label"], test["predicted"]
    shares = test[["probability_no", "probability_yes"]].to_numpy()
    expected = {
        "test_accuracy": (truth == predicted).mean(),
        "test_balanced_accuracy": balanced_accuracy_score(truth, predicted),
        "test_macro_f1": f1_score(truth, predicted, average="macro"),
        "test_log_loss": log_loss(truth, shares, labels=["no", "yes"]),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert metrics["labels"].pop("test") == 10
    assert sum(metrics["labels"].values()) == 30


def test_the_fixed_graph_is_judged_beside_the_learned_one(fitted: Path) -> None:
    metrics = json.loads((fitted / "run" / "metrics.json").read_text())
    fixed = metrics["baseline"]
    assert (fixed["method"], fixed["labels"]) == ("knn-gcn", 30)
    frame, table = customers(), predictions(fitted)
    settings = load_table_settings(fitted / "run" / "model" / "table.json")
    features = TablePreprocessor.from_dict(settings).transform(frame)
    known = frame["churned"].where(table["role"] != "test", "").to_numpy(dtype=object)
    split = LDSClassifier.load(fitted / "run" / "model").split_
    model = make_method("knn-gcn", k=4, learning_rate=0.02, refit=True, random_state=0).fit(
        features, known, validation=split.validation, early_stopping=split.early_stopping
    )
    test = table.query("role == 'test'").index
    right = model.transduction_[test] == frame["churned"][test]
    assert fixed["test_accuracy"] == pytest.approx(right.mean())
    assert "fixed-graph baseline (knn-gcn" in (fitted / "run" / "report.html").read_text()


def test_held_out_labels_play_no_part(fitted: Path) -> None:
    roles = predictions(fitted)["role"]
    known = LDSClassifier.load(fitted / "run" / "model")._fitted_labels
    np.testing.assert_array_equal(known >= 0, roles.isin(["train", "validation", "early_stopping"]))


def test_edges_name_the_rows(fitted: Path) -> None:
    run_folder, ids = fitted / "run", customers()["customer"].tolist()
    frame = pd.read_csv(run_folder / "edges.csv", dtype={"source": str, "target": str})
    pd.testing.assert_frame_equal(
        frame, pd.read_parquet(run_folder / "edges.parquet"), check_dtype=False
    )
    assert frame["probability"].is_monotonic_decreasing
    assert {*frame["source"], *frame["target"]} <= set(ids)
    edges = LDSClassifier.load(run_folder / "model").edges_
    row, col = ids.index(frame["source"][0]), ids.index(frame["target"][0])
    assert edges.probability([row], [col])[0] == pytest.approx(frame["probability"][0])
    graph = networkx.read_graphml(run_folder / "graph.graphml")
    assert sorted(graph.nodes) == sorted(ids)
    assert graph.number_of_edges() == len(frame)
    assert set(graph.nodes[ids[0]]) == {"role", "label", "predicted", "probability"}
    assert read_graph(run_folder / "edges.csv", ids).nnz == 2 * len(frame)


def test_the_log_has_a_line_for_each_outer_iteration(fitted: Path) -> None:
    lines = (fitted / "run" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2]


def test_the_model_predicts_its_own_rows_and_others(
    fitted: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    new = pd.concat([customers().head(5), customers(8, seed=1)], ignore_index=True)
    new["customer"] = [f"n{row}" for row in range(13)]
    new.loc[12, ["age", "spent"]] = [900.0, -5000.0]
    new.loc[11, "spent"] = np.nan
    missing = int(new[["age", "spent"]].isna().sum().sum())
    new.drop(columns="churned").to_csv(tmp_path / "new.csv", index=False)
    code, out, err = run("predict", fitted / "run", tmp_path / "new.csv", "--novelty")
    assert code == 0
    (tmp_path / "out.csv").write_text(out)
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["id"].tolist() == new["customer"].tolist()
    columns = ["probability_no", "probability_yes"]
    np.testing.assert_array_equal(table[columns].head(5), predictions(fitted)[columns].head(5))
    model = LDSClassifier.load(fitted / "run" / "model")
    if table["novel"][12]:
        shares = table.loc[12, columns].astype(float)
        np.testing.assert_allclose(shares, model.class_frequencies_, atol=1e-6)
        assert "far from all that were fitted" in err
    assert not table["novel"].head(5).any()
    assert f"{missing} empty cells were filled" in err
    again = run("predict", fitted / "run", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert again[:2] == (0, "")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), table.drop(columns="novel"))


def test_decisions_are_told_and_corrected(run: Callable[..., Any], tmp_path: Path) -> None:
    customers().to_csv(tmp_path / "c.csv", index=False)
    arguments = ("--target", "churned", "--drop", "spent", "--categorical", "age", *QUICK)
    code, out, err = run("fit", tmp_path / "c.csv", *arguments, "--json")
    assert code == 0
    assert json.loads(out)["labels"]["test"] == 0
    lines = {line.split()[0]: line for line in err.splitlines() if line}
    assert "left out as asked" in lines["spent"]
    assert "categorical" in lines["age"]
    assert "one feature for each of 2 values (basic, gold)" in lines["plan"]
    assert "'churned': no: " in lines["target"]
    assert "20 rows without a label" in lines["target"]
    assert "--id customer would name them" in lines["rows"]


def test_a_known_graph_is_matched_by_ids(run: Callable[..., Any], tmp_path: Path) -> None:
    frame = customers()
    frame.to_parquet(tmp_path / "c.parquet")
    ids = frame["customer"]
    edges = pd.DataFrame({"source": ids[:30].to_numpy(), "target": ids[30:].to_numpy()})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    arguments = ("--target", "churned", "--id", "customer", "--graph", tmp_path / "edges.csv")
    code, out, _ = run("fit", tmp_path / "c.parquet", *arguments, *QUICK, "--json")
    assert code == 0
    assert json.loads(out)["method"] == "lds"
    assert json.loads(out)["initial_edges"] == 30
    edges.assign(source="ghost").to_csv(tmp_path / "edges.csv", index=False)
    code, _, err = run("fit", tmp_path / "c.parquet", *arguments, *QUICK)
    assert code == 2
    assert "'ghost' that match no row" in err


def test_edges_from_similarity(run: Callable[..., Any], tmp_path: Path) -> None:
    customers().to_feather(tmp_path / "c.feather")
    arguments = ("--target", "churned", "--id", "customer", "--edges", "similarity", "--refit")
    code, out, err = run(
        "fit", tmp_path / "c.feather", *arguments, "--out", tmp_path / "run", *QUICK, "--json"
    )
    assert (code, "Traceback" in err) == (0, False)
    parameters = json.loads(out)["parameters"]
    assert (parameters["edges"], parameters["refit"]) == ("similarity", True)
    customers(5, seed=1).to_feather(tmp_path / "new.feather")
    code, out, _ = run("predict", tmp_path / "run", tmp_path / "new.feather")
    assert (code, len(out.splitlines())) == (0, 6)


def test_an_npz_of_features_and_labels(run: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 15)
    features = rng.normal(size=(30, 2)) + labels[:, None]
    np.savez(tmp_path / "t.npz", X=features, y=np.where(np.arange(30) % 3, labels, -1))
    code, out, err = run("fit", tmp_path / "t.npz", "--out", tmp_path / "run", *QUICK, "--json")
    assert code == 0
    assert "target 'y': 0: 10, 1: 10; 10 rows without a label" in err
    assert json.loads(out)["target"] == "y"
    np.savez(tmp_path / "new.npz", X=features[:4] + 0.1)
    code, out, _ = run("predict", tmp_path / "run", tmp_path / "new.npz")
    assert (code, len(out.splitlines())) == (0, 5)


def test_tensorboard_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    code, _, _ = run("fit", "wine", *QUICK, "--tensorboard", tmp_path / "board")
    assert code == 0
    assert next(file.name for file in (tmp_path / "board").iterdir()).startswith("events.out")


def test_without_tensorboard_the_fit_says_what_to_install(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, out, err = run("fit", "wine", *QUICK, "--tensorboard", tmp_path / "board")
    assert (code, out) == (2, "")
    assert err == ("edgewise: TensorBoard is not installed: pip install 'edgewise[tracking]'.\n")


def test_sparse_files(run: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 2], 20)
    features = rng.random((40, 6)) * (rng.random((40, 6)) < 0.5)
    features[:, 0] += labels
    dump_svmlight_file(features, labels, str(tmp_path / "t.svm"), zero_based=False)
    code, _, err = run("fit", tmp_path / "t.svm", "--out", tmp_path / "run", *QUICK)
    assert code == 0
    assert "target 'label': 1: 20, 2: 20; 0 rows without a label" in err
    assert load_table_settings(tmp_path / "run" / "model" / "table.json")["columns"] is None
    dump_svmlight_file(features[:3, :5], labels[:3], str(tmp_path / "new.svm"), zero_based=False)
    code, out, _ = run("predict", tmp_path / "run", tmp_path / "new.svm")
    assert code == 0
    assert len(out.splitlines()) == 4
    dump_svmlight_file(np.ones((3, 9)), labels[:3], str(tmp_path / "new.svm"), zero_based=False)
    code, _, err = run("predict", tmp_path / "run", tmp_path / "new.svm")
    assert (code, "sparse matrix of 6" in err) == (2, True)


def test_a_leak_is_pointed_out(run: Callable[..., Any], tmp_path: Path) -> None:
    frame = customers()
    rng = np.random.default_rng(0)
    frame["refund"] = np.where(customers()["churned"] == "yes", 5, 0) + rng.random(60)
    frame.to_csv(tmp_path / "c.csv", index=False)
    _, _, err = run("fit", tmp_path / "c.csv", "--target", "churned", *QUICK)
    assert "warning: 'refund' alone all but determines 'churned'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv", "--target", "y"], "nowhere.csv does not exist"),
        (["c.csv"], "is a table: name the column with --target"),
        (["c.csv", "--target", "churn"], "no column 'churn'. Did you mean 'churned'?"),
        (["c.csv", "--target", "age"], "regression"),
        (["c.csv", "--target", "churned", "--id", "plan"], "must be unique"),
        (["c.csv", "--target", "churned", "--id", "churned"], "cannot be --id or --drop"),
        (["c.csv", "--target", "churned", "--drop", "agge"], "--drop: the table has no column"),
        (["c.csv", "--target", "churned", "--graph", "none.csv"], "none.csv does not exist"),
        (["c.csv", "--target", "churned", "--keep-edges", "0.5"], "data sets by name"),
        (["wine", "--target", "y"], "--target is about tables, and wine is a data set by name"),
        (["t.xlsx", "--target", "y"], "ending '.xlsx'"),
        (["p.parquet", "--target", "y"], "is not Parquet"),
    ],
)
def test_errors_are_one_line(
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    customers().to_csv("c.csv", index=False)
    Path("t.xlsx").write_text("PK")
    Path("p.parquet").write_text("a,b\n1,2\n")
    code, out, err = run("fit", *arguments, *QUICK)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err


def test_errors_of_predict_are_one_line(
    fitted: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    customers().drop(columns="age").to_csv(tmp_path / "new.csv", index=False)
    for arguments, message in (
        ([tmp_path / "nothing", tmp_path / "new.csv"], "there is no model at"),
        ([tmp_path, tmp_path / "new.csv"], "holds no model"),
        ([fitted / "run", tmp_path / "new.csv"], "no column 'age'"),
        ([fitted / "run", tmp_path / "missing.csv"], "does not exist"),
    ):
        code, out, err = run("predict", *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.splitlines()) == 1
