"""Who sends what to whom between the stages of one part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gfgnn.model.blocks import Block, looks_back


@dataclass(frozen=True)
class Route:
    """The tensors of one message of one stage.

    Attributes:
        sources: ``(stage, columns)`` of each tensor that arrives.
        targets: the stage that each tensor sent goes to.
    """

    sources: tuple[tuple[int, int], ...]
    targets: tuple[int, ...]


def upward(blocks: Sequence[Block], bounds: Sequence[int], stage: int) -> Route:
    """H of a stage's last block goes to the next stage; H_0 from stage 0 to every stage that looks at it."""
    width, behind = blocks[0].out_channels, _looking_back(blocks, bounds)
    sources = [(stage - 1, blocks[bounds[stage]].in_channels)] if stage > 0 else []
    sources += [(0, width)] if stage in behind else []
    targets = [stage + 1] if stage < len(bounds) - 2 else []
    return Route(tuple(sources), tuple(targets + (behind if stage == 0 else [])))


def downward(blocks: Sequence[Block], bounds: Sequence[int], stage: int) -> Route:
    """The message for H goes to the stage below; the message for H_0 of every stage that looks at it to stage 0."""
    width, behind = blocks[0].out_channels, _looking_back(blocks, bounds)
    last = stage == len(bounds) - 2
    sources = [] if last else [(stage + 1, blocks[bounds[stage + 1]].in_channels)]
    sources += [(other, width) for other in behind] if stage == 0 else []
    targets = [stage - 1] if stage > 0 else []
    return Route(tuple(sources), tuple(targets + ([0] if stage in behind else [])))


def _looking_back(blocks: Sequence[Block], bounds: Sequence[int]) -> list[int]:
    """The stages above the first with a block that looks at H_0."""
    return [k for k in range(1, len(bounds) - 1) if looks_back(blocks[bounds[k] : bounds[k + 1]])]
