"""Ranks that are threads and take turns: one works while the others wait, so that one part is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gfgnn.comm.hub import Hub


class TurnHub(Hub):
    """A :class:`Hub` whose ranks work one at a time.

    A rank has its turn until it must wait for a message that is not there yet, or ends. Ranks that have what they wait
    for are let on in any order; what they compute does not depend on it.

    Args:
        rest: called when a rank gives up its turn, before another has one; may let go of memory that the ranks will
            look at again.
    """

    def __init__(self, rest: Callable[[], None]) -> None:
        super().__init__()
        self._rest = rest
        self._busy = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Waits for a turn, and gives it up at the end."""
        with self._condition:
            self._condition.wait_for(self._is_free)
            self.check("the first turn")
            self._busy = True
        try:
            yield
        finally:
            with self._condition:
                self._give_up()

    def _wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """For as long as it takes: the others work meanwhile, each for as long as it needs."""
        if not ready():
            self._give_up()
            # in this order: with P ranks each message wakes P that wait, and each would look for P messages
            self._condition.wait_for(lambda: self._is_free() and ready())
            self._busy = True
        return True

    def _is_free(self) -> bool:
        return not self._busy

    def _give_up(self) -> None:
        self._rest()
        self._busy = False
        self._condition.notify_all()


__all__ = ["TurnHub"]
