"""How the process keeps memory between iterations."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable

from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
#: What was last asked for in this process.
_asked = {"lean": False}
_NEVER = -1  #: a size that never trims; any other is at most 2 GB


def keep_freed_memory() -> bool:
    """Tells the C library to keep freed memory for the next allocation; returns whether it could.

    glibc gives every block above 32 MB back to the system when it is freed and gets zeroed pages for the next one. An
    iteration allocates the same few N x d blocks again and again, and an elementwise step then spends two thirds
    of its time in page faults (arxiv, width 128: scaling the rows took 48 ms, and 16 ms with freed blocks kept).
    The cost: memory freed during training is not returned before the process ends, and blocks of many sizes leave
    holes.
    """
    _asked["lean"] = False
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, _NEVER))
    except (AttributeError, OSError):  # another C library
        return False


def return_freed_memory() -> bool:
    """The opposite: every block of a megabyte and more is given back as soon as it is freed; returns whether it could.

    A process then holds what it uses and no more; iterations take a third longer (docs/distributed.md).
    """
    _asked["lean"] = True
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        # a stated threshold also ends glibc's habit of raising it to the size of each block that is freed
        limits = ((_M_MMAP_MAX, 1 << 16), (_M_MMAP_THRESHOLD, 1 << 20), (_M_TRIM_THRESHOLD, 1 << 20))
        return all(libc.mallopt(name, value) for name, value in limits)
    except (AttributeError, OSError):  # another C library
        return False


def is_lean() -> bool:
    """Whether :func:`return_freed_memory` was the last of the two to be called."""
    return _asked["lean"]


def release_freed_memory() -> bool:
    """Gives freed memory back to the system once; returns whether it could.

    For the end of a set-up: what it has freed lies in pieces between what it keeps, where no later block would fit.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):  # another C library
        return False


def resident_bytes() -> int | None:
    """Memory that this process has in use now; None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):  # no Linux
        return None


def page_out(tensors: Iterable[Tensor]) -> None:
    """Lets go of the memory of tensors that are mapped from files; it is read again when they are next looked at.

    What was written to private maps stays, and so does memory that no file is behind.
    """
    if not sys.platform.startswith("linux"):
        return
    libc, page, pageout = ctypes.CDLL(None), mmap.PAGESIZE, 21  # MADV_PAGEOUT, since Linux 5.4
    for tensor in tensors:
        begin = -(-tensor.data_ptr() // page) * page
        end = (tensor.data_ptr() + tensor.nbytes) // page * page
        if tensor.is_contiguous() and tensor.device.type == "cpu" and end > begin:
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), pageout)
