"""The compiled kernels: finds the libraries that setup.py built, and calls the sparse product on tensors.

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

from gfgnn.ops.arena import empty

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


def library(name: str, folder: str = _HERE) -> ctypes.CDLL | str:
    """The library that was built from ``name.cpp``, or why there is none.

    Args:
        folder: holds the source and what was built from it.
    """
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    built = [os.path.join(folder, name + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next((path for path in built if os.path.exists(path)), None)
    if path is None:
        return "none was built"
    try:
        found = ctypes.CDLL(path)
        found.gfgnn_source.restype = ctypes.c_uint32
        if found.gfgnn_source() != _checksum(folder, name):
            return "it was built from another source; install gfgnn again"
        return found
    except (OSError, AttributeError) as error:
        return f"it cannot be loaded: {error}"


def load(folder: str = _HERE) -> tuple[Kernels, str]:
    """The products by the types of dense matrix and indices, and what they are compiled for; none, and why."""
    found = library("spmm", folder)
    if isinstance(found, str):
        return {}, found
    found.gfgnn_level.restype = ctypes.c_char_p
    kernels = {(dense, index): _kernel(found, dense, index) for dense in SUMS for index in _INDICES}
    return kernels, found.gfgnn_level().decode()


def _checksum(folder: str, name: str) -> int:
    """Of the source and the headers beside it."""
    headers = sorted(file for file in os.listdir(folder) if file.endswith(".h"))
    total = 0
    for file in (f"{name}.cpp", *headers):
        with open(os.path.join(folder, file), "rb") as source:
            total = zlib.crc32(source.read(), total)
    return total


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
        out = empty(matrix.size(0), width, value)
        out = torch.empty(matrix.size(0), width, dtype=value.dtype) if out is None else out
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


__all__ = ["SUMS", "describe", "library", "load", "multiply"]
