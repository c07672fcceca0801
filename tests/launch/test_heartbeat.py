"""What the launcher sees of a rank, and what it takes for a sign of life."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gfgnn.comm.serial import SerialCommunicator
from gfgnn.launch.heartbeat import Beat, Pulse, Table
from gfgnn.launch.watch import LOOK_AT_MOST, Watch
from gfgnn.launch.watched import WatchedCommunicator

NO_PROCESS = 0


@pytest.fixture
def beat() -> Beat:
    made = Table(2).beat(1)
    made.begin()
    return made


def test_two_tables_of_one_file_show_the_same() -> None:
    descriptor = Table.open_file(3)
    here, there = Table(3, descriptor), Table(3, descriptor)
    os.close(descriptor)
    here.beat(2).progress(5)
    assert [there.beat(rank).iteration for rank in range(3)] == [None, None, 5]
    assert (there.stop, there.released) == (False, False)
    here.request_stop()
    assert (there.stop, there.released) == (True, False)
    here.release()
    assert there.released
    assert there.beat(2).iteration == 5


def test_a_rank_is_outside_except_while_it_waits(beat: Beat) -> None:
    time.sleep(0.02)
    assert (beat.outside or 0) >= 0.02
    with beat.waiting():
        with beat.waiting():
            assert beat.outside is None
        assert beat.outside is None
    assert (beat.outside or 1) < 0.02
    time.sleep(0.02)
    beat.progress(0)
    assert (beat.outside or 1) < 0.02


def test_the_watched_communicator_marks_waits(beat: Beat) -> None:
    marks = []

    class Inner(SerialCommunicator):
        def barrier(self) -> None:
            marks.append(beat.outside)

    world = WatchedCommunicator(Inner(), beat)
    world.barrier()
    assert marks == [None]
    assert beat.outside is not None
    x = torch.ones(2, 1)
    assert world.all_reduce(x, purpose="control").wait() is x
    assert world.all_to_all(x, [2], [2], purpose="halo").wait().equal(x)
    assert world.exchange([], [], purpose="stage").wait().numel() == 0
    assert world.group([0]).all_reduce(x, purpose="control").wait() is x


def test_ticks_are_signs_of_life(beat: Beat) -> None:
    pulse = Pulse(beat, NO_PROCESS)
    silences = []
    for tick in (True, False, False, True):
        if tick:
            beat.tick()
        pulse.look(0.5)
        silences.append(pulse.silent)
    assert silences == [0.0, 0.5, 1.0, 0.0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_processor_time_is_a_sign_of_life(beat: Beat) -> None:
    """Native code may keep Python's lock, and so the heart from ticking, while it works."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as idle:
        time.sleep(0.3)
        quiet, busy = Pulse(beat, idle.pid), Pulse(beat, os.getpid())
        quiet.look(0.5)
        busy.look(0.5)
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        busy.look(0.5)
        quiet.look(0.5)
        assert busy.silent == 0.0
        assert quiet.silent == 0.5


def test_time_in_which_the_launcher_was_suspended_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gfgnn.launch.watch.time", SimpleNamespace(monotonic=lambda: now[0]))
    table = Table(1)

    def reports(seconds: float) -> Iterator[tuple[int, dict]]:
        yield -1, {"pids": [NO_PROCESS]}

    crew = SimpleNamespace(reports=reports)
    watch = Watch(crew, table, 1, timeout=5.0)  # type: ignore[arg-type]
    list(watch.look())
    crew.reports = lambda seconds: iter(())
    now[0] += 1000
    list(watch.look())
    assert watch.failure() is None
    for _ in range(int(4 / LOOK_AT_MOST)):
        now[0] += LOOK_AT_MOST
        list(watch.look())
    cause = watch.failure()
    assert cause is not None
    assert cause.kind == "hung"
