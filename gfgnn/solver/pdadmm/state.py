"""What pdADMM-G keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfgnn.model.inputs import Inputs
from gfgnn.problem import Problem
from gfgnn.solver.state import Weights

#: Rows of the propagated features that are taken at a time.
ROWS = 256


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of the propagated features, ``[n, fan_in]``, with the products of :class:`Inputs`."""

    values: Tensor

    def matmul(self, weight: Tensor) -> Tensor:
        """``T @ weight``."""
        return self.values @ weight

    def adjoint(self, r: Tensor) -> Tensor:
        """``T' @ r``."""
        return self.values.t() @ r


def rows_of(inputs: Inputs, index: Tensor, num_nodes: int, dtype: torch.dtype) -> Table:
    """The rows ``index`` of T: ``T' E`` with unit vectors E, which never writes out the others.

    Some at a time: E has a number for every node and column, and labels may be as many as nodes.
    """
    found = []
    for some in index.split(ROWS):
        units = torch.zeros(num_nodes, some.numel(), dtype=dtype, device=index.device)
        units[some, torch.arange(some.numel(), device=index.device)] = 1.0
        found.append(inputs.adjoint(units).t())
    return Table(torch.cat(found).contiguous())


@dataclass(eq=False)
class PdadmmState:
    """The variables, by block number. ``n`` rows: all nodes, or the labelled training nodes.

    Attributes:
        inputs: p of block 0, the features, which never change.
        labelled: which rows carry training labels, ``[k]``.
        weights: of the whole network; hidden layers that have not joined yet are the identity.
        active: numbers of the blocks that have joined, the output block last.
        fit: ``p W + b`` of the active blocks, as of the last update of their weights.
        z: pre-activations ``[n, d]``, of the output block too.
        q: activations of the active blocks below the output.
        p: their copies, which the next active block takes.
        u: the duals of ``p = q``.
        losses: of the network, since layers last joined.
    """

    inputs: Inputs | Table
    labelled: Tensor
    weights: Weights
    active: tuple[int, ...]
    nu: float
    rho: float
    fit: dict[int, Tensor] = field(default_factory=dict)
    z: dict[int, Tensor] = field(default_factory=dict)
    q: dict[int, Tensor] = field(default_factory=dict)
    p: dict[int, Tensor] = field(default_factory=dict)
    u: dict[int, Tensor] = field(default_factory=dict)
    iteration: int = 0
    losses: list[float] = field(default_factory=list)

    def layer(self, index: int) -> tuple[Tensor, Tensor | None]:
        """W and b."""
        return self.weights[f"block{index}.weight"], self.weights.get(f"block{index}.bias")

    def links(self) -> list[tuple[int, int]]:
        """Active blocks, each with the next one: where there are p, q and u, which bear the lower number."""
        return list(zip(self.active[:-1], self.active[1:], strict=True))


def starting_rows(problem: Problem, nodes: str) -> tuple[Inputs | Table, Tensor]:
    """``inputs`` and ``labelled`` of a state."""
    if nodes == "all":
        return problem.inputs, problem.train_index
    index = problem.train_index
    table = rows_of(problem.inputs, index, problem.propagation.num_nodes, problem.dtype)
    return table, torch.arange(index.numel(), device=index.device)
