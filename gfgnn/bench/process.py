"""Starts the process of a run and waits for it, for so long and with so much memory as it may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gfgnn.bench import session
from gfgnn.bench.outcome import Outcome
from gfgnn.bench.plan import Job

#: seconds between two looks at a process
LOOK = 0.1


def look(job: Job, root: str | None) -> dict[str, Any]:
    """What there is to say of a job's data, see :func:`gfgnn.bench.child.look`."""
    found, why = _child(job, root, look=True)
    return {"missing": why[1]} if found is None else found


def run(job: Job, root: str | None) -> dict[str, Any]:
    """A job's outcome, from a process of its own, as :meth:`gfgnn.bench.outcome.Outcome.to_dict` has it.

    A Ctrl-C ends the process and is passed on.
    """
    found, (status, reason) = _child(job, root, look=False)
    return Outcome(contender=job.label, status=status, reason=reason).to_dict() if found is None else found


def _child(job: Job, root: str | None, *, look: bool) -> tuple[dict[str, Any] | None, tuple[str, str]]:
    """What a child wrote down; where that is nothing, status and reason."""
    with tempfile.TemporaryDirectory(prefix="gfgnn-bench-") as folder:
        written, log = Path(folder) / "outcome.json", Path(folder) / "log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "gfgnn.bench.child", str(written)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(job.threads),
                start_new_session=True,
            )
            try:
                why = _wait(child, {**job.to_dict(), "root": root, "look": look})
            finally:
                session.end(child.pid)
                child.wait()
        if written.is_file():
            return json.loads(written.read_text(encoding="utf-8")), ("done", "")
        return None, why or _ended(child.returncode, log)


def _wait(child: subprocess.Popen, job: dict[str, Any]) -> tuple[str, str] | None:
    """Hands the job over and waits; status and reason where the process has to be ended."""
    assert child.stdin is not None
    try:
        with child.stdin as stream:
            stream.write(json.dumps(job).encode())
    except BrokenPipeError:
        return None
    started, limit, memory = time.monotonic(), job["limit_seconds"], job["memory"]
    while child.poll() is None:
        if time.monotonic() - started > limit:
            return "out of time", f"killed after {limit:g} s, loading and evaluation included"
        if memory is not None and (held := session.held(child.pid)) > memory:
            return "out of memory", f"killed with {held / 1e6:,.0f} MB; the limit is {memory / 1e6:,.0f} MB"
        time.sleep(LOOK)
    return None


def _ended(status: int, log: Path) -> tuple[str, str]:
    if status == -9:
        return "out of memory", "killed by the system (SIGKILL), as it does where memory runs out"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = f": {lines[-1][:300]}" if lines else ""
    what = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
    if lines and "MemoryError" in lines[-1]:
        return "out of memory", lines[-1][:300]
    return "failed", f"{what}{said}"


def _environment(threads: int) -> dict[str, str]:
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {**os.environ, **counts}
