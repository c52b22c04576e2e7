"""
A table of your own
===================

A data frame with numbers, categories, truth values, dates and holes in it; the target is filled in
for 60 of 600 rows. ``edgewise fit customers.csv --target churned`` does all of this in one command.
Here are the steps behind it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from edgewise import LDSClassifier
from edgewise.io import TablePreprocessor

# %%
# The customers are made up. Those who call the support often, and are new, tend to leave.

rng = np.random.default_rng(0)
n_rows = 600
table = pd.DataFrame(
    {
        "plan": rng.choice(["basic", "plus", "premium"], n_rows, p=[0.5, 0.3, 0.2]),
        "months": rng.gamma(2.0, 14.0, n_rows).round(1),
        "calls": rng.poisson(1.5, n_rows),
        "paperless": rng.random(n_rows) < 0.6,
        "last_order": pd.Timestamp("2026-01-01")
        - pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
    }
)
score = 1.2 * (table["calls"] - 1.5) - 0.06 * (table["months"] - 28) + (table["plan"] == "basic")
churned = np.where(score + rng.logistic(0.0, 0.5, n_rows) > 0.4, "yes", "no")
table.loc[rng.random(n_rows) < 0.1, "months"] = np.nan

known = rng.permutation(n_rows) < 60
target = np.where(known, churned, "")  # unknown: "", None, NaN, or -1 among numbers

# %%
# Columns become features: filled in, standardised, one feature for each category. It says what it
# took each column for; ``categorical=`` and ``drop=`` correct it.

columns = TablePreprocessor()
features = columns.fit_transform(table)
print(columns.describe())

# %%
# Standardised columns are compared by Euclidean distance.

model = LDSClassifier(metric="euclidean", patience=5, random_state=0).fit(features, target)
right = model.transduction_ == churned
print(f"accuracy on the {np.sum(~known)} rows without a label: {right[~known].mean():.1%}")

# %%
# How sure is it, and is it right when it is? Few labels make over-confident networks: read the
# probabilities as an order rather than as frequencies. The least sure rows are those to label next.

sure = model.label_distributions_.max(axis=1)
order = np.argsort(np.where(known, 1.0, sure), kind="stable")
print(table.iloc[order[:5]].assign(predicted=model.transduction_[order[:5]], sure=sure[order[:5]]))

groups = np.array_split(order[: np.sum(~known)], 6)
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.plot([0.5, 1.0], [0.5, 1.0], linestyle=":", color="0.5", label="as sure as it is right")
axis.plot(
    [sure[rows].mean() for rows in groups], [right[rows].mean() for rows in groups], marker="o"
)
axis.set(xlabel="probability of the predicted class", ylabel="share that is right")
axis.legend()
plt.show()
