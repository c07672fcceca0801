"""A module of PyG as a network of blocks whose weights stay in the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.graph import Graph
from gfgnn.model.blocks import FEATURES, Block, Term
from gfgnn.model.build import Model
from gfgnn.model.from_pyg.arguments import Call, run
from gfgnn.model.from_pyg.slots import Norm, Part, tensors_of
from gfgnn.model.from_pyg.trace import evaluating

Statistics = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False, repr=False)
class PygModel(Model):
    """The network that :func:`gfgnn.model.from_pyg.from_pyg` found in a module.

    ``forward(prepare(model, model.graph), model.weights())`` equals ``module.eval()(x, edge_index, ...)``, without the
    softmax or sigmoid that may end it.

    Attributes:
        module: the module itself, not a copy.
        graph: the graph it was read for.
        notes: what was changed or left out, one sentence each.
        parts: by block where its weights are in the module; none for blocks without weights.
        norms: by block its BatchNorm, for those that normalise without weights.
        call: how the module is called.
    """

    module: torch.nn.Module
    graph: Graph
    notes: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]
    norms: tuple[Norm | None, ...]
    call: Call

    def __repr__(self) -> str:
        """One line, and one for each block: what it takes, its columns, its activation."""
        lines = [f"  {index}: {_told(block)}" for index, block in enumerate(self.blocks)]
        return "\n".join([f"PygModel({self._name}, {len(self.blocks)} blocks)", *lines])

    def weights(self) -> dict[str, Tensor]:
        """The module's present weights as gfgnn has them, on the CPU and in the module's dtype.

        Returns:
            ``block{l}.weight`` [fan_in, out_channels] and ``block{l}.bias`` [out_channels] of blocks with weights,
            ``block{l}.scale`` and ``block{l}.shift`` of blocks that normalise.
        """
        tensors, dtype = tensors_of(self.module), dtype_of(self.module)
        statistics = self._observed(tensors)
        found: dict[str, Tensor | None] = {}
        for index, (parts, norm) in enumerate(zip(self.parts, self.norms, strict=True)):
            if parts:
                read = [part.read(tensors, statistics) for part in parts]
                biases = [bias for _, bias in read if bias is not None]
                found[f"block{index}.weight"] = torch.cat([weight for weight, _ in read])
                found[f"block{index}.bias"] = torch.stack(biases).sum(0) if biases else None
            elif norm is not None:
                scale, shift = norm.read(tensors, statistics)
                found |= {f"block{index}.scale": scale, f"block{index}.shift": shift}
        return {name: value.to("cpu", dtype) for name, value in found.items() if value is not None}

    def write(self, weights: Mapping[str, Tensor]) -> None:
        """Puts ``weights`` of :meth:`weights`' names and shapes into the module, so that it computes what gfgnn does.

        Every BatchNorm gets the statistics of its input over all nodes, and gains and offsets to go with them; this
        takes a forward pass of the module. Where layers share a sum the bias goes into the first that has one, and
        those of the others become zero. Nothing of the module changes before all of it has been computed.

        Raises:
            InputError: weights are missing, unknown, of other shapes or not finite; or what follows from them is not
                finite in the module's dtype.
        """
        self._check(weights)
        names = {name for parts in self.parts for part in parts for name in part.names}
        names |= {name for norm in self.norms if norm is not None for name in norm.names}
        tensors = tensors_of(self.module)
        fresh = {name: tensors[name].detach().clone() for name in sorted(names)}
        with torch.no_grad():
            norms = self._write_linear(weights, fresh)
            if norms:
                self._run(fresh, norms)
            for name, value in fresh.items():
                if not bool(torch.isfinite(value).all()):
                    raise InputError(f"{name} would not be finite in {value.dtype}; the module is unchanged.")
            for name, value in fresh.items():
                tensors[name].copy_(value)
        self._forget()

    def _check(self, weights: Mapping[str, Tensor]) -> None:
        shapes: dict[str, list[int]] = {}
        for index, (block, norm) in enumerate(zip(self.blocks, self.norms, strict=True)):
            if block.weighted:
                shapes[f"block{index}.weight"] = [block.fan_in, block.out_channels]
                shapes |= {f"block{index}.bias": [block.out_channels]} if block.bias else {}
            elif norm is not None:
                shapes |= {f"block{index}.{name}": [block.out_channels] for name in ("scale", "shift")}
        if set(shapes) != set(weights):
            missing, unknown = sorted(set(shapes) - set(weights)), sorted(set(weights) - set(shapes))
            raise InputError(f"weights must be those of {self._name}: missing {missing}, unknown {unknown}.")
        for name, shape in shapes.items():
            if list(weights[name].shape) != shape:
                raise InputError(f"{name} must have shape {shape}; got {list(weights[name].shape)}.")
            if not bool(torch.isfinite(weights[name]).all()):
                raise InputError(f"{name} holds NaN or infinite values; the module is unchanged.")

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _write_linear(self, weights: Mapping[str, Tensor], tensors: dict[str, Tensor]) -> dict[str, Wanted]:
        """Writes what layers with weights get, and says what is wanted of the norms, by path."""
        wanted: dict[str, Wanted] = {}
        device = next(iter(tensors.values())).device
        for index, (parts, norm) in enumerate(zip(self.parts, self.norms, strict=True)):
            own = {
                name.partition(".")[2]: value.to(device).double()
                for name, value in weights.items()
                if name.startswith(f"block{index}.")
            }
            if norm is not None:
                wanted[norm.path] = Wanted(norm, own["scale"], own["shift"])
            bias = own.get("bias")
            for part, rows in zip(
                parts, own["weight"].split([p.rows for p in parts]) if parts else (), strict=True
            ):
                share = bias if part.has_bias else None
                bias = None if part.has_bias else bias
                part.write_linear(tensors, rows, share)
                if part.norm is not None:
                    zero = torch.zeros(rows.size(1), dtype=rows.dtype, device=device)
                    shift = zero if share is None else share / part.factor
                    wanted[part.norm.path] = Wanted(part.norm, torch.ones_like(zero), shift)
        return wanted

    def _run(self, tensors: dict[str, Tensor], wanted: Mapping[str, Wanted]) -> None:
        """Runs the module on ``tensors``; every norm is written when its input is known."""

        def hook(path: str) -> Callable[..., None]:
            def write(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
                mean, variance = _statistics(arguments[0] if arguments else named["x"])
                wanted[path].norm.write(tensors, wanted[path].scale, wanted[path].shift, mean, variance)

            return write

        self._call_with(tensors, {path: hook(path) for path in wanted})

    def _observed(self, tensors: dict[str, Tensor]) -> Statistics:
        """Mean and variance of the inputs of norms that keep none, by path."""
        norms = [norm for norm in self.norms if norm is not None]
        norms += [part.norm for parts in self.parts for part in parts if part.norm is not None]
        found: Statistics = {}

        def hook(path: str) -> Callable[..., None]:
            def observe(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
                found[path] = _statistics(arguments[0] if arguments else named["x"])

            return observe

        hooks = {norm.path: hook(norm.path) for norm in norms if not norm.tracks}
        if hooks:
            with torch.no_grad():
                self._call_with(tensors, hooks)
        return found

    def _call_with(self, tensors: dict[str, Tensor], hooks: Mapping[str, Callable[..., None]]) -> None:
        device = next(iter(tensors.values())).device
        arguments = self.call.actual(self.graph, dtype_of(self.module), device)
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.module))
            for path, hook in hooks.items():
                handle = self.module.get_submodule(path).register_forward_pre_hook(hook, with_kwargs=True)
                stack.callback(handle.remove)
            self._forget()
            stack.callback(self._forget)
            run(self.module, tensors, arguments)

    def _forget(self) -> None:
        """Clears what layers of ``cached=True`` keep: inputs that other weights have made, and edges of whatever graph
        they saw first."""
        for layer in self.module.modules():
            for name in ("_cached_x", "_cached_edge_index", "_cached_adj_t"):
                if getattr(layer, name, None) is not None:
                    setattr(layer, name, None)


@dataclass(frozen=True)
class Wanted:
    """What a BatchNorm is to do: map z to ``z * scale + shift``."""

    norm: Norm
    scale: Tensor
    shift: Tensor


def _told(block: Block) -> str:
    """A block in one line; ``S1^2 H3`` is the output of block 3, twice multiplied by propagation matrix 1."""

    def source(number: int) -> str:
        return "X" if number == FEATURES else f"H{number}"

    def term(t: Term) -> str:
        power = "" if t.hops == 0 else f"S{t.operator} " if t.hops == 1 else f"S{t.operator}^{t.hops} "
        factor = "" if t.scale == 1.0 else f"{t.scale:g} "
        added = "" if t.initial is None else f" + {t.initial_scale:g} {source(t.initial)}"
        return f"{factor}{power}{source(t.source)}{added}"

    taken = block.propagate if not block.terms else f"[{', '.join(term(t) for t in block.terms)}]"
    norm = "" if block.norm_eps is None else " normalised"
    adds = "".join(f" + {factor:g} {source(number)}" for number, factor in block.adds)
    weights = "" if block.weighted else " without weights"
    return f"{taken} {block.fan_in} -> {block.out_channels}{weights}{norm} {block.activation}{adds}"


def dtype_of(module: torch.nn.Module) -> torch.dtype:
    """The type of the module's parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.get_default_dtype())


def _statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of the columns, float64."""
    variance, mean = torch.var_mean(z.detach().double(), dim=0, correction=0)
    return mean, variance
