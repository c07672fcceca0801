"""The functions and methods of tensors that can stand in a network, and what they make of their arguments."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from gfgnn.model.from_pyg.builder import Builder
from gfgnn.model.from_pyg.layer_reader import activated
from gfgnn.model.from_pyg.values import Edges, Unsupported, Value, tensor

FUNCTIONS: dict[Callable[..., Any], str] = {
    torch.relu: "relu", torch.relu_: "relu", F.relu: "relu", F.relu_: "relu",
    F.leaky_relu: "leaky_relu", F.leaky_relu_: "leaky_relu",
    F.dropout: "dropout", torch.dropout: "dropout", F.alpha_dropout: "dropout", F.dropout1d: "dropout",
    operator.add: "add", operator.iadd: "add", torch.add: "add",
    operator.sub: "sub", operator.isub: "sub", torch.sub: "sub",
    operator.mul: "mul", operator.imul: "mul", torch.mul: "mul",
    operator.truediv: "div", operator.itruediv: "div", torch.div: "div",
    operator.neg: "neg", torch.neg: "neg",
    torch.cat: "cat", torch.concat: "cat", torch.concatenate: "cat",
    torch.clone: "pass",
    F.log_softmax: "ending", torch.log_softmax: "ending", F.softmax: "ending", torch.softmax: "ending",
    torch.sigmoid: "ending", F.sigmoid: "ending", F.logsigmoid: "ending",
}  # fmt: skip
METHODS = {
    "relu": "relu", "relu_": "relu", "add": "add", "add_": "add", "sub": "sub", "sub_": "sub", "mul": "mul",
    "mul_": "mul", "div": "div", "div_": "div", "neg": "neg", "neg_": "neg", "contiguous": "pass", "clone": "pass",
    "log_softmax": "ending", "softmax": "ending", "sigmoid": "ending",
}  # fmt: skip
#: Names of the arguments that matter, in their order.
PARAMETERS = {
    "relu": ("input", "inplace"), "leaky_relu": ("input", "negative_slope", "inplace"), "neg": ("input",),
    "dropout": ("input", "p", "training", "inplace"), "cat": ("tensors", "dim"), "pass": ("input",),
    "ending": ("input", "dim"), "add": ("input", "other"), "sub": ("input", "other"), "mul": ("input", "other"),
    "div": ("input", "other"),
}  # fmt: skip


def operation_of(node: fx.Node) -> str | None:
    """What a call of a function or a method does; None where it is none of these."""
    if node.op == "call_method":
        return METHODS.get(str(node.target))
    return FUNCTIONS.get(node.target) if node.op == "call_function" and callable(node.target) else None


def name_of(node: fx.Node) -> str:
    """A call as a user would write it."""
    if node.op == "call_method":
        return f"x.{node.target}(...)"
    target = node.target
    if target is getattr and len(node.args) > 1:
        return f"x.{node.args[1]}"
    if target is operator.getitem:
        return "x[...]"
    module = (getattr(target, "__module__", None) or "torch").removeprefix("_")
    return f"{module}.{getattr(target, '__name__', target)}(...)"


def ends_rows(node: fx.Node) -> bool:
    """Whether a call is a softmax over the columns, or a sigmoid."""
    if operation_of(node) != "ending":
        return False
    return arguments_of("ending", node.args, node.kwargs).get("dim") in (None, 1, -1)


def arguments_of(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name."""
    return dict(zip(PARAMETERS[operation], args, strict=False)) | dict(kwargs)


def perform(make: Builder, operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of an operation of ``FUNCTIONS`` or ``METHODS`` on values.

    Raises:
        Unsupported: it is used in a way that cannot be trained.
    """
    given = arguments_of(operation, args, kwargs)
    if operation == "ending":
        raise Unsupported("can stand only at the very end, over the columns")
    if operation == "cat":
        if given.get("dim", 0) not in (1, -1):
            raise Unsupported(f"dim is {given.get('dim', 0)}; only columns can be put together, dim=-1")
        return make.joined([tensor(value) for value in given["tensors"]])
    if operation in ("add", "sub"):
        return _sum(
            make, given["input"], given["other"], given.get("alpha", 1) * (1 if operation == "add" else -1)
        )
    if operation in ("mul", "div"):
        return _multiple(make, operation, given)
    if operation in ("pass", "dropout") and isinstance(given["input"], Edges):
        return given["input"]
    value = tensor(given["input"])
    if operation in ("pass", "dropout"):
        return value
    if operation == "neg":
        return make.scaled(value, -1.0)
    return activated(make, value, given.get("negative_slope", 0.01) if operation == "leaky_relu" else 0.0)


def drops_in_evaluation(node: fx.Node) -> bool:
    """Whether a call of ``dropout`` forgot ``training=self.training``."""
    if operation_of(node) != "dropout":
        return False
    function: Any = node.target
    try:
        default = inspect.signature(function).parameters["training"].default
    except (KeyError, ValueError):
        default = True
    given = arguments_of("dropout", node.args, node.kwargs)
    return bool(given.get("training", default)) and given.get("p", 0.5) != 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _sum(make: Builder, a: Any, b: Any, factor: float) -> Value:
    if _is_number(a) and a == 0 and not _is_number(b):  # sum() begins with 0
        return tensor(b) if factor == 1 else make.scaled(tensor(b), float(factor))
    if _is_number(b) and b == 0:
        return tensor(a)
    if _is_number(a) or _is_number(b):
        raise Unsupported("adds a number; only tensors can be added")
    second = tensor(b)
    return make.added(tensor(a), second if factor == 1 else make.scaled(second, float(factor)))


def _multiple(make: Builder, operation: str, given: Mapping[str, Any]) -> Value:
    a, b = given["input"], given["other"]
    if _is_number(a) and operation == "mul":
        a, b = b, a
    if not _is_number(b) or given.get("rounding_mode") is not None:
        raise Unsupported("only numbers can multiply or divide a tensor")
    if operation == "div" and b == 0:
        raise Unsupported("divides by 0")
    return make.scaled(tensor(a), float(b) if operation == "mul" else 1.0 / float(b))
