"""Runs a job in several processes of this machine, and ends them all when one fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gfgnn.checks import InputError, check_at_least, check_choice, check_count
from gfgnn.interrupts import held
from gfgnn.launch.crew import Crew
from gfgnn.launch.failure import SILENCE
from gfgnn.launch.heartbeat import Table
from gfgnn.launch.watch import Watch

#: seconds for ranks that have finished to leave by themselves
LEAVE = 2.0


def default_threads(size: int) -> int:
    """Threads for each of ``size`` ranks, so that together they do not exceed the cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // size)


def check_port(port: int) -> None:
    """Raises :class:`InputError` where nothing can listen at ``port`` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(
                f"port must be free, or 0 for any that is; {port} is in use or not allowed ({error.strerror})."
            ) from None


def run_ranks(
    job: str,
    folder: Path,
    size: int,
    *,
    threads: int,
    timeout: float,
    port: int = 0,
    device: str = "cpu",
    describe: Callable[[int], str] = lambda rank: "",
    on_message: Callable[[int, dict[str, Any]], None] | None = None,
) -> None:
    """Runs ``job`` in ``size`` processes, and returns when all have finished. No process is left, however it ends.

    Ctrl-C asks the ranks to stop after their current iteration; a second one ends them at once.

    Args:
        job: "module:function", called in every rank with a :class:`gfgnn.launch.context.RankContext`. The module is
            imported before the ranks are forked and must compute nothing while it is.
        folder: gets ``rank0.log``, ... with what each rank writes.
        size: number of ranks.
        threads: threads of each rank.
        timeout: seconds within which the run ends once a rank has failed. A rank may keep its peers waiting for
            0.8 of that.
        port: where the ranks meet on this machine; 0 takes a free one.
        device: cpu; or cuda, where rank r gets cuda:r.
        describe: what a rank does in the run, for messages.
        on_message: called with rank and message for everything that ranks send, in the thread that called this; a
            KeyboardInterrupt from it asks the ranks to stop, like the first Ctrl-C.

    Raises:
        InputError: ``port`` is in use, there are fewer CUDA devices than ranks, or a rank raised it.
        RankFailure: a rank failed; the message says which one, how, and where its log is.
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    check_count("size", size, 1)
    check_count("threads", threads, 1)
    check_at_least("timeout", timeout, 1)
    _check_device(device, size)
    from gfgnn.comm.torch import host_store

    folder.mkdir(parents=True, exist_ok=True)
    store = host_store(port)
    descriptor = Table.open_file(size)
    try:
        table = Table(size, descriptor)
        with (
            held(table.request_stop) as interrupts,
            Crew(
                job,
                folder,
                size,
                threads=threads,
                timeout=timeout * SILENCE,
                port=store.port,
                device=device,
                table=descriptor,
            ) as crew,
        ):
            watch = Watch(crew, table, size, timeout)
            while not watch.finished:
                for rank, message in watch.look():
                    if on_message is not None:
                        try:
                            on_message(rank, message)
                        except KeyboardInterrupt:
                            table.request_stop()
                if len(interrupts) > 1:
                    raise KeyboardInterrupt
                if cause := watch.failure():
                    raise watch.error(cause, folder, describe)
            table.release()
            crew.wait(LEAVE)
    finally:
        os.close(descriptor)


def _check_device(device: str, size: int) -> None:
    check_choice("device", device, ("cpu", "cuda"))
    if device == "cuda":
        import torch

        count = torch.cuda.device_count()
        if count < size:
            raise InputError(
                f"device is cuda, and {size} processes need one CUDA device each; there are {count}."
            )


__all__ = ["check_port", "default_threads", "run_ranks"]
