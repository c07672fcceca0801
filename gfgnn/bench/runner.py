"""Makes the runs of cases one after the other, each in a process of its own, and keeps what has been made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gfgnn.bench import process
from gfgnn.bench.case import Case
from gfgnn.bench.machine import commit, load_average, machine
from gfgnn.bench.plan import Job, jobs
from gfgnn.bench.records import RUN, RUNS_FILE, SKIPPED, STARTED, Line, append_line, read_lines
from gfgnn.checks import InputError

#: runs that are not made again when a benchmark goes on, and those that are not unless they may have more now
FINAL, KILLED = ("done", "diverged"), ("out of time", "out of memory")
Say = Callable[[str], None]


class Bench:
    """A benchmark and the folder it writes to.

    Args:
        cases: what is run.
        out: the folder; ``runs.jsonl`` there gets a line for each run as it ends.
        seeds: in place of what the cases say.
        root: folder of data to look in first.
        resume: go on with what the folder holds.
        command: what was typed, for the report.
        say: gets lines of progress.

    Raises:
        InputError: the folder holds runs, and ``resume`` is not asked for.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        out: Path,
        *,
        seeds: int | None = None,
        root: str | None = None,
        resume: bool = False,
        command: str = "",
        say: Say = lambda text: None,
    ) -> None:
        self.cases, self.file = cases, out / RUNS_FILE
        self.seeds, self.root, self.say = seeds, root, say
        lines: list[Line] = []
        if self.file.exists():
            if not resume:
                raise InputError(f"{out} holds runs: give --resume to go on with them, or another --out.")
            lines = read_lines(self.file)
        runs = [(line, line["outcome"]["status"]) for line in lines if line.get("kind") == RUN]
        self.finished = {line["key"] for line, status in runs if status in FINAL}
        self.killed = {
            (line["key"], line["limit_seconds"], line["memory"]) for line, status in runs if status in KILLED
        }
        self.session = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {os.getpid()}"
        append_line(self.file, {"kind": STARTED, "command": command, **self._circumstances()})

    def run(self) -> None:
        """All that is still to be done. A Ctrl-C ends the present run, and is passed on."""
        for case in self.cases:
            for entrant in case.entrants:
                if entrant.missing is not None:
                    self._skip(case, entrant.missing, label=entrant.label)
            for data in case.data:
                wanted = list(jobs(case, data, self.seeds))
                if missing := self._missing(wanted):
                    self._skip(case, missing, data=data.label)
                    continue
                for number, job in enumerate(wanted, start=1):
                    self._make(job, f"[{case.name} {data.label} {number}/{len(wanted)}]")

    def _kept(self, job: Job) -> bool:
        return job.key in self.finished or (job.key, job.limit_seconds, job.memory) in self.killed

    def _missing(self, wanted: list[Job]) -> str | None:
        """Why the data of these jobs cannot be had; None where they are there, or are not needed any more."""
        left = [job for job in wanted if not self._kept(job)]
        if not left:
            return None
        self.say(f"[{left[0].case}] looking at {left[0].data}")
        missing: str | None = process.look(left[0], self.root).get("missing")
        return missing

    def _make(self, job: Job, where: str) -> None:
        named = f"{where} {job.label}, {job.model['layers']} layers, seed {job.seed}"
        if self._kept(job):
            self.say(f"{named}: kept")
            return
        self.say(named)
        before, started = load_average(), time.monotonic()
        outcome = process.run(job, self.root)
        about: dict[str, Any] = {
            "load": [before, load_average()], "wall_seconds": round(time.monotonic() - started, 3),
        }  # fmt: skip
        append_line(
            self.file,
            {
                "kind": RUN,
                "key": job.key,
                **job.to_dict(),
                **self._circumstances(),
                **about,
                "outcome": outcome,
            },
        )
        self.say(f"{named}: {_in_words(outcome)}")

    def _skip(self, case: Case, reason: str, *, data: str | None = None, label: str | None = None) -> None:
        self.say(f"[{case.name}] {data or label} skipped: {reason}")
        line = {"case": case.name, "data": data, "label": label, "reason": reason}
        append_line(self.file, {"kind": SKIPPED, "session": self.session, **line})

    def _circumstances(self) -> dict[str, Any]:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        return {"session": self.session, "date": now, "commit": commit(), "machine": machine()}


def _in_words(outcome: dict[str, Any]) -> str:
    if outcome["status"] != "done":
        return f"{outcome['status']}: {outcome['reason']}"
    last = outcome["history"][-1]
    scores = [line["test"] for line in outcome["history"] if line.get("test") is not None]
    return f"last test {scores[-1]:.4f}, {len(outcome['history'])} iterations, {last['seconds']:.2f} s"
