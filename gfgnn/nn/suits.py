"""When a layer may leave PyTorch Geometric's message passing for the product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.conv import MessagePassing

from gfgnn.nn.product import DTYPES

SUMS = ("add", "sum")
#: What a subclass may redefine, and the product would pass over.
_METHODS = ("message", "aggregate", "message_and_aggregate", "update")
_HOOKS = ("propagate", "message", "aggregate", "message_and_aggregate")

# torch 2.6 does not tell an export from a compilation; there, both are left to PyTorch Geometric.
_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def passes_messages_plainly(
    conv: MessagePassing, base: type[MessagePassing], aggregations: tuple[str, ...]
) -> bool:
    """Whether nothing about ``conv`` asks to see single messages, or to have them joined in another way.

    Args:
        base: the class of PyTorch Geometric that ``conv`` stands in for.
        aggregations: the values of ``aggr`` that the product can do.
    """
    return (
        conv.node_dim == -2
        and isinstance(conv.aggr, str)
        and conv.aggr in aggregations
        and conv.decomposed_layers == 1
        and not conv.explain
        and not _redefined(conv, base)
        and not any(_hooks(conv, name) for name in _HOOKS)
        and not torch.jit.is_tracing()
        and not _is_exporting()
    )


def _redefined(conv: MessagePassing, base: type[MessagePassing]) -> bool:
    return any(
        getattr(type(conv), name) is not getattr(base, name) or name in vars(conv) for name in _METHODS
    )


def _hooks(conv: MessagePassing, name: str) -> bool:
    return bool(getattr(conv, f"_{name}_forward_pre_hooks") or getattr(conv, f"_{name}_forward_hooks"))


def is_features(x: Any, *, sparse: bool = False) -> bool:
    """Whether ``x`` is ``[N, F]`` in numbers that the product calculates in; with ``sparse``, of any layout."""
    return (
        isinstance(x, Tensor)
        and x.dim() == 2
        and x.dtype in DTYPES
        and x.device.type in ("cpu", "cuda")
        and (sparse or x.layout == torch.strided)
        and not torch.is_autocast_enabled(x.device.type)
    )


def is_plain(linear: torch.nn.Module) -> bool:
    """Whether a linear layer is only that: nobody watches what goes in and out, or replaced it or its weight."""
    hooks = linear._forward_pre_hooks or linear._forward_hooks
    hooks = hooks or linear._backward_hooks or linear._backward_pre_hooks
    return type(linear) is Linear and not hooks
