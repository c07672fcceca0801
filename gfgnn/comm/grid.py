"""Which rank works on which part of the graph and which stage of the network."""

from __future__ import annotations

from dataclasses import dataclass

from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.comm.serial import SerialCommunicator


@dataclass(frozen=True)
class ProcessGrid:
    """The ranks as a grid of parts (of the graph) by stages (of the network); rank = stage * num_parts + part.

    Attributes:
        world: all ranks.
        num_parts: number of parts.
        num_stages: number of stages.
        part: this rank's part.
        stage: this rank's stage.
        parts: the ranks of this rank's stage; the rank within is the part.
        stages: the ranks of this rank's part; the rank within is the stage.
    """

    world: Communicator
    num_parts: int
    num_stages: int
    part: int
    stage: int
    parts: Communicator
    stages: Communicator

    def rank_of(self, part: int, stage: int) -> int:
        """The rank, within the world, of a part and stage."""
        assert 0 <= part < self.num_parts, part
        assert 0 <= stage < self.num_stages, stage
        return stage * self.num_parts + part

    def describe(self, rank: int) -> str:
        """A rank of the world in words: ``rank 3 (part 1, stage 1)``."""
        stage, part = divmod(rank, self.num_parts)
        return f"rank {rank} (part {part}, stage {stage})"


def make_grid(world: Communicator, num_parts: int, num_stages: int) -> ProcessGrid:
    """Arranges the ranks of ``world`` as a grid. Every rank must call it; makes two groups.

    Raises:
        InputError: the number of ranks is not ``num_parts * num_stages``.
    """
    if num_parts < 1 or num_stages < 1 or world.size != num_parts * num_stages:
        raise InputError(
            f"{num_parts} parts x {num_stages} stages need {num_parts * num_stages} processes; "
            f"there are {world.size}."
        )
    stage, part = divmod(world.rank, num_parts)
    parts = world.group([stage * num_parts + other for other in range(num_parts)])
    stages = world.group([other * num_parts + part for other in range(num_stages)])
    return ProcessGrid(world, num_parts, num_stages, part, stage, parts, stages)


def serial_grid() -> ProcessGrid:
    """The grid of a program that runs alone: one part, one stage."""
    return make_grid(SerialCommunicator(), 1, 1)


__all__ = ["ProcessGrid", "make_grid", "serial_grid"]
