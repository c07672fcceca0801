"""Where ranks that are threads of one process leave messages for each other."""

from __future__ import annotations

import threading
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

    def take(self, slot: Slot, seconds: float, timeout: float, what: str) -> Tensor:
        """Waits up to ``seconds`` for a message and takes it; ``timeout`` is what the user had set, for the error.

        Raises:
            CommError: a rank failed, the sender has closed the group, or the time is over; the last fails all ranks.
        """

        def ready() -> bool:
            left = self._left.get(slot.group, ())
            return (
                self._error is not None or slot in self._messages.get(slot.group, ()) or slot.source in left
            )

        with self._condition:
            in_time = self._condition.wait_for(ready, seconds)
            self.check(what)
            message = self._messages.get(slot.group, {}).pop(slot, None)
            if message is not None:
                return message
            if in_time:
                raise CommError(f"{what}: rank {slot.source} has left the group")
            error = CommError(f"{what}: nothing from rank {slot.source} for {timeout:g} s", timed_out=True)
            self.abort(error)
            raise error

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
