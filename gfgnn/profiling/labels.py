"""Labels for stretches of work. While nothing records in this thread they do nothing."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

#: Kinds of work; the last one is what no label and no operator of torch accounts for.
KINDS = ("sparse product", "dense product", "Gram", "solve", "elementwise", "exchange", "waiting", "other")

P = ParamSpec("P")
R = TypeVar("R")


class Cost(NamedTuple):
    """The least memory traffic that work needs (every operand moved once), and its multiplications and additions."""

    bytes: int = 0
    flops: int = 0


class Sink(Protocol):
    """What is told of labels; see :class:`gfgnn.profiling.recorder.Recorder`."""

    def open(self, kind: str, name: str) -> None: ...

    def close(self, cost: Callable[[], Cost]) -> None: ...


class _Here(threading.local):
    """Of each thread its own: the ranks of a grid may be threads."""

    sink: Sink | None = None


_here = _Here()


class label:
    """Books the block under ``kind``. A label within it takes its own seconds out of this one's.

    Args:
        kind: one of :data:`KINDS`.
        name: of the work, for the trace.
        cost: gives what it moves and computes; asked only where somebody counts, after the work.
    """

    __slots__ = ("cost", "kind", "name", "sink")

    def __init__(self, kind: str, name: str, cost: Callable[[], Cost] = Cost) -> None:
        self.kind, self.name, self.cost = kind, name, cost

    def __enter__(self) -> None:
        self.sink = _here.sink
        if self.sink is not None:
            self.sink.open(self.kind, self.name)

    def __exit__(self, *error: object) -> None:
        if self.sink is not None:
            self.sink.close(self.cost)


def labelled(
    kind: str, cost: Callable[..., Cost] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Books every call of a function under ``kind``.

    Args:
        cost: of a call, from the function's arguments.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if _here.sink is None:
                return function(*args, **kwargs)
            spent = Cost if cost is None else functools.partial(cost, *args, **kwargs)
            with label(kind, function.__name__, spent):
                return function(*args, **kwargs)

        return call

    return decorate


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Tells ``sink`` of this thread's labels within the block."""
    before, _here.sink = _here.sink, sink
    try:
        yield
    finally:
        _here.sink = before


__all__ = ["KINDS", "Cost", "Sink", "label", "labelled", "recording"]
