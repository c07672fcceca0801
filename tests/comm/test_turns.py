"""Ranks that take turns: the contract of all communicators, never two at once, and failures that end all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from comm_cases import CASES

from gfgnn.comm.base import CommError, Communicator
from gfgnn.comm.thread import run_threads
from gfgnn.comm.turns import TurnHub


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, size: int) -> None:
    results = run_threads(size, CASES[case], hub=TurnHub(lambda: None))
    assert all(result == results[0] for result in results), "ranks differ"


def test_one_works_at_a_time_and_rests_before_the_next() -> None:
    events: list[tuple[str, int]] = []
    working = threading.Lock()

    def rank(comm: Communicator) -> float:
        total = torch.zeros(1)
        for _ in range(3):
            assert working.acquire(blocking=False), "another rank is at work"
            events.append(("works", comm.rank))
            time.sleep(0.002)
            working.release()
            total += comm.all_reduce(torch.ones(1), purpose="gram").wait()
        return float(total)

    hub = TurnHub(lambda: events.append(("rests", -1)))
    assert run_threads(4, rank, hub=hub) == [12.0] * 4
    works = [place for place, (what, _) in enumerate(events) if what == "works"]
    switches = [(a, b) for a, b in pairwise(works) if events[a][1] != events[b][1]]
    assert len(switches) >= 8
    assert all(("rests", -1) in events[a:b] for a, b in switches), "memory was not let go between two ranks"


def test_a_rank_that_fails_ends_all() -> None:
    seen = []

    def rank(comm: Communicator) -> None:
        if comm.rank == 2:
            raise ValueError("no")
        try:
            comm.all_reduce(torch.ones(1), purpose="gram").wait()
        except CommError as error:
            seen.append(str(error))
            raise

    with pytest.raises(ValueError, match="no"):
        run_threads(4, rank, hub=TurnHub(lambda: None))
    assert all("another rank failed" in text for text in seen)


def test_waits_have_no_limit() -> None:
    """A turn may take long: who waits is not told that the others are silent."""

    def rank(comm: Communicator) -> float:
        time.sleep(0.05)
        return float(comm.all_reduce(torch.ones(1), purpose="gram").wait())

    assert run_threads(3, rank, timeout=0.01, hub=TurnHub(lambda: None)) == [3.0] * 3


def test_who_waits_looks_for_messages_only_when_a_turn_is_free() -> None:
    """Each message wakes all; were every one to look through its slots, P ranks would look P^3 times."""
    ranks, looked = 16, 0

    class Looking(TurnHub):
        def _wait(self, ready: Callable[[], bool], seconds: float) -> bool:
            def counted() -> bool:
                nonlocal looked
                looked += self._busy  # its own turn, when it first asks
                return ready()

            return super()._wait(counted, seconds)

    def rank(comm: Communicator) -> None:
        for _ in range(4):
            time.sleep(0.001)  # so that those who were woken come while it works
            comm.all_reduce(torch.ones(1), purpose="gram").wait()

    run_threads(ranks, rank, hub=Looking(lambda: None))
    assert looked <= 4 * ranks
