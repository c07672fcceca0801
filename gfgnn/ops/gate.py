"""Which entries of an array are positive: what the way back needs of a pre-activation, a bit for each entry where the
compiled kernels serve, else a byte."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from gfgnn.ops import native
from gfgnn.ops.arena import empty
from gfgnn.profiling.costs import gate_cost, pack_cost
from gfgnn.profiling.labels import labelled

Kernel = Callable[..., None]


@dataclass(frozen=True, eq=False)
class Gate:
    """Where an activation of slope 1 above zero let its argument pass.

    Attributes:
        positive: bool in the argument's shape, or 8 entries a byte, uint8.
    """

    positive: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Gate:
        """The gate of a pre-activation ``[N, d]``."""
        return cls(_packed(z))

    @labelled("elementwise", gate_cost)
    def through(self, x: Tensor, slope: float, *, in_place: bool = False) -> Tensor:
        """``x`` where the argument was positive, ``slope * x`` elsewhere; in ``x`` itself or a new tensor."""
        if self.positive.dtype == torch.bool:
            factor: Tensor = self.positive
            if slope != 0.0:
                factor = self.positive.to(x.dtype).mul_(1.0 - slope).add_(slope)
            return x.mul_(factor) if in_place else x * factor
        if not x.is_contiguous():
            x, in_place = x.contiguous(), True
        out = x
        if not in_place:
            found = empty(x.size(0), x.size(1), x) if x.dim() == 2 else None
            out = torch.empty_like(x) if found is None else found
        _, through = _kernels()[x.dtype]
        through(
            x.data_ptr(), self.positive.data_ptr(), out.data_ptr(), x.numel(), slope, torch.get_num_threads()
        )
        return out


@labelled("elementwise", pack_cost)
def _packed(z: Tensor) -> Tensor:
    if z.dtype not in _kernels() or z.device.type != "cpu" or not z.is_contiguous():
        return z > 0
    size = -(-z.numel() // 8)
    found = empty(1, size, z, torch.uint8)
    bits = torch.empty(size, dtype=torch.uint8) if found is None else found.view(-1)
    pack, _ = _kernels()[z.dtype]
    pack(z.data_ptr(), bits.data_ptr(), z.numel(), torch.get_num_threads())
    return bits


@cache
def _kernels() -> dict[torch.dtype, tuple[Kernel, Kernel]]:
    """Packing and passing for each type of number; none where no library was built."""
    library = native.library("gate")
    if isinstance(library, str):
        return {}
    pointer, found = ctypes.c_void_p, {}
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        pack, through = (getattr(library, f"gfgnn_gate_{what}_{name}") for what in ("pack", "through"))
        pack.argtypes = (pointer, pointer, ctypes.c_int64, ctypes.c_int)
        through.argtypes = (pointer, pointer, pointer, ctypes.c_int64, ctypes.c_double, ctypes.c_int)
        pack.restype = through.restype = None
        found[dtype] = pack, through
    return found
