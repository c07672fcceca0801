"""Runs a function on ranks that are processes, for tests."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from gfgnn.comm.base import Communicator
from gfgnn.comm.torch import TorchCommunicator, host_store


@dataclass
class Outcome:
    """What became of a rank: ``error`` is the exception's text; both are None where the process did not answer."""

    value: object = None
    error: str | None = None
    exitcode: int | None = None


def run_processes(
    size: int,
    function: Callable[[Communicator], object],
    *,
    timeout: float = 20.0,
    wait: float = 60.0,
    hung: int | None = None,
    device: str = "cpu",
    torchrun: bool = False,
) -> list[Outcome]:
    """Starts ``size`` processes, connects them, runs ``function`` on each and kills those that do not end.

    Args:
        size: number of ranks.
        function: gets the communicator.
        timeout: of the communicator.
        wait: seconds after which processes are killed.
        hung: a rank that is known to hang: it is killed when the others have ended.
        device: cpu, or cuda: one for each rank.
        torchrun: connect by environment variables, as torchrun sets them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gfgnn.comm.torch", "gfgnn.comm.grid", "pytest"])  # takes seconds, once
    store = host_store()
    port = _free_port() if torchrun else store.port
    ranks = []
    for rank in range(size):
        here, there = context.Pipe()
        arguments = (there, function, rank, size, port, timeout, device, torchrun)
        process = context.Process(target=_run, args=arguments, daemon=True)
        process.start()
        there.close()
        ranks.append((process, here))
    end = time.monotonic() + wait
    outcomes = [Outcome() if rank == hung else _answer(here, end) for rank, (_, here) in enumerate(ranks)]
    for rank, (process, _) in enumerate(ranks):
        process.join(0.0 if rank == hung else max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        outcomes[rank].exitcode = process.exitcode
    return outcomes


def _answer(here: Connection, end: float) -> Outcome:
    try:
        return Outcome(*here.recv()) if here.poll(max(0.0, end - time.monotonic())) else Outcome()
    except EOFError:
        return Outcome()


def _run(
    answer: Connection,
    function: Callable[[Communicator], object],
    rank: int,
    size: int,
    port: int,
    timeout: float,
    device: str,
    torchrun: bool,
) -> None:
    torch.set_num_threads(1)
    if device != "cpu":
        device = f"{device}:{rank}"
        torch.set_default_device(device)
    try:
        if torchrun:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
            os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
            comm = TorchCommunicator.from_environment(timeout=timeout, device=device)
        else:
            comm = TorchCommunicator.connect("localhost", port, rank, size, timeout=timeout, device=device)
        answer.send((function(comm), None))
        comm.close()
    except BaseException:
        answer.send((None, traceback.format_exc()))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]
