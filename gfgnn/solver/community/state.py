"""What community-based ADMM keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from gfgnn.exchange.neighbours import Neighbourhood
from gfgnn.solver.state import Weights


@dataclass(eq=False)
class CommunityState:
    """The variables, by block number, for this community's nodes: ``n`` of its own, ``m`` of others that gather from
    them. Blocks are numbered from 0, so that block l - 1 is the paper's layer l.

    Attributes:
        neighbourhood: products with the columns of S that the community owns.
        counted: rows of the output constraint that count, as 1 and 0, ``[n + m, 1]``; None: all.
        weights: of the whole network, the same in every community.
        fit: ``S Z_below W + b`` ``[n, d]`` of every block.
        z: activations ``[n, d]`` of the blocks below the output, scores of the output block.
        u: the dual of ``Z_L = S Z_{L-1} W_L``, ``[n, C]``; 0 in rows that do not count.
        curvature: where the latest search for each weight's (``W0``) and each embedding's (``Z0``) step ended.
    """

    neighbourhood: Neighbourhood
    counted: Tensor | None
    weights: Weights
    fit: dict[int, Tensor]
    z: dict[int, Tensor]
    u: Tensor
    curvature: dict[str, float] = field(default_factory=dict)
    iteration: int = 0

    def layer(self, index: int) -> tuple[Tensor, Tensor | None]:
        """W and b."""
        return self.weights[f"block{index}.weight"], self.weights.get(f"block{index}.bias")

    @property
    def last(self) -> int:
        """Number of the output block."""
        return len(self.fit) - 1

    @property
    def own_counted(self) -> Tensor | None:
        """``counted`` of the community's own rows, ``[n, 1]``."""
        return None if self.counted is None else self.counted[: self.u.size(0)]
