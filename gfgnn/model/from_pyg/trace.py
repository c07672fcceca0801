"""From a module to the list of operations it performs, by ``torch.fx``: convolutions and layers are single steps."""

from __future__ import annotations

import operator
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, fx

from gfgnn.checks import InputError
from gfgnn.model.from_pyg.arguments import INPUTS, Call

#: Under this name a module is traced, so that arguments come in by one and the same signature.
ROOT = "root"

#: torch.fx replaces ``Module.__call__`` while it traces; two threads at once would not put it back.
_tracing = Lock()

#: Operations that overwrite their first argument.
OVERWRITING = {
    "relu_",
    "leaky_relu_",
    "add_",
    "sub_",
    "mul_",
    "div_",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "neg_",
}
#: Operations whose result may be the very tensor they were given.
PASSING = {"Identity", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "Dropout1d", "dropout", "contiguous"}


def gathered_with_self(path: str, x: Tensor, edge_index: Tensor) -> Tensor:
    """What GINConv hands to its inner network; stands in traced networks only."""
    raise NotImplementedError


def hop_of(path: str, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, hops: int) -> Tensor:
    """One tensor of ``gfgnn.nn.Hops``; stands in traced networks only."""
    raise NotImplementedError


class Root(torch.nn.Module):
    """Calls the module with its arguments in its own order."""

    def __init__(self, module: torch.nn.Module, call: Call, absent: frozenset[str]) -> None:
        super().__init__()
        self.add_module(ROOT, module)
        self.call = call
        self.absent = absent

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        given = dict(zip(INPUTS, (x, edge_index, edge_weight, edge_type), strict=True))
        arguments = self.call.traced({k: None if k in self.absent else v for k, v in given.items()})
        return getattr(self, ROOT)(**arguments)


class Tracked(fx.Proxy):
    """A stand-in for a tensor that also tells ``a += b``, which changes ``a``, from ``a = a + b``."""

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self._overwritten(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self._overwritten(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self._overwritten(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self._overwritten(operator.itruediv, other)

    def _overwritten(self, function: Callable[..., Any], other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})


class LayerTracer(fx.Tracer):
    """Layers of torch and PyG are single steps; models of PyG and the user's own modules are looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Tracked(node, self)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if is_layer(m):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if get_ident() != self.thread:  # somebody else, who is not being traced
            return forward(*args, **kwargs)
        kind = kind_of(m)
        if kind == "GINConv":
            return self._gin(m, *args, **kwargs)
        if kind == "Hops":
            return self._hops(m, *args, **kwargs)
        if kind == "SAGEConv" and m.project:
            return self._projected(m, *args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def _gin(self, m: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
        path = self.path_of_module(m)
        return m.nn(self.create_proxy("call_function", gathered_with_self, (path, x, edge_index), {}))

    def _hops(self, m: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        path = self.path_of_module(m)
        arguments = (path, x, edge_index, edge_weight)
        hops = range(1, m.num_hops + 1)
        return [x, *(self.create_proxy("call_function", hop_of, (*arguments, k), {}) for k in hops)]

    def _projected(self, m: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
        source, target = x if isinstance(x, tuple | list) else (x, x)
        pair = (m.lin(source).relu(), target)
        return self.create_proxy("call_module", self.path_of_module(m), (pair, edge_index), {})


def trace(module: torch.nn.Module, call: Call, absent: frozenset[str]) -> fx.Graph:
    """The operations of ``module`` in evaluation, between placeholders named as in ``INPUTS``.

    Threads may call it at the same time, and run other modules meanwhile.

    Args:
        absent: inputs the graph does not have; the module gets None.

    Raises:
        InputError: what the module does depends on the values of tensors, or it cannot be traced for another reason.
    """
    name = type(module).__name__
    tracer = LayerTracer()
    try:
        with _tracing, evaluating(module):
            graph = tracer.trace(Root(module, call, absent))
    except fx.proxy.TraceError as error:
        raise InputError(
            f"{name} cannot be traced, because its forward branches or loops on the values of tensors or their sizes"
            f"{_where(error)}: {error}. Only a fixed sequence of layers can be trained."
        ) from error
    except InputError:
        raise
    except Exception as error:  # whatever forward does with the stand-ins for tensors
        raise InputError(
            f"{name} cannot be traced{_where(error)}: {type(error).__name__}: {error}"
        ) from error
    root = Root(module, call, absent)
    for node in graph.nodes:
        node.meta["path"] = _path_of(node)
        if node.op == "call_module":
            node.meta["module"] = root.get_submodule(str(node.target))
        elif node.target in (gathered_with_self, hop_of):
            path = str(node.args[0])
            node.meta |= {"path": _unrooted(path), "module": root.get_submodule(path)}
    _undo_overwriting(graph)
    return graph


def _where(error: Exception) -> str:
    """The last line of the user's own code that an error came through, as a part of a sentence."""
    packages = ("torch.", "torch_geometric.", "gfgnn.", "contextlib.")
    steps = zip(
        traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__), strict=True
    )
    own = [f for (frame, _), f in steps if not f"{frame.f_globals.get('__name__')}.".startswith(packages)]
    if not own:
        return ""
    file = own[-1].filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f" ({file}, line {own[-1].lineno}: {own[-1].line})"


def is_layer(m: torch.nn.Module) -> bool:
    """Whether a module of PyG is one step, as modules of torch.nn are."""
    from torch_geometric.nn import MessagePassing

    if isinstance(m, MessagePassing) or type(m).__name__ in ("JumpingKnowledge", "Hops"):
        return True
    parts = ("conv", "norm", "aggr", "dense", "pool", "attention", "unpool")
    return type(m).__module__.startswith(tuple(f"torch_geometric.nn.{part}." for part in parts))


def kind_of(m: torch.nn.Module) -> str | None:
    """The class name of a layer of torch, PyG or :mod:`gfgnn.nn`; None for everybody else's, subclasses included."""
    known = ("torch.nn.modules.", "torch_geometric.nn.", "gfgnn.nn.")
    return type(m).__name__ if type(m).__module__.startswith(known) else None


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """``module.eval()`` for a while; afterwards every submodule is in the mode it was in."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, training in modes:
            m.training = training


def uses(graph: fx.Graph) -> Counter[fx.Node]:
    """How often each result is used by operations that reach the output."""
    needed: set[fx.Node] = set()
    waiting = [node for node in graph.nodes if node.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    counts: Counter[fx.Node] = Counter()
    for node in needed:
        fx.node.map_arg((node.args, node.kwargs), lambda used: counts.update([used]))
    return counts


def _path_of(node: fx.Node) -> str:
    """The module in which an operation stands, or that it calls, without the name of the root."""
    if node.op in ("call_module", "get_attr"):
        return _unrooted(str(node.target))
    stack = node.meta.get("nn_module_stack") or {}
    places = [path for path, _ in stack.values()]
    return _unrooted(places[-1]) if places else ""


def _unrooted(path: str) -> str:
    return path.removeprefix(ROOT).removeprefix(".")


def _undo_overwriting(graph: fx.Graph) -> None:
    """After ``relu_(a)`` whoever uses ``a``, or what is the same tensor, means the result."""
    place = {node: index for index, node in enumerate(graph.nodes)}
    same: dict[fx.Node, fx.Node] = {}  # by result the first name of its tensor
    names: dict[fx.Node, list[fx.Node]] = {}
    for node in list(graph.nodes):
        first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        passes = first is not None and (_passes(node) or _overwrites(node))
        same[node] = same[first] if passes and first is not None else node
        names.setdefault(same[node], []).append(node)
        if not _overwrites(node) or first is None:
            continue

        def later(user: fx.Node, here: int = place[node]) -> bool:
            return place[user] > here

        for name in names[same[node]][:-1]:
            name.replace_all_uses_with(node, delete_user_cb=later)


def _overwrites(node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(node.meta["module"], "inplace", False)) and not _passes(node)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    inplace = node.kwargs.get("inplace", False) or (name in ("relu",) and len(node.args) > 1 and node.args[1])
    return name in OVERWRITING or (bool(inplace) and name != "dropout")


def _passes(node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(node.meta["module"]).__name__ in PASSING
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in PASSING
