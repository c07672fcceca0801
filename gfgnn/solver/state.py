"""What the block solver keeps: fixed parts, the state that iterations change, the activations of one iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gfgnn.exchange.stages import Agreement, Channel
from gfgnn.model.blocks import FEATURES, Block
from gfgnn.model.wiring import is_input
from gfgnn.ops.arena import Arena, recycle
from gfgnn.ops.gate import Gate
from gfgnn.solver.auto import Settings
from gfgnn.solver.input_system import InputSystem
from gfgnn.solver.setup import HeadRows

#: ``block{l}.weight`` [fan_in, out_channels] and ``block{l}.bias`` [out_channels]
Weights = dict[str, Tensor]


def block_of(name: str) -> int:
    """The number of the block that a weight belongs to: 12 for ``block12.bias``."""
    return int(name.split(".")[0].removeprefix("block"))


@dataclass(frozen=True, eq=False)
class Fixed:
    """What never changes in a run.

    Attributes:
        masses: node weights c_l of each of the stage's blocks, ``{l: [N]}``.
        head: the labelled rows; None below the last stage.
        systems: of the blocks that take the features alone, by number; none above the first stage.
        gain: what the sweep step multiplies the encoder's shift by, 1 / response.
        references: what the ridge shrinks each weight towards.
        horizon: iterations of the whole run; the polar step's size falls linearly to zero over them.
        share: of each update that is applied, for stages that work on old messages.
        rows: of each hidden block, those that weigh anything, where they are few; else None.
    """

    settings: Settings
    masses: dict[int, Tensor]
    head: HeadRows | None
    systems: dict[int, InputSystem]
    gain: float
    references: Weights
    horizon: int
    share: float = 1.0
    rows: dict[int, Tensor | None] = field(default_factory=dict)

    @property
    def encoder(self) -> InputSystem:
        """The system of block 0; only the first stage has it."""
        return self.systems[0]


@dataclass(frozen=True, eq=False)
class Links:
    """How this rank hears of the others: activations from below, the message from above, what all agree on."""

    up: Channel
    down: Channel
    agreement: Agreement
    staleness: int


@dataclass(frozen=True, eq=False)
class Logged:
    """One iteration in the log: the weights of its refresh, the age of its messages, the scale it ran on."""

    weights: Weights
    lag: int
    scale: float


@dataclass(eq=False)
class TargetState:
    """What an iteration changes.

    Attributes:
        links: to the stages below and above, and to all ranks.
        weights: of this stage's blocks.
        velocity: the last change of every weight.
        seed: of the sampled dropout.
        arena: large arrays of one iteration that the next one uses again; for chains.
        averages: running means of the polar step.
        grams: Gram matrices of hidden blocks that serve for several iterations, each with the scale of then.
        slow: factor on every change; the safeguard lowers it and it recovers.
        good: weights of the lowest training loss so far, to go back to.
        scale: product of all gauge factors so far; divides H and all messages.
        synchronous_until: iterations up to this one wait for each other's messages; later ones use older messages.
        log: the latest iterations, to know later what was done then.
    """

    fixed: Fixed
    links: Links
    weights: Weights
    velocity: Weights
    seed: int
    arena: Arena = field(default_factory=Arena)
    averages: dict[str, Tensor] = field(default_factory=dict)
    grams: dict[int, tuple[Tensor, float]] = field(default_factory=dict)
    averaged: int = 0  #: iterations in the running means
    iteration: int = 0
    slow: float = 1.0
    first_loss: float = float("inf")
    last_loss: float = float("inf")
    good_loss: float = float("inf")
    good: Weights = field(default_factory=dict)
    judged: int = 0  #: the latest iteration whose loss the safeguard has seen
    scale: float = 1.0
    synchronous_until: int = 0
    log: dict[int, Logged] = field(default_factory=dict)

    def layer(self, index: int) -> tuple[Tensor, Tensor | None]:
        """W and b of a block."""
        return self.weights[f"block{index}.weight"], self.weights.get(f"block{index}.bias")

    @property
    def synchronous(self) -> bool:
        """Whether the present iteration waits for messages of its own."""
        return self.iteration <= self.synchronous_until or self.links.staleness == 0

    @property
    def lag(self) -> int:
        """Age of the messages that the present iteration works on."""
        return 0 if self.synchronous else self.links.staleness


def rescaled(weights: Weights, g: float, blocks: Sequence[Block]) -> Weights:
    """The same network with H of every block below the output divided by ``g``; no score changes.

    Activations are positively homogeneous: the weights on features and every bias are divided, the output's weight is
    multiplied. For networks of which :func:`gfgnn.model.wiring.is_homogeneous` holds.
    """
    last = len(blocks) - 1
    factors = {f"block{index}.bias": 1.0 / g for index in range(last)}
    factors |= {f"block{index}.weight": 1.0 / g for index in range(last) if is_input(blocks, index)}
    factors[f"block{last}.weight"] = g
    return {n: w * factors[n] if n in factors else w for n, w in weights.items()}


@dataclass(eq=False)
class Activations:
    """What the forward refresh leaves for the updates.

    Attributes:
        first: number of the stage's first block.
        features: X, where a block takes it beside other sources.
        inputs: T of the stage's blocks below the output, by number, where it changes, has weights and is kept.
        gates: where the activation of each of them let Z pass; none for the identity.
        outputs: H of those that a later block of the stage takes, and of the stage's highest, by number.
        below: H that the stage below sent; None in the first stage.
        initial: H_0; None where no block of this stage or above looks at it.
        head: T of the output block, labelled rows ``[k, fan_in]``; None below the last stage.
        scores: of the labelled rows, ``[k, C]``; likewise.
        checkpoints: H below some blocks, by their number, from which the T of others can be computed again.
        scales: what the present statistics multiply the columns of Z by, for blocks that normalise it.
    """

    first: int
    features: Tensor | None
    inputs: dict[int, Tensor]
    gates: dict[int, Gate]
    outputs: dict[int, Tensor]
    below: Tensor | None
    initial: Tensor | None
    head: Tensor | None
    scores: Tensor | None
    checkpoints: dict[int, Tensor] = field(default_factory=dict)
    scales: dict[int, Tensor] = field(default_factory=dict)

    def top(self) -> Tensor | None:
        """H of the highest block below the output that this stage has, or has been sent; None where there is none."""
        return self.outputs[max(self.outputs)] if self.outputs else self.below

    def forget_outputs(self, *, last: bool = False) -> None:
        """Lets go of every H: the way back needs T and gates alone, and H_0 where T is computed again.

        Args:
            last: nobody was sent any of them.
        """
        for output in self.outputs.values():
            if last and output is not self.initial:
                recycle(output)
        self.outputs.clear()
        self.below = None
        if not self.checkpoints:
            self.initial = None

    def of(self, source: int) -> Tensor:
        """The output of a block, or the features, as far as this stage has them."""
        found = self.outputs.get(source)
        if found is None:
            beside = {self.first - 1: self.below, FEATURES: self.features}
            found = beside.get(source, self.initial)
        assert found is not None
        return found


@dataclass(frozen=True)
class Update:
    """Changes of a layer's weight ``[p, d]`` and bias ``[d]`` (None where the layer has none)."""

    weight: Tensor
    bias: Tensor | None
