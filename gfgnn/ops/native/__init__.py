"""The compiled sparse product: finds the library that setup.py built, and calls it on tensors.

The library knows neither Python nor torch (:mod:`ctypes` calls it on addresses, and lets other Python threads run
meanwhile). Where it is missing, or was built from another source than the one beside it, torch's product serves.
"""

from __future__ import annotations

import ctypes
import os
import zlib
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES

import torch
from torch import Tensor

_HERE = os.path.dirname(os.path.abspath(__file__))
#: Set to 0 to have torch's products although there is a compiled one.
SWITCH = "GFGNN_NATIVE"
#: What may be multiplied, and what the values of the matrix and the result are then: 16 bits are summed in 32.
SUMS = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
_INDICES = (torch.int32, torch.int64)
_pointer, _integer = ctypes.c_void_p, ctypes.c_int64
_ARGUMENTS = (
    *[_integer] * 4, *[_pointer] * 4, _integer, *[ctypes.c_double] * 2, _pointer, _integer, _pointer, _integer,
    ctypes.c_int,
)  # fmt: skip
Kernel = Callable[..., None]
Kernels = dict[tuple[torch.dtype, torch.dtype], Kernel]


def load(folder: str = _HERE) -> tuple[Kernels, str]:
    """The kernels by the types of dense matrix and indices, and what they are compiled for; none, and why.

    Args:
        folder: holds ``spmm.cpp`` and what was built from it.
    """
    if os.environ.get(SWITCH) == "0":
        return {}, f"{SWITCH}=0"
    built = [os.path.join(folder, "spmm" + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in built if os.path.exists(path)), None)
    if path is None:
        return {}, "none was built"
    try:
        library = ctypes.CDLL(path)
        library.gfgnn_source.restype = ctypes.c_uint32
        library.gfgnn_level.restype = ctypes.c_char_p
        if library.gfgnn_source() != _checksum(os.path.join(folder, "spmm.cpp")):
            return {}, "it was built from another source; install gfgnn again"
        kernels = {(dense, index): _kernel(library, dense, index) for dense in SUMS for index in _INDICES}
        return kernels, library.gfgnn_level().decode()
    except (OSError, AttributeError) as error:
        return {}, f"it cannot be loaded: {error}"


def _checksum(source: str) -> int:
    with open(source, "rb") as file:
        return zlib.crc32(file.read())


def _kernel(library: ctypes.CDLL, dense: torch.dtype, index: torch.dtype) -> Kernel:
    kernel = getattr(
        library, f"gfgnn_spmm_{str(dense).removeprefix('torch.')}_{str(index).removeprefix('torch.')}"
    )
    kernel.argtypes, kernel.restype = _ARGUMENTS, None
    return kernel


@cache
def loaded() -> tuple[Kernels, str]:
    """:func:`load`, once in a process."""
    return load()


def describe() -> str:
    """Which product serves on the CPU, and with how many threads, for people."""
    kernels, about = loaded()
    if not kernels:
        return f"torch (no compiled kernel: {about})"
    threads = torch.get_num_threads()
    return f"native ({about}), {threads} thread{'s' * (threads != 1)}"


def multiply(
    matrix: Tensor,
    dense: Tensor,
    scale: float,
    plus: Tensor | None,
    plus_scale: float,
    rows: tuple[int, int],
    out: Tensor | None,
) -> Tensor | None:
    """:func:`gfgnn.ops.spmm.spmm` for tensors on the CPU; None where no kernel takes them."""
    crow, col, value = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    kernel = loaded()[0].get((dense.dtype, col.dtype))
    if kernel is None or value.dtype != SUMS[dense.dtype] or value.dim() != 1 or crow.dtype != col.dtype:
        return None
    width = dense.size(1)
    if width > 1 and dense.stride(1) != 1:
        dense = dense.contiguous()
    if out is None:
        out = torch.empty(matrix.size(0), width, dtype=value.dtype)
    elif width > 1 and out.stride(1) != 1:
        return None
    if plus is not None and width > 1 and plus.stride(1) != 1:
        plus = plus.contiguous()
    kernel(
        *rows, dense.size(0), width, crow.data_ptr(), col.data_ptr(), value.data_ptr(), dense.data_ptr(),
        dense.stride(0), scale, 0.0 if plus is None else plus_scale, None if plus is None else plus.data_ptr(),
        0 if plus is None else plus.stride(0), out.data_ptr(), out.stride(0), torch.get_num_threads(),
    )  # fmt: skip
    return out


__all__ = ["SUMS", "describe", "load", "multiply"]
