"""OGB's official evaluator, asked without a question, a download or a look at the network."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.data.ogb.sets import SETS, ogb_set
from gfgnn.graph.graph import Graph


def official_score(name: str, y_true: Any, y_pred: Any) -> float:
    """What ``ogb.nodeproppred.Evaluator(name)`` says: accuracy, or for proteins ROC-AUC averaged over the tasks.

    Args:
        name: ``ogbn-arxiv`` and so on.
        y_true: labels ``[k]``, ``[k, 1]`` or ``[k, tasks]``, tensor or array; NaN where unknown.
        y_pred: as many classes, or scores where the measure is ROC-AUC.

    Raises:
        InputError: the data set is unknown, shapes do not fit, nothing is labelled, or ogb is not installed.
    """
    known = ogb_set(name)
    truth, predicted = (_table(values) for values in (y_true, y_pred))
    if truth.shape != predicted.shape or truth.ndim != 2 or truth.shape[1] != known.num_tasks:
        raise InputError(
            f"{known.name} is scored on {known.num_tasks} column(s) of labels and of predictions; got "
            f"{list(truth.shape)} and {list(predicted.shape)}."
        )
    if not _measurable(known.metric, truth):
        raise InputError(
            f"{known.metric} of {known.name} is not defined: every column lacks the labels for it."
        )
    evaluator = _evaluation().Evaluator(known.name)
    return float(evaluator.eval({"y_true": truth, "y_pred": predicted})[known.metric])


def official_test(graph: Graph, prediction: Tensor, probability: Tensor) -> dict[str, float]:
    """``{"official_test_acc": ...}`` (or ``_rocauc``) of predictions for all nodes of ``graph``; else an empty dict.

    There is a score where the graph is a whole OGB data set with its official split, labels of the test nodes are
    known, and ogb is installed.

    Args:
        prediction: classes ``[N]``.
        probability: ``[N, C]``, used in place of classes where the measure is ROC-AUC.
    """
    known = SETS.get(graph.name)
    redrawn = any(note.startswith("split ") for note in graph.notes)
    if known is None or graph.node_ids is not None or redrawn or importlib.util.find_spec("ogb") is None:
        return {}
    truth = graph.y[graph.test_mask].double()
    if graph.task == "multiclass":
        truth[truth < 0] = torch.nan
    table = _table(truth)
    if table.shape[1] != known.num_tasks or not _measurable(known.metric, table):
        return {}
    values = (probability if known.metric == "rocauc" else prediction)[graph.test_mask]
    return {f"official_test_{known.metric}": official_score(known.name, truth, values)}


def _table(values: Any) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _measurable(metric: str, truth: np.ndarray) -> bool:
    """Accuracy is a mean over each column's labels; ROC-AUC needs a column with labels of both kinds."""
    if metric == "acc":
        return bool((~np.isnan(truth.astype(np.float64))).any(axis=0).all())
    return bool(((truth == 0).any(axis=0) & (truth == 1).any(axis=0)).any())


@cache
def _evaluation() -> ModuleType:
    """OGB's module by its file: the package itself takes seconds to import and asks the network for newer versions."""
    package = importlib.util.find_spec("ogb")
    places = [] if package is None else list(package.submodule_search_locations or [])
    for place in places:
        path = Path(place) / "nodeproppred" / "evaluate.py"
        spec = importlib.util.spec_from_file_location("gfgnn_ogb_evaluate", path)
        if path.is_file() and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise InputError("OGB's evaluator is not installed: pip install ogb.")
