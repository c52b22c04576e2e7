"""How a fit goes, for TensorBoard to show."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from edgewise.graph.distribution import EdgeDistribution
from edgewise.learn import Callback, Progress


class TensorBoardLog(Callback):
    """Writes each outer iteration of a fit to a folder that ``tensorboard --logdir`` shows.

    Losses and accuracies of the training, validation and early-stopping rows go to ``loss/`` and
    ``accuracy/``; the expected edges to ``edges/expected``. The folder is brought up to date after
    each outer iteration, so it can be watched while the fit runs.

    Use it as a context manager around the fit, and hand it over as one of the ``callbacks``. It
    needs TensorBoard: ``pip install 'edgewise[tracking]'``.

    Parameters
    ----------
    folder : path-like

    Examples
    --------
    >>> from edgewise import LDSClassifier
    >>> from edgewise.report.tensorboard import TensorBoardLog
    >>> with TensorBoardLog("runs/wine") as log:  # doctest: +SKIP
    ...     LDSClassifier(callbacks=[log]).fit(X, y)
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard is not installed: pip install 'edgewise[tracking]'."
            ) from error
        self._writer: Any = SummaryWriter(str(folder))

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def after_iteration(self, edges: EdgeDistribution, progress: Progress) -> None:
        last = progress.history[-1]
        values = {
            "edges/expected": last.expected_edges,
            "inner/steps": last.inner_steps,
            "inner/learning_rate": last.inner_learning_rate,
            "seconds": last.seconds,
        }
        for part, (accuracy, loss) in last.scores._asdict().items():
            values |= {f"accuracy/{part}": accuracy, f"loss/{part}": loss}
        for name, value in values.items():
            self._writer.add_scalar(name, value, last.iteration)
        self._writer.flush()
