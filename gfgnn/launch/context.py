"""What a job gets to know and may do in its rank."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfgnn.launch.heartbeat import Beat
from gfgnn.launch.watched import WatchedCommunicator

if TYPE_CHECKING:
    from gfgnn.comm.base import Communicator


class RankContext:
    """The argument of a job.

    Attributes:
        rank: number of this rank.
        size: number of ranks.
        folder: the run's folder.
        device: cpu, or this rank's own CUDA device.
        beat: what the launcher sees of this rank.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        folder: Path,
        device: str,
        *,
        beat: Beat,
        connector: Callable[[], Communicator],
        sender: Callable[[dict[str, Any]], None],
    ) -> None:
        self.rank, self.size, self.folder, self.device, self.beat = rank, size, folder, device, beat
        self._connector, self._sender = connector, sender
        self._communicator: Communicator | None = None

    def connect(self) -> Communicator:
        """The communicator of all ranks, connected at the first call, which all ranks must make."""
        if self._communicator is None:
            with self.beat.waiting():
                self._communicator = WatchedCommunicator(self._connector(), self.beat)
        return self._communicator

    def send(self, message: dict[str, Any]) -> None:
        """Gives the launcher a message that JSON can carry; it arrives as ``on_message(rank, message)``."""
        self._sender(message)

    def progress(self, iteration: int) -> None:
        """Tells the launcher the last completed iteration, for its messages."""
        self.beat.progress(iteration)

    def stop_requested(self) -> bool:
        """Ctrl-C was pressed: end after this iteration.

        Ranks may see it at different iterations, so that they must agree on one by a message.
        """
        return self.beat.table.stop

    def waiting(self) -> AbstractContextManager[None]:
        """Marks a block in which this rank waits for others; what :meth:`connect` gives does so itself."""
        return self.beat.waiting()

    def close(self) -> None:
        """Ends the communicator, if there is one."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None


__all__ = ["RankContext"]
