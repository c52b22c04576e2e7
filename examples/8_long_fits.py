"""
Watch a fit, stop it, go on
===========================

A callback looks on while a graph is learned. A checkpoint keeps the state after each outer
iteration, so that a fit that was killed goes on to the same bits. Ctrl-C keeps the best model so
far. On the command line: ``--checkpoint FILE``, ``--tensorboard FOLDER``.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from edgewise import LDSClassifier
from edgewise.datasets import load
from edgewise.learn import Callback

# %%
# This callback interrupts after two outer iterations, as Ctrl-C would.


class Impatient(Callback):
    def after_iteration(self, edges, progress):
        record = progress.history[-1]
        print(f"iteration {record.iteration}: {edges.expected_edges():.1f} expected edges")
        if record.iteration == 2:
            raise KeyboardInterrupt


wine = load("wine", seed=0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    stopped = LDSClassifier(callbacks=[Impatient()], random_state=0)
    stopped.fit(wine.features, wine.masked_labels())
print(said[-1].message)

# %%
# With a checkpoint, the next fit goes on after iteration 2. The model is the one of a fit that was
# never interrupted.

parameters = {"max_outer_iterations": 6, "random_state": 0}
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it was interrupted
    path = Path(folder) / "wine.checkpoint"
    first = LDSClassifier(callbacks=[Impatient()], **parameters)
    first.fit(wine.features, wine.masked_labels(), checkpoint=path)
    resumed = LDSClassifier(**parameters)
    resumed.fit(wine.features, wine.masked_labels(), checkpoint=path)
whole = LDSClassifier(**parameters).fit(wine.features, wine.masked_labels())
print("the same bits:", np.array_equal(resumed.label_distributions_, whole.label_distributions_))

# %%
# `history_` holds a record of each outer iteration. Edges over-fit when the validation loss goes to
# zero and the early-stopping loss grows; the model of the best iteration is kept.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
iterations = [record["iteration"] for record in whole.history_]
for name in ("train_loss", "validation_loss", "early_stopping_loss"):
    axes[0].plot(iterations, [record[name] for record in whole.history_], marker=".", label=name)
axes[0].axvline(whole.best_iteration_, color="0.5", linestyle=":")
axes[0].legend()
axes[1].plot(iterations, [record["expected_edges"] for record in whole.history_], marker=".")
axes[1].set_title("expected edges")
for axis in axes:
    axis.set_xlabel("outer iteration")
plt.show()
