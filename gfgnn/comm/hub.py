"""Where ranks that are threads of one process leave messages for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from torch import Tensor

from gfgnn.comm.base import CommError


class Slot(NamedTuple):
    """The place of one message: used once, so it needs no queue.

    Attributes:
        group: which group it belongs to; () is the world, a group made from another is named after it.
        kind: "all" for operations of the whole group, "pair" for messages between two ranks.
        number: how many operations of this kind (and pair) came before; both ends count alike.
        source: the sender's rank within the group.
        destination: the receiver's rank within the group.
    """

    group: tuple
    kind: str
    number: int
    source: int
    destination: int


class Hub:
    """The messages on their way between threads. Every method may be called by any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._messages: dict[tuple, dict[Slot, Tensor]] = {}
        self._left: dict[tuple, set[int]] = {}
        self._error: BaseException | None = None

    def working(self) -> AbstractContextManager[None]:
        """What a rank does its work in."""
        return nullcontext()

    def check(self, what: str) -> None:
        """Raises :class:`CommError` if a rank has failed; ``what`` is the operation this would have been."""
        if self._error is not None:
            raise CommError(f"{what}: another rank failed: {self._error!r}") from self._error

    def post(self, messages: dict[Slot, Tensor], what: str) -> None:
        """Leaves messages, which must not be changed any more, and returns at once."""
        with self._condition:
            self.check(what)
            for slot, message in messages.items():
                self._messages.setdefault(slot.group, {})[slot] = message
            self._condition.notify_all()

    def take(self, slots: Sequence[Slot], seconds: float, timeout: float, what: str) -> list[Tensor]:
        """Waits up to ``seconds`` for messages and takes them; ``timeout`` is what the user had set, for the error.

        Raises:
            CommError: a rank failed, a sender has closed the group, or the time is over; the last fails all ranks.
        """

        def there(slot: Slot) -> bool:
            return slot in self._messages.get(slot.group, ())

        def gone() -> Slot | None:
            return next((s for s in slots if not there(s) and s.source in self._left.get(s.group, ())), None)

        def ready() -> bool:
            return self._error is not None or all(map(there, slots)) or gone() is not None

        with self._condition:
            in_time = self._wait(ready, seconds)
            self.check(what)
            if missing := gone():
                raise CommError(f"{what}: rank {missing.source} has left the group")
            if in_time:
                return [self._messages[slot.group].pop(slot) for slot in slots]
            silent = next(slot.source for slot in slots if not there(slot))
            error = CommError(f"{what}: nothing from rank {silent} for {timeout:g} s", timed_out=True)
            self.abort(error)
            raise error

    def _wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Waits for what others leave, with the condition held; whether it came in time."""
        return self._condition.wait_for(ready, seconds)

    def abort(self, error: BaseException) -> None:
        """Makes every wait, and every later operation, of all ranks raise :class:`CommError`."""
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()

    def leave(self, group: tuple, rank: int, size: int) -> None:
        """``rank`` uses this group no more; with the last of ``size`` ranks its messages go."""
        with self._condition:
            left = self._left.setdefault(group, set())
            left.add(rank)
            if len(left) == size:
                self._messages.pop(group, None)
                del self._left[group]
            self._condition.notify_all()

    def __len__(self) -> int:
        """Groups that hold messages or that some ranks have left and others have not."""
        with self._condition:
            return len(self._messages.keys() | self._left.keys())


__all__ = ["Hub", "Slot"]
