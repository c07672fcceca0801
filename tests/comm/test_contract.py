"""One contract for all communicators: :mod:`comm_cases` on serial, threads, gloo and NCCL."""

from __future__ import annotations

import functools
import traceback

import pytest
import torch
from comm_cases import CASES
from comm_processes import Outcome, run_processes

from gfgnn.comm.base import Communicator
from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.comm.thread import run_threads


def run_cases(comm: Communicator) -> dict[str, tuple[object, str | None]]:
    """Every case, one after another: what it returned, and the text of what it raised."""
    outcomes: dict[str, tuple[object, str | None]] = {}
    for name, case in CASES.items():
        try:
            outcomes[name] = (case(comm), None)
        except Exception:
            outcomes[name] = (None, traceback.format_exc())
    return outcomes


@functools.cache
def of_processes(size: int, device: str) -> list[Outcome]:
    """Starting processes is slow, so that they run all cases at once."""
    return run_processes(size, run_cases, device=device)


def check(case: str, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        assert outcome.exitcode == 0
        assert outcome.value[case][1] is None, outcome.value[case][1]
    assert all(outcome.value[case] == outcomes[0].value[case] for outcome in outcomes), "ranks differ"


@pytest.mark.parametrize("case", CASES)
def test_serial(case: str) -> None:
    CASES[case](SerialCommunicator())


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_threads(case: str, size: int) -> None:
    results = run_threads(size, CASES[case], timeout=10)
    assert all(result == results[0] for result in results), "ranks differ"


@pytest.mark.parametrize("case", CASES)
def test_counting_changes_nothing(case: str) -> None:
    results = run_threads(4, lambda comm: CASES[case](CountingCommunicator(comm, trace=True)), timeout=10)
    assert all(result == results[0] for result in results), "ranks differ"


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_gloo(case: str, size: int) -> None:
    check(case, of_processes(size, "cpu"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs two CUDA devices, one for each process")
@pytest.mark.parametrize("case", CASES)
def test_nccl(case: str) -> None:
    check(case, of_processes(2, "cuda"))


def test_as_started_by_torchrun() -> None:
    outcomes = run_processes(2, CASES["all_to_all_with_uneven_counts"], torchrun=True)
    assert [(outcome.error, outcome.exitcode) for outcome in outcomes] == [(None, 0)] * 2
