"""Whether a matrix is symmetric, told in one pass over its non-zeros and without a copy of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gfgnn.graph.pieces import row_pieces, rows_named


def mirrors_itself(
    indptr: NDArray[np.int64], columns: NDArray[np.int64], weight: NDArray[np.floating] | None = None
) -> bool:
    """Whether a sparse matrix equals its transpose: whether each edge has a reverse of the same weight.

    Two sums modulo 2^64 are compared, of a hash of (row, column, weight) and of (column, row, weight) over all
    non-zeros. A matrix that is not symmetric passes with a chance of 2^-64; a symmetric one always does.

    Args:
        indptr: ``[N + 1]``; the columns of row i are ``columns[indptr[i]:indptr[i + 1]]``, each once, N at most 2^32.
        weight: ``[E]``, or None for all the same.
    """
    difference = 0
    for first, last in row_pieces(indptr):
        piece = slice(indptr[first], indptr[last])
        row, column = rows_named(indptr, first, last).view(np.uint64), columns[piece].astype(np.uint64)
        salt = None if weight is None else weight[piece].astype(np.float64).view(np.uint64)
        difference += _hashes(row, column, salt) - _hashes(column, row, salt)
    return difference % 2**64 == 0


def _hashes(high: NDArray[np.uint64], low: NDArray[np.uint64], salt: NDArray[np.uint64] | None) -> int:
    """The sum of the hashes of ``(high, low, salt)``, modulo 2^64."""
    values = (high << np.uint64(32)) + low
    _mix(values)
    if salt is not None:
        values ^= salt
        _mix(values)
    return int(values.sum(dtype=np.uint64))


def _mix(values: NDArray[np.uint64]) -> None:
    """Stirs 64 bits in place, one to one: xors with shifted bits, and products with odd numbers, in turn."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
