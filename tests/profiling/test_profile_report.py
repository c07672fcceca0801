"""What recordings are summed up to, and what is said of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from gfgnn.cli.profile import profile_text
from gfgnn.profiling.ceilings import measure_ceilings
from gfgnn.profiling.counter import Count, Counter
from gfgnn.profiling.labels import KINDS
from gfgnn.profiling.report import bound, make_profile, traced
from gfgnn.profiling.session import Span
from gfgnn.profiling.trace import profile_trace

CEILINGS = {"copy_bytes_per_second": 1e9, "flops_per_second": 1e10}


def counter(**counts: Count) -> Counter:
    made = Counter()
    made.counts |= {name.replace("_", " "): count for name, count in counts.items()}
    made.working = {"add", "mm"}
    return made


def ms(kind: str, name: str, start: float, own: float) -> Span:
    return Span(kind, name, int(start * 1e6), int((start + own) * 1e6), int(own * 1e6))


SPANS = {
    1: [ms("Gram", "moment_sums", 0, 900)],
    2: [ms("Gram", "moment_sums", 0, 4), ms("", "aten::add_", 4, 1), ms("", "aten::t", 5, 1)],
    4: [ms("Gram", "moment_sums", 0, 6), ms("", "aten::mm", 6, 2)],
}
STEPS = [1.0, 0.010, 0.009, 0.012, 0.3]


def test_means_add_up_and_the_first_iteration_only_counts() -> None:
    profile = make_profile(SPANS, counter(Gram=Count(1, 40, 100)), STEPS, CEILINGS)
    assert (profile["iterations"], profile["plain_seconds"]) == (2, 0.009)
    assert profile["seconds"] == pytest.approx(0.011)
    seconds = {kind: tally["seconds"] * 1e3 for kind, tally in profile["kinds"].items()}
    expected = dict.fromkeys(KINDS, 0.0) | {
        "Gram": 5.0, "elementwise": 0.5, "dense product": 1.0, "other": 4.5,
    }  # fmt: skip
    assert seconds == pytest.approx(expected)
    assert profile["kinds"]["Gram"] == {
        "seconds": pytest.approx(0.005),
        "calls": 1,
        "bytes": 40,
        "flops": 100,
    }


def test_a_run_of_one_iteration_has_its_times() -> None:
    profile = make_profile({1: SPANS[1]}, counter(), STEPS[:1], CEILINGS)
    assert (profile["seconds"], profile["plain_seconds"]) == (1.0, None)
    assert profile["kinds"]["other"]["seconds"] == pytest.approx(0.1)


def profile_of(**tallies: tuple[float, int, float, float]) -> dict[str, Any]:
    """Seconds, calls, bytes and flops by kind."""
    names = ("seconds", "calls", "bytes", "flops")
    given = {name.replace("_", " "): tally for name, tally in tallies.items()}
    kinds = {kind: dict(zip(names, given.get(kind, (0.0, 0, 0, 0)), strict=True)) for kind in KINDS}
    total = sum(tally["seconds"] for tally in kinds.values())
    about = {"rank": 0, "iterations": 3, "seconds": total, "plain_seconds": None, "kinds": kinds}
    return about | CEILINGS


@pytest.mark.parametrize(
    ("tallies", "said"),
    [
        ({"elementwise": (0.1, 100, 8e7, 0)}, "100% of an iteration is elementwise, bound by memory: 80%"),
        ({"Gram": (0.1, 2, 1e7, 9e8)}, "bound by arithmetic: 90% of the rate of a matrix product (50,000 µs a call)"),
        ({"solve": (0.3, 2, 1e6, 1e6), "Gram": (0.1, 1, 0, 0)}, "75% of an iteration is solve, far from both"),
        ({"waiting": (0.1, 3, 0, 0)}, "the other ranks bound it"),
        ({"other": (0.1, 0, 0, 0), "Gram": (0.01, 50, 0, 0)}, "Python around 50 calls, 2000 µs each"),
    ],
)  # fmt: skip
def test_one_sentence_says_what_bounds_it(tallies: dict[str, Any], said: str) -> None:
    assert said in bound(profile_of(**tallies))


def test_the_table_of_several_ranks_is_of_the_one_that_waits_least() -> None:
    idle = profile_of(waiting=(0.09, 3, 0, 0), solve=(0.01, 1, 10, 0)) | {"rank": 0}
    busy = profile_of(waiting=(0.01, 3, 0, 0), solve=(0.09, 1, 9e6, 0)) | {"rank": 1}
    lines = profile_text({"ranks": [idle, busy]}).splitlines()
    assert "rank 1, which waits least" in lines[0]
    (row,) = [line.split() for line in lines if line.startswith("solve")][:1]
    assert row == ["solve", "90.000", "90.0%", "1", "9.00", "0.10", "10%", "-", "-", "-"]
    assert lines[-1].split() == ["waiting", "10.000", "50.000", "90.000", "0"]


def test_a_trace_has_a_process_for_each_rank_and_microseconds() -> None:
    trace = profile_trace([traced(SPANS), traced({2: [ms("solve", "factor", 1, 2)]})])
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["rank 0", "rank 1"]
    own = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 1]
    assert [(e["name"], e["cat"], e["ts"], e["dur"]) for e in own] == [
        ("iteration 2", "iteration", 1000.0, 2000.0), ("factor", "solve", 1000.0, 2000.0),
    ]  # fmt: skip
    first = [(e["name"], e["cat"]) for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    assert first[:3] == [("iteration 2", "iteration"), ("moment_sums", "Gram"), ("aten::add_", "elementwise")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ceilings_are_plausible_and_quick(dtype: torch.dtype) -> None:
    started = time.process_time()
    found = measure_ceilings(dtype, torch.device("cpu"))
    assert time.process_time() - started < 0.5 * max(1, torch.get_num_threads())
    assert 1e8 < found["copy_bytes_per_second"] < 1e13
    assert 1e8 < found["flops_per_second"] < 1e15
