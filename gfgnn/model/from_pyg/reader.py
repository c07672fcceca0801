"""Reads the operations of a traced network one after the other, and collects what cannot be trained."""

from __future__ import annotations

from typing import Any

from torch import fx

from gfgnn.checks import InputError
from gfgnn.model.from_pyg import trace
from gfgnn.model.from_pyg.arguments import INPUTS
from gfgnn.model.from_pyg.builder import Builder
from gfgnn.model.from_pyg.layer_reader import LayerReader
from gfgnn.model.from_pyg.layers import ENDINGS, PASSING, is_weighted, objection
from gfgnn.model.from_pyg.operations import drops_in_evaluation, ends_rows, name_of, operation_of, perform
from gfgnn.model.from_pyg.trace import kind_of
from gfgnn.model.from_pyg.values import (
    Affine,
    Draft,
    Edges,
    Ref,
    Sum,
    Table,
    Unknown,
    Unsupported,
    is_unknown,
)


class Reader:
    """The drafts of a network's blocks from its operations.

    Args:
        layers: reads the layers.
        graph: the operations, of :func:`gfgnn.model.from_pyg.trace.trace`.

    Attributes:
        notes: what the user should know, one sentence each.
    """

    def __init__(self, layers: LayerReader, graph: fx.Graph) -> None:
        self.layers, self.graph = layers, graph
        self.make: Builder = layers.make
        self.notes = layers.notes
        self._problems: list[str] = []
        self._troubled: set[str] = set()
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
            if node not in self._uses or node.op == "output":
                continue
            value = self._resolved(node.args[0]) if node in endings else self._read(node)
            if self._uses[node] > 1 and isinstance(value, Table | Sum | Affine):
                value = self.make.shared(value)
            self._values[node] = value
        if self._problems:
            raise InputError(self._complaint())
        return self._ended(self._values[last])

    @property
    def _name(self) -> str:
        return type(self.layers.module).__name__

    def _endings(self, last: fx.Node) -> set[fx.Node]:
        """The softmax or sigmoid at the end, which is left out."""
        found = set()
        node: Any = last
        while isinstance(node, fx.Node) and self._uses[node] == 1 and node.args:
            layer = node.meta.get("module")
            kind = None if layer is None else kind_of(layer)
            if ends_rows(node) or (kind in ENDINGS and getattr(layer, "dim", None) in (None, 1, -1)):
                found.add(node)
                name = name_of(node) if layer is None else f"{node.meta['path']} ({kind})"
                self.notes.append(f"{name} at the end is left out: gfgnn's scores are what goes into it")
            elif kind not in PASSING and operation_of(node) != "dropout":
                break
            node = node.args[0]
        return found

    def _read(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            role = str(node.target)
            return Table((Ref(self.make.features),)) if role == INPUTS[0] else Edges(role)
        try:
            if node.op == "get_attr":
                raise Unsupported("is used as it is; only layers can have weights")
            args, kwargs = self._resolved(node.args), self._resolved(node.kwargs)
            if node.op == "call_module":
                return self.layers.read(node.meta["module"], node.meta["path"], args, kwargs)
            if node.target is trace.gathered_with_self:
                return self.layers.gathered_with_self(node.meta["path"], node.meta["module"], *args[1:])
            if node.target is trace.hop_of:
                return self.layers.hop(*args[1:])
            return self._operation(node, args, kwargs)
        except Unsupported as error:
            self._problems.append(f"{self._place(node)}: {error}")
            self._troubled |= {node.meta["path"]} if "module" in node.meta else set()
            return Unknown()

    def _operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        operation = operation_of(node)
        changed = [each.role for each in (*args, *kwargs.values()) if isinstance(each, Edges)]
        if changed and operation not in ("pass", "dropout"):
            raise Unsupported(f"makes something of {changed[0]}; layers must get it as forward does")
        if operation is None:
            raise Unsupported(
                "is not an operation gfgnn can train through; sums, multiples, concatenations, relu, leaky_relu and "
                "dropout are"
            )
        if is_unknown([*args, *kwargs.values()]):
            return Unknown()
        if drops_in_evaluation(node):
            self.notes.append(
                f"{name_of(node)} drops in evaluation, too (training=self.training is missing); gfgnn does not"
            )
        return perform(self.make, operation, args, kwargs)

    def _resolved(self, argument: Any) -> Any:
        """An argument with values in place of operations."""
        if isinstance(argument, fx.Node):
            return self._values[argument]
        if isinstance(argument, list | tuple):
            return tuple(self._resolved(each) for each in argument)
        if isinstance(argument, dict):
            return {name: self._resolved(each) for name, each in argument.items()}
        return argument

    def _ended(self, value: Any) -> Draft:
        """The last block, which must be a linear map."""
        if isinstance(value, Affine) and not value.adds:
            return self.make.settled(value).refs[0].source
        if isinstance(value, Table) and len(value.refs) == 1:
            ref, draft = value.refs[0], value.refs[0].source
            linear = bool(draft.parts) and not draft.adds and draft.activation == "identity"
            if linear and ref.is_plain and ref.scale == 1.0:
                return draft
        raise InputError(
            f"{self._name} ends in {_described(value, self.make.features)}. The last layer must be one with weights "
            "(Linear or a convolution), with nothing after it but dropout, softmax or sigmoid; add a Linear."
        )

    def _place(self, node: fx.Node) -> str:
        path = node.meta["path"]
        if "module" in node.meta:
            return f"{path or 'the network'} ({type(node.meta['module']).__name__})"
        if node.op == "get_attr":
            return path
        return f"{name_of(node)} in {path}" if path else name_of(node)

    def _complaint(self) -> str:
        problems = list(dict.fromkeys(self._problems))
        start = f"{self._name} cannot be trained:"
        listed = (
            f" {problems[0]}." if len(problems) == 1 else "".join(f"\n- {problem}" for problem in problems)
        )
        if not self._troubled:
            return start + listed
        layers = [n for n in self.graph.nodes if n in self._uses and n.op == "call_module"]
        fine = [
            n.meta["path"]
            for n in layers
            if is_weighted(n.meta["module"]) and not objection(n.meta["module"])
        ]
        others = [path for path in dict.fromkeys(fine) if path not in self._troubled]
        frozen = " If it were frozen" if len(problems) == 1 else "\nIf they were frozen"
        return f"{start}{listed}{frozen}, these could be trained: {', '.join(others) or 'none'}."


def _described(value: Any, features: Draft) -> str:
    if isinstance(value, Edges):
        return value.role
    if isinstance(value, Sum | Affine):
        return "a sum with other layers' outputs"
    if not isinstance(value, Table):
        return f"{type(value).__name__}, which is no tensor"
    if len(value.refs) > 1:
        return "a concatenation"
    ref, draft = value.refs[0], value.refs[0].source
    if draft is features:
        return "the features themselves"
    if not ref.is_plain:
        return "propagated values without weights"
    if ref.scale != 1.0:
        return "a multiple of an activation"
    if draft.adds or draft.total:
        return "a sum with other layers' outputs"
    return "a BatchNorm" if draft.norm is not None else f"an activation ({draft.activation})"
