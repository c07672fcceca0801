"""What a rank lets the launcher see of it: a row of numbers in memory that both have mapped.

The rank writes, the launcher reads, and nobody waits for anybody; a row outlives its rank.
"""

from __future__ import annotations

import mmap
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: seconds between two ticks of a rank's heart
TICK = 0.2

#: the words of a rank's row: ticks so far; last iteration completed, plus 1; whether it is inside a communication
#: wait; and since when it has been there, or outside without progress (nanoseconds of the system's monotonic clock)
_TICKS, _ITERATIONS, _WAITING, _SINCE = range(4)
#: the words of the last row, which the launcher writes
_STOP, _RELEASE = range(2)
_ROW = 8
_WORD = 8


class Table:
    """One row for each rank and one for the launcher."""

    def __init__(self, size: int, descriptor: int = -1) -> None:
        """Maps the file open as ``descriptor``; -1 makes a table that no other process sees."""
        self._words = memoryview(mmap.mmap(descriptor, _length(size))).cast("q")
        self._last = size * _ROW

    @staticmethod
    def open_file(size: int) -> int:
        """A descriptor of a new file for a table, without a name on disk."""
        with tempfile.TemporaryFile() as file:
            file.truncate(_length(size))
            return os.dup(file.fileno())

    def beat(self, rank: int) -> Beat:
        """The row of a rank."""
        return Beat(self, self._words[rank * _ROW : (rank + 1) * _ROW])

    @property
    def stop(self) -> bool:
        """The ranks are asked to stop after the current iteration."""
        return bool(self._words[self._last + _STOP])

    def request_stop(self) -> None:
        self._words[self._last + _STOP] = 1

    @property
    def released(self) -> bool:
        """Every rank has finished its job, so that each may go."""
        return bool(self._words[self._last + _RELEASE])

    def release(self) -> None:
        self._words[self._last + _RELEASE] = 1


def _length(size: int) -> int:
    return (size + 1) * _ROW * _WORD


class Beat:
    """A rank's row. Only the rank itself changes it."""

    def __init__(self, table: Table, words: memoryview[int]) -> None:
        self.table = table
        self._words = words
        self._depth = 0

    def begin(self) -> None:
        """Notes that the rank has begun, outside of any wait."""
        self._mark(waiting=False)

    def tick(self) -> None:
        self._words[_TICKS] += 1

    def progress(self, iteration: int) -> None:
        """Notes the last completed iteration."""
        self._words[_ITERATIONS] = iteration + 1
        self._mark(waiting=self._depth > 0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Marks the block as a wait for other ranks; blocks may be nested."""
        self._depth += 1
        if self._depth == 1:
            self._mark(waiting=True)
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._mark(waiting=False)

    def _mark(self, waiting: bool) -> None:
        self._words[_SINCE] = time.monotonic_ns()
        self._words[_WAITING] = waiting

    @property
    def ticks(self) -> int:
        return self._words[_TICKS]

    @property
    def iteration(self) -> int | None:
        """The last completed iteration; None before the first."""
        return self._words[_ITERATIONS] - 1 if self._words[_ITERATIONS] else None

    @property
    def outside(self) -> float | None:
        """Seconds since the rank last waited for others or made progress; None while it waits for others."""
        return None if self._words[_WAITING] else (time.monotonic_ns() - self._words[_SINCE]) / 1e9


def start_heart(beat: Beat, parent: int) -> None:
    """Starts the thread that ticks, and that ends this process and its children when ``parent`` has gone."""

    def run() -> None:
        while os.getppid() == parent:
            beat.tick()
            time.sleep(TICK)
        os.killpg(0, signal.SIGKILL)

    beat.begin()
    threading.Thread(target=run, name="heartbeat", daemon=True).start()


class Pulse:
    """Signs of life of one process, as the launcher sees them: its ticks and the processor time it uses.

    Ticks alone would not do: native code may keep Python's lock, and with it the heart, for minutes of honest work.
    """

    def __init__(self, beat: Beat, pid: int) -> None:
        self._beat, self._pid = beat, pid
        self._last: tuple[int, int] | None = None
        #: seconds without a sign of life
        self.silent = 0.0

    def look(self, seconds: float) -> None:
        """Takes note of a period of that many seconds which has passed since the last look."""
        now = (self._beat.ticks, _processor_time(self._pid))
        self.silent = 0.0 if now != self._last else self.silent + seconds
        self._last = now


def _processor_time(pid: int) -> int:
    """Clock ticks of processor time a process has used; 0 where the system has no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the command's name, in parentheses, may hold spaces; user and system time are fields 14 and 15
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


__all__ = ["TICK", "Beat", "Pulse", "Table", "start_heart"]
