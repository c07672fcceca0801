"""A rank that fails, or hangs, ends the waits of all others in time."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial

import comm_failures as failing
import pytest
import torch
from comm_failures import DELAY, Noticed
from comm_processes import run_processes

from gfgnn.checks import InputError
from gfgnn.comm.base import CommError
from gfgnn.comm.hub import Hub
from gfgnn.comm.thread import ThreadCommunicator, run_threads
from gfgnn.comm.torch import TorchCommunicator, host_store

NAMES = {
    failing.all_reduce: "all_reduce (gram)",
    failing.all_to_all: "all_to_all (halo)",
    failing.exchange: "exchange (stage)",
    failing.barrier: "barrier",
}
EVERY = pytest.mark.parametrize("operation", NAMES, ids=lambda operation: operation.__name__)


def check_gone(noticed: Noticed, operation) -> None:
    assert noticed.message.startswith(f"{NAMES[operation]}: ")
    assert not noticed.timed_out
    assert DELAY - 0.1 < noticed.seconds < DELAY + 1.0
    assert noticed.next_message.startswith("all_reduce (gram): ")
    assert noticed.next_seconds < 0.1


@EVERY
def test_threads_one_raises(operation) -> None:
    noticed: list[Noticed] = []

    def function(comm):
        noticed.append(failing.noticing(comm, failing.raises, operation))

    with pytest.raises(ValueError, match="rank 1 has had enough") as raised:
        run_threads(3, function, timeout=10)
    assert raised.value.__notes__ == ["Raised by rank 1 of 3 (thread)."]
    assert len(noticed) == 2
    for each in noticed:
        check_gone(each, operation)
        assert "rank 1 has had enough" in each.message


def test_threads_one_sleeps() -> None:
    start = time.monotonic()
    with pytest.raises(CommError, match=r"^exchange \(stage\): nothing from rank 1 for 0\.5 s") as raised:
        run_threads(
            2, lambda comm: (failing.sleeps if comm.rank == 1 else failing.exchange)(comm), timeout=0.5
        )
    assert raised.value.timed_out
    assert raised.value.__notes__ == ["Raised by rank 0 of 2 (thread)."]
    assert 0.4 < time.monotonic() - start < 2.0


def test_threads_one_returns_early() -> None:
    start = time.monotonic()
    with pytest.raises(CommError, match=r"^barrier: rank 1 has left the group") as raised:
        run_threads(2, lambda comm: None if comm.rank == 1 else comm.barrier(), timeout=10)
    assert not raised.value.timed_out
    assert time.monotonic() - start < 1.0


def test_threads_what_was_sent_before_leaving_arrives() -> None:
    def function(comm):
        if comm.rank == 1:
            comm.exchange([(0, torch.ones(2))], [], purpose="stage").wait()
            return 0.0
        time.sleep(0.1)
        received = torch.zeros(2)
        comm.exchange([], [(1, received)], purpose="stage").wait()
        return received.sum().item()

    assert run_threads(2, function, timeout=10) == [2.0, 0.0]


def test_threads_ctrl_c_ends_all() -> None:
    noticed: list[str] = []

    def function(comm):
        if comm.rank == 0:
            main = threading.main_thread().ident
            threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        try:
            failing.exchange(comm) if comm.rank != 1 else time.sleep(0.5)
            comm.barrier()
        except CommError as error:
            noticed.append(str(error))

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_threads(3, function, timeout=10)
    assert time.monotonic() - start < 2.0
    assert len(noticed) == 3
    assert all("KeyboardInterrupt" in message for message in noticed)


def test_threads_leave_nothing_behind() -> None:
    """Starting never waits, so that one thread can play both ranks."""
    hub = Hub()
    pair = [ThreadCommunicator(hub, rank, 2, timeout=1.0) for rank in range(2)]
    groups = [comm.group([1, 0]) for comm in pair]
    works = [comm.all_reduce(torch.ones(1), purpose="gram") for comm in [*pair, *groups]]
    assert len(hub) == 2
    assert [work.wait().item() for work in works] == [2, 2, 2, 2]
    groups[0].all_reduce(torch.ones(1), purpose="gram")  # nobody takes this one
    for comm in groups:
        comm.close()
    assert len(hub) == 1
    groups = [comm.group([0, 1]) for comm in pair]
    groups[0].exchange([(1, torch.ones(1))], [], purpose="stage")
    for comm in pair:
        comm.close()
    assert len(hub) == 0, "closing the world closes its groups"


def test_threads_a_timeout_ends_all_ranks() -> None:
    hub = Hub()
    pair = [ThreadCommunicator(hub, rank, 2, timeout=0.1) for rank in range(2)]
    with pytest.raises(CommError, match="barrier: nothing from rank 1 for"):
        pair[0].barrier()
    for comm in pair:
        with pytest.raises(CommError, match=r"all_reduce \(gram\): another rank failed.*barrier") as raised:
            comm.all_reduce(torch.ones(1), purpose="gram")
        assert not raised.value.timed_out


@pytest.mark.parametrize("size", [2, 4])
@EVERY
def test_gloo_one_is_killed(operation, size: int) -> None:
    outcomes = run_processes(size, partial(failing.noticing, failure=failing.is_killed, operation=operation))
    assert outcomes.pop(1).exitcode == -signal.SIGKILL
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        check_gone(outcome.value, operation)


def test_gloo_one_raises() -> None:
    outcomes = run_processes(
        4, partial(failing.noticing, failure=failing.raises, operation=failing.all_to_all)
    )
    assert "ValueError: rank 1 has had enough" in outcomes.pop(1).error
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        check_gone(outcome.value, failing.all_to_all)


@pytest.mark.parametrize("operation", [failing.all_reduce, failing.exchange], ids=["all_reduce", "exchange"])
def test_gloo_one_is_stopped(operation) -> None:
    outcomes = run_processes(
        4, partial(failing.noticing, failure=failing.is_stopped, operation=operation), timeout=2, hung=1
    )
    assert outcomes.pop(1).exitcode == -signal.SIGKILL  # by the test, at last
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        assert outcome.value.message.startswith(f"{NAMES[operation]}: ")
        assert DELAY + 1.0 < outcome.value.seconds < DELAY + 3.0
        assert outcome.value.next_seconds < 0.1
    # The first to give up disconnects, which the others may notice before their own time is over.
    late = [outcome.value for outcome in outcomes if outcome.value.timed_out]
    assert late
    assert all(each.message == f"{NAMES[operation]}: nothing from another rank for 2 s" for each in late)


def test_gloo_one_never_connects() -> None:
    store = host_store()
    with pytest.raises(
        CommError, match=r"^rank 0 connecting: nothing from another rank for 0\.5 s$"
    ) as raised:
        TorchCommunicator.connect("localhost", store.port, 0, 2, timeout=0.5)
    assert raised.value.timed_out


def test_no_launcher() -> None:
    port = host_store().port  # gone again at once
    with pytest.raises(CommError, match=f"^rank 0: no launcher answers at localhost:{port}$"):
        TorchCommunicator.connect("localhost", port, 0, 2, timeout=0.5)


def test_port_in_use() -> None:
    store = host_store()
    with pytest.raises(InputError, match=f"port must be free.*; {store.port} is in use"):
        host_store(store.port)


def test_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="RANK"):
        TorchCommunicator.from_environment(timeout=1)
