"""A training problem: a model and a graph brought together, with everything computed that never changes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.graph import Graph
from gfgnn.graph.propagation import Propagation, build_propagation
from gfgnn.model.build import Model, propagation_settings
from gfgnn.model.inputs import Inputs, make_inputs


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solver trains on.

    Attributes:
        inputs: T of block 0, the propagated features, as a linear map ``[N, fan_in]``.
        targets: ``[k, C]``: one-hot classes, 0/1 labels or values of the labelled training nodes.
        train_index, val_index, test_index: labelled node ids of each split.
    """

    model: Model
    graph: Graph
    propagation: Propagation
    inputs: Inputs
    targets: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    dtype: torch.dtype
    device: torch.device


def prepare(
    model: Model, graph: Graph, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Problem:
    """Builds the propagation matrix and propagates the features.

    Raises:
        InputError: features or classes of ``graph`` do not fit ``model``.
    """
    if graph.x is None or graph.num_features != model.num_features:
        raise InputError(
            f"The model takes {model.num_features} features a node; {graph.name} has {graph.num_features}."
        )
    if graph.num_classes != model.num_classes or graph.task != model.task:
        raise InputError(
            f"The model predicts {model.num_classes} {model.task} outputs; {graph.name} has {graph.num_classes} "
            f"({graph.task})."
        )
    propagation = build_propagation(graph, *propagation_settings(model.config)).to(dtype, device)
    features = graph.x.to(device=device, dtype=dtype)
    train = graph.labelled(graph.train_mask)
    return Problem(
        model=model,
        graph=graph,
        propagation=propagation,
        inputs=make_inputs(model.blocks[0], propagation, features),
        targets=training_targets(graph, train).to(device=device, dtype=dtype),
        train_index=train.to(device),
        val_index=graph.labelled(graph.val_mask).to(device),
        test_index=graph.labelled(graph.test_mask).to(device),
        dtype=dtype,
        device=torch.device(device),
    )


def training_targets(graph: Graph, index: Tensor) -> Tensor:
    """``[k, C]`` targets of the nodes ``index``; classes become one-hot rows."""
    if graph.task == "multiclass":
        return torch.nn.functional.one_hot(graph.y[index], graph.num_classes)
    return graph.y[index]
