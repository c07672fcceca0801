"""Shards sent by the rank that has the graph to ranks that may be on other machines."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.launch.member import Task
from gfgnn.shards import GraphShard, pack, unpack


def send_task(world: Communicator, task: Task, shards: list[GraphShard], device: str) -> None:
    """Called by rank 0: sends every other rank the task and the shard of its part, features to stage 0 only."""
    for rank in range(1, world.size):
        stage, part = divmod(rank, task.config.parts)
        tensors, about = pack(shards[part], with_features=stage == 0)
        header = {"task": task.to_dict(), "about": about, "tensors": _describe(tensors)}
        text = torch.tensor(list(json.dumps(header).encode()), dtype=torch.uint8, device=device)
        length = torch.tensor([text.numel()], dtype=torch.int64, device=device)
        sends = [(rank, t) for t in (length, text, *(v.contiguous().to(device) for v in tensors.values()))]
        world.exchange(sends, [], purpose="setup").wait()


def receive_task(world: Communicator, device: str) -> tuple[Task, GraphShard]:
    """Called by every other rank: what :func:`send_task` sent it."""
    length = torch.empty(1, dtype=torch.int64, device=device)
    world.exchange([], [(0, length)], purpose="setup").wait()
    text = torch.empty(int(length), dtype=torch.uint8, device=device)
    world.exchange([], [(0, text)], purpose="setup").wait()
    header: dict[str, Any] = json.loads(bytes(text.tolist()))
    tensors = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for name, dtype, shape in header["tensors"]
    }
    world.exchange([], [(0, t) for t in tensors.values()], purpose="setup").wait()
    shard = unpack({name: value.cpu() for name, value in tensors.items()}, header["about"])
    return Task.from_dict(header["task"]), shard


def _describe(tensors: dict[str, Tensor]) -> list[tuple[str, str, list[int]]]:
    return [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()]


__all__ = ["receive_task", "send_task"]
