"""PyTorch Geometric's own GCN example, trained by Adam as its authors do, and without backpropagation by gfgnn.

    python examples/pyg_model.py                  # CiteSeer, which comes with gfgnn
    python examples/pyg_model.py cora             # a cora.npz where $GFGNN_DATA says

The module knows nothing of gfgnn: two GCNConv layers with dropout. gfgnn reads it, trains its layers one by one in
closed form and writes the weights back into it, so whatever takes the module can use it as before.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import gfgnn


class GCN(torch.nn.Module):
    """The network of Kipf and Welling (2017)."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = GCNConv(hidden_channels, out_channels, cached=True)

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


def accuracies(model: torch.nn.Module, data) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Shares of the validation and the test nodes that the module, on its own, classifies rightly."""
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(dim=1) == data.y
    return float(right[data.val_mask].double().mean()), float(right[data.test_mask].double().mean())


def train_adam(model: torch.nn.Module, data, epochs: int) -> float:  # type: ignore[no-untyped-def]
    """The example's 200 epochs; returns the test accuracy where validation was best."""
    groups = [
        {"params": model.conv1.parameters(), "weight_decay": 5e-4},
        {"params": model.conv2.parameters(), "weight_decay": 0},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    best = (0.0, 0.0)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        best = max(best, accuracies(model, data), key=lambda found: found[0])
    return best[1]


def main(name: str = "citeseer", epochs: int = 200, iterations: int | None = None) -> tuple[float, float]:
    """Trains two copies of the network; test accuracies by Adam and by gfgnn."""
    data = gfgnn.load(name, normalise="rows").to_pyg()
    data.x = data.x.to_dense()
    sizes = data.num_features, 16, int(data.y.max()) + 1

    torch.manual_seed(0)
    model, started = GCN(*sizes), time.perf_counter()
    by_adam = train_adam(model, data, epochs)
    print(f"Adam         test accuracy {by_adam:.3f}, {time.perf_counter() - started:.1f} s")

    model, started = GCN(*sizes), time.perf_counter()
    result = gfgnn.fit(model, data, iters=iterations)
    _, without = accuracies(model, data)
    print(f"no backprop  test accuracy {without:.3f}, {time.perf_counter() - started:.1f} s")
    assert result.test_accuracy is not None
    assert abs(without - result.test_accuracy) < 1e-3, "the module predicts as it was trained to"
    return by_adam, without


if __name__ == "__main__":
    main(*sys.argv[1:2])
