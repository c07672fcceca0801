"""A solver that is not one of the package's own, by name, so that every rank of a grid can make it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import ProcessGrid
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.config import TrainConfig
from gfgnn.model.build import Model
from gfgnn.solver.base import Solver


@dataclass(frozen=True)
class Method:
    """What makes the solver of a rank.

    Attributes:
        maker: ``module:function``, called in every rank as ``function(config, model, **options)``; its time is no part
            of the set-up.
        options: JSON-ready.
        replicated: each of ``config.parts`` ranks has the whole graph and the whole network, and the graph is not cut.
    """

    maker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    replicated: bool = False

    def make(self, config: TrainConfig, model: Model) -> Solver:
        """The solver. Called by every rank."""
        module, name = self.maker.split(":")
        solver: Solver = getattr(importlib.import_module(module), name)(config, model, **self.options)
        return solver


def replicas(world: Communicator) -> ProcessGrid:
    """The ranks of ``world`` as so many copies of a grid of one: each has all nodes and all blocks.

    The part is the number of the copy, so that what only part 0 contributes is contributed once.
    """
    return ProcessGrid(world, 1, 1, world.rank, 0, SerialCommunicator(), SerialCommunicator())


__all__ = ["Method", "replicas"]
