"""The record for TensorBoard: read back, and what is said where TensorBoard is not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from edgewise import LDSClassifier
from edgewise.report.tensorboard import TensorBoardLog

X = np.concatenate([np.arange(10.0), np.arange(20.0, 30.0)])[:, None]
Y = np.repeat([0, 1], 10)


def test_each_outer_iteration_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoardLog(tmp_path) as log:
        model = LDSClassifier(
            k=3, metric="euclidean", max_outer_iterations=3, callbacks=[log], random_state=0
        ).fit(X, Y)
    written = EventAccumulator(str(tmp_path))
    written.Reload()
    names = {
        "edges/expected": "expected_edges",
        "inner/steps": "inner_steps",
        "loss/train": "train_loss",
        "loss/validation": "validation_loss",
        "accuracy/early_stopping": "early_stopping_accuracy",
    }
    for name, key in names.items():
        events = written.Scalars(name)
        assert [event.step for event in events] == [1, 2, 3]
        values = [event.value for event in events]
        assert values == pytest.approx([record[key] for record in model.history_], rel=1e-5)


def test_without_tensorboard_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'edgewise\[tracking\]'"):
        TensorBoardLog(tmp_path)
