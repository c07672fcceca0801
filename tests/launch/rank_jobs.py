"""What the ranks do in the launcher's tests: sum over all ranks in every iteration, until one does something bad."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import torch

from gfgnn.checks import InputError
from gfgnn.launch.context import RankContext

#: the rank that fails, and after which iteration
BAD, AFTER = 2, 3


def healthy(context: RankContext) -> None:
    print("output of rank", context.rank)
    os.write(2, b"output of native code\n")
    _iterate(context, 5)
    context.send({"device": context.device, "threads": torch.get_num_threads()})


def until_stopped(context: RankContext) -> None:
    """All ranks agree on the iteration after which they stop."""
    world = context.connect()
    context.send({"pid": os.getpid()})
    stop = torch.zeros(1)
    iteration = -1
    while not stop:
        iteration += 1
        stop = world.all_reduce(
            torch.tensor([float(context.stop_requested())]), purpose="control", op="max"
        ).wait()
        context.progress(iteration)
        time.sleep(0.01)
    context.send({"stopped": iteration})


def ends_early(context: RankContext) -> None:
    """Rank 0 has long finished when the others still sum among themselves; it stays connected to them."""
    world = context.connect()
    rest = world.group([0] if context.rank == 0 else list(range(1, context.size)))
    if context.rank > 0:
        time.sleep(0.5)
        rest.all_reduce(torch.ones(1), purpose="control").wait()


def never_ends(context: RankContext) -> None:
    """Heeds no request to stop."""
    _iterate(context, sys.maxsize)


def raises(context: RankContext) -> None:
    def bad() -> None:
        raise ValueError("no such thing")

    _iterate(context, 1000, bad)


def gets_bad_input(context: RankContext) -> None:
    def bad() -> None:
        raise InputError("ridge must be at least 0; got -1.")

    _iterate(context, 1000, bad)


def exits(context: RankContext) -> None:
    _iterate(context, 1000, lambda: sys.exit(3))


def leaves(context: RankContext) -> None:
    _iterate(context, 1000, lambda: os._exit(0))


def aborts(context: RankContext) -> None:
    _iterate(context, 1000, os.abort)


def runs_out_of_memory(context: RankContext) -> None:
    _iterate(context, 1000, lambda: bytearray(1 << 60).clear())


def leaves_a_child(context: RankContext) -> None:
    """The rank's own child, of the same command line, outlives the rank."""

    def bad() -> None:
        if os.fork() == 0:
            time.sleep(1000)
        os.abort()

    _iterate(context, 1000, bad)


def dies(context: RankContext) -> None:
    _iterate(context, 1000, lambda: os.kill(os.getpid(), signal.SIGKILL))


def is_stopped(context: RankContext) -> None:
    _iterate(context, 1000, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def loops(context: RankContext) -> None:
    def bad() -> None:
        while True:
            pass

    _iterate(context, 1000, bad)


def disagrees(context: RankContext) -> None:
    """Everybody waits: rank 0 for all, the others for each other."""
    world = context.connect()
    rest = world.group([0] if context.rank == 0 else list(range(1, context.size)))
    context.progress(0)
    if context.rank == 0:
        world.barrier()
    elif context.rank == 1:
        rest.barrier()


def raises_before_connecting(context: RankContext) -> None:
    if context.rank == BAD:
        raise RuntimeError("early")
    context.connect()


def _iterate(context: RankContext, iterations: int, bad: Callable[[], None] | None = None) -> None:
    world = context.connect()
    context.send({"pid": os.getpid()})
    for iteration in range(iterations):
        total = world.all_reduce(torch.ones(4), purpose="control").wait()
        assert total[0] == context.size
        context.progress(iteration)
        if bad is not None and (context.rank, iteration) == (BAD, AFTER):
            context.send({"bad at": time.monotonic()})
            bad()
        time.sleep(0.01)
