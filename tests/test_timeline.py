"""The timeline of a grid: every step and every wait in the trace, and a picture of the middle of the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gfgnn import timeline
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.result import Result
from gfgnn.timeline import chrome_trace, draw_timeline
from gfgnn.train import train


@pytest.fixture(scope="module")
def result() -> Result:
    config = TrainConfig(parts=2, stages=2, iters=9, backend="thread", timeline=True, threads=1)
    model = ModelConfig(family="gcnii", layers=4, hidden=8)
    return train(model, load("synthetic:nodes=90,classes=3,features=6"), config)


def rank(number: int, spans: list[tuple[float, float]], waits: list[tuple]) -> dict[str, Any]:
    return {"rank": number, "part": number, "stage": 0, "step_spans": spans, "waits": waits}


def test_the_trace_has_every_step_and_every_wait(result: Result) -> None:
    events = json.loads(json.dumps(chrome_trace(result.ranks)))["traceEvents"]
    for report in result.ranks:
        own = [event for event in events if event["tid"] == report["rank"]]
        names = [event["name"] for event in own if event.get("cat") == "step"]
        assert names == [f"iteration {number}" for number in range(1, 10)]
        waits = [event for event in own if event["ph"] == "X" and event["cat"] != "step"]
        assert len(waits) == len(report["waits"])
        assert {"halo", "stage", "gram"} <= {event["cat"] for event in waits}
        assert {event["args"]["name"] for event in own if event["ph"] == "M"} == {
            f"rank {report['rank']} (part {report['part']}, stage {report['stage']})"
        }
        for event in waits:
            assert event["dur"] >= 0
        booked = sum(book["seconds"] for book in report["traffic"].values())
        assert sum(event["dur"] for event in waits) / 1e6 == pytest.approx(booked, rel=0.05, abs=0.005)


def test_microseconds() -> None:
    events = chrome_trace([rank(0, [(2.0, 2.5)], [(2.25, 2.5, "halo", "all_to_all")])])["traceEvents"]
    assert [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("iteration 1", 2e6, 5e5), ("halo (all_to_all)", 2.25e6, 2.5e5),
    ]  # fmt: skip


def test_the_picture_shows_the_middle_of_the_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits outside of it are left out, and those across its edges cut."""
    bars: list[tuple[int, float, float, str]] = []

    def bar(axes: Any, row: int, start: float, end: float, first: float, last: float, kind: str) -> None:
        start, end = max(start, first), min(end, last)
        if end > start:
            bars.append((row, start, end, kind))

    spans = [(float(i), i + 0.9) for i in range(10)]
    waits = [
        (0.5, 0.6, "halo", "x"),
        (2.8, 3.2, "stage", "x"),
        (4.0, 4.5, "gram", "x"),
        (8.0, 9.0, "halo", "x"),
    ]
    ranks = [rank(0, spans, waits), rank(1, spans, [])]
    with monkeypatch.context() as patch:
        patch.setattr(timeline, "_bar", bar)
        draw_timeline(ranks)
    assert [(start, end) for row, start, end, kind in bars if (row, kind) == (1, "work")] == spans[3:7]
    assert [bar[1:] for bar in bars if bar[3] != "work"] == [(3.0, 3.2, "stage"), (4.0, 4.5, "gram")]
    assert draw_timeline(ranks).startswith(b"\x89PNG")


def test_a_single_iteration_and_purposes_without_a_colour() -> None:
    assert draw_timeline([rank(0, [(1.0, 2.0)], [(1.5, 1.6, "unheard of", "x")])]).startswith(b"\x89PNG")
