"""Ctrl-C that waits until what has begun is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def held(also: Callable[[], None] = lambda: None) -> Iterator[list[int]]:
    """Notes a Ctrl-C within the block in the list it gives, and calls ``also``, instead of raising KeyboardInterrupt.

    Outside the main thread, and where somebody else has taken or ignored the signal, nothing is changed.
    """
    noted: list[int] = []
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield noted
        return

    def note(number: int, frame: object) -> None:
        noted.append(number)
        also()

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Notes a Ctrl-C in the list it gives and raises KeyboardInterrupt as usual.

    Libraries that are being imported may turn that into an error of their own; the list tells where it came from.
    """
    noted: list[int] = []
    previous = signal.getsignal(signal.SIGINT)
    if (
        threading.current_thread() is not threading.main_thread()
        or previous is not signal.default_int_handler
    ):
        yield noted
        return

    def note(number: int, frame: object) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, previous)
