"""Ctrl-C: noted where it must wait, raised where it may end things."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gfgnn.interrupts import held, noticed


@pytest.fixture(autouse=True)
def _python_handles_it() -> Iterator[None]:
    """Tests run in the background inherit a SIGINT that is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_held_notes_and_does_not_raise() -> None:
    with held() as interrupts:
        press()
        press()
    assert len(interrupts) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with held() as interrupts:
        pass
    assert interrupts == []


def test_noticed_raises_and_notes() -> None:
    with noticed() as interrupts:
        with held() as inside:
            press()
        assert (len(inside), len(interrupts)) == (1, 0)
        with pytest.raises(KeyboardInterrupt):
            press()
    assert len(interrupts) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("context", [held, noticed])
def test_an_ignored_signal_stays_ignored(context: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with context() as interrupts:  # type: ignore[operator]
        press()
    assert interrupts == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_signal_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with held(), noticed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
