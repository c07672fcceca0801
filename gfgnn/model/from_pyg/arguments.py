"""How a module's ``forward`` is called: which of its parameters stand for features, edges and weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.graph import Graph

INPUTS = ("x", "edge_index", "edge_weight", "edge_type")
#: Names of a single argument that holds all the others.
WHOLE = ("data", "batch", "graph")


@dataclass(frozen=True)
class Call:
    """Which parameter of ``forward`` is which input; parameters that are left out keep their defaults.

    Attributes:
        roles: name of the parameter and what it is: one of ``INPUTS``, ``adj_t`` or ``data``.
    """

    roles: tuple[tuple[str, str], ...]

    def has(self, role: str) -> bool:
        return any(role == own for _, own in self.roles)

    def traced(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, from stand-ins for the inputs."""
        view = DataView(given)
        values = dict(given) | {"adj_t": given["edge_index"], "data": view}
        return {name: values[role] for name, role in self.roles}

    def actual(self, graph: Graph, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
        """Arguments by name for the nodes and edges of ``graph``, as they were given."""
        edges = edges_of(graph)
        assert graph.x is not None
        weight = None if edges.edge_weight is None else edges.edge_weight.to(device, dtype)
        kind = edges.edge_type
        values: dict[str, Any] = {
            "x": (graph.x.to_dense() if graph.x.layout != torch.strided else graph.x).to(device, dtype),
            "edge_index": edges.edge_index.to(device),
            "edge_weight": weight,
            "edge_type": (torch.zeros(edges.num_edges, dtype=torch.int64) if kind is None else kind).to(
                device
            ),
        }
        if self.has("adj_t"):
            values["adj_t"] = _adjacency(values["edge_index"], weight, graph.num_nodes, dtype)
        if self.has("data"):
            values["data"] = _as_data(values)
        return {name: values[role] for name, role in self.roles}


class DataView:
    """Stands for a ``Data`` while a module is traced."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._given:
            raise InputError(
                f"forward reads data.{name}; networks of gfgnn get {', '.join(INPUTS)} and nothing else."
            )
        return self._given[name]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None


def call_of(module: torch.nn.Module) -> Call:
    """How ``module.forward`` is to be called, read off its parameters' names.

    Raises:
        InputError: it is no module, or one that hides another, or it needs something that is not among the features
            and edges of a graph.
    """
    _check_module(module)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = [p for p in inspect.signature(module.forward).parameters.values() if p.kind not in variable]
    names = [p.name for p in found]
    if len(found) and names[0] in WHOLE and not set(names) & {"x", "edge_index", "adj_t"}:
        roles = {names[0]: "data"}
    else:
        roles = {name: name for name in names if name in (*INPUTS, "adj_t")}
        if "x" not in roles and names and names[0] not in roles:
            roles[names[0]] = "x"
        needed = [p.name for p in found if p.name not in roles and p.default is p.empty]
        if (
            len(needed) == 1 and names[1:2] == needed and not {"edge_index", "adj_t"} & set(roles)
        ):  # forward(x, ei)
            roles[needed[0]] = "adj_t" if "adj" in needed[0] else "edge_index"
    for p in found:
        if p.name not in roles and p.default is p.empty:
            raise InputError(
                f"{type(module).__name__}.forward needs {p.name!r}; it can be given x, edge_index (or adj_t), "
                "edge_weight and edge_type, or all of them as data. Give other parameters a default."
            )
    call = Call(tuple(roles.items()))
    if not (call.has("x") or call.has("data")):
        raise InputError(f"{type(module).__name__}.forward takes no features; it takes {names}.")
    return call


def _check_module(module: torch.nn.Module) -> None:
    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"module must be a torch.nn.Module; got {name}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"{name} is compiled TorchScript, which cannot be read; give the module it was made of."
        )
    inner = {
        "OptimizedModule": "_orig_mod",
        "DataParallel": "module",
        "DistributedDataParallel": "module",
    }.get(name)
    if inner is not None and hasattr(module, inner):
        raise InputError(
            f"{name} hides the module that is to be read; give its .{inner}, they share their weights."
        )
    for key, value in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(value):
            continue
        if value.is_meta:
            raise InputError(
                f"{key} of {name} is on the meta device and has no values; move it with to_empty."
            )
        if value.is_inference():
            raise InputError(f"{key} of {name} was made in torch.inference_mode and cannot be written.")


def absent_inputs(module: torch.nn.Module, call: Call, graph: Graph) -> frozenset[str]:
    """Inputs the graph does not have, for which the module gets None."""
    edges = edges_of(graph)
    absent = {"edge_weight"} if edges.edge_weight is None else set()
    needs = inspect.signature(module.forward).parameters.get("edge_type")
    if edges.edge_type is None and (needs is None or needs.default is not needs.empty):
        absent.add("edge_type")
    return frozenset(absent)


def edges_of(graph: Graph) -> EdgeList:
    """The edges as they were given."""
    return EdgeList(graph.edge_index, graph.edge_weight) if graph.raw is None else graph.raw


def _adjacency(edge_index: Tensor, weight: Tensor | None, num_nodes: int, dtype: torch.dtype) -> Tensor:
    """The transposed adjacency as sparse CSR, repeated edges summed."""
    value = (
        torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device) if weight is None else weight
    )
    size = (num_nodes, num_nodes)
    return (
        torch.sparse_coo_tensor(edge_index.flip(0), value, size, check_invariants=True)
        .coalesce()
        .to_sparse_csr()
    )


def _as_data(values: Mapping[str, Any]) -> Any:
    from torch_geometric.data import Data

    return Data(**{name: value for name, value in values.items() if name in INPUTS and value is not None})


def run(module: torch.nn.Module, tensors: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> Any:
    """``module(**arguments)`` with ``tensors`` in place of its own, which stay as they are."""
    return torch.func.functional_call(module, dict(tensors), (), dict(arguments))
