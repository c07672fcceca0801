"""Runs in processes of their own: what is kept, what is killed, what is passed over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gfgnn.bench import session
from gfgnn.bench.case import Case, case_of
from gfgnn.bench.child import run as run_here
from gfgnn.bench.plan import jobs
from gfgnn.bench.process import run
from gfgnn.bench.records import read_lines, runs_of
from gfgnn.bench.runner import Bench
from gfgnn.checks import InputError

DATA = "synthetic:nodes=120,classes=2,features=4"
#: a contender for each fate, in a module that the processes of runs find as well
MODULE = """
import os, time
from gfgnn.bench.outcome import Outcome

def fine(graph, model, *, budget, seed, threads, how="done"):
    line = {"iteration": 1, "seconds": 0.1, "loss": 1.0, "train": 1.0, "val": 0.5, "test": 0.5 + seed / 10}
    return Outcome(contender="?", history=[line], status=how, reason=None)

def empty(graph, model, *, budget, seed, threads):
    return Outcome(contender="?")

def broken(graph, model, *, budget, seed, threads):
    raise RuntimeError("a bug")

def short(graph, model, *, budget, seed, threads):
    raise MemoryError("no room")

def slow(graph, model, *, budget, seed, threads):
    time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"made_up_contenders_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return name


def case(*contenders: dict[str, Any], **values: Any) -> Case:
    entrants = [
        {"warm_up": False, "label": entrant["name"].partition(":")[2], **entrant} for entrant in contenders
    ]
    return case_of(
        {"seeds": 1, "data": {"name": DATA, "label": "small"}, "model": {"layers": 2}, "contender": entrants, **values},
        "made", "made.toml",
    )  # fmt: skip


def outcome_here(made: Case) -> dict[str, Any]:
    """Of the first job, in this process."""
    return run_here({**next(jobs(made, made.data[0])).to_dict(), "root": None})


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("broken", "failed", "RuntimeError: a bug"),
        ("short", "out of memory", "MemoryError: no room"),
        ("empty", "failed", "ValueError: the contender says that it is done, and has evaluated nothing"),
        ("fine", "done", None),
    ],
)
def test_fates_that_a_process_tells_itself(module: str, name: str, status: str, reason: str | None) -> None:
    found = outcome_here(case({"name": f"{module}:{name}"}))
    assert (found["status"], found["reason"], found["contender"]) == (status, reason, name)
    assert bool(found["peak_bytes"]) is (status == "done")


@pytest.mark.skipif(not session.PROC.is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("does", "values", "status", "reason"),
    [
        ("os.kill(os.getpid(), 9)", {}, "out of memory", "SIGKILL"),
        ("os.kill(os.getpid(), 11)", {}, "failed", "killed by signal 11"),
        ("sys.exit('gone')", {}, "failed", "ended with status 1: SystemExit: gone"),
        ("time.sleep(60)", {"limit_seconds": 1}, "out of time", "killed after 1 s"),
        (
            "held = os.urandom(90 << 20); time.sleep(60)",
            {"memory": "80MB"},
            "out of memory",
            "the limit is 80 MB",
        ),
    ],
)
def test_fates_that_are_seen_from_outside(
    module: str, tmp_path: Path, does: str, values: dict[str, Any], status: str, reason: str
) -> None:
    """What happens in the process before it comes to the contender."""
    code = f"import os, sys, time\nif 'gfgnn.bench.child' in sys.orig_argv: {does}\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    made = case({"name": f"{module}:fine"}, **values)
    found = run(next(jobs(made, made.data[0])), None)
    assert found["status"] == status, found["reason"]
    assert reason in found["reason"]


def test_a_process_of_its_own(module: str) -> None:
    made = case({"name": f"{module}:fine"})
    found = run(next(jobs(made, made.data[0])), None)
    assert found["status"] == "done", found["reason"]
    assert (found["contender"], found["facts"]["nodes"]) == ("fine", 120)


@pytest.mark.skipif(not session.PROC.is_dir(), reason="needs /proc")
def test_the_end_of_a_session_reaches_groups_of_their_own() -> None:
    code = "import os, time\nif os.fork() == 0: os.setpgid(0, 0)\nprint(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert len([child.stdout.readline() for _ in range(2)]) == 2
        assert len(session.members(child.pid)) == 2
        assert session.held(child.pid) > 0
    finally:
        session.end(child.pid)
        child.wait()
    deadline = time.monotonic() + 5
    while session.members(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.members(child.pid) == []


class Fake:
    """In place of processes: outcomes made here, with what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, int]] = []
        monkeypatch.setattr("gfgnn.bench.process.run", self.run)
        monkeypatch.setattr("gfgnn.bench.process.look", lambda job, root: {})

    def run(self, job: Any, root: str | None) -> dict[str, Any]:
        self.made.append((job.label, job.seed))
        return run_here({**job.to_dict(), "root": root})


def test_a_benchmark_goes_on_where_it_ended(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch)
    both = case({"name": f"{module}:fine"}, {"name": f"{module}:broken"}, {"name": "gfgnn.none:run"}, seeds=2)
    said: list[str] = []
    Bench([both], tmp_path / "out", seeds=1, say=said.append).run()
    assert fake.made == [("fine", 0), ("broken", 0)]
    with pytest.raises(InputError, match="--resume"):
        Bench([both], tmp_path / "out")
    Bench([both], tmp_path / "out", resume=True, say=said.append).run()
    assert fake.made[2:] == [("broken", 0), ("fine", 1), ("broken", 1)]  # what failed is tried again
    lines = read_lines(tmp_path / "out")
    assert [line["outcome"]["status"] for line in runs_of(lines)] == ["done", "failed", "done", "failed"]
    assert any("not available: there is no module gfgnn.none" in text for text in said)
    assert any(text.endswith("fine, 2 layers, seed 0: kept") for text in said)
    for line in runs_of(lines):
        assert line["machine"]["torch"]
        assert line["commit"]
        assert len(line["load"]) == 2


def test_more_room_is_a_reason_to_try_again(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch)
    for memory in ("1GB", "1GB", "2GB"):
        made = case({"name": f"{module}:short"}, memory=memory)
        Bench([made], tmp_path / "out", resume=True).run()
    assert len(fake.made) == 2


def test_data_that_are_not_there_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgnn.bench.process.look", lambda job, root: {"missing": f"no data in {root}"})
    Bench([case({"name": "target"})], tmp_path, root="elsewhere").run()
    lines = read_lines(tmp_path)
    assert [(line["kind"], line.get("data"), line.get("reason")) for line in lines] == [
        ("started", None, None), ("skipped", "small", "no data in elsewhere"),
    ]  # fmt: skip


def test_ctrl_c_ends_the_process_and_keeps_the_rest(module: str, tmp_path: Path) -> None:
    made = case({"name": f"{module}:slow"})
    bench = Bench([made], tmp_path)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    timer.join()
    assert [line["kind"] for line in read_lines(tmp_path)] == ["started"]


def test_our_contenders_tell_everything() -> None:
    found = outcome_here(case({"name": "target", "label": "ours"}, budget={"iterations": 2}))
    assert found["status"] == "done", found["reason"]
    assert [line["iteration"] for line in found["history"]] == [1, 2]
    assert found["flops_per_iteration"] > 1000
    assert found["facts"]["nodes"] == 120
    assert found["settings"]["parts"] == 1
