"""Ways in which rank 1 fails while the others wait for it, as functions that every rank runs."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import partial

import torch

from gfgnn.comm.base import CommError, Communicator

#: how long after the others have begun to wait rank 1 fails
DELAY = 0.3


@dataclass
class Noticed:
    """How a rank learnt of a failure: the error, after how long, and the same for what it tried next."""

    message: str
    timed_out: bool
    seconds: float
    next_message: str
    next_seconds: float


def raises(comm: Communicator) -> None:
    raise ValueError("rank 1 has had enough")


def is_killed(comm: Communicator) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_stopped(comm: Communicator) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleeps(comm: Communicator) -> None:
    time.sleep(1.0)


def all_reduce(comm: Communicator) -> None:
    comm.all_reduce(torch.ones(3), purpose="gram").wait()


def all_to_all(comm: Communicator) -> None:
    ones = [1] * comm.size
    comm.all_to_all(torch.ones(comm.size, 2), ones, ones, purpose="halo").wait()


def exchange(comm: Communicator) -> None:
    comm.exchange([], [(1, torch.empty(3))], purpose="stage").wait()


def barrier(comm: Communicator) -> None:
    comm.barrier()


def noticing(comm: Communicator, failure, operation) -> Noticed:
    """Rank 1 fails after a delay; the others say how they noticed, and that a group of the world is unusable, too."""
    group = comm.group(range(comm.size))
    operation_of_rank = partial(failure, comm) if comm.rank == 1 else partial(operation, comm)
    comm.barrier()
    if comm.rank == 1:
        time.sleep(DELAY)
    start = time.monotonic()
    try:
        operation_of_rank()
    except CommError as error:
        first, seconds = error, time.monotonic() - start
    start = time.monotonic()
    try:
        all_reduce(group)
    except CommError as error:
        return Noticed(str(first), first.timed_out, seconds, str(error), time.monotonic() - start)
    raise AssertionError("a group could be used after the failure")
