"""Which blocks stand in which stage: contiguous stages with the smallest bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError, check_count

#: Relative difference up to which bottlenecks, or sums of squares, are equal: a little above rounding.
EQUAL = 1e-10

Array = NDArray[np.float64]


def split_layers(
    costs: Sequence[float], num_stages: int, *, transfer: Sequence[float] | None = None
) -> tuple[int, ...]:
    """Splits B blocks into contiguous stages so that the slowest stage is as quick as possible.

    The *bottleneck* ``max_s cost_s`` is made smallest by dynamic programming over suffixes,
    ``best_s[i] = min_j max(cost(i, j), best_{s-1}[j])``; among equal bottlenecks the same recursion with sums
    of squares finds the most even split, and among those the earliest cuts are taken. Exact, deterministic,
    O(stages B^2).

    Args:
        costs: of each block, not negative, in any unit.
        num_stages: 1 to B; no stage is empty.
        transfer: cost of a cut after each block but the last, ``[B - 1]``, added to the stages on both sides.

    Returns:
        bounds ``(0, b_1, ..., B)``: stage s has the blocks ``bounds[s]`` to ``bounds[s + 1] - 1``.

    Raises:
        InputError: the number of stages is not within 1 and B, or a cost is negative or not finite.
    """
    check_stages(num_stages, len(costs))
    cost = _stage_costs(costs, transfer)
    bottleneck = _best(cost, num_stages, np.maximum)[-1][0]
    squares = np.where(cost <= bottleneck * (1 + EQUAL), cost, np.inf) ** 2
    best = _best(squares, num_stages, np.add)
    bounds = [0]
    for remaining in reversed(best[:-1]):
        totals = squares[bounds[-1]] + remaining
        bounds.append(int(np.argmax(totals <= totals.min() * (1 + EQUAL))))
    return (*bounds, len(costs))


def _stage_costs(costs: Sequence[float], transfer: Sequence[float] | None) -> Array:
    """``[B + 1, B + 1]``: the cost of a stage of blocks i to j - 1; infinite where it would be empty."""
    cuts = np.zeros(len(costs) + 1)
    if transfer is not None:
        assert len(transfer) == len(costs) - 1, (len(transfer), len(costs))
        cuts[1:-1] = transfer
    values = np.asarray(costs, dtype=np.float64)
    if not (np.isfinite(values).all() and np.isfinite(cuts).all() and min(values.min(), cuts.min()) >= 0):
        raise InputError(
            f"costs must be finite and not negative; got {list(costs)} and transfers {transfer}."
        )
    ends = np.concatenate([[0.0], np.cumsum(values)])
    cost = (ends + cuts)[None, :] - (ends - cuts)[:, None]
    cost[np.tril_indices(len(ends))] = np.inf
    return cost


def _best(cost: Array, num_stages: int, combine: Callable[[Array, Array], Array]) -> list[Array]:
    """Entry s - 1, ``[B + 1]``: the least cost of blocks i, ... in s stages; infinite where too few."""
    tables = [cost[:, -1]]
    for _ in range(num_stages - 1):
        tables.append(combine(cost, tables[-1]).min(axis=1))
    return tables


def check_stages(num_stages: int, num_blocks: int) -> None:
    """Raises :class:`InputError` unless each of ``num_stages`` stages can have a block."""
    check_count("stages", num_stages, 1)
    if num_stages > num_blocks:
        raise InputError(
            f"stages > layers: {num_stages} stages need a block each, and the network has {num_blocks}, "
            f"encoder and output included; use 1 to {num_blocks} stages."
        )


def check_bounds(bounds: Sequence[int], num_blocks: int, num_stages: int) -> tuple[int, ...]:
    """``bounds`` as a tuple, if they are what :func:`split_layers` could return.

    Raises:
        InputError: not ascending from 0 to ``num_blocks`` in ``num_stages`` steps.
    """
    check_stages(num_stages, num_blocks)
    if len(bounds) != num_stages + 1:
        raise InputError(
            f"{num_stages} stages need {num_stages - 1} stage bounds, the first block of each stage after "
            f"the first; got {_shown(bounds)}."
        )
    if bounds[0] != 0 or bounds[-1] != num_blocks or any(a >= b for a, b in pairwise(bounds)):
        raise InputError(
            f"stage bounds must ascend within 1 and {num_blocks - 1}, the network's last block; got "
            f"{_shown(bounds)}."
        )
    return tuple(bounds)


def _shown(bounds: Sequence[int]) -> str:
    return ",".join(map(str, bounds[1:-1])) or "none"


def parse_bounds(text: str, num_blocks: int, num_stages: int) -> tuple[int, ...]:
    """The bounds that ``--stage-bounds`` states: the first block of each stage after the first, ``5,9,13``.

    Raises:
        InputError: no list of whole numbers, or see :func:`check_bounds`.
    """
    try:
        cuts = [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise InputError(f"stage bounds must be whole numbers such as 5,9,13; got {text!r}.") from None
    return check_bounds((0, *cuts, num_blocks), num_blocks, num_stages)
