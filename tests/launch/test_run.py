"""Runs that end well, runs in which a rank fails, and runs that cannot begin. No test may leave a process."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
import torch
from launching import SIZE, launch, launch_all

from gfgnn.checks import InputError
from gfgnn.launch.failure import RankFailure
from gfgnn.launch.run import default_threads


def test_messages_progress_and_logs_arrive(tmp_path: Path) -> None:
    run = launch("healthy", tmp_path)
    assert run.error is None
    assert sorted(rank for rank, message in run.messages if "device" in message) == list(range(SIZE))
    assert set(run.values("device")) == {"cpu"}
    assert set(run.values("threads")) == {1}
    assert len(set(run.values("pid"))) == SIZE
    for rank in range(SIZE):
        assert (tmp_path / f"rank{rank}.log").read_text() == (
            f"output of rank {rank}\noutput of native code\n"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank{rank}.log" for rank in range(SIZE)]


#: job, kind of failure, what is said of it, and what the rank's log holds
FAILURES = [
    ("raises", "raised", "raised ValueError: no such thing", "ValueError: no such thing"),
    ("exits", "raised", "raised SystemExit: 3", "SystemExit: 3"),
    ("runs_out_of_memory", "raised", "raised MemoryError", "MemoryError"),
    ("leaves", "lost", "ended without a word (exit status 0)", ""),
    ("leaves_a_child", "killed", "was killed by signal 6 (SIGABRT)", "Fatal Python error: Aborted"),
    ("dies", "killed", "was killed by signal 9 (SIGKILL)", ""),
]


def test_a_failing_rank_ends_the_run_at_once_and_is_named(tmp_path: Path) -> None:
    runs = launch_all([job for job, *_ in FAILURES], tmp_path)
    for job, kind, what, in_log in FAILURES:
        error, log = runs[job].error, tmp_path / job / "rank2.log"
        assert isinstance(error, RankFailure)
        assert str(error) == f"rank 2 (part 2) {what} after iteration 3; its log: {log}"
        assert (error.rank, error.kind, error.iteration, error.log) == (2, kind, 3, log)
        assert in_log in log.read_text()
        assert runs[job].seconds < 3, job


def test_a_rank_that_hangs_ends_the_run_within_the_timeout(tmp_path: Path) -> None:
    said = {
        "is_stopped": "did not answer for 4 s (it may hang or be stopped)",
        "loops": "kept the others waiting for",
    }
    runs = launch_all(said, tmp_path, timeout=5)
    for job, what in said.items():
        error = runs[job].error
        assert isinstance(error, RankFailure)
        assert str(error).startswith(f"rank 2 (part 2) {what}")
        assert (error.rank, error.kind, error.iteration) == (2, "hung", 3)
        assert 3 < runs[job].seconds < 5 + 1, job  # and one second for a busy machine


def test_ranks_that_finish_fail_early_or_wait_in_vain(tmp_path: Path) -> None:
    runs = launch_all(
        ["ends_early", "gets_bad_input", "raises_before_connecting", "disagrees", "no_such_function"],
        tmp_path,
        timeout=4,
    )
    assert runs["ends_early"].error is None

    assert type(runs["gets_bad_input"].error) is InputError
    assert str(runs["gets_bad_input"].error) == "ridge must be at least 0; got -1."
    assert runs["gets_bad_input"].seconds < 3

    error = runs["raises_before_connecting"].error
    assert isinstance(error, RankFailure)
    assert "rank 2 (part 2) raised RuntimeError: early before its first iteration was complete" in str(error)
    assert error.iteration is None

    # Nobody is still at work when ranks wait in vain: there is no culprit.
    error = runs["disagrees"].error
    assert isinstance(error, RankFailure)
    assert error.rank in (0, 1)
    assert "raised CommError: barrier" in str(error)
    assert "3.2 s" in str(error)  # and no broken connection: ranks that have finished stay

    error = runs["no_such_function"].error
    assert isinstance(error, RankFailure)
    assert (error.rank, error.kind) == (-1, "lost")
    assert "the process that starts the ranks ended with exit status 1:" in str(error)
    assert "AttributeError: module 'rank_jobs' has no attribute 'no_such_function'" in str(error)


def test_one_ctrl_c_lets_ranks_stop_after_an_iteration(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run = launch("until_stopped", tmp_path, on_message=_interrupt_when_all_run(1))
    assert run.error is None
    assert len(run.values("stopped")) == SIZE
    assert len(set(run.values("stopped"))) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_two_ctrl_c_end_the_run_at_once(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run = launch("never_ends", tmp_path, on_message=_interrupt_when_all_run(2))
    assert isinstance(run.error, KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_caller_ends_the_run(tmp_path: Path) -> None:
    def on_message(rank: int, message: dict) -> None:
        raise LookupError("no such message")

    run = launch("never_ends", tmp_path, on_message=on_message)
    assert isinstance(run.error, LookupError)


def test_what_is_wrong_with_the_machine_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gfgnn.launch.crew.subprocess.Popen", None)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert isinstance(launch("healthy", tmp_path, port=port).error, InputError)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    error = launch("healthy", tmp_path, device="cuda").error
    assert isinstance(error, InputError)
    assert str(error) == "device is cuda, and 4 processes need one CUDA device each; there are 3."
    assert isinstance(launch("healthy", tmp_path, device="tpu").error, InputError)


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert [default_threads(size) for size in (1, 3, 4, 16)] == [8, 2, 2, 1]


def _interrupt_when_all_run(times: int):
    running = set()

    def on_message(rank: int, message: dict) -> None:
        if "pid" in message:
            running.add(rank)
            if len(running) == SIZE:
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)

    return on_message
