"""Whether edges are those of the transpose, told in one pass without a copy of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gfgnn.graph.pieces import pieces


def mirrors_itself(
    source: NDArray[np.int64], target: NDArray[np.int64], weight: NDArray[np.floating] | None = None
) -> bool:
    """Whether the reverse of every edge is there, with the same weight.

    Two sums modulo 2^64 are compared, of a hash of (source, target, weight) and of (target, source, weight) over all
    edges. Edges that are not symmetric pass with a chance of 2^-64; symmetric ones always do.

    Args:
        source, target: ``[E]``, each edge once, nodes below 2^32.
        weight: ``[E]``, or None for all the same.
    """
    difference = 0
    for piece in pieces(source.size):
        one, other = source[piece].astype(np.uint64), target[piece].astype(np.uint64)
        salt = None if weight is None else weight[piece].astype(np.float64).view(np.uint64)
        difference += _hashes(one, other, salt) - _hashes(other, one, salt)
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
