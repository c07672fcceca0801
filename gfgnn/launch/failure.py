"""Which rank is to blame when a run fails, and how that is said.

The failure of one rank makes the others fail: their connections break, or they wait in vain. So a rank is blamed for
what its peers cannot have caused, and for failing with a :class:`CommError` only if nothing else is to be found.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from gfgnn.checks import InputError
from gfgnn.comm.base import CommError

#: of the time a run may take to end after a failure: for a rank to be silent, the rest being for ending the run
SILENCE = 0.8
#: seconds without a tick or processor time that a rank on a busy machine does not reach
STILL = 1.0


class RankFailure(RuntimeError):
    """The run has ended because one rank failed.

    Attributes:
        rank: which; -1 if it was none of the ranks but the process that starts them.
        kind: "killed" (by a signal), "hung", "raised", or "lost" (ended without a word).
        iteration: the last iteration the rank completed, None if none.
        log: the rank's log.
    """

    def __init__(self, message: str, rank: int, kind: str, iteration: int | None, log: Path) -> None:
        super().__init__(message)
        self.rank, self.kind, self.iteration, self.log = rank, kind, iteration, log


@dataclass(frozen=True)
class Raised:
    """An exception that ended a rank, as it travels to the launcher.

    Attributes:
        text: type and message.
        message: the message alone.
        peer: it tells of another rank's failure.
        timed_out: it tells of another rank's silence.
        bad_input: it is an :class:`InputError`.
        at: when, on the system's monotonic clock.
    """

    text: str
    message: str
    peer: bool
    timed_out: bool
    bad_input: bool
    at: float


@dataclass
class RankState:
    """What the launcher knows of one rank.

    Attributes:
        rank: its number.
        iteration: the last iteration it completed.
        raised: the exception that ended it.
        done: it has finished its job.
        status: its exit status, -n for signal n; None while it runs.
        ended: when it ended, on the system's monotonic clock.
        closed: all its reports have arrived.
        silent: seconds without a sign of life.
        outside: seconds since it last waited for others or made progress; None while it waits.
    """

    rank: int
    iteration: int | None = None
    raised: Raised | None = None
    done: bool = False
    status: int | None = None
    ended: float = 0.0
    closed: bool = False
    silent: float = 0.0
    outside: float | None = 0.0

    @property
    def working(self) -> bool:
        return not self.done and self.raised is None and self.status is None


@dataclass(frozen=True)
class Cause:
    """Why a run failed: the rank to blame, the kind of failure, and what to say of it."""

    rank: int
    kind: str
    what: str
    at: float = 0.0


def own_failure(state: RankState) -> Cause | None:
    """The failure of a rank that was no other rank's fault."""
    if state.raised is not None:
        raised = state.raised
        return None if raised.peer else Cause(state.rank, "raised", f"raised {raised.text}", raised.at)
    if state.status is None or (state.done and state.status >= 0):
        return None
    if state.status < 0:
        return Cause(state.rank, "killed", f"was {killed_by(-state.status)}", state.ended)
    if not state.closed:
        return None
    return Cause(state.rank, "lost", f"ended without a word (exit status {state.status})", state.ended)


def first_failure(states: list[RankState]) -> Cause | None:
    """The earliest of the failures that were no other rank's fault."""
    return min(filter(None, map(own_failure, states)), key=lambda cause: cause.at, default=None)


def stopped(states: list[RankState], limit: float) -> Cause | None:
    """The rank that has shown no sign of life for longest, if that is more than ``limit`` seconds."""
    worst = max((s for s in states if s.working), key=lambda state: state.silent, default=None)
    if worst is None or worst.silent < limit:
        return None
    what = f"did not answer for {worst.silent:.0f} s (it may hang or be stopped)"
    return Cause(worst.rank, "hung", what)


def behind_complaints(states: list[RankState]) -> Cause:
    """The rank to blame when all that is known are complaints of ranks about their peers.

    Peers that waited in vain waited for a rank that is still at work: one without a sign of life, or else the one that
    has kept away from communication for longest.
    """
    complaints = [s for s in states if s.raised is not None]
    away = [s for s in states if s.working and s.outside is not None]
    if any(s.raised.timed_out for s in complaints if s.raised):
        if cause := stopped(states, STILL):
            return cause
        if away:
            worst = max(away, key=lambda s: s.outside or 0.0)
            what = (
                f"kept the others waiting for {worst.outside:.0f} s "
                "(it may hang, or its work takes longer than the timeout)"
            )
            return Cause(worst.rank, "hung", what)
    first = min(complaints, key=lambda s: s.raised.at if s.raised else 0.0)
    assert first.raised is not None
    return Cause(first.rank, "raised", f"raised {first.raised.text}")


def describe_exception(error: BaseException, at: float) -> Raised:
    """What the launcher needs to know of an exception."""
    peer = _peer_error(error)
    message = str(error)
    return Raised(
        text=f"{type(error).__name__}: {message}" if message else type(error).__name__,
        message=message,
        peer=peer is not None,
        timed_out=peer is not None and peer.timed_out,
        bad_input=isinstance(error, InputError),
        at=at,
    )


def sentence(what: str, rank: int, place: str, iteration: int | None) -> str:
    """One sentence about a rank's failure: ``rank 2 (part 0, stage 1) raised ValueError: no after iteration 14``.

    Args:
        what: what happened, a verb first.
        rank: the rank.
        place: what the rank does in the run; may be empty.
        iteration: the last iteration it completed.
    """
    when = "before its first iteration was complete" if iteration is None else f"after iteration {iteration}"
    return f"rank {rank}{f' ({place})' if place else ''} {what} {when}"


def _peer_error(error: BaseException) -> CommError | None:
    """The :class:`CommError` that an exception is or was raised because of."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        if isinstance(current, CommError):
            return current
        seen.append(current)
        current = current.__cause__ or current.__context__
    return None


def killed_by(number: int) -> str:
    """``killed by signal 9 (SIGKILL)``"""
    names = {int(known): f" ({known.name})" for known in signal.Signals}
    return f"killed by signal {number}{names.get(number, '')}"


__all__ = [
    "SILENCE",
    "Cause",
    "Raised",
    "RankFailure",
    "RankState",
    "behind_complaints",
    "describe_exception",
    "first_failure",
    "killed_by",
    "sentence",
    "stopped",
]
