"""The launcher's hold on the processes it started: what they report, and their end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gfgnn.launch.spec import Spec

#: seconds in which the zygote ends what it started; it has little to do, but the machine may be busy
END = 2.0

#: reads the spec before gfgnn is imported, since it holds the path where gfgnn is
_BOOT = """
import json, sys
spec = json.loads(sys.stdin.readline())
sys.path[:] = spec["path"]
from gfgnn.launch.spec import Spec
from gfgnn.launch.zygote import main
main(Spec(**spec))
"""


class Crew:
    """The zygote and the ranks. Use it in a ``with`` block: at its end no process is left."""

    def __init__(
        self,
        job: str,
        folder: Path,
        size: int,
        *,
        threads: int,
        timeout: float,
        port: int,
        device: str,
        table: int,
    ) -> None:
        self.log = folder / "launcher.log"
        #: process of each rank, once they have begun
        self.pids: list[int] = []
        self._ended: set[int] = set()
        self._selector = selectors.DefaultSelector()
        pipes = [os.pipe() for _ in range(size + 1)]
        for rank, (reader, _) in enumerate(pipes, start=-1):
            os.set_blocking(reader, False)
            self._selector.register(reader, selectors.EVENT_READ, _Lines(rank))
        writers = [writer for _, writer in pipes]
        spec = Spec(
            job=job,
            folder=str(folder),
            size=size,
            threads=threads,
            timeout=timeout,
            port=port,
            device=device,
            path=[str(entry) for entry in sys.path],
            parent=os.getpid(),
            table=table,
            events=writers[0],
            reports=writers[1:],
        )
        try:
            with self.log.open("wb") as log:
                self._zygote = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, "gfgnn.launch", str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[table, *writers],
                    start_new_session=True,
                    env=_environment(threads),
                )
        finally:
            for writer in writers:
                os.close(writer)
        assert self._zygote.stdin is not None
        with suppress(BrokenPipeError):  # it did not even start: its log says why
            self._zygote.stdin.write(json.dumps(asdict(spec)).encode() + b"\n")
            self._zygote.stdin.flush()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def reports(self, seconds: float) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """The reports of ranks, and of the zygote as rank -1, that come within so many seconds; None is the last."""
        for key, _ in self._selector.select(seconds):
            lines: _Lines = key.data
            arrived = lines.read(key.fd)
            if arrived is None:
                self._selector.unregister(key.fd)
                os.close(key.fd)
                yield lines.rank, None
                continue
            for report in arrived:
                if lines.rank < 0:
                    self.pids = report.get("pids", self.pids)
                    self._ended.update([report["rank"]] if "rank" in report else [])
                yield lines.rank, report

    def wait(self, seconds: float) -> None:
        """Waits up to so many seconds for all to end by themselves."""
        with suppress(subprocess.TimeoutExpired):
            self._zygote.wait(seconds)

    def status(self) -> int:
        """The zygote's exit status, after its last report."""
        return self._zygote.wait()

    def end(self) -> None:
        """Ends every process that is left."""
        assert self._zygote.stdin is not None
        with suppress(BrokenPipeError):
            self._zygote.stdin.close()  # the zygote ends the ranks, and so knows when they have ended
        self.wait(END if self.pids else 0)
        # It has ended, or it cannot act: killed or stopped from outside, or still importing.
        if self._zygote.poll() != 0:
            for rank, pid in enumerate(self.pids):
                if rank not in self._ended:
                    with suppress(OSError):
                        os.killpg(pid, signal.SIGKILL)
            self._zygote.kill()
            self._zygote.wait()
            self._wait_for_last_words()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        with suppress(OSError):
            if self.log.stat().st_size == 0:
                self.log.unlink()

    def _wait_for_last_words(self) -> None:
        """Waits until the ranks have gone, which nobody but the zygote is told: their ends of the pipes close."""
        end = time.monotonic() + END
        while self._selector.get_map() and time.monotonic() < end:
            for _ in self.reports(end - time.monotonic()):
                pass


class _Lines:
    """Cuts what comes from a descriptor into lines of JSON."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._rest = b""

    def read(self, descriptor: int) -> list[dict[str, Any]] | None:
        """The reports that are complete; None at the end. A report cut off by the end of its sender is dropped."""
        data = os.read(descriptor, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def _environment(threads: int) -> dict[str, str]:
    """The environment with a number of threads, which the libraries read as they are loaded."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # macOS otherwise stops a forked process whose parent had loaded Apple's frameworks
    return {**os.environ, **dict.fromkeys(names, str(threads)), "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}


__all__ = ["Crew"]
