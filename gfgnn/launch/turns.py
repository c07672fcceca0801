"""Training part after part on one machine: whatever the other parts hold is on the disk meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from gfgnn.comm.base import Communicator
from gfgnn.comm.thread import run_threads
from gfgnn.comm.turns import TurnHub
from gfgnn.data.cache import work_folder
from gfgnn.data.scratch import Scratch
from gfgnn.interrupts import held
from gfgnn.launch.files import load_shard, save_shard
from gfgnn.launch.member import Task, train_rank
from gfgnn.loop import Callback, Outcome
from gfgnn.ops.arena import kept, stored_in
from gfgnn.shards import GraphShard, pack, unpack

T = TypeVar("T")
Load = Callable[[int, bool], GraphShard]


def train_in_turns(
    task: Task, shards: Iterable[GraphShard], on_iteration: Callback | None
) -> tuple[Outcome, list[dict[str, Any]]]:
    """:func:`gfgnn.launch.member.train_rank` for every part in turn; one stage.

    Ctrl-C ends the run after the present iteration; a second one ends it at once.

    Args:
        shards: of all parts, in order; each is written to the disk before the next is asked for.
    """
    stop = threading.Event()

    def tell(line: dict[str, Any]) -> None:
        try:
            if on_iteration is not None:
                on_iteration(line)
        except KeyboardInterrupt:
            stop.set()

    def rank(world: Communicator, load: Load) -> tuple[Outcome, list[dict[str, Any]]]:
        if task.config.threads is not None:
            torch.set_num_threads(task.config.threads)
        return train_rank(
            world, load, task, task.config.device,
            on_iteration=tell if world.rank == 0 else None, stop_requested=stop.is_set,
        )  # fmt: skip

    def interrupted() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with held(interrupted):
        return in_turns(task.config.parts, shards, rank)[0]


def in_turns(
    parts: int,
    shards: Iterable[GraphShard],
    function: Callable[[Communicator, Load], T],
    scratch: Scratch | None = None,
) -> list[T]:
    """Runs ``function`` on a rank for each part, one at a time, with what loads their shards; its results in order.

    Large arrays of the ranks lie in files of the cache folder, and the memory of all is let go whenever a rank has to
    wait for another.

    Args:
        scratch: makes these arrays, and others that are to be let go with them; None for one of this call.
    """
    with work_folder("turns") as folder:
        for shard in shards:
            save_shard(folder / f"shard{shard.part}", shard)
            del shard  # before the next one is made
        store = Scratch(folder) if scratch is None else scratch

        def load(part: int, with_features: bool) -> GraphShard:
            tensors, about = pack(load_shard(folder / f"shard{part}", with_features=with_features))
            return unpack({name: kept(tensor) for name, tensor in tensors.items()}, about)

        def rank(world: Communicator) -> T:
            with stored_in(store):
                return function(world, load)

        return run_threads(parts, rank, hub=TurnHub(store.rest))
