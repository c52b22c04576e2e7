"""
Did learning the graph help?
============================

A learned graph has to beat the best of all alternatives, not the weakest, and with the same labels.
`compare` runs them on the same splits and answers in one sentence. On the command line it is
``edgewise compare customers.csv --target churned --labels equal``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from edgewise import compare

X, y = load_wine(return_X_y=True)
known = np.random.default_rng(0).permutation(len(y)) < 80

# %%
# Three methods and three splits, to be quick; by default there are eight methods and five splits.
# Of the 80 labels a quarter is held out in each split. With ``labels="equal"`` the final network
# of every method is fitted to all the others.

result = compare(
    scale(X),
    np.where(known, y, -1),
    methods=["logreg", "knn-gcn", "knn-lds"],
    seeds=3,
    labels="equal",
    parameters={"knn-lds": {"patience": 2}},
    name="wine",
)
print(result.to_pandas()[["method", "mean", "std", "best", "seconds"]].round(3))
print(result.budget)
print(result.conclusion)

# %%
# How to read the answer. The interval is of the difference between the learned graph and its best
# rival, paired over splits. If zero lies inside, there is no evidence either way; more splits
# (``seeds=20``) narrow it. All splits come from the same 80 labels, so an interval is about these
# rows. Accuracies of each split tell more than their mean:

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for place, method in enumerate(result.methods):
    values = [100 * value for value in method.accuracies.values()]
    axis.plot([place] * len(values), values, marker="o", linestyle="none", color="0.5")
    axis.plot([place - 0.15, place + 0.15], [100 * method.mean] * 2, color="black")
axis.set_xticks(range(len(result.methods)), [method.method for method in result.methods])
axis.set(ylabel="accuracy on held-out labels, %", title="Each split, and the mean")
plt.show()
