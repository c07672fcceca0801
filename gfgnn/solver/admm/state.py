"""What the ADMM solver keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gfgnn.solver.auto import Settings
from gfgnn.solver.input_system import InputSystem
from gfgnn.solver.setup import HeadRows

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Fixed:
    """What never changes in a run.

    Attributes:
        settings: ridges and dropouts, as the block solver's rule chooses them.
        masses: node weights c_l of each block, ``[B][N]``: what a row of z_l, q_l and p_{l+1} counts.
        head: the labelled rows of the output block.
        system: the ridge system of block 0.
        references: what the ridge shrinks each weight towards.
    """

    settings: Settings
    masses: Sequence[Tensor]
    head: HeadRows
    system: InputSystem
    references: Weights


@dataclass(eq=False)
class AdmmState:
    """The variables; lists have an entry for each block l below the output one.

    The dual of ``p_{l+1} = q_l`` is not stored: after every update it is ``nu (q_l - f(z_l))``.

    Attributes:
        weights: ``block{l}.weight`` and ``.bias``.
        z: pre-activations ``[N, d]``.
        q: activations ``[N, d]``.
        p: the copies of q that the block above works on, ``[N, d]``.
        scores: z of the output block, labelled rows ``[k, C]``.
        nu, rho: the penalties.
    """

    fixed: Fixed
    weights: Weights
    z: list[Tensor]
    q: list[Tensor]
    p: list[Tensor]
    scores: Tensor
    nu: float
    rho: float
    iteration: int = 0
    residuals: dict[str, float] = field(default_factory=dict)
