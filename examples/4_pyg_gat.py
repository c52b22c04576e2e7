"""
Hand the learned graph to another model
=======================================

What is learned is a graph, and any model that takes one can have it. Here a graph attention network
(GAT) of PyTorch Geometric is trained on it, with the probabilities as edge features.
"""

import matplotlib.pyplot as plt
import torch
from torch_geometric.nn import GATConv

from edgewise import LDSClassifier
from edgewise.datasets import load
from edgewise.io import to_pyg

# %%
# Learn the graph from 30 labels of Wine, then turn it into a `Data` object. Edges below the
# threshold stay out: most pairs have a tiny probability.

wine = load("wine", seed=0)
model = LDSClassifier(patience=5, random_state=0).fit(wine.features, wine.masked_labels())
data = to_pyg(model.edges_, wine.features, wine.labels, threshold=0.05)
print(data)

# %%
# Only labels that were seen before train the GAT.


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GATConv(13, 8, heads=4, edge_dim=1, dropout=0.3)
        self.second = GATConv(32, 3, edge_dim=1, dropout=0.3)

    def forward(self, data):
        edges = data.edge_index, data.edge_weight[:, None]
        return self.second(torch.relu(self.first(data.x, *edges)), *edges)


torch.manual_seed(0)
network = GAT()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=5e-4)
seen = torch.as_tensor(wine.masked_labels() >= 0)
losses = []
for _ in range(100):
    network.train()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(network(data)[seen], data.y[seen])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

network.eval()
with torch.no_grad():
    right = network(data).argmax(dim=1) == data.y
print(f"GAT on the learned graph: {right[~seen].float().mean():.1%}")
print(f"Edgewise's own network:   {(model.transduction_ == wine.labels)[wine.test].mean():.1%}")

# %%
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.plot(losses)
axis.set(xlabel="step", ylabel="training loss of the GAT")
plt.show()
