"""Arrays in files that nobody else sees: what does not fit into memory all at once."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from weakref import WeakSet

import torch
from torch import Tensor

from gfgnn.checks import InputError

#: Arrays below this many bytes stay in memory: a file has pages, and takes two calls of the system.
SMALL = 1 << 16


class Scratch:
    """Makes arrays that are mapped from nameless files, and lets the memory of all of them go on request.

    The files vanish with their arrays, however the process ends. What was written stays in the system's page cache
    and, sooner or later, on the disk; a page is mapped again when it is next looked at.

    Args:
        folder: on a disk with room for everything; not one that is itself in memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: WeakSet[mmap.mmap] = WeakSet()

    def __call__(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """An array ``[rows, columns]`` with zeros in it, or anything where it is small.

        Raises:
            InputError: there is no room for it.
        """
        size = rows * columns * dtype.itemsize
        if size < SMALL:
            return torch.empty(rows, columns, dtype=dtype)
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                if hasattr(
                    os, "posix_fallocate"
                ):  # a full disk is an error here, and the end of the process later
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise InputError(
                f"{size / 1e6:,.0f} MB of what one part holds cannot be written to {self._folder}: {error}. Set "
                "GFGNN_CACHE to a folder on a disk with more room."
            ) from error
        self._maps.add(mapped)
        return torch.frombuffer(mapped, dtype=dtype).view(rows, columns)

    def rest(self) -> None:
        """Lets go of the memory of all arrays; their contents stay. Nobody may be writing to them."""
        for mapped in list(self._maps):
            mapped.madvise(mmap.MADV_DONTNEED)

    @property
    def nbytes(self) -> int:
        """What all arrays hold."""
        return sum(len(mapped) for mapped in list(self._maps))
