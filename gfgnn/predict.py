"""Predictions of a trained network for the nodes of a graph."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gfgnn.checkpoint import atomic_write, load_model
from gfgnn.checks import InputError, check_device
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model
from gfgnn.problem import prepare
from gfgnn.result import Result


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What a network says about every node.

    Attributes:
        node_id: original node ids ``[N]``.
        prediction: classes ``[N]``; 0/1 labels ``[N, C]`` for multi-label networks; None for regression.
        probability: ``[N, C]``; None for regression.
        value: ``[N, C]`` for regression, else None.
    """

    node_id: Tensor
    prediction: Tensor | None = None
    probability: Tensor | None = None
    value: Tensor | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the arrays that are there as ``.npz``, atomically."""
        names = ("node_id", "prediction", "probability", "value")
        arrays = {name: getattr(self, name).numpy() for name in names if getattr(self, name) is not None}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        atomic_write(path, buffer.getvalue())


def predict(
    trained: Result | str | os.PathLike[str] | tuple[Model, dict[str, Tensor]],
    graph: Graph,
    *,
    device: str = "cpu",
) -> Predictions:
    """Runs a trained network on ``graph``, which needs no labels.

    Args:
        trained: a training result, the folder of a run (or its ``model.safetensors``), or a network with weights.

    Raises:
        InputError: the graph has other features or more classes than the network was trained on, or the device is
            not there.
    """
    if isinstance(trained, Result):
        model, weights = trained.model, trained.weights
    elif isinstance(trained, tuple):
        model, weights = trained
    else:
        model, weights = load_model(trained)
    check_device(device)
    check_fits(model, graph)
    dtype = next(iter(weights.values())).dtype
    with torch.inference_mode():
        problem = prepare(model, _unlabelled(graph, model), dtype=dtype, device=device)
        scores = forward(problem, {name: value.to(device) for name, value in weights.items()}).cpu()
    ids = torch.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    if model.task == "regression":
        return Predictions(node_id=ids, value=scores)
    if model.task == "multilabel":
        probability = torch.sigmoid(scores)
        return Predictions(node_id=ids, prediction=(probability > 0.5).long(), probability=probability)
    return Predictions(node_id=ids, prediction=scores.argmax(1), probability=torch.softmax(scores, 1))


def check_fits(model: Model, graph: Graph) -> None:
    """Raises :class:`InputError` unless ``graph`` has the model's features and, if any labels, its task and classes.

    Labels of a part of the classes are fine: the largest may not occur in this graph.
    """
    if graph.num_features != model.num_features:
        raise InputError(
            f"The model was trained on {model.num_features} features a node; {graph.name} has {graph.num_features}. "
            "Load the graph with the same --features and --normalise as for training."
        )
    labelled = graph.labelled(torch.ones(graph.num_nodes, dtype=torch.bool)).numel()
    known, here = model.num_classes, graph.num_classes
    foreign = here > known if model.task == "multiclass" else here != known
    if labelled and (graph.task != model.task or foreign):
        raise InputError(
            f"The model predicts {model.num_classes} outputs ({model.task}); {graph.name} has labels for "
            f"{graph.num_classes} ({graph.task})."
        )


def _unlabelled(graph: Graph, model: Model) -> Graph:
    """``graph`` without labels and split: a prediction may not depend on them."""
    n, nobody = graph.num_nodes, torch.zeros(graph.num_nodes, dtype=torch.bool)
    y = (
        torch.full((n,), -1)
        if model.task == "multiclass"
        else torch.full((n, model.num_classes), float("nan"))
    )
    return graph.replace(
        y=y,
        task=model.task,
        num_classes=model.num_classes,
        train_mask=nobody,
        val_mask=nobody,
        test_mask=nobody,
    )
