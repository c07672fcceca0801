"""The profiler of torch, shared by all threads of the process: it knows one session at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import profile
from torch.profiler import record_function

from gfgnn.checks import InputError

#: What separates kind and name of a label; labels are told from torch's operators by it.
SEPARATOR = "|"
OPERATOR = "aten::"


class Span(NamedTuple):
    """A label, or an operator of torch outside of labels.

    Attributes:
        kind: of a label; empty for an operator.
        name: of the label, or ``aten::...``.
        start, end: in nanoseconds of the system's clock.
        own: nanoseconds in it that are not another label's; on CUDA those of the kernels it started.
    """

    kind: str
    name: str
    start: int
    end: int
    own: int


class Session:
    """Runs torch's profiler while any thread is in :meth:`marked`, and keeps what it saw within each mark."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._profiler: profile | None = None
        self._found: dict[str, list[Span]] = {}

    @contextmanager
    def marked(self, mark: str, cuda: bool) -> Iterator[None]:
        """Records the block; ``mark`` is a name that no other block of the process has."""
        with self._lock:
            if self._users == 0:
                self._profiler = _start(cuda)
            self._users += 1
        try:
            with record_function(mark):
                yield
        finally:
            with self._lock:
                self._users -= 1
                self._found[mark] = []
                if self._users == 0:
                    self._collect()

    def take(self, mark: str) -> list[Span]:
        """What was seen within a mark, in order of beginning; empty while other threads still record."""
        with self._lock:
            return self._found.pop(mark)

    def _collect(self) -> None:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None
        profiler.__exit__(None, None, None)
        assert profiler.kineto_results is not None
        host: dict[int, list[Any]] = {}
        kernels: dict[int, int] = {}
        for event in profiler.kineto_results.events():
            if event.device_type() == torch.autograd.DeviceType.CPU:
                host.setdefault(event.start_thread_id(), []).append(event)
            else:
                link = event.linked_correlation_id()
                kernels[link] = kernels.get(link, 0) + event.duration_ns()
        for events in host.values():
            for mark, within in _within(events, self._found):
                self._found[mark] = _spans(within, kernels)


def _start(cuda: bool) -> profile:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells standard error of every start and stop
    try:
        everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        raise InputError(f"profile needs torch 2.7 or newer; this is {torch.__version__}.") from None
    device = "cuda" if cuda else None
    profiler = profile(use_cpu=True, use_device=device, use_kineto=True, experimental_config=everywhere)
    profiler.__enter__()
    return profiler


def _within(events: list[Any], marks: Iterable[str]) -> Iterator[tuple[str, list[Any]]]:
    """Each mark among one thread's events, with those that lie in it, in order of beginning."""
    events.sort(key=lambda event: (event.start_ns(), -event.duration_ns()))
    known = set(marks)
    for mark in [event for event in events if event.name() in known]:
        yield (
            mark.name(),
            [e for e in events if mark.start_ns() <= e.start_ns() < mark.end_ns() and e is not mark],
        )


def _spans(events: list[Any], kernels: dict[int, int]) -> list[Span]:
    """Labels, and operators that lie neither in a label nor in another operator."""
    found: list[list[Any]] = []
    around: list[int] = []  # numbers of the spans that enclose the present event
    for event in events:
        start, end, name = event.start_ns(), event.end_ns(), event.name()
        while around and found[around[-1]][3] <= start:
            around.pop()
        kind, separator, label_name = name.partition(SEPARATOR)
        if separator:
            if around and not kernels:
                found[around[-1]][4] -= end - start
            around.append(len(found))
            found.append([kind, label_name, start, end, 0 if kernels else end - start])
        elif name.startswith(OPERATOR) and not around:
            around.append(len(found))
            found.append(["", name, start, end, 0 if kernels else end - start])
        if around and (busy := kernels.get(event.correlation_id())):
            found[around[-1]][4] += busy
    return [Span(*values) for values in found]


SESSION = Session()

__all__ = ["OPERATOR", "SEPARATOR", "SESSION", "Session", "Span"]
