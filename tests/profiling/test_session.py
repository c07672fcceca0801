"""Torch's profiler shared by threads: who sees what, and whose seconds are whose."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import torch

from gfgnn.profiling.labels import label, recording
from gfgnn.profiling.recorder import Recorder
from gfgnn.profiling.session import Session, Span, _spans


@dataclass
class Event:
    """What is used of an event of torch's profiler."""

    called: str
    begins: int
    ends: int
    number: int = 0

    def name(self) -> str:
        return self.called

    def start_ns(self) -> int:
        return self.begins

    def end_ns(self) -> int:
        return self.ends

    def correlation_id(self) -> int:
        return self.number


EVENTS = [
    Event("aten::add", 0, 10, 1), Event("aten::copy_", 2, 8, 2),  # an operator within an operator
    Event("exchange|sum_over", 20, 100), Event("aten::cat", 25, 35, 3), Event("exchange|all_reduce", 40, 50),
    Event("waiting|all_reduce", 60, 90), Event("aten::add_", 80, 85, 4),
    Event("AddmmBackward0", 100, 140), Event("aten::mm", 110, 130, 5),  # an operator in what is neither
]  # fmt: skip


def test_self_time() -> None:
    assert _spans(EVENTS, {}) == [
        Span("", "aten::add", 0, 10, 10),
        Span("exchange", "sum_over", 20, 100, 80 - 10 - 30),
        Span("exchange", "all_reduce", 40, 50, 10),
        Span("waiting", "all_reduce", 60, 90, 30),
        Span("", "aten::mm", 110, 130, 20),
    ]


def test_on_a_device_the_seconds_are_those_of_the_kernels_started() -> None:
    kernels = {2: 100, 3: 7, 4: 9, 5: 50}
    own = {(span.kind, span.name): span.own for span in _spans(EVENTS, kernels)}
    assert own == {
        ("", "aten::add"): 100, ("exchange", "sum_over"): 7, ("exchange", "all_reduce"): 0,
        ("waiting", "all_reduce"): 9, ("", "aten::mm"): 50,
    }  # fmt: skip


def test_threads_find_their_own_operators() -> None:
    session, both, done = Session(), threading.Barrier(2), {}

    def rank(name: str, work: str) -> None:
        x = torch.ones(3)
        with session.marked(name, cuda=False):
            both.wait(10)
            getattr(torch, work)(x)
            both.wait(10)
        both.wait(10)
        done[name] = {span.name for span in session.take(name)}

    with session.marked("main", cuda=False):  # begun here, ended here: the others join
        threads = [threading.Thread(target=rank, args=pair) for pair in (("a", "neg"), ("b", "exp"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert done == {"a": set(), "b": set()}, "nothing is known while somebody records"
    assert "aten::neg" not in {span.name for span in session.take("main")}

    threads = [threading.Thread(target=rank, args=pair) for pair in (("a", "neg"), ("b", "exp"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert "aten::neg" in done["a"] - done["b"]
    assert "aten::exp" in done["b"] - done["a"]


def test_a_label_takes_the_time_it_takes() -> None:
    recorder = Recorder(torch.device("cpu"))
    for number in (1, 2, 3):
        with recorder.iteration(number), recording(recorder), label("waiting", "nap"):
            time.sleep(0.02)
    spans = recorder.spans(3)
    assert list(spans) == [1, 2], "iteration 3 is not recorded"
    (nap,) = [span for span in spans[2] if span.kind]
    assert nap[:2] == ("waiting", "nap")
    assert 0.02e9 <= nap.own < 0.5e9
