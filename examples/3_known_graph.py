"""
A graph that is known in part
=============================

Some edges are known, many are missing. We make up 600 papers on four subjects, whose words say
little, and let a share of the citations be known.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from edgewise import LDSClassifier, make_method

# %%
# Papers cite within their subject five times in six. Each subject makes some words likelier.

rng = np.random.default_rng(0)
n_rows, n_words = 600, 200
subject = rng.integers(0, 4, n_rows)
likely = np.where(np.arange(n_words) // 50 == subject[:, None], 0.09, 0.03)
words = (rng.random((n_rows, n_words)) < likely).astype(float)
same = subject[:, None] == subject
cites = np.triu(rng.random((n_rows, n_rows)) < np.where(same, 0.025, 0.0015), 1)
known = rng.permutation(n_rows) < 120  # the labels that may be seen
target = np.where(known, subject, -1)

# %%
# A graph goes in as the third argument: an adjacency matrix, an edge list, a data frame with
# ``source`` and ``target``, or a NetworkX graph. The rival is the same network on the edges as they
# are, fitted to the same labels. Here both are refitted to all 120 of them.

shares = (0.25, 0.5, 1.0)
accuracies = {"GCN on the known edges": [], "LDS, starting from them": []}
for share in shares:
    kept = sparse.csr_array(cites & (rng.random(cites.shape) < share))
    kept = kept + kept.T  # citations of either direction
    for name, model in (
        ("GCN on the known edges", make_method("gcn", refit=True, random_state=0)),
        (
            "LDS, starting from them",
            LDSClassifier(patience=2, refit=True, random_state=0),
        ),
    ):
        model.fit(words, target, kept)
        accuracies[name].append((model.transduction_ == subject)[~known].mean())
        print(f"{share:4.0%} of the edges  {name:25} {accuracies[name][-1]:.1%}")

# %%
# What helps depends on how much of the graph there is. With a quarter of these edges, the labels
# spent on finding more of them are missed elsewhere; with half or all of them, learning neither
# costs nor gains much. This is one draw of one made-up graph, of words that say little. On Cora and
# Citeseer the two are level at equal labels; on data of your own, :doc:`ask </worth_it>`.

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, values), marker in zip(accuracies.items(), "os", strict=True):
    axis.plot(
        [100 * share for share in shares], [100 * v for v in values], marker=marker, label=name
    )
axis.set(xlabel="share of the edges that is known, %", ylabel="accuracy on unlabelled rows, %")
axis.legend()
plt.show()
