"""What a rank's process does from its birth to its end."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch

from gfgnn.launch.context import RankContext
from gfgnn.launch.failure import describe_exception
from gfgnn.launch.heartbeat import Beat, Table, start_heart
from gfgnn.launch.spec import Spec, tell

if TYPE_CHECKING:
    from gfgnn.comm.base import Communicator

#: seconds between two looks at whether all ranks have finished
LOOK = 0.01


def log_path(folder: Path, rank: int) -> Path:
    """Where a rank's standard output and standard error go."""
    return folder / f"rank{rank}.log"


def run_rank(spec: Spec, rank: int, function: Callable[[RankContext], object], zygote: int) -> NoReturn:
    """The life of a rank, in a process just forked: the job, a report of how it went, and the end.

    ``zygote`` is the process it was forked from; without that it ends.
    """
    status = 1
    report = spec.reports[rank]
    try:
        os.setpgid(0, 0)
        _keep_own(spec, report)
        _redirect(log_path(Path(spec.folder), rank))
        beat = Table(spec.size, spec.table).beat(rank)
        start_heart(beat, zygote)
        context = _context(spec, rank, beat, report)
        function(context)
        tell(report, done=True)
        # Peers may still be in the last communication: an end before theirs would look to them like a failure.
        while not beat.table.released:
            time.sleep(LOOK)
        context.close()
        status = 0
    except BaseException as error:
        raised = describe_exception(error, at=time.monotonic())
        with suppress(OSError):
            tell(report, raised=asdict(raised))
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: what the zygote and its libraries registered for their end is not the rank's to do.
        os._exit(status)


def _keep_own(spec: Spec, report: int) -> None:
    for descriptor in (spec.events, *spec.reports):
        if descriptor != report:
            os.close(descriptor)


def _redirect(log: Path) -> None:
    """Lets this process read nothing and write to its log, native code included."""
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable()


def _context(spec: Spec, rank: int, beat: Beat, report: int) -> RankContext:
    torch.set_num_threads(spec.threads)
    device = spec.device
    if device == "cuda":
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)

    def connect() -> Communicator:
        from gfgnn.comm.torch import TorchCommunicator

        return TorchCommunicator.connect(
            "127.0.0.1", spec.port, rank, spec.size, timeout=spec.timeout, device=device
        )

    return RankContext(
        rank,
        spec.size,
        Path(spec.folder),
        device,
        beat=beat,
        connector=connect,
        sender=lambda message: tell(report, message=message),
    )


__all__ = ["log_path", "run_rank"]
