"""The stages of a pipeline: the split, what it is predicted to cost, and why it is no better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gfgnn.model.build import Model
from gfgnn.plan.cost import Rates, Sizes, block_costs, seconds
from gfgnn.plan.layers import check_bounds, split_layers


@dataclass(frozen=True)
class StagePlan:
    """Contiguous stages of a network's blocks.

    Attributes:
        bounds: ``(0, b_1, ..., B)``: stage s has the blocks ``bounds[s]`` to ``bounds[s + 1] - 1``.
        block_seconds: predicted for one iteration of each block.
        roles: what each block is, in words.
        chosen: whether the bounds are the best ones, rather than given and worse.
    """

    bounds: tuple[int, ...]
    block_seconds: tuple[float, ...]
    roles: tuple[str, ...]
    chosen: bool

    @property
    def stage_seconds(self) -> tuple[float, ...]:
        """Predicted for one iteration of each stage."""
        return tuple(sum(self.block_seconds[a:b]) for a, b in pairwise(self.bounds))

    @property
    def bottleneck(self) -> float:
        """Seconds of the slowest stage, the pace of all of them."""
        return max(self.stage_seconds)

    @property
    def balance(self) -> float:
        """Mean over maximum of the stages' seconds: 1 where all take the same time."""
        return sum(self.stage_seconds) / len(self.stage_seconds) / self.bottleneck

    def describe(self) -> str:
        """A few lines: each stage's blocks and predicted share, and what limits the slowest."""
        total, stages = sum(self.block_seconds), len(self.stage_seconds)
        lines = [
            f"{len(self.block_seconds)} blocks in {stages} stages, "
            f"predicted balance {self.balance:.2f} (mean/max)"
        ]
        for stage, (first, end) in enumerate(pairwise(self.bounds)):
            share = self.stage_seconds[stage] / total
            lines.append(f"  stage {stage}: {_blocks(first, end, self.roles)}, {share:.1%} of the work")
        if stages > 1:
            lines.append(f"  {self._why(total)}")
        return "\n".join(lines)

    def _why(self, total: float) -> str:
        even = 1 / len(self.stage_seconds)
        slowest = self.stage_seconds.index(self.bottleneck)
        first, end = self.bounds[slowest : slowest + 2]
        largest = max(range(first, end), key=lambda index: self.block_seconds[index])
        share = self.block_seconds[largest] / total
        text = (
            f"bottleneck: stage {slowest}, {self.bottleneck / total:.1%}; an even split would be {even:.1%}"
        )
        if not self.chosen:
            return f"{text}; the bounds are given, and others are predicted to be quicker"
        if share > even:
            return f"{text}, but block {largest} ({self.roles[largest]}) alone takes {share:.1%}"
        return f"{text}, but blocks stay whole" if self.balance < 0.995 else text


def plan_stages(
    model: Model,
    sizes: Sizes,
    step: str,
    num_stages: int,
    bounds: Sequence[int] | None = None,
    *,
    rates: Rates | None = None,
) -> StagePlan:
    """Splits the blocks of ``model`` by the predicted time of one iteration.

    Args:
        step: ``sweep`` or ``polar``.
        bounds: a split to use instead of the best one.
        rates: of the machine; only their ratios matter.

    Raises:
        InputError: more stages than blocks, or ``bounds`` that do not fit.
    """
    rates = rates or Rates()
    spent = tuple(seconds(cost, rates) for cost in block_costs(model, sizes, step))
    best = StagePlan(split_layers(spent, num_stages), spent, _roles(model), chosen=True)
    if bounds is None:
        return best
    given = StagePlan(check_bounds(bounds, len(spent), num_stages), spent, best.roles, chosen=False)
    return best if given.bounds == best.bounds else given


def _roles(model: Model) -> tuple[str, ...]:
    encoder, output = (
        f"the encoder with {model.num_features} features",
        f"the output of {model.num_classes} columns",
    )
    if len(model.blocks) == 1:
        return (f"{encoder}, which is the output, too",)
    hidden = [f"hidden, {block.in_channels} to {block.out_channels} columns" for block in model.blocks[1:-1]]
    return (encoder, *hidden, output)


def _blocks(first: int, end: int, roles: tuple[str, ...]) -> str:
    text = f"block {first}" if end == first + 1 else f"blocks {first} to {end - 1}"
    ends = [roles[index] for index in (0, len(roles) - 1) if first <= index < end]
    return f"{text} ({', '.join(dict.fromkeys(ends))})" if ends else text
