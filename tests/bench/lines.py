"""Lines of runs made up for the tests of what comes from them."""

from __future__ import annotations

from typing import Any

from gfgnn.bench.machine import machine
from gfgnn.bench.outcome import Outcome


def history(*points: tuple[float, float, float]) -> list[dict[str, Any]]:
    """A line for each ``(seconds, val, test)``."""
    return [
        {"iteration": i, "seconds": s, "loss": 1.0, "train": 1.0, "val": v, "test": t}
        for i, (s, v, t) in enumerate(points, start=1)
    ]


def outcome(*points: tuple[float, float, float], **values: Any) -> Outcome:
    return Outcome(**{
        "contender": "x", "history": history(*points), "seconds_per_iteration": points[0][0] if points else None,
        "peak_bytes": [100_000_000], **values,
    })  # fmt: skip


def line(label: str, seed: int, made: Outcome, **values: Any) -> dict[str, Any]:
    return {
        "kind": "run", "key": f"{label} {seed} {values}", "case": "made", "title": "Made up", "data": "cora",
        "source": "cora", "options": {}, "contender": label, "label": label, "settings": {},
        "model": {"family": "gcn", "layers": 2}, "budget": {}, "seed": seed, "threads": 1, "reach": [0.8],
        "against": "ours", "session": "s", "date": "today", "commit": "c", "machine": machine(), "load": [0.5, 0.5],
        "limit_seconds": 9.0, "memory": None, "outcome": made.to_dict(), **values,
    }  # fmt: skip


def started(session: str = "s") -> dict[str, Any]:
    return {
        "kind": "started", "session": session, "date": "today", "commit": "c", "machine": machine(),
        "command": "gfgnn bench made.toml",
    }  # fmt: skip


def benchmark(ours: float = 0.84, other: float = 0.82, slow: float = 3.0) -> list[dict[str, Any]]:
    """Three seeds of two contenders; the other takes ``slow`` times as long and never reaches 0.8 with seed 0."""
    lines = [started()]
    for seed, shift in enumerate((-0.005, 0.0, 0.005)):
        fast = outcome((1.0, 0.7, 0.75), (2.0, 0.8, ours + shift), (4.0, 0.75, 0.9))
        late = outcome((slow, 0.7, 0.7), (2 * slow, 0.8, other + shift if seed else 0.79))
        lines += [line("ours", seed, fast), line("other", seed, late)]
    return lines
