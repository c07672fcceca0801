"""Records what the iterations of one rank spend their seconds on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.profiler import record_function

from gfgnn.profiling.counter import Counter
from gfgnn.profiling.labels import Cost, recording
from gfgnn.profiling.session import SEPARATOR, SESSION, Span

#: Iterations that are timed at most.
TIMED = 10


class Recorder:
    """Counts the work of iteration 1, and times iterations 1, 2, 4, 6, ... by torch's profiler.

    The others run as ever, which tells what recording costs. Operators in iteration 1 are slowed by counting: its times
    are for runs that have no other iteration.

    Attributes:
        counter: what iteration 1 did.
    """

    def __init__(self, device: torch.device) -> None:
        self.counter = Counter()
        self._cuda = device.type == "cuda"
        self._counts = False
        self._labels: list[record_function] = []
        self._marks: dict[int, str] = {}
        mark = f"gfgnn of thread {threading.get_ident()}"
        with Counter(), SESSION.marked(mark, self._cuda):
            torch.zeros(1).add_(1.0)  # the first operator under either imports for seconds
        SESSION.take(mark)

    @contextmanager
    def iteration(self, number: int) -> Iterator[None]:
        """Records the block if it is this iteration's turn."""
        if (number > 1 and number % 2 == 1) or len(self._marks) > TIMED:
            yield
            return
        mark = f"gfgnn iteration {number} of thread {threading.get_ident()}"
        self._marks[number] = mark
        self._counts, self._labels = number == 1, []
        with (
            SESSION.marked(mark, self._cuda),
            recording(self),
            self.counter if self._counts else nullcontext(),
        ):
            yield

    def spans(self, completed: int) -> dict[int, list[Span]]:
        """What was recorded of iterations up to ``completed``. Called once, when no rank records any more."""
        found = {number: SESSION.take(mark) for number, mark in self._marks.items()}
        return {number: spans for number, spans in found.items() if number <= completed}

    def open(self, kind: str, name: str) -> None:
        stretch = record_function(f"{kind}{SEPARATOR}{name}")
        stretch.__enter__()
        self._labels.append(stretch)
        if self._counts:
            self.counter.open(kind)

    def close(self, cost: Callable[[], Cost]) -> None:
        if self._counts:
            self.counter.close(cost)
        self._labels.pop().__exit__(None, None, None)


__all__ = ["Recorder"]
