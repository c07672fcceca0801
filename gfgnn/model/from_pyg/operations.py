"""The functions and methods of tensors that can stand in a network, by what they do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

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


def operation_of(node: fx.Node) -> str | None:
    """What a call of a function or a method does; None where it is none of these."""
    if node.op == "call_method":
        return METHODS.get(str(node.target))
    return FUNCTIONS.get(node.target) if callable(node.target) else None


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


def slope_of(node: fx.Node) -> float:
    """Of a call of ``leaky_relu``."""
    given = node.kwargs.get("negative_slope", node.args[1] if len(node.args) > 1 else 0.01)
    return float(given)  # type: ignore[arg-type]


def over_classes(node: fx.Node) -> bool:
    """Whether a softmax goes over the columns; a sigmoid has no such argument."""
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    return dim in (None, 1, -1)


def drops_in_evaluation(node: fx.Node) -> bool:
    """Whether a call of ``dropout`` forgot ``training=self.training``."""
    places = {"p": 1, "training": 2}
    given = {
        name: node.kwargs.get(name, node.args[i] if len(node.args) > i else None)
        for name, i in places.items()
    }
    return bool(given["training"] in (None, True) and given["p"] != 0.0)
