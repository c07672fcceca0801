"""Training on a grid: local processes, threads, or the processes that torchrun started."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.order import Order
from gfgnn.launch.context import RankContext
from gfgnn.launch.environment import describe_failure, torchrun_context, under_torchrun
from gfgnn.launch.failure import RankFailure
from gfgnn.launch.files import load_json, load_shard, load_weights, save_json, save_shard, save_weights
from gfgnn.launch.member import Task, train_rank
from gfgnn.launch.method import Method
from gfgnn.launch.run import default_threads, run_ranks
from gfgnn.launch.scatter import receive_task, send_task
from gfgnn.launch.turns import train_in_turns
from gfgnn.loop import DTYPES, Callback, Outcome
from gfgnn.model.build import Model
from gfgnn.plan.plan import Plan
from gfgnn.profiling.recorder import Recorder
from gfgnn.shards import GraphShard, iter_shards

Trained = tuple[Outcome, list[dict[str, Any]]]


def train_on_grid(
    model: Model,
    graph: Graph,
    config: TrainConfig,
    plan: Plan,
    on_iteration: Callback | None = None,
    folder: Path | None = None,
    *,
    order: Order | None = None,
    spent: float = 0.0,
    method: Method | None = None,
) -> Trained:
    """Cuts the shards, runs the ranks, and returns the outcome with the reports of all ranks.

    Args:
        folder: where ranks log; None for a temporary folder that is kept only if a rank fails.
        order: of the nodes within each part; None for the graph's own.
        spent: seconds of set-up up to here.
        method: what to train with, in place of the solver that ``config`` names.
    """
    task = Task(model, config, plan.stages.bounds, spent, method)
    assignment = plan.assignment(graph.num_nodes)
    parts = 1 if method is not None and method.replicated else config.parts
    shards = iter_shards(model, graph, assignment, parts, order=order, dtype=DTYPES[config.dtype])
    if config.out_of_core:
        return train_in_turns(task, shards, on_iteration)
    if under_torchrun():
        return _on_torchrun(task, list(shards), on_iteration, folder)
    if config.backend == "thread":
        return _on_threads(task, list(shards), on_iteration)
    return _on_processes(task, shards, on_iteration, folder)


def place(config: TrainConfig, rank: int) -> str:
    """What a rank does, in words."""
    stage, part = divmod(rank, config.parts)
    return f"part {part}, stage {stage}"


def _on_processes(
    task: Task, shards: Iterator[GraphShard], on_iteration: Callback | None, folder: Path | None
) -> Trained:
    config = task.config
    size = config.parts * config.stages
    with (
        tempfile.TemporaryDirectory(prefix="gfgnn-shards-") as name,
        _log_folder(folder) as logs,
    ):
        files = Path(name)
        for shard in shards:
            save_shard(files / f"shard{shard.part}", shard)
            del shard  # before the next one is made
        save_json(files, "task", task.to_dict())
        save_json(logs, "files", name)

        def on_message(rank: int, message: dict[str, Any]) -> None:
            if rank == 0 and on_iteration is not None:
                on_iteration(message["line"])

        run_ranks(
            "gfgnn.launch.grid:job", logs, size, threads=config.threads or default_threads(size),
            timeout=config.timeout, port=config.port, device=config.device,
            describe=lambda rank: place(config, rank), on_message=on_message,
        )  # fmt: skip
        return _collect(files)


@contextmanager
def _log_folder(folder: Path | None) -> Iterator[Path]:
    """The folder for the ranks' logs; a temporary one is kept where a rank fails, whose log is then asked for."""
    logs = folder or Path(tempfile.mkdtemp(prefix="gfgnn-ranks-"))
    logs.mkdir(parents=True, exist_ok=True)
    keep = folder is not None
    try:
        yield logs
    except RankFailure:
        keep = True
        raise
    finally:
        (logs / "files.json").unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(logs, ignore_errors=True)


def job(context: RankContext) -> None:
    """What each local process does; see :func:`gfgnn.launch.run.run_ranks`."""
    files = Path(load_json(context.folder, "files"))
    task = Task.from_dict(load_json(files, "task"))

    print(f"rank {context.rank} ({place(task.config, context.rank)}), {context.device}", flush=True)

    def on_iteration(line: dict[str, Any]) -> None:
        context.progress(line["iteration"])
        print(
            f"iteration {line['iteration']}: {line['seconds']:.3f} s, loss {line['step_loss']:.6f}",
            flush=True,
        )
        if context.rank == 0:
            context.send({"line": line})

    outcome, reports = train_rank(
        context.connect(),
        lambda part, features: load_shard(files / f"shard{part}", with_features=features),
        task,
        context.device,
        on_iteration=on_iteration,
        stop_requested=context.stop_requested,
    )
    if context.rank == 0:
        save_weights(files, "best", outcome.weights)
        save_weights(files, "last", outcome.last_weights)
        values = {k: v for k, v in vars(outcome).items() if k not in ("weights", "last_weights")}
        save_json(files, "outcome", {"outcome": values, "ranks": reports, "order": list(outcome.weights)})


def _collect(files: Path) -> Trained:
    found = load_json(files, "outcome")
    best, last = (load_weights(files, name, found["order"]) for name in ("best", "last"))
    return Outcome(weights=best, last_weights=last, **found["outcome"]), found["ranks"]


def _on_threads(task: Task, shards: list[GraphShard], on_iteration: Callback | None) -> Trained:
    from gfgnn.comm.thread import run_threads

    config, stop = task.config, threading.Event()
    if config.profile:
        Recorder(
            torch.device(config.device)
        )  # torch's profiler complains where a rank's thread is its first user

    def tell(line: dict[str, Any]) -> None:
        try:
            if on_iteration is not None:
                on_iteration(line)
        except KeyboardInterrupt:
            stop.set()

    def rank(world: Communicator) -> Trained:
        torch.set_num_threads(config.threads or 1)
        return train_rank(
            world, lambda part, features: shards[part], task, config.device,
            on_iteration=tell if world.rank == 0 else None, stop_requested=stop.is_set,
        )  # fmt: skip

    return run_threads(config.parts * config.stages, rank, timeout=config.timeout)[0]


def _on_torchrun(
    task: Task, shards: list[GraphShard], on_iteration: Callback | None, folder: Path | None
) -> Trained:
    """Rank 0's way, and that of every rank whose program has called ``train`` itself."""
    check_world(task.config)
    context = torchrun_context(task.config.timeout, task.config.device, folder=folder or Path("."))
    world = context.connect()
    if context.rank > 0:  # rank 0's shards are what counts: libraries may cut differently on other machines
        task, shard = receive_task(world, context.device)
    else:
        send_task(world, task, shards, context.device)
        shard = shards[0]
    return _member(context, task, shard, on_iteration)


def serve(config: TrainConfig) -> None:
    """What a process of torchrun does that is not rank 0: its share of the run that rank 0 was asked for.

    Raises:
        InputError: the number of processes is not that of the grid.
    """
    check_world(config)
    context = torchrun_context(config.timeout, config.device, folder=Path("."))
    task, shard = receive_task(context.connect(), context.device)
    _member(context, task, shard, None)


def check_world(config: TrainConfig) -> None:
    """Raises :class:`InputError` unless torchrun has started as many processes as the grid has ranks."""
    size, wanted = int(os.environ.get("WORLD_SIZE", "1")), config.parts * config.stages
    if size != wanted:
        raise InputError(
            f"torchrun has started {size} processes, but {config.parts} parts x {config.stages} stages are {wanted}; "
            f"start {wanted}, or choose another grid."
        )


def _member(context: RankContext, task: Task, shard: GraphShard, on_iteration: Callback | None) -> Trained:
    stop = threading.Event()

    def tell(line: dict[str, Any]) -> None:
        context.progress(line["iteration"])
        try:
            if context.rank == 0 and on_iteration is not None:
                on_iteration(line)
        except KeyboardInterrupt:
            stop.set()

    torch.set_num_threads(
        task.config.threads or default_threads(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    )
    try:
        trained = train_rank(
            context.connect(), lambda part, features: shard, task, context.device, on_iteration=tell,
            stop_requested=stop.is_set,
        )  # fmt: skip
    except InputError:
        raise
    except Exception as error:
        text = describe_failure(error, context, place(task.config, context.rank))
        beat = context.beat
        raise RankFailure(text, context.rank, "raised", beat.iteration, context.folder) from error
    context.close()
    return trained


__all__ = ["check_world", "place", "serve", "train_on_grid"]
