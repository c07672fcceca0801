"""Watches the ranks of a run: takes their reports, looks for signs of life, and notices a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gfgnn.checks import InputError
from gfgnn.launch.crew import Crew
from gfgnn.launch.failure import (
    SILENCE,
    Cause,
    Raised,
    RankFailure,
    RankState,
    behind_complaints,
    first_failure,
    killed_by,
    sentence,
    stopped,
)
from gfgnn.launch.heartbeat import Pulse, Table
from gfgnn.launch.rank import log_path

#: seconds between two looks at the ranks
LOOK = 0.1
#: seconds that count between two looks; if more pass, the launcher or the machine had been suspended, or the launcher
#: was busy, and nothing is known of the ranks in that time
LOOK_AT_MOST = 0.5
#: seconds for reports on their way to arrive, so that the earliest failure is blamed
SETTLE = 0.1
#: seconds for the reason of complaints about peers to become known: share of the timeout, and at most
COMPLAINTS, COMPLAINTS_AT_MOST = 0.1, 0.5


class Watch:
    """What is known of the ranks of a run."""

    def __init__(self, crew: Crew, table: Table, size: int, timeout: float) -> None:
        self._crew = crew
        self._timeout = timeout
        self._states = [RankState(rank) for rank in range(size)]
        self._beats = [table.beat(rank) for rank in range(size)]
        self._pulses: list[Pulse] = []
        self._looked = time.monotonic()
        self._zygote_ended = False
        self._since: dict[str, float] = {}

    @property
    def finished(self) -> bool:
        """Every rank has finished its job."""
        return all(state.done for state in self._states)

    def look(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The messages of ranks that come in a short while, with their rank; all else that is seen is noted."""
        for rank, report in self._crew.reports(LOOK):
            if rank < 0:
                self._note_zygote(report)
            elif report is not None and "message" in report:
                yield rank, report["message"]
            else:
                self._note_rank(self._states[rank], report)
        now = time.monotonic()
        period, self._looked = min(now - self._looked, LOOK_AT_MOST), now
        for state, pulse in zip(self._states, self._pulses, strict=False):
            pulse.look(period)
            state.silent = pulse.silent

    def _note_zygote(self, report: dict[str, Any] | None) -> None:
        if report is None:
            self._zygote_ended = True
        elif "pids" in report:
            self._pulses = [Pulse(*pair) for pair in zip(self._beats, report["pids"], strict=True)]
        else:
            state = self._states[report["rank"]]
            state.status, state.ended = report["status"], report["at"]

    def _note_rank(self, state: RankState, report: dict[str, Any] | None) -> None:
        if report is None:
            state.closed = True
        elif "done" in report:
            state.done = True
        else:
            state.raised = Raised(**report["raised"])

    def failure(self) -> Cause | None:
        """Why the run has failed, once that is certain; None if it has not, or might still turn out otherwise."""
        if cause := first_failure(self._states):
            return cause if self._past("failure", SETTLE) else None
        if self._zygote_ended and any(state.status is None for state in self._states):
            return Cause(-1, "lost", "")
        if cause := stopped(self._states, SILENCE * self._timeout):
            return cause
        if any(state.raised for state in self._states):
            for state, beat in zip(self._states, self._beats, strict=True):
                state.outside = beat.outside
            if self._past("complaint", min(COMPLAINTS * self._timeout, COMPLAINTS_AT_MOST)):
                return behind_complaints(self._states)
        return None

    def _past(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        return now - self._since.setdefault(what, now) >= seconds

    def error(self, cause: Cause, folder: Path, describe: Callable[[int], str]) -> Exception:
        """The exception that tells of a failure."""
        if cause.rank < 0:
            return self._zygote_error()
        raised = self._states[cause.rank].raised
        if raised is not None and raised.bad_input:
            return InputError(raised.message)
        iteration = self._beats[cause.rank].iteration
        text = sentence(cause.what, cause.rank, describe(cause.rank), iteration)
        log = log_path(folder, cause.rank)
        return RankFailure(f"{text}; its log: {log}", cause.rank, cause.kind, iteration, log)

    def _zygote_error(self) -> RankFailure:
        status, log = self._crew.status(), self._crew.log
        ended = killed_by(-status) if status < 0 else f"ended with exit status {status}"
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        what = "the process that starts the ranks " + (f"was {ended}" if status < 0 else ended)
        return RankFailure(f"{what}:\n{said}" if said else f"{what}.", -1, "lost", None, log)


__all__ = ["Watch"]
