"""Whom a failure is blamed on, given what is known of the ranks."""

from __future__ import annotations

import pytest

from gfgnn.checks import InputError
from gfgnn.comm.base import CommError
from gfgnn.launch.failure import (
    RankState,
    behind_complaints,
    describe_exception,
    first_failure,
    killed_by,
    sentence,
    stopped,
)

GONE = CommError("another rank has gone")
TIMED_OUT = CommError("nothing from another rank", timed_out=True)


def raised(rank: int, error: BaseException, at: float = 0.0) -> RankState:
    return RankState(rank, raised=describe_exception(error, at), status=1, ended=at, closed=True)


def test_the_first_failure_is_blamed_and_no_complaint_about_a_peer() -> None:
    states = [
        raised(0, GONE, at=1.0),
        raised(1, ValueError("later"), at=3.0),
        RankState(2, status=-9, ended=2.0, closed=True),
        RankState(3, status=-6, ended=4.0, closed=True),
    ]
    cause = first_failure(states)
    assert cause is not None
    assert (cause.rank, cause.kind, cause.what) == (2, "killed", "was killed by signal 9 (SIGKILL)")
    assert first_failure([states[0], RankState(1), RankState(2, done=True, status=0)]) is None


def test_an_error_raised_because_of_a_peer_is_a_complaint() -> None:
    def wrapped(chained: bool) -> BaseException:
        try:
            try:
                raise TIMED_OUT
            except CommError as error:
                if chained:
                    raise ValueError("no sum") from error
                raise ValueError("no sum") from None
        except ValueError as error:
            return error

    for chained in (True, False):
        described = describe_exception(wrapped(chained), at=0.0)
        assert (described.peer, described.timed_out) == (True, True)
    assert not describe_exception(InputError("no"), at=0.0).peer


def test_a_rank_that_ended_without_a_word_may_still_have_one_on_its_way() -> None:
    assert first_failure([RankState(0, status=1)]) is None
    cause = first_failure([RankState(0, status=1, closed=True)])
    assert cause is not None
    assert cause.kind == "lost"


def test_of_the_silent_the_longest_is_stopped() -> None:
    states = [RankState(0, silent=5.0), RankState(1, silent=6.0), RankState(2, done=True, silent=9.0)]
    cause = stopped(states, 4.0)
    assert cause is not None
    assert cause.rank == 1
    assert stopped(states, 7.0) is None


@pytest.mark.parametrize(
    ("error", "others", "rank", "kind"),
    [
        # a rank at work for long is blamed for its peers' time-outs, not for broken connections
        (
            TIMED_OUT,
            [RankState(1, outside=None), RankState(2, outside=4.0), RankState(3, outside=0.1)],
            2,
            "hung",
        ),
        (GONE, [RankState(1, outside=4.0)], 0, "raised"),
        # a rank stopped while it waited is not at work
        (TIMED_OUT, [RankState(1, outside=4.0), RankState(2, outside=None, silent=2.0)], 2, "hung"),
        # everybody waits
        (TIMED_OUT, [RankState(1, outside=None), raised(2, TIMED_OUT, at=9.0)], 0, "raised"),
    ],
)
def test_complaints_lead_to_the_rank_at_work(
    error: CommError, others: list[RankState], rank: int, kind: str
) -> None:
    cause = behind_complaints([raised(0, error, at=8.0), *others])
    assert (cause.rank, cause.kind) == (rank, kind)


def test_sentences() -> None:
    assert sentence("hangs", 1, "", None) == "rank 1 hangs before its first iteration was complete"
    assert sentence("hangs", 1, "part 0, stage 1", 0) == "rank 1 (part 0, stage 1) hangs after iteration 0"
    assert killed_by(9) == "killed by signal 9 (SIGKILL)"
    assert killed_by(63) == "killed by signal 63"
