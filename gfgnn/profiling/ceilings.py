"""What the machine can do at best: the rates that shares are taken of."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

#: Bytes of an array that is copied, and rows of a square matrix that is multiplied, by device.
COPIED = {"cpu": 1 << 25, "cuda": 1 << 28}
ROWS = {"cpu": 512, "cuda": 8192}
#: Seconds for each of the two, within which the best try counts.
SECONDS = 0.12


def measure_ceilings(dtype: torch.dtype, device: torch.device) -> dict[str, float]:
    """``copy_bytes_per_second`` (what a copy reads and writes) and ``flops_per_second`` of a square matrix product.

    With torch's present number of threads; the best of the tries that fit into :data:`SECONDS`.
    """
    numbers = COPIED[device.type] // dtype.itemsize
    source, target = (torch.ones(numbers, dtype=dtype, device=device) for _ in range(2))
    n = ROWS[device.type]
    a, b, c = (torch.ones(n, n, dtype=dtype, device=device) for _ in range(3))
    return {
        "copy_bytes_per_second": 2 * source.nbytes / _best(lambda: target.copy_(source), device),
        "flops_per_second": 2 * n**3 / _best(lambda: torch.mm(a, b, out=c), device),
    }


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of at least two tries."""
    tries: list[float] = []
    while len(tries) < 2 or sum(tries) < SECONDS:
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        tries.append(time.perf_counter() - start)
    return min(tries)
