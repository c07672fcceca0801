"""Torch's own operators: which kind of work each is, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gfgnn.profiling.costs import product_flops, solve_flops
from gfgnn.profiling.labels import Cost

#: Products, and which two arguments are multiplied.
PRODUCTS = {
    "mm": (0, 1), "matmul": (0, 1), "mv": (0, 1), "bmm": (0, 1), "dot": (0, 1), "linear": (0, 1),
    "addmm": (1, 2), "addmv": (1, 2), "baddbmm": (1, 2),
}  # fmt: skip
SOLVES = ("linalg_", "_linalg_", "cholesky", "triangular_solve", "lu_")
#: Of these only the rows that are chosen move, not the whole operand.
GATHERS = ("index", "index_select", "gather", "embedding", "take")
SCATTERS = ("index_add", "index_copy", "index_put", "scatter", "scatter_add")
#: These move nothing yet.
ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
#: These do not read what they write to.
OVERWRITES = ("copy", "zero", "fill", "random", "bernoulli", "normal", "uniform")


def name_of(operator: str) -> str:
    """``add`` for ``aten::add_``: in place or not is the same work."""
    return operator.removeprefix("aten::").rstrip("_")


def kind_of(name: str) -> str:
    """The kind of an operator's work, from its name; that products may be sparse is for others to know."""
    if name in PRODUCTS:
        return "dense product"
    if name.startswith(SOLVES) and "norm" not in name:
        return "solve"
    return "elementwise"


@cache
def _may_be_view(operator: torch._ops.OpOverload) -> bool:
    aliases = [result.alias_info for result in operator._schema.returns]
    return any(info is not None and not info.is_write for info in aliases)


def operator_cost(
    operator: torch._ops.OpOverload, args: Sequence[Any], result: Any
) -> tuple[str, Cost] | None:
    """Kind and cost of a call; None where nothing was computed or moved, as for a view.

    Bytes are those of all operands and results, each once.
    """
    name = name_of(operator.overloadpacket.__name__)
    kind = kind_of(name)
    inputs, outputs = list(_tensors(args)), list(_tensors((result,)))
    if name in ALLOCATIONS or not (inputs or outputs):
        return None
    if kind == "dense product":
        a, b = (args[i] for i in PRODUCTS[name])
        flops = product_flops(a, b.t() if name == "linear" else b)
        return kind, Cost(_bytes(inputs) + _bytes(outputs), flops)
    if kind == "solve":
        return kind, Cost(_bytes(inputs) + _bytes(outputs), solve_flops(name, inputs))
    if _may_be_view(operator) and (isinstance(result, list | tuple) or _same_memory(inputs, result)):
        return None
    if name in GATHERS:
        return kind, Cost(2 * _bytes(outputs) + _bytes(inputs[1:]))
    if name in SCATTERS:
        return kind, Cost(_bytes(inputs[1:]) + inputs[-1].nbytes)
    if name in OVERWRITES and operator._schema.is_mutable:
        inputs = inputs[1:]
    return kind, Cost(_bytes(inputs) + _bytes(outputs))


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.nbytes for t in tensors if t.layout == torch.strided)


def _same_memory(inputs: list[Tensor], result: Any) -> bool:
    """Whether ``result`` lies in the memory of what it was made from."""
    if not isinstance(result, Tensor) or result.layout != torch.strided or inputs[0].layout != torch.strided:
        return True  # parts of a sparse matrix
    return result.untyped_storage().data_ptr() == inputs[0].untyped_storage().data_ptr()
