"""What the tests of ``from_pyg`` share: graphs as PyG is given them, modules with random tensors, comparisons."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.from_pyg import PygModel, from_pyg
from gfgnn.problem import prepare

FEATURES, CLASSES, RELATIONS = 5, 4, 3


def multigraph(
    seed: int = 0, *, nodes: int = 14, weighted: bool = True, typed: bool = True, loops: bool = True
) -> Graph:
    """A directed graph with self-loops, repeated edges and nodes without any, kept as given."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes - 2, (2, 4 * nodes), generator=generator)
    if not loops:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = torch.cat([edge_index, edge_index[:, :6]], dim=1)
    count = edge_index.size(1)
    weight = 0.2 + torch.rand(count, generator=generator, dtype=torch.float64)
    loop = edge_index[0] == edge_index[1]
    # PyG takes one of a node's self-loops and leaves open which, so all have one weight
    weight[loop] = 0.3 + edge_index[0, loop].double() / 10
    index = torch.arange(nodes)
    return Graph.from_edges(
        edge_index,
        nodes,
        x=torch.randn(nodes, FEATURES, generator=generator),
        y=index % CLASSES,
        train_mask=index < 6,
        val_mask=(index >= 6) & (index < 9),
        test_mask=index >= 9,
        edge_weight=weight if weighted else None,
        edge_type=torch.randint(RELATIONS, (count,), generator=generator) if typed else None,
        num_relations=RELATIONS if typed else None,
        keep_raw=True,
        name="multigraph",
    )


def randomised(module: torch.nn.Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """The module with random parameters and running statistics."""
    generator = torch.Generator().manual_seed(seed)
    module.to(dtype)
    tensors = list(module.named_parameters()) + list(module.named_buffers())
    with torch.no_grad():
        for name, tensor in tensors:
            if name.endswith("running_var"):
                tensor.copy_(0.4 + torch.rand(tensor.shape, generator=generator))
            elif tensor.is_floating_point() and not name.endswith("eps"):
                tensor.copy_(0.6 * torch.randn(tensor.shape, generator=generator))
    return module


def arguments(graph: Graph, *names: str, dtype: torch.dtype = torch.float64) -> list[Any]:
    """Arguments by name, as a user of PyG has them."""
    assert graph.x is not None
    raw = graph.raw
    edges: Any = graph if raw is None else raw
    values = {
        "x": graph.x.to_dense().to(dtype),
        "edge_index": edges.edge_index,
        "edge_weight": None if edges.edge_weight is None else edges.edge_weight.to(dtype),
        "edge_type": None if raw is None else raw.edge_type,
    }
    return [values[name] for name in names]


def evaluated(module: torch.nn.Module, *inputs: Any) -> Tensor:
    """``module.eval()(*inputs)``, the modes of all its parts left as they are."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    with torch.no_grad():
        out = module(*inputs)
    for m, training in modes:
        m.training = training
    return out


def scores(model: PygModel, weights: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> Tensor:
    return forward(prepare(model, model.graph, dtype=dtype), weights)


def new_weights(model: PygModel, seed: int = 1) -> dict[str, Tensor]:
    """Other weights of the same shapes; scales are positive, as training makes them."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in model.weights().items():
        drawn = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        found[name] = 0.2 + drawn.abs() if name.endswith("scale") else 0.6 * drawn
    return found


def check(module: torch.nn.Module, graph: Graph, *inputs: Any, seed: int = 0) -> PygModel:
    """Blocks compute what the module does, before and after other weights were written into it.

    ``inputs`` are the module's arguments by position.
    """
    randomised(module, seed)
    module.train()
    model = from_pyg(module, graph)
    assert all(m.training for m in module.modules())
    for index, block in enumerate(model.blocks):
        used = [t.source for t in block.terms] + [s for s, _ in block.adds]
        assert all(source < index for source in used)
    close(scores(model, model.weights()), evaluated(module, *inputs))
    wanted = new_weights(model, seed)
    model.write(wanted)
    close(evaluated(module, *inputs), scores(model, wanted))
    present = model.weights()
    assert present.keys() == wanted.keys()
    for name, weight in wanted.items():
        close(present[name], weight)
    assert all(m.training for m in module.modules())
    return model


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    scale = max(1.0, b.abs().max().item())
    assert a.shape == b.shape
    assert (a - b).abs().max().item() <= tolerance * scale, (a - b).abs().max().item() / scale
