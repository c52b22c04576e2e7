"""
Rows that come after the fit
============================

The paper leaves open what to do with new rows. Edgewise attaches each of them to its nearest fitted
rows and evaluates the network on the extended graph. Nothing is fitted again, and predictions of
fitted rows stay as they are.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from edgewise import LDSClassifier

# %%
# Two half moons, ten labels each. The metric is Euclidean, as these are places in the plane.

X, y = make_moons(300, noise=0.1, random_state=0)
rng = np.random.default_rng(0)
known = np.concatenate(
    [rng.choice(np.flatnonzero(y == code), 10, replace=False) for code in (0, 1)]
)
target = np.full(len(y), -1)
target[known] = y[known]
model = LDSClassifier(
    k=8, metric="euclidean", outer_learning_rate=0.1, patience=5, random_state=0
).fit(X, target)
print(f"accuracy on the fitted rows: {(model.transduction_ == y).mean():.1%}")

# %%
# `predict_proba` takes any rows. Those far from all fitted ones get the class frequencies of the
# labelled rows, here one half each, and `novelty` marks them.

new, truth = make_moons(200, noise=0.1, random_state=1)
print(f"accuracy on new rows:        {(model.predict(new) == truth).mean():.1%}")
print(model.predict_proba([[0.0, 1.0], [40.0, 40.0]]).round(2))
print(model.novelty([[0.0, 1.0], [40.0, 40.0]]))

# %%
# The same for every place of the plane; what is hatched is far from all that was seen.

across, up = np.meshgrid(np.linspace(-2.0, 3.0, 60), np.linspace(-1.5, 2.0, 42))
places = np.column_stack([across.ravel(), up.ravel()])
probability = model.predict_proba(places)[:, 1].reshape(across.shape)
novel = model.novelty(places).reshape(across.shape)

figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
shades = axis.contourf(across, up, probability, levels=10, cmap="RdBu_r", alpha=0.6)
axis.contourf(across, up, novel, levels=[0.5, 1.5], colors="none", hatches=["//"])
axis.scatter(*X.T, c=y, cmap="RdBu_r", s=8)
axis.scatter(*X[known].T, c=y[known], cmap="RdBu_r", s=70, edgecolor="black", label="label given")
figure.colorbar(shades, label="probability of the second moon")
axis.legend()
plt.show()
