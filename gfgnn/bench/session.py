"""A process and all that come from it: how much memory they hold together, and their end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def members(session: int) -> list[int]:
    """The processes of a session, those in groups of their own included; none where the system has no ``/proc``."""
    if not PROC.is_dir():
        return []
    return [
        int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal() and _session(entry) == session
    ]


def held(session: int) -> int:
    """Bytes of memory that a session's processes hold beside files that they map; 0 where the system does not tell."""
    return sum(_private(pid) for pid in members(session))


def end(session: int) -> None:
    """Kills the processes of a session."""
    with suppress(OSError):
        os.killpg(session, signal.SIGKILL)
    for pid in members(session):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _session(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return None
    return int(stat.rpartition(")")[2].split()[3])  # the name before may hold anything


def _private(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem")))
