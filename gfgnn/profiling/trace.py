"""The first timed iterations of every rank for chrome://tracing and Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def profile_trace(ranks: Sequence[Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """Trace events in Chrome's format, in microseconds: a process for each rank, a complete event for each span.

    Args:
        ranks: what :func:`gfgnn.profiling.report.traced` gives of each rank; all clocks must be of one machine.
    """
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(ranks):
        place = {"pid": rank, "tid": 0}
        events.append({"name": "process_name", "ph": "M", **place, "args": {"name": f"rank {rank}"}})
        for name, kind, start, end in spans:
            times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
            events.append({"name": name, "cat": kind, "ph": "X", **place, **times})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
