"""What ``gfgnn train`` makes of a trained network before it reports."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gfgnn.cli.outcome import predicted_by

if TYPE_CHECKING:
    from torch import Tensor

    from gfgnn.graph.graph import Graph
    from gfgnn.result import Result
    from gfgnn.toml import RunConfig


def after(result: Result, run: RunConfig) -> Result:
    """``result`` with the scores of all labels as inputs, and after post-processing, where the run has these.

    The whole graph is needed: on a grid, rank 0 does it alone.
    """
    from gfgnn.post import choose_alphas, correct_and_smooth

    graph, started = result.graph, time.perf_counter()
    probabilities = predicted_by(result).probability
    assert probabilities is not None  # regressions are refused before training
    if result.model.config.label_inputs:
        result = replace(result, label_reuse=_scores_since(started, graph, probabilities))
    if run.post != "none":
        settings = choose_alphas(graph, probabilities, run.correct_and_smooth)
        smoothed = correct_and_smooth(graph, probabilities, settings)
        about = {"method": run.post, "settings": asdict(settings)}
        result = replace(result, post=about | _scores_since(started, graph, smoothed))
    return result


def _scores_since(started: float, graph: Graph, probabilities: Tensor) -> dict[str, float | None]:
    from gfgnn.metrics import score

    found: dict[str, float | None] = {}
    for split, mask in (("val", graph.val_mask), ("test", graph.test_mask)):
        value = score(graph.task, probabilities, graph.y, graph.labelled(mask))
        found[f"{split}_accuracy"] = None if math.isnan(value) else value
    return found | {"seconds": time.perf_counter() - started}
