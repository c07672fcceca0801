"""What the ADMM solver keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gfgnn.exchange.stages import Channel
from gfgnn.solver.auto import Settings
from gfgnn.solver.input_system import InputSystem
from gfgnn.solver.setup import HeadRows
from gfgnn.solver.state import Weights


@dataclass(frozen=True, eq=False)
class Fixed:
    """What never changes in a run.

    Attributes:
        settings: ridges and dropouts, as the block solver's rule chooses them.
        masses: node weights c_l of each block, ``[B][N]``: what a row of z_l, q_l and p_{l+1} counts.
        head: the labelled rows of the output block; None below the last stage.
        system: the ridge system of block 0; None above the first stage.
        references: what the ridge shrinks each weight towards.
        up: to the stage above, q and u of this stage's last block; from the stage below, those of its.
        down: to the stage below, p of this stage's first block; from the stage above, that of its.
        staleness: age in iterations of what stages work on; 0 waits.
    """

    settings: Settings
    masses: Sequence[Tensor]
    head: HeadRows | None
    system: InputSystem | None
    references: Weights
    up: Channel
    down: Channel
    staleness: int


@dataclass(eq=False)
class AdmmState:
    """The variables, by block number l, as far as this rank holds them.

    The dual of ``p_{l+1} = q_l`` is not stored: after every update it is ``nu (q_l - f(z_l))``.

    Attributes:
        weights: ``block{l}.weight`` and ``.bias`` of this stage's blocks.
        z: pre-activations ``[N, d]`` of this stage's blocks below the output one.
        q: their activations ``[N, d]``; also the one that the stage below sent.
        p: the copies of q that the blocks above work on, ``[N, d]``; also the one that the stage above sent.
        sent_dual: u that the stage below sent with its q.
        scores: z of the output block, labelled rows ``[k, C]``; None below the last stage.
        nu, rho: the penalties.
        charges: the diagonal that the ridge of each block's weights adds to its Gram matrix, where it is held for the
            whole run.
        misfits, ridges: of each block, as it was last updated, its terms of the augmented Lagrangian: the fit (and
            the loss), and the ridge.
    """

    fixed: Fixed
    weights: Weights
    nu: float
    rho: float
    iteration: int = 0
    z: dict[int, Tensor] = field(default_factory=dict)
    q: dict[int, Tensor] = field(default_factory=dict)
    p: dict[int, Tensor] = field(default_factory=dict)
    sent_dual: Tensor | None = None
    scores: Tensor | None = None
    charges: dict[int, Tensor] = field(default_factory=dict)
    misfits: dict[int, float] = field(default_factory=dict)
    ridges: dict[int, float] = field(default_factory=dict)

    def layer(self, index: int) -> tuple[Tensor, Tensor | None]:
        """W and b."""
        return self.weights[f"block{index}.weight"], self.weights.get(f"block{index}.bias")

    def offset(self, index: int) -> Tensor:
        """``W - W_ref``, what the ridge shrinks."""
        name = f"block{index}.weight"
        return self.weights[name] - self.fixed.references[name]

    @property
    def synchronous(self) -> bool:
        """Whether the present iteration waits for the other stages; the first ones do, to have messages to go on."""
        return self.iteration <= self.fixed.staleness or self.fixed.staleness == 0
