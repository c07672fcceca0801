"""How the process keeps memory between iterations."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tells the C library to keep freed memory for the next allocation; returns whether it could.

    glibc gives every block above 32 MB back to the system when it is freed and gets zeroed pages for the next one. An
    iteration allocates the same few N x d blocks again and again, and an elementwise step then spends two thirds
    of its time in page faults (arxiv, width 128: scaling the rows took 48 ms, and 16 ms with freed blocks kept).
    The cost: memory freed during training is not returned before the process ends.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    except (AttributeError, OSError):  # another C library
        return False
