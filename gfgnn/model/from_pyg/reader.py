"""Reads the operations of a traced network one after the other, and collects what cannot be trained."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import fx

from gfgnn.checks import InputError
from gfgnn.model.from_pyg import convolutions, trace
from gfgnn.model.from_pyg.arguments import INPUTS
from gfgnn.model.from_pyg.builder import Builder, Unsupported
from gfgnn.model.from_pyg.convolutions import CONVOLUTIONS, Edged, named
from gfgnn.model.from_pyg.layers import ENDINGS, PASSING, is_weighted, norm_of, objection
from gfgnn.model.from_pyg.operations import drops_in_evaluation, name_of, operation_of, over_classes, slope_of
from gfgnn.model.from_pyg.slots import tensors_of
from gfgnn.model.from_pyg.trace import kind_of
from gfgnn.model.from_pyg.values import Affine, Draft, Edges, Ref, Sum, Table, Unknown, Value


class Reader:
    """The drafts of a network's blocks from its operations.

    Args:
        module: the network.
        graph: its operations, of :func:`gfgnn.model.from_pyg.trace.trace`.
        adjacency: whether edges come as a sparse matrix.
        repeated: whether the graph has repeated edges.
        weighted: whether it has weights.

    Attributes:
        notes: what the user should know, one sentence each.
        claimed: tensors of the module that blocks read and write, and the layer they belong to.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        graph: fx.Graph,
        num_features: int,
        *,
        adjacency: bool,
        repeated: bool,
        weighted: bool,
    ) -> None:
        self.module, self.graph = module, graph
        self.make = Builder(num_features)
        self.adjacency, self.repeated, self.weighted = adjacency, repeated, weighted
        self.notes: list[str] = []
        self.claimed: dict[str, str] = {}
        self.problems: list[str] = []
        self._layers_in_trouble = False
        self._uses = trace.uses(graph)
        self._values: dict[fx.Node, Any] = {}

    def read(self) -> Draft:
        """The block that ends the network.

        Raises:
            InputError: what cannot be trained, all of it in one message.
        """
        (output,) = [node for node in self.graph.nodes if node.op == "output"]
        last = output.args[0]
        if not isinstance(last, fx.Node):
            raise InputError(
                f"{self._name} returns {type(last).__name__}; it must return one tensor of scores."
            )
        endings = self._endings(last)
        for node in self.graph.nodes:
            if node in self._uses and node.op != "output":
                value = self._resolved(node.args[0]) if node in endings else self._read(node)
                if self._uses[node] > 1 and isinstance(value, Table | Sum | Affine):
                    value = self.make.shared(value)
                self._values[node] = value
        value = self._values[last]
        if self.problems:
            raise InputError(self._complaint())
        return self._ended(value)

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _endings(self, last: fx.Node) -> set[fx.Node]:
        """The softmax or sigmoid at the end, which is left out."""
        found = set()
        node: Any = last
        while isinstance(node, fx.Node) and self._uses[node] == 1 and node.args:
            layer = node.meta.get("module")
            if layer is not None:
                ends, name = kind_of(layer) in ENDINGS, type(layer).__name__
                fits = getattr(layer, "dim", None) in (None, 1, -1)
            else:
                operation = operation_of(node) if node.op in ("call_function", "call_method") else None
                ends, name, fits = operation == "ending", name_of(node), over_classes(node)
            if ends and fits:
                found.add(node)
                self.notes.append(f"{name} at the end is left out: gfgnn's scores are what goes into it")
            elif not (layer is not None and kind_of(layer) in PASSING):
                break
            node = node.args[0]
        return found

    def _read(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            role = str(node.target)
            return Table((Ref(self.make.features),)) if role == INPUTS[0] else Edges(role)
        if node.op == "get_attr":
            self.problems.append(f"{node.meta['path']}: a tensor used as it is; only layers can have weights")
            return Unknown()
        try:
            if node.op == "call_module":
                return self._layer(node)
            return self._operation(node)
        except Unsupported as error:
            return self._trouble(node, str(error))

    def _trouble(self, node: fx.Node, why: str) -> Unknown:
        layer = node.meta.get("module")
        if layer is None and node.target in (trace.gathered_with_self, trace.hop_of):
            layer = self.module.get_submodule(str(node.args[0]).removeprefix(trace.ROOT).removeprefix("."))
            node.meta["path"] = str(node.args[0]).removeprefix(trace.ROOT).removeprefix(".")
        if layer is not None:
            self._layers_in_trouble = True
            self.problems.append(f"{node.meta['path'] or 'the network'} ({type(layer).__name__}): {why}")
        else:
            where = f" in {node.meta['path']}" if node.meta["path"] else ""
            self.problems.append(f"{name_of(node)}{where}: {why}")
        return Unknown()

    def _resolved(self, argument: Any) -> Any:
        """An argument with values in place of operations."""
        if isinstance(argument, fx.Node):
            return self._values[argument]
        if isinstance(argument, list | tuple):
            return type(argument)(self._resolved(each) for each in argument)
        return argument

    # ------------------------------------------------------------------------------------------------- layers

    def _layer(self, node: fx.Node) -> Any:
        layer: Any = node.meta["module"]
        if (why := objection(layer)) is not None:
            raise Unsupported(why)
        kind, path = str(kind_of(layer)), node.meta["path"]
        given = inspect.signature(type(layer).forward).bind(layer, *node.args, **node.kwargs).arguments
        (_, first, *others) = given.items()
        x = self._resolved(first[1])
        if _unknown(x):
            return Unknown()
        if kind in CONVOLUTIONS:
            return self._convolution(kind, path, layer, x, dict(others))
        if kind == "JumpingKnowledge":
            return self.make.joined([_tensor(each) for each in x])
        value = _tensor(x)
        if kind in PASSING:
            return value
        if kind == "Linear":
            self._claim(path, [named(path, "weight")] + ([] if layer.bias is None else [named(path, "bias")]))
            return convolutions.linear(path, layer, self.make.settled(value))
        if kind in ("BatchNorm", "BatchNorm1d"):
            return self._norm(path, layer, value)
        return self._activation(
            value, "relu" if kind == "ReLU" else "leaky_relu", getattr(layer, "negative_slope", 0.0)
        )

    def _convolution(
        self, kind: str, path: str, conv: Any, x: Any, others: dict[str, Any]
    ) -> Affine | Unknown:
        x = tuple(_tensor(each) for each in x) if isinstance(x, tuple | list) else _tensor(x)
        pair = isinstance(x, tuple)
        if pair and (kind in ("GCNConv", "GCN2Conv", "SGConv") or len(x) != 2):
            raise Unsupported("is given several tensors of features; it takes one")
        values = {name: self._resolved(each) for name, each in others.items()}
        if values.pop("size", None) is not None:
            raise Unsupported("is given a size; it must stand between the nodes of the whole graph")
        edged = self._edged(values)
        if edged is None:
            return Unknown()
        arguments = (_tensor(values["x_0"]),) if kind == "GCN2Conv" else ()
        affine = CONVOLUTIONS[kind](self.make, path, conv, edged, x, *arguments)
        self._claim(path, [name for part in affine.parts for name in part.names])
        return affine

    def _edged(self, values: dict[str, Any]) -> Edged | None:
        """The graph a layer is given; None where something before it is not known."""
        edges, weight, kind = (values.get(name) for name in ("edge_index", "edge_weight", "edge_type"))
        if any(_unknown(value) for value in values.values()):
            return None
        if not (isinstance(edges, Edges) and edges.role == "edge_index"):
            raise Unsupported("is given edges made inside the network; it must get the edge_index of forward")
        if not (weight is None or (isinstance(weight, Edges) and weight.role == "edge_weight")):
            raise Unsupported(
                "is given edge weights made inside the network; it must get those of forward, or none"
            )
        typed = isinstance(kind, Edges) and kind.role == "edge_type" and not self.adjacency
        weighted = weight is not None or (self.adjacency and self.weighted)
        return Edged(weighted, self.adjacency, self.repeated, typed)

    def _norm(self, path: str, layer: Any, value: Value) -> Value:
        norm = norm_of(path, layer)
        if (
            layer.in_channels != value.width
            if hasattr(layer, "in_channels")
            else layer.num_features != value.width
        ):
            raise Unsupported(f"is given {value.width} columns, which is not what it was made for")
        self._claim(path, norm.names)
        return self.make.normed(value, norm)

    def _claim(self, path: str, names: list[str]) -> None:
        """Books the tensors of a layer; a second use would give them two meanings."""
        tensors = tensors_of(self.module)
        taken = {id(tensors[name]): owner for name, owner in self.claimed.items()}
        for name in dict.fromkeys(names):
            if (owner := taken.get(id(tensors[name]))) is not None:
                by = "is used twice" if owner == path else f"shares {name} with {owner}"
                raise Unsupported(f"{by}; every layer must have weights of its own")
            self.claimed[name] = path

    # --------------------------------------------------------------------------------------------- operations

    def _operation(self, node: fx.Node) -> Any:
        arguments = self._resolved(node.args)
        if node.target is trace.gathered_with_self or node.target is trace.hop_of:
            return self._virtual(node, arguments)
        operation = operation_of(node)
        if operation is None:
            raise Unsupported("is not an operation gfgnn can train through")
        if operation == "ending":
            raise Unsupported("can stand only at the very end, over the columns")
        if _unknown(list(arguments) + [self._resolved(value) for value in node.kwargs.values()]):
            return Unknown()
        if operation == "cat":
            return self._cat(node)
        if operation in ("add", "sub"):
            return self._add(node, -1.0 if operation == "sub" else 1.0)
        if operation in ("mul", "div"):
            return self._scale(node, operation)
        first = self._resolved(node.args[0] if node.args else next(iter(node.kwargs.values())))
        if operation in ("pass", "dropout") and isinstance(first, Edges):
            return first
        value = _tensor(first)
        if operation == "dropout" and drops_in_evaluation(node):
            self.notes.append(
                f"{name_of(node)} drops in evaluation, too (training=self.training is missing); gfgnn does not"
            )
        if operation in ("pass", "dropout"):
            return value
        if operation == "neg":
            return self.make.scaled(value, -1.0)
        return self._activation(value, operation, slope_of(node) if operation == "leaky_relu" else 0.0)

    def _virtual(self, node: fx.Node, arguments: Any) -> Any:
        path = str(arguments[0]).removeprefix(trace.ROOT).removeprefix(".")
        layer: Any = self.module.get_submodule(path)
        if (why := objection(layer)) is not None:
            raise Unsupported(why)
        _, x, edge_index, *others = arguments
        x = x[0] if isinstance(x, tuple | list) and len(x) == 2 and x[0] == x[1] else x
        if _unknown(x):
            return Unknown()
        edged = self._edged({"edge_index": edge_index, "edge_weight": others[0] if others else None})
        if edged is None:
            return Unknown()
        if node.target is trace.hop_of:
            return convolutions.hop(self.make, edged, _tensor(x), others[1])
        if isinstance(layer.eps, torch.nn.Parameter):
            self.notes.append(f"{named(path, 'eps')} keeps its value {layer.eps.item():g}")
            self.claimed[named(path, "eps")] = path
        return convolutions.gathered_with_self(self.make, layer, edged, _tensor(x))

    def _activation(self, value: Value, activation: str, slope: float) -> Value:
        if activation == "leaky_relu" and slope == 1.0:
            return value
        if activation == "relu" or slope == 0.0:
            return self.make.activated(value, "relu", 0.01)
        return self.make.activated(value, "leaky_relu", float(slope))

    def _cat(self, node: fx.Node) -> Table:
        given = (
            inspect.Signature([_parameter("tensors"), _parameter("dim", 0)])
            .bind(*node.args, **node.kwargs)
            .arguments
        )
        if given.get("dim", 0) not in (1, -1):
            raise Unsupported(f"dim is {given.get('dim', 0)}; only columns can be put together, dim=-1")
        return self.make.joined([_tensor(value) for value in self._resolved(given["tensors"])])

    def _add(self, node: fx.Node, sign: float) -> Any:
        a, b = (self._resolved(each) for each in (*node.args, *self._named(node, "input", "other"))[:2])
        factor = sign * float(node.kwargs.get("alpha", 1.0))  # type: ignore[arg-type]
        if isinstance(a, int | float) and a == 0 and not isinstance(b, int | float):  # sum() begins with 0
            return self.make.scaled(_tensor(b), factor) if factor != 1.0 else _tensor(b)
        if isinstance(b, int | float) and b == 0:
            return _tensor(a)
        if isinstance(a, int | float) or isinstance(b, int | float):
            raise Unsupported("adds a number; only tensors can be added")
        second = _tensor(b)
        return self.make.added(_tensor(a), second if factor == 1.0 else self.make.scaled(second, factor))

    def _scale(self, node: fx.Node, operation: str) -> Value:
        a, b = (self._resolved(each) for each in (*node.args, *self._named(node, "input", "other"))[:2])
        if isinstance(a, int | float) and operation == "mul":
            a, b = b, a
        if not isinstance(b, int | float) or "rounding_mode" in node.kwargs:
            raise Unsupported("only numbers can multiply or divide a tensor")
        if operation == "div" and b == 0:
            raise Unsupported("divides by 0")
        return self.make.scaled(_tensor(a), float(b) if operation == "mul" else 1.0 / float(b))

    @staticmethod
    def _named(node: fx.Node, *names: str) -> list[Any]:
        return [node.kwargs[name] for name in names if name in node.kwargs]

    # ------------------------------------------------------------------------------------------------ the end

    def _ended(self, value: Any) -> Draft:
        """The last block, which must be a linear map."""
        need = (
            "The last layer must be one with weights (Linear or a convolution), alone, with nothing after it but "
            "dropout, softmax or sigmoid; add a Linear."
        )
        if isinstance(value, Affine) and not value.adds:
            return self.make.settled(value).refs[0].source
        if (
            isinstance(value, Table)
            and len(value.refs) == 1
            and value.refs[0].is_plain
            and value.refs[0].scale == 1.0
        ):
            draft = value.refs[0].source
            if draft.parts and not draft.adds and draft.activation == "identity":
                return draft
        raise InputError(f"{self._name} ends in {_described(value, self.make.features)}. {need}")

    def _complaint(self) -> str:
        problems = list(dict.fromkeys(self.problems))
        start = f"{self._name} cannot be trained:"
        listed = (
            f" {problems[0]}." if len(problems) == 1 else "".join(f"\n- {problem}" for problem in problems)
        )
        if not self._layers_in_trouble:
            return start + listed
        layers = [n for n in self.graph.nodes if n in self._uses and n.op == "call_module"]
        fine = [
            n.meta["path"]
            for n in layers
            if is_weighted(n.meta["module"]) and not objection(n.meta["module"])
        ]
        others = [
            path for path in dict.fromkeys(fine) if not any(p.startswith(f"{path} (") for p in problems)
        ]
        frozen = "If it were frozen" if len(problems) == 1 else "If they were frozen"
        between = " " if len(problems) == 1 else "\n"
        return f"{start}{listed}{between}{frozen}, these could be trained: {', '.join(others) or 'none'}."


def _parameter(name: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _unknown(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_unknown(each) for each in value)
    return isinstance(value, Unknown)


def _tensor(value: Any) -> Value:
    if isinstance(value, Table | Sum | Affine):
        return value
    if isinstance(value, Edges):
        raise Unsupported(f"is given {value.role} where it needs features of nodes")
    raise Unsupported(f"is given {type(value).__name__} where it needs features of nodes")


def _described(value: Any, features: Draft) -> str:
    if isinstance(value, Edges):
        return value.role
    if isinstance(value, Sum | Affine):
        return "a sum with other layers' outputs"
    if isinstance(value, Table) and len(value.refs) > 1:
        return "a concatenation"
    ref = value.refs[0]
    if ref.source is features:
        return "the features themselves"
    if not ref.is_plain:
        return "propagated values without weights"
    if ref.scale != 1.0:
        return "a multiple of an activation"
    draft = ref.source
    if draft.adds or draft.total:
        return "a sum with other layers' outputs"
    return "a BatchNorm" if draft.norm is not None else f"an activation ({draft.activation})"
