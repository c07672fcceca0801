"""The process that starts the ranks: it imports once what takes seconds to import, and then forks.

It reports how each rank ended, and it ends every rank when the launcher closes its end of the pipe, or has died.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from typing import NoReturn

from gfgnn.launch.rank import run_rank
from gfgnn.launch.spec import Spec, tell

#: seconds between two looks at whether the launcher is still there: a copy of its end of the pipe may have survived it
LOOK = 0.5


def main(spec: Spec) -> NoReturn:
    """Starts the ranks, and returns to nobody: the process ends when they have."""
    import gfgnn.comm.torch  # noqa: F401 (for the ranks)

    function = spec.function()
    zygote = os.getpid()
    ranks: dict[int, int] = {}
    try:
        for rank in range(spec.size):
            pid = os.fork()
            if pid == 0:
                run_rank(spec, rank, function, zygote)
            with suppress(OSError):
                os.setpgid(pid, pid)  # the rank does it, too: whoever comes first
            ranks[pid] = rank
        for descriptor in spec.reports:
            os.close(descriptor)  # so that the launcher sees the end of a rank's reports
        _report(spec, pids=list(ranks))
        # Not before the last fork: a process with threads should not fork.
        threading.Thread(target=_end_with_launcher, args=(spec.parent, ranks), daemon=True).start()
        while ranks:
            pid, status = os.waitpid(-1, 0)
            at = time.monotonic()
            _kill(pid)  # what the rank may have started and left
            if pid in ranks:
                _report(spec, rank=ranks.pop(pid), status=os.waitstatus_to_exitcode(status), at=at)
        os._exit(0)
    finally:  # the system may have refused to fork
        _end(ranks)


def _report(spec: Spec, **report: object) -> None:
    with suppress(BrokenPipeError):
        tell(spec.events, **report)


def _end_with_launcher(launcher: int, ranks: dict[int, int]) -> None:
    while os.getppid() == launcher and not select.select([0], [], [], LOOK)[0]:
        pass
    _end(ranks)


def _end(ranks: dict[int, int]) -> None:
    for pid in list(ranks):
        _kill(pid)


def _kill(group: int) -> None:
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)


__all__ = ["main"]
