"""What a layer makes of its arguments, as a value of the network."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gfgnn.model.from_pyg import convolutions
from gfgnn.model.from_pyg.builder import Builder
from gfgnn.model.from_pyg.convolutions import CONVOLUTIONS, Edged, named
from gfgnn.model.from_pyg.layers import PASSING, norm_of, objection
from gfgnn.model.from_pyg.slots import tensors_of
from gfgnn.model.from_pyg.trace import kind_of
from gfgnn.model.from_pyg.values import Affine, Edges, Table, Unknown, Unsupported, Value, is_unknown, tensor


class LayerReader:
    """Reads layers, and books whose tensors they are.

    Args:
        module: the network.
        make: makes its blocks.
        adjacency: whether edges come as a sparse matrix.
        repeated: whether the graph has repeated edges.
        weighted: whether it has weights.
        given: whether these are normalised already.

    Attributes:
        claimed: tensors of the module that blocks read and write, and the layer they belong to.
        notes: what the user should know, one sentence each.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        make: Builder,
        *,
        adjacency: bool,
        repeated: bool,
        weighted: bool,
        given: bool = False,
    ) -> None:
        self.module, self.make = module, make
        self.adjacency, self.repeated, self.weighted, self.given = adjacency, repeated, weighted, given
        self.claimed: dict[str, str] = {}
        self.notes: list[str] = []
        self._tensors = tensors_of(module)

    def read(self, layer: Any, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of ``layer(*args, **kwargs)``.

        Raises:
            Unsupported: the layer cannot be trained, or not like this.
        """
        check_layer(layer)
        given = inspect.signature(type(layer).forward).bind(layer, *args, **kwargs).arguments
        (_, (_, x), *others) = given.items()
        if is_unknown(x):
            return Unknown()
        kind = str(kind_of(layer))
        if kind in CONVOLUTIONS:
            return self._convolution(kind, path, layer, x, dict(others))
        if kind == "JumpingKnowledge":
            return self.make.joined([tensor(each) for each in x])
        value = tensor(x)
        if kind in PASSING:
            return value
        if kind == "Linear":
            return self._claimed(path, convolutions.linear(path, layer, self.make.settled(value)))
        if kind in ("BatchNorm", "BatchNorm1d"):
            return self._norm(path, layer, value)
        return activated(self.make, value, getattr(layer, "negative_slope", 0.0))

    def gathered_with_self(self, path: str, conv: Any, x: Any, edge_index: Any) -> Table | Unknown:
        """What a GINConv gives to the network in it."""
        check_layer(conv)
        if isinstance(x, tuple | list) and len(x) == 2 and x[0] == x[1]:
            x = x[0]
        edged = self._edged({"x": x, "edge_index": edge_index})
        if edged is None:
            return Unknown()
        if isinstance(conv.eps, torch.nn.Parameter):
            self.notes.append(f"{named(path, 'eps')} keeps its value {conv.eps.item():g}")
            self.claimed[named(path, "eps")] = path
        return convolutions.gathered_with_self(self.make, conv, edged, tensor(x))

    def hop(self, x: Any, edge_index: Any, edge_weight: Any, hops: int) -> Table | Unknown:
        """One of the tensors of :class:`gfgnn.nn.Hops`."""
        edged = self._edged({"x": x, "edge_index": edge_index, "edge_weight": edge_weight})
        return Unknown() if edged is None else convolutions.hop(self.make, edged, tensor(x), hops)

    def _convolution(
        self, kind: str, path: str, conv: Any, x: Any, values: dict[str, Any]
    ) -> Affine | Unknown:
        x = tuple(tensor(each) for each in x) if isinstance(x, tuple | list) else tensor(x)
        if isinstance(x, tuple) and (kind in ("GCNConv", "GCN2Conv", "SGConv") or len(x) != 2):
            raise Unsupported("is given several tensors of features; it takes one")
        if values.pop("size", None) is not None:
            raise Unsupported("is given a size; it must stand between the nodes of the whole graph")
        edged = self._edged(values)
        if edged is None:
            return Unknown()
        arguments = (tensor(values["x_0"]),) if kind == "GCN2Conv" else ()
        return self._claimed(path, CONVOLUTIONS[kind](self.make, path, conv, edged, x, *arguments))

    def _edged(self, values: dict[str, Any]) -> Edged | None:
        """The graph a layer is given; None where something before it is not known."""
        edges, weight, kind = (values.get(name) for name in ("edge_index", "edge_weight", "edge_type"))
        if any(is_unknown(value) for value in values.values()):
            return None
        if not (isinstance(edges, Edges) and edges.role == "edge_index"):
            raise Unsupported("is given edges made inside the network; it must get the edge_index of forward")
        if not (weight is None or (isinstance(weight, Edges) and weight.role == "edge_weight")):
            raise Unsupported(
                "is given edge weights made inside the network; it must get those of forward, or none"
            )
        typed = isinstance(kind, Edges) and kind.role == "edge_type" and not self.adjacency
        weighted = weight is not None or (self.adjacency and self.weighted)
        return Edged(weighted, self.adjacency, self.repeated, typed, self.given)

    def _norm(self, path: str, layer: Any, value: Value) -> Value:
        norm = norm_of(path, layer)
        width = layer.in_channels if hasattr(layer, "in_channels") else layer.num_features
        if width != value.width:
            raise Unsupported(f"takes {width} columns and is given {value.width}")
        self._claim(path, norm.names)
        return self.make.normed(value, norm)

    def _claimed(self, path: str, affine: Affine) -> Affine:
        self._claim(path, [name for part in affine.parts for name in part.names])
        return affine

    def _claim(self, path: str, names: list[str]) -> None:
        """Books the tensors of a layer; a second use would give them two meanings."""
        taken = {_memory(self._tensors[name]): owner for name, owner in self.claimed.items()}
        for name in dict.fromkeys(names):
            if (owner := taken.get(_memory(self._tensors[name]))) is not None:
                by = "is used twice" if owner == path else f"shares {name} with {owner}"
                raise Unsupported(f"{by}; every layer must have weights of its own")
            self.claimed[name] = path


def _memory(tensor: Tensor) -> int:
    """What two tensors have in common where writing one writes the other."""
    return tensor.data_ptr() or id(tensor)


def check_layer(layer: torch.nn.Module) -> None:
    """Raises :class:`Unsupported` for a layer that cannot be trained, whatever it is given."""
    if (why := objection(layer)) is not None:
        raise Unsupported(why)


def activated(make: Builder, value: Value, slope: float) -> Value:
    """``leaky_relu`` with any slope, which for 0 is ``relu`` and for 1 nothing."""
    if slope == 1.0:
        return value
    if slope == 0.0:
        return make.activated(value, "relu", 0.01)
    return make.activated(value, "leaky_relu", float(slope))
