"""Random networks of everything that is supported: blocks compute what the module does, and can be written back."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pyg_modules import (
    CLASSES,
    FEATURES,
    RELATIONS,
    arguments,
    close,
    evaluated,
    multigraph,
    new_weights,
    randomised,
    scores,
)
from torch import Tensor, nn
from torch_geometric import nn as pyg

from gfgnn.model.from_pyg import from_pyg
from gfgnn.nn import Hops

WIDTHS = (4, FEATURES)
LAYERS = (
    "linear", "pyg linear", "gcn", "gcn improved", "gcn as given", "gcn without loops", "sgc", "sage", "sage sum",
    "sage project", "sage pair", "gin", "graph", "rgcn", "gcn2", "gcn2 apart",
)  # fmt: skip
OTHERS = (
    "norm", "pyg norm", "norm without gains", "norm of the batch", "relu", "relu", "leaky", "relu in place", "drop",
    "same", "add", "add", "sub", "scale", "divide", "cat", "hops", "iadd",
)  # fmt: skip
#: Layers whose result is a tensor of its own, which may be overwritten.
FRESH = set(LAYERS)


class Net(nn.Module):
    """Steps on a list of tensors, the features first; every step appends one. The last tensors go into a Linear."""

    def __init__(self, draw: st.DataObject) -> None:
        super().__init__()
        self.steps: list[tuple[str, list[int], float]] = []
        self.layers = nn.ModuleDict()
        self.widths, self.kinds = [FEATURES], ["x"]
        for _ in range(draw.draw(st.integers(1, 9))):
            self._step(draw)
        last = draw.draw(st.integers(1, min(3, len(self.widths))))
        self.last = list(range(len(self.widths) - last, len(self.widths)))
        self.out = pyg.GCNConv(sum(self.widths[i] for i in self.last), CLASSES)

    def _step(self, draw: st.DataObject) -> None:
        kind = draw.draw(st.sampled_from(LAYERS if draw.draw(st.booleans()) else OTHERS))
        recent = st.sampled_from([*range(len(self.widths)), *[len(self.widths) - 1] * 3])
        a = draw.draw(recent)
        width, out = self.widths[a], draw.draw(st.sampled_from(WIDTHS))
        alike = [i for i, other in enumerate(self.widths) if other == width]
        b = draw.draw(st.sampled_from(alike))
        number = draw.draw(st.sampled_from([-1.7, 0.3, 1.0, 2.1]))
        if kind in ("relu in place", "iadd") and self.kinds[a] not in FRESH:
            kind = "relu"
        layer = make(kind, width, out, number, len(self.steps) + 1)
        if layer is not None:
            self.layers[str(len(self.steps))] = layer
        same = kind in OTHERS or kind.startswith("gcn2")
        self.widths.append(self.widths[a] + self.widths[b] if kind == "cat" else width if same else out)
        self.kinds.append(kind)
        self.steps.append((kind, [a, b], number))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_type: Tensor) -> Tensor:
        values = [x]
        for index, (kind, (i, j), number) in enumerate(self.steps):
            a, b, name = values[i], values[j], str(index)
            layer: Any = self.layers[name] if name in self.layers else None  # noqa: SIM401 - a ModuleDict has no get
            values.append(
                apply(layer, kind, (a, b), number, (edge_index, edge_weight, edge_type), self.training)
            )
        return self.out(torch.cat([values[i] for i in self.last], dim=-1), edge_index, edge_weight)


def make(kind: str, width: int, out: int, number: float, place: int) -> nn.Module | None:
    makers = {
        "linear": lambda: nn.Linear(width, out, bias=number > 0),
        "pyg linear": lambda: pyg.Linear(width, out),
        "gcn": lambda: pyg.GCNConv(width, out, bias=number > 0),
        "gcn improved": lambda: pyg.GCNConv(width, out, improved=True),
        "gcn as given": lambda: pyg.GCNConv(width, out, normalize=False),
        "gcn without loops": lambda: pyg.GCNConv(width, out, add_self_loops=False),
        "sgc": lambda: pyg.SGConv(width, out, K=2),
        "sage": lambda: pyg.SAGEConv(width, out, root_weight=number > 0),
        "sage sum": lambda: pyg.SAGEConv(width, out, aggr="sum"),
        "sage project": lambda: pyg.SAGEConv(width, out, project=True),
        "sage pair": lambda: pyg.SAGEConv((width, width), out),
        "gin": lambda: pyg.GINConv(
            pyg.MLP([width, 3, out], norm="batch_norm" if number > 0 else None), eps=number
        ),
        "graph": lambda: pyg.GraphConv(width, out),
        "rgcn": lambda: pyg.RGCNConv(width, out, RELATIONS, aggr="mean" if number > 0 else "add"),
        "gcn2": lambda: pyg.GCN2Conv(width, 0.2, 0.7, place),
        "gcn2 apart": lambda: pyg.GCN2Conv(width, 0.2, 0.7, place, shared_weights=False),
        "norm": lambda: nn.BatchNorm1d(width),
        "pyg norm": lambda: pyg.BatchNorm(width),
        "norm without gains": lambda: nn.BatchNorm1d(width, affine=False),
        "norm of the batch": lambda: pyg.BatchNorm(width, track_running_stats=False),
        "leaky": lambda: nn.LeakyReLU(number),
        "relu in place": lambda: nn.ReLU(inplace=True),
        "drop": lambda: nn.Dropout(0.4),
        "same": nn.Identity,
        "hops": lambda: Hops(2),
    }
    return makers[kind]() if kind in makers else None


def apply(
    layer: Any, kind: str, pair: tuple[Tensor, Tensor], number: float, edges: Any, training: bool
) -> Tensor:
    (a, b), (edge_index, edge_weight, edge_type) = pair, edges
    if kind.startswith("gcn2"):
        return layer(a, b, edge_index, edge_weight)
    if kind == "sage pair":
        return layer((a, b), edge_index)
    if kind.startswith(("sage", "gin")):
        return layer(a, edge_index)
    if kind == "rgcn":
        return layer(a, edge_index, edge_type)
    if kind == "hops":
        return layer(a, edge_index, edge_weight)[-1]
    if kind in LAYERS and "linear" not in kind:
        return layer(a, edge_index, edge_weight)
    if layer is not None:
        return layer(a)
    if kind == "iadd":
        a += b
        return a
    operations = {
        "relu": lambda: F.relu(a), "add": lambda: a + b, "sub": lambda: torch.sub(a, b, alpha=0.45),
        "scale": lambda: number * a, "divide": lambda: a / number, "cat": lambda: torch.cat([a, b], dim=1),
        "drop": lambda: F.dropout(a, training=training),
    }  # fmt: skip
    return operations[kind]()


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 100), weighted=st.booleans())
def test_random_networks(data: st.DataObject, seed: int, weighted: bool) -> None:
    graph = multigraph(seed, weighted=weighted)
    module = randomised(Net(data), seed)
    inputs = arguments(graph, "x", "edge_index", "edge_weight", "edge_type")
    model = from_pyg(module, graph)
    for index, block in enumerate(model.blocks):
        assert all(t.source < index and (t.initial is None or t.initial < index) for t in block.terms)
        assert all(source < index for source, _ in block.adds)
        assert block.branch > 0
    close(scores(model, model.weights()), evaluated(module, *inputs), 1e-8)
    wanted = new_weights(model, seed)
    model.write(wanted)
    close(evaluated(module, *inputs), scores(model, wanted), 1e-8)
    for name, weight in model.weights().items():
        close(weight, wanted[name], 1e-7)
