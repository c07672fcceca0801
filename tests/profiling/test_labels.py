"""Labels: silent where nobody records, told in order where somebody does, each thread its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gfgnn.profiling.labels import Cost, label, labelled, recording


class Told:
    """A sink that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def open(self, kind: str, name: str) -> None:
        self.heard.append(("open", kind, name))

    def close(self, cost: Callable[[], Cost]) -> None:
        self.heard.append(("close", cost()))


def size_cost(x: list[int]) -> Cost:
    return Cost(bytes=len(x))


@labelled("Gram", size_cost)
def work(x: list[int]) -> int:
    with label("solve", "inner"):
        return sum(x)


def test_labels_within_labels_are_told_in_order() -> None:
    told = Told()
    with recording(told):
        assert work([1, 2, 3]) == 6
    assert told.heard == [
        ("open", "Gram", "work"), ("open", "solve", "inner"), ("close", Cost()), ("close", Cost(3)),
    ]  # fmt: skip


def test_nothing_is_told_or_counted_while_nobody_records() -> None:
    def never(x: int) -> Cost:
        raise AssertionError("costs are asked for only while somebody records")

    told = Told()
    with recording(told):
        pass
    assert labelled("solve", never)(lambda x: x + 1)(1) == 2
    with label("solve", "block", lambda: never(1)):
        pass
    assert told.heard == []


def test_an_error_closes_the_label_and_ends_the_recording() -> None:
    told = Told()
    with pytest.raises(ValueError, match="wrong"), recording(told), label("solve", "block"):
        raise ValueError("wrong")
    assert told.heard == [("open", "solve", "block"), ("close", Cost())]
    work([1])
    assert len(told.heard) == 2


def test_threads_hear_their_own_labels_only() -> None:
    told, quiet = Told(), threading.Thread(target=work, args=([1],))
    with recording(told):
        quiet.start()
        quiet.join()
    assert told.heard == []
