"""Training with label inputs: of the network that takes them, or of two where predictions are reused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.label_reuse import EARLIER, training_inputs
from gfgnn.loop import Callback
from gfgnn.model.build import Model
from gfgnn.plan.plan import Plan
from gfgnn.predict import earlier_network, room_of
from gfgnn.result import Result
from gfgnn.train import train


def train_with_labels(
    model: Model,
    graph: Graph,
    config: TrainConfig,
    *,
    on_iteration: Callback | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    plan: Plan | None = None,
    folder: Path | None = None,
) -> Result:
    """What :func:`gfgnn.train` does for a network with ``label_inputs``: trains f, or f_0 and f_1, of
    :mod:`gfgnn.label_reuse`.

    The seconds of f_0, and its half of ``max_seconds``, count as set-up of f_1; ``on_iteration`` does not see it.
    Weights of both are in the result.

    Raises:
        KeyboardInterrupt: the training of f_0 was interrupted: there is no f_1 to return.
    """
    plain = replace(model, config=replace(model.config, label_inputs=False, label_reuse=False))
    first: dict[str, Tensor] = {}
    earlier, spent, started = None, 0.0, time.perf_counter()
    if model.config.label_reuse:
        if config.max_seconds is not None:
            config = replace(config, max_seconds=config.max_seconds / 2)
        settings = replace(config, profile=False, timeline=False)
        before = train(plain, training_inputs(graph, config.seed), settings, plan=plan)
        if before.interrupted:
            raise KeyboardInterrupt
        first, spent = before.weights, before.seconds
        earlier = earlier_network(plain, first, room_of(config))
        started = time.perf_counter()
    inputs = training_inputs(graph, config.seed, earlier)
    spent += time.perf_counter() - started

    def later(line: dict[str, Any]) -> dict[str, Any]:
        return line | {"seconds": line["seconds"] + spent}

    told = None if on_iteration is None else lambda line: on_iteration(later(line))
    result = train(plain, inputs, config, on_iteration=told, on_plan=on_plan, plan=plan, folder=folder)
    kept = {f"{EARLIER}{name}": weight for name, weight in first.items()}
    return replace(
        result,
        model=model,
        graph=graph,
        weights=result.weights | kept,
        last_weights=result.last_weights | kept,
        history=[later(line) for line in result.history],
        seconds=result.seconds + spent,
        seconds_to_best=result.seconds_to_best + spent,
        setup_seconds=result.setup_seconds + spent,
    )
