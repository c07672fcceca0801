"""How far a long conversion is: told to whoever asked for it, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: takes what is being done, and the share of it that is done
Report = Callable[[str, float], None]

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def reported_to(listener: Report | None) -> Iterator[None]:
    """Within the block :func:`report` calls ``listener``; None changes nothing."""
    if listener is None:
        yield
        return
    token = _REPORT.set(listener)
    try:
        yield
    finally:
        _REPORT.reset(token)


def report(what: str, done: float, total: float = 1.0) -> None:
    """``done`` of ``total`` of the phase ``what`` is over; a call costs next to nothing where nobody listens."""
    listener = _REPORT.get()
    if listener is not None:
        listener(what, min(1.0, done / total) if total > 0 else 1.0)
