"""
Few parameters in place of many
===============================

A probability of its own for each pair of rows is much to learn from few labels. With
``edges="similarity"`` the probability is a function of the rows' likeness, and what is learned is
how much each column counts in it. First by a denoising task that needs no labels, then by the
hypergradient.
"""

import matplotlib.pyplot as plt
import numpy as np

from edgewise import LDSClassifier

# %%
# Eight columns, of which the first two tell the classes apart. The others are noise.

rng = np.random.default_rng(0)
n_rows, n_columns = 200, 8
y = rng.integers(0, 2, n_rows)
X = rng.normal(size=(n_rows, n_columns))
X[:, :2] += 2.0 * y[:, None] - 1.0
known = rng.permutation(n_rows) < 45
target = np.where(known, y, -1)

# %%
# The same labels, with free probabilities and with learned weights of the columns.

models = {}
for edges in ("free", "similarity"):
    models[edges] = LDSClassifier(
        edges=edges, metric="euclidean", patience=3, max_inner_steps=100, random_state=0
    ).fit(X, target)
    right = models[edges].transduction_ == y
    print(f"{edges:10} accuracy on unlabelled rows {right[~known].mean():.1%}")

log_weights, scale, offset = models["similarity"].edges_.parameters
print(
    f"learned: {n_rows * (n_rows - 1) // 2:,} probabilities, or {len(log_weights) + 2} parameters"
)
print("weights of the columns:", np.exp(log_weights).round(2))

# %%
# Do not read the weights as importance for the classes: the denoising task also needs edges along
# which noise can be guessed. The picture shows what became of the probabilities. Free ones are
# those of the neighbours that learning started from, near 0 or 1, but for pairs that the gradient
# reached. Those from similarity are graded, and the likelier an edge, the likelier it joins two
# rows of one class.

bins = np.linspace(0.0, 1.0, 11)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for axis, (edges, model) in zip(axes, models.items(), strict=True):
    table = model.edges_.to_pandas(threshold=0.01)
    joined = y[table["source"]] == y[table["target"]]
    groups = [table["probability"][joined], table["probability"][~joined]]
    axis.hist(groups, bins, stacked=True, label=["one class", "two classes"])
    axis.set(title=f'edges="{edges}"', xlabel="probability of the edge", ylabel="pairs of rows")
    axis.legend()
plt.show()
