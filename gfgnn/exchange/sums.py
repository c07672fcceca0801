"""Sums over ranks, and small objects gathered on one."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.profiling.labels import label


def sum_over(comm: Communicator, *tensors: Tensor, purpose: str = "gram") -> list[Tensor]:
    """The sums of ``tensors`` over the ranks of ``comm``, in one message; every rank gets the same bits.

    Called by every rank of ``comm`` with tensors of the same shapes. Sends all of them as one block of the widest of
    their precisions. With a single rank the tensors are given back as they are.
    """
    if comm.size == 1:
        return list(tensors)
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else tensors[0].dtype
    with label("exchange", "sum_over"):
        block = torch.cat([t.reshape(-1).to(dtype) for t in tensors])
        block = comm.all_reduce(block, purpose=purpose).wait()
        pieces = block.split([t.numel() for t in tensors])
        return [piece.view(t.shape).to(t.dtype) for piece, t in zip(pieces, tensors, strict=True)]


def gather_rows(comm: Communicator, rows: Tensor, *, purpose: str) -> Tensor:
    """The ``rows`` of every rank of ``comm``, in order of rank, on every rank: ``[sum of rows, ...]``.

    Called by every rank of ``comm``; each sends its rows to each other one.
    """
    if comm.size == 1:
        return rows
    counts = torch.zeros(comm.size, dtype=torch.int64, device=rows.device)
    counts[comm.rank] = rows.size(0)
    received = comm.all_reduce(counts, purpose=purpose).wait().tolist()
    everywhere = rows.repeat(comm.size, *[1] * (rows.dim() - 1))
    return comm.all_to_all(everywhere, [rows.size(0)] * comm.size, received, purpose=purpose).wait()


def gather_objects(comm: Communicator, value: Any, device: torch.device, *, purpose: str) -> list[Any]:
    """The JSON-ready ``value`` of every rank, in order of rank, on every rank. Called by every rank of ``comm``."""
    text = json.dumps(value).encode()
    data = torch.tensor(list(text), dtype=torch.uint8, device=device)
    lengths = torch.zeros(comm.size, dtype=torch.int64, device=device)
    lengths[comm.rank] = data.numel()
    ends = comm.all_reduce(lengths, purpose=purpose).wait().tolist()
    every = gather_rows(comm, data, purpose=purpose)
    return [json.loads(bytes(part.tolist())) for part in every.split(ends)]


__all__ = ["gather_objects", "gather_rows", "sum_over"]
