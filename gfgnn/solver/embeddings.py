"""How well embeddings do that are variables of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.exchange.sums import gather_rows
from gfgnn.problem import Problem


def embedding_accuracy(problem: Problem, scores: Tensor) -> dict[str, float]:
    """``auxiliary_val`` and ``auxiliary_test`` of what a solver's embeddings say of this part's nodes, ``[N, C]``; a
    split without labels is left out.

    Called by every part of a stage; sends the scores of the labelled nodes, and all get the same numbers.
    """
    found = {}
    for split, index in (("val", problem.val_index), ("test", problem.test_index)):
        rows, truth = (
            gather_rows(problem.grid.parts, v[index], purpose="evaluate") for v in (scores, problem.y)
        )
        if rows.size(0):
            everyone = torch.arange(rows.size(0), device=rows.device)
            found[f"auxiliary_{split}"] = metrics.score(problem.model.task, rows, truth, everyone)
    return found
