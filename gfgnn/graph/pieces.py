"""Long arrays taken in pieces, so that what is made of them on the way needs little memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 20  #: edges looked at together


def pieces(total: int) -> Iterator[slice]:
    """Slices of at most :data:`PIECE` that together are ``0`` to ``total - 1``."""
    for start in range(0, total, PIECE):
        yield slice(start, min(start + PIECE, total))


def row_pieces(indptr: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges ``first, last`` of rows, one after the other, that hold at most :data:`PIECE` entries; or one row.

    Args:
        indptr: ``[M + 1]``; the entries of row i are numbers ``indptr[i]`` to ``indptr[i + 1] - 1``.
    """
    first, rows = 0, indptr.size - 1
    while first < rows:
        fits = int(np.searchsorted(indptr, indptr[first] + PIECE, side="right")) - 1
        last = min(max(fits, first + 1), first + PIECE, rows)
        yield first, last
        first = last


def rows_named(indptr: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
    """The row of each entry of the rows ``first`` to ``last - 1``."""
    return np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
