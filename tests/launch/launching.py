"""Helpers of the launcher's tests: a run with everything about it that a test may look at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gfgnn.launch.run import run_ranks

SIZE = 4


@dataclass
class Run:
    """What came of a run.

    Attributes:
        error: what run_ranks raised.
        seconds: how long it took; from the failure on, where the job tells when that was.
        messages: what each rank sent.
    """

    error: BaseException | None = None
    seconds: float = 0.0
    messages: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def values(self, key: str) -> list[Any]:
        return [message[key] for _, message in self.messages if key in message]


def launch(
    job: str,
    folder: Path,
    *,
    size: int = SIZE,
    timeout: float = 5.0,
    on_message: Callable[[int, dict[str, Any]], None] = lambda rank, message: None,
    **options: Any,
) -> Run:
    """Runs a job of rank_jobs.py, and checks that no process of the run is left."""
    run = Run()

    def note(rank: int, message: dict[str, Any]) -> None:
        run.messages.append((rank, message))
        on_message(rank, message)

    start = time.monotonic()
    try:
        run_ranks(
            f"rank_jobs:{job}",
            folder,
            size,
            threads=1,
            timeout=timeout,
            describe=lambda rank: f"part {rank}",
            on_message=note,
            **options,
        )
    except BaseException as error:
        run.error = error
    run.seconds = time.monotonic() - max([start, *run.values("bad at")])
    assert processes(folder) == []
    return run


def launch_all(jobs: Collection[str], folder: Path, **options: Any) -> dict[str, Run]:
    """Runs several jobs, a few at a time, from threads."""
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(jobs, pool.map(lambda job: launch(job, folder / job, **options), jobs), strict=True))


def processes(folder: Path) -> list[psutil.Process]:
    """The processes of a run: its folder is in their command line. Zombies have none."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(folder) in (process.info["cmdline"] or []) and process.pid != os.getpid():
            found.append(process)
    return found
