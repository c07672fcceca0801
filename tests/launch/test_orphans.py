"""Nothing is left of a run when the processes that should end it are themselves killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
from launching import SIZE, launch, processes
from waiting import wait_until

from gfgnn.launch.failure import RankFailure

#: a user's script: no guard around what it does
SCRIPT = f"""
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gfgnn.launch.run import run_ranks
run_ranks("rank_jobs:never_ends", Path(sys.argv[2]), {SIZE}, threads=1, timeout=30,
          on_message=lambda rank, message: print(message["pid"], flush=True))
"""


def test_killed_launchers_leave_nothing(tmp_path: Path) -> None:
    """Not even a rank that is stopped; nor if the zygote, which ends the ranks then, is killed at the same time."""
    folders = [tmp_path / "killed", tmp_path / "killed with zygote"]
    with ExitStack() as stack:
        launchers = [stack.enter_context(_launcher(folder)) for folder in folders]
        ranks = [_ranks(launcher) for launcher in launchers]
        for folder in folders:
            assert len(processes(folder)) == 1 + 1 + SIZE  # launcher, zygote, ranks
        zygote = ranks[1][0].ppid()
        ranks[0][1].suspend()
        launchers[0].kill()
        launchers[1].terminate()
        os.kill(zygote, signal.SIGKILL)
        end = time.monotonic() + 3
        for folder in folders:
            assert wait_until(lambda folder=folder: not processes(folder), end - time.monotonic()), folder


def test_a_killed_zygote_ends_the_run(tmp_path: Path) -> None:
    def kill_zygote(rank: int, message: dict) -> None:
        if rank == 0:
            os.kill(psutil.Process(message["pid"]).ppid(), signal.SIGKILL)

    run = launch("never_ends", tmp_path, on_message=kill_zygote)
    assert isinstance(run.error, RankFailure)
    assert str(run.error) == "the process that starts the ranks was killed by signal 9 (SIGKILL)."
    assert (run.error.rank, run.error.kind) == (-1, "lost")


def _launcher(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ranks(launcher: subprocess.Popen[str]) -> list[psutil.Process]:
    assert launcher.stdout is not None
    return [psutil.Process(int(launcher.stdout.readline())) for _ in range(SIZE)]
