"""When each rank of a grid worked and what it waited for: a picture, and a trace for Chrome's viewer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

#: colours of what a rank does; everything that is not waiting is work
COLOURS = {
    "work": "#4c78a8", "halo": "#f58518", "stage": "#e45756", "gram": "#b279a2", "control": "#72b7b2",
    "evaluate": "#d8d8d8",
}  # fmt: skip
#: iterations that a picture shows, from the middle of the run
SHOWN = 4


def draw_timeline(ranks: Sequence[dict[str, Any]]) -> bytes:
    """A PNG with a row for each rank over a few iterations from the middle of the run.

    Args:
        ranks: reports with ``waits`` and ``step_spans``; clocks are compared, so that all must be of one machine.
    """
    from matplotlib.figure import Figure

    first, last = _window(ranks)
    figure = Figure(figsize=(10, 1.2 + 0.45 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    for row, rank in enumerate(ranks):
        for start, end in rank["step_spans"]:
            _bar(axes, row, start, end, first, last, "work")
        for start, end, purpose, _ in rank["waits"]:
            _bar(axes, row, start, end, first, last, purpose)
    axes.set_yticks(range(len(ranks)), [_label(rank) for rank in ranks])
    axes.invert_yaxis()
    axes.set_xlim(0, last - first)
    axes.set_xlabel("seconds")
    axes.set_title("Work of each rank, and what it waited for")
    handles = [
        axes.barh(0, 0, color=colour, label=name if name in ("work", "evaluate") else f"waiting: {name}")
        for name, colour in COLOURS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def chrome_trace(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All steps and waits as trace events, in microseconds, for chrome://tracing or Perfetto."""
    events: list[dict[str, Any]] = []
    for rank in ranks:
        common = {"pid": 0, "tid": rank["rank"], "ph": "X"}
        name = {"name": _label(rank)}
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank["rank"], "args": name})
        for number, (start, end) in enumerate(rank["step_spans"], start=1):
            events.append({**common, "name": f"iteration {number}", "cat": "step", **_times(start, end)})
        for start, end, purpose, operation in rank["waits"]:
            events.append(
                {**common, "name": f"{purpose} ({operation})", "cat": purpose, **_times(start, end)}
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _window(ranks: Sequence[dict[str, Any]]) -> tuple[float, float]:
    spans = ranks[0]["step_spans"]
    middle = max(0, len(spans) // 2 - SHOWN // 2)
    chosen = [rank["step_spans"][middle : middle + SHOWN] for rank in ranks]
    return min(c[0][0] for c in chosen), max(c[-1][1] for c in chosen)


def _bar(axes: Any, row: int, start: float, end: float, first: float, last: float, kind: str) -> None:
    start, end = max(start, first), min(end, last)
    if end > start:
        axes.barh(row, end - start, left=start - first, height=0.8, color=COLOURS.get(kind, "#888888"))


def _times(start: float, end: float) -> dict[str, float]:
    return {"ts": start * 1e6, "dur": (end - start) * 1e6}


def _label(rank: dict[str, Any]) -> str:
    return f"rank {rank['rank']} (part {rank['part']}, stage {rank['stage']})"


__all__ = ["chrome_trace", "draw_timeline"]
