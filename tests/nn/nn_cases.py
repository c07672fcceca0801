"""Graphs, layers and comparisons that the tests of gfgnn.nn share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import EdgeIndex

import gfgnn.nn as ours

NODES, WIDTH = 14, 6
KINDS = ["plain", "undirected", "loops", "duplicates", "empty"]
FORMS = ["edge_index", "EdgeIndex", "csr", "coo"]


def graph(kind: str, seed: int = 0) -> Tensor:
    """Edges between the first nodes; the last two are isolated."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(NODES - 2, (2, 40), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    if kind == "undirected":
        return torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1).contiguous()
    if kind == "loops":
        loops = torch.tensor([[0, 3, 13], [0, 3, 13]])
        edges = torch.cat([edges, loops], dim=1)
    if kind == "duplicates":
        edges = torch.cat([edges, edges[:, :7], torch.tensor([[2, 2], [2, 2]])], dim=1)
    if kind == "empty":
        return edges[:, :0].contiguous()
    return edges[:, torch.randperm(edges.size(1), generator=generator)]


def weights(edges: Tensor, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return 0.2 + torch.rand(edges.size(1), generator=torch.Generator().manual_seed(seed)).to(dtype)


def features(dtype: torch.dtype, width: int = WIDTH, seed: int = 2) -> Tensor:
    return torch.randn(NODES, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


def in_form(form: str, edges: Tensor, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, Tensor | None]:
    """The graph as a user may pass it: what to give for ``edge_index`` and ``edge_weight``."""
    if form == "edge_index":
        return edges, weight
    if form == "EdgeIndex":
        return EdgeIndex(edges, sparse_size=(NODES, NODES)), weight
    value = torch.ones(edges.size(1), dtype=dtype) if weight is None else weight
    adj_t = torch.sparse_coo_tensor(edges.flip(0), value, (NODES, NODES), check_invariants=False).coalesce()
    return (adj_t.to_sparse_csr() if form == "csr" else adj_t), None


def mlp(width: int = WIDTH) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


@dataclass(frozen=True)
class Layer:
    """A layer of ours and of PyTorch Geometric, built alike."""

    name: str
    build: Callable[[Any], torch.nn.Module]
    weighted: bool = True

    def pair(self, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, torch.nn.Module]:
        """Both with the same parameters."""
        torch.manual_seed(0)
        mine, theirs = self.build(ours).to(dtype), self.build(pyg).to(dtype)
        with torch.no_grad():
            for number, parameter in enumerate(mine.parameters()):
                parameter.add_(0.1 * (number + 1))  # no zeros: a forgotten bias would not be seen
        theirs.load_state_dict(mine.state_dict(), strict=True)
        return mine, theirs

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x, x.flip(0) * 0.5) if self.name.startswith("GCN2") else (x,)


LAYERS = [
    Layer("GCN narrow", lambda nn: nn.GCNConv(WIDTH, 3)),
    Layer("GCN wide", lambda nn: nn.GCNConv(WIDTH, 16, improved=True)),
    Layer("GCN without loops", lambda nn: nn.GCNConv(WIDTH, 4, add_self_loops=False, bias=False)),
    Layer("GCN without normalisation", lambda nn: nn.GCNConv(WIDTH, 4, normalize=False)),
    Layer("GCN2", lambda nn: nn.GCN2Conv(WIDTH, 0.2, 0.5, 3)),
    Layer(
        "GCN2 star", lambda nn: nn.GCN2Conv(WIDTH, 0.2, 0.5, 3, shared_weights=False, add_self_loops=False)
    ),
    Layer("SG narrow", lambda nn: nn.SGConv(WIDTH, 3, K=2)),
    Layer("SG wide", lambda nn: nn.SGConv(WIDTH, 9, K=3, bias=False, add_self_loops=False)),
    Layer("SAGE narrow", lambda nn: nn.SAGEConv(WIDTH, 3, normalize=True), weighted=False),
    Layer("SAGE wide", lambda nn: nn.SAGEConv(WIDTH, 9, project=True), weighted=False),
    Layer("SAGE sum", lambda nn: nn.SAGEConv(WIDTH, 4, aggr="sum", root_weight=False), weighted=False),
    Layer("GIN", lambda nn: nn.GINConv(mlp(), eps=0.3, train_eps=True), weighted=False),
]
NAMED = {layer.name: layer for layer in LAYERS}


def gradients(module: torch.nn.Module, result: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Of a sum with random coefficients, for every parameter and the inputs."""
    generator = torch.Generator().manual_seed(5)
    coefficients = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype)
    wanted = [*module.parameters(), *inputs]
    return list(torch.autograd.grad((result * coefficients).sum(), wanted, retain_graph=True))


def assert_alike(
    mine: torch.nn.Module,
    theirs: torch.nn.Module,
    arguments: tuple[Any, ...],
    *wanted: Tensor,
    tolerance: float,
) -> None:
    """Same results, and same gradients for all parameters and the tensors ``wanted``."""
    a, b = mine(*arguments), theirs(*arguments)
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    pairs = zip(gradients(mine, a, *wanted), gradients(theirs, b, *wanted), strict=True)
    for left, right in pairs:
        scale = max(1.0, float(right.abs().max()) if right.numel() else 1.0)
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance * scale)
