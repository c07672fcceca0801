"""Ranks that torchrun has started: the same context for jobs, from what torchrun says in the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfgnn.checks import InputError
from gfgnn.launch.context import RankContext
from gfgnn.launch.failure import describe_exception, sentence
from gfgnn.launch.heartbeat import Table

if TYPE_CHECKING:
    from gfgnn.comm.base import Communicator


def under_torchrun() -> bool:
    """torchrun, or torch's elastic launch of another name, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def torchrun_context(
    timeout: float,
    device: str = "cpu",
    *,
    folder: Path,
    on_message: Callable[[int, dict[str, Any]], None] | None = None,
) -> RankContext:
    """The context of this process. torchrun watches the processes; nobody requests a stop.

    Args:
        timeout: seconds a rank may keep its peers waiting.
        device: cpu; or cuda, where each process gets the device of its number on its machine.
        folder: the run's folder.
        on_message: called at once, in rank 0, for what rank 0 sends; what others send goes nowhere.

    Raises:
        InputError: the environment is not torchrun's, or this machine has fewer CUDA devices than processes.
    """
    rank, size, local = (_number(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if device == "cuda":
        import torch

        if local >= torch.cuda.device_count():
            raise InputError(
                f"device is cuda, and process {local} of this machine needs a CUDA device of its own; "
                f"there are {torch.cuda.device_count()}."
            )
        device = f"cuda:{local}"

    def connect() -> Communicator:
        from gfgnn.comm.torch import TorchCommunicator

        return TorchCommunicator.from_environment(timeout=timeout, device=device)

    def send(message: dict[str, Any]) -> None:
        if rank == 0 and on_message is not None:
            on_message(rank, message)

    return RankContext(
        rank, size, folder, device, beat=Table(size).beat(rank), connector=connect, sender=send
    )


def describe_failure(error: BaseException, context: RankContext, place: str = "") -> str:
    """One sentence: which rank failed, where in the run it stands, how, and after which iteration."""
    raised = describe_exception(error, time.monotonic())
    return sentence(f"raised {raised.text}", context.rank, place, context.beat.iteration)


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdecimal():
        raise InputError(f"torchrun sets {name} to a whole number; the environment has {value!r}.")
    return int(value)


__all__ = ["describe_failure", "torchrun_context", "under_torchrun"]
