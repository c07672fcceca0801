"""Predictions of a trained network for the nodes of a graph."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gfgnn.checkpoint import atomic_file, check_same_graph, load_embedding_scores, load_model
from gfgnn.checks import InputError, check_count, check_device
from gfgnn.config import CorrectAndSmoothConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.forward_parts import forward_parts, scores_in_turns
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition
from gfgnn.label_reuse import EARLIER, Earlier, prediction_inputs
from gfgnn.model.build import Model
from gfgnn.ops.memory import page_out
from gfgnn.post import check_post, correct_and_smooth
from gfgnn.problem import prepare
from gfgnn.result import Result
from gfgnn.solver.head import predict_mean

PIECE = 1 << 16  #: rows of scores that are worked on at once

#: A training result, the folder of a run (or a file in it), or a network with weights.
Trained = Result | str | os.PathLike[str] | tuple[Model, dict[str, Tensor]]


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
        with atomic_file(path) as file:
            np.savez(file, **arrays)


def predict(
    trained: Trained,
    graph: Graph,
    *,
    device: str = "cpu",
    transductive: bool = False,
    parts: int | None = None,
    memory_limit: str | None = None,
) -> Predictions:
    """Runs a trained network on ``graph``, which needs no labels unless the network takes those of training nodes as
    inputs (:mod:`gfgnn.label_reuse`).

    Args:
        trained: a training result, the folder of a run (or its ``model.safetensors``), or a network with weights.
        transductive: take what the best iterate's embeddings say of the nodes that it was trained on, in place of a
            run of the network; for results of solvers that have embeddings of their own (``admm``), and for that
            graph only.
        parts: of the graph, over which the network goes one after the other, layer by layer, on the CPU; what is
            predicted is then mapped from files. None takes the whole graph at once, or what ``memory_limit`` leads to.
        memory_limit: such as ``16GB``: as few parts as keep to it.

    Raises:
        InputError: the graph has other features or more classes than the network was trained on, or lacks labels
            that the network takes as inputs; the device is not there; or not even parts keep to the limit.
    """
    if transductive:
        if parts is not None or memory_limit is not None:
            raise InputError(
                "transductive predictions are no run of the network; leave out parts and memory_limit."
            )
        return _of_embeddings(trained, graph)
    if isinstance(trained, Result):
        model, weights = trained.model, trained.weights
    elif isinstance(trained, tuple):
        model, weights = trained
    else:
        model, weights = load_model(trained)
    check_device(device)
    check_fits(model, graph)
    if parts is not None:
        check_count("parts", parts, 1, graph.num_nodes)
    room = Room(device=device, parts=parts, memory_limit=memory_limit, partition=_known(trained, graph))
    if model.config.label_inputs:
        first = {name.removeprefix(EARLIER): w for name, w in weights.items() if name.startswith(EARLIER)}
        earlier = earlier_network(model, first, room) if model.config.label_reuse else None
        inputs = prediction_inputs(graph, model.num_classes, earlier)
    else:
        inputs = graph
    return _predictions(model, graph, _scores(model, weights, inputs, room))


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where a network runs, and in how many parts; as in :func:`predict`."""

    device: str = "cpu"
    parts: int | None = None
    memory_limit: str | None = None
    partition: Partition | None = None  #: taken where it has as many parts


def _known(trained: Trained, graph: Graph) -> Partition | None:
    """The partition on which a result was trained, where it was trained on this very graph."""
    plan = trained.plan if isinstance(trained, Result) and trained.graph is graph else None
    return None if plan is None else plan.partition


def room_of(config: TrainConfig) -> Room:
    """That of a training run: part after part where it trains so, and within the same memory limit."""
    parts = config.parts if config.out_of_core else None
    return Room(device=config.device, parts=parts, memory_limit=config.memory_limit)


def earlier_network(model: Model, weights: dict[str, Tensor], room: Room) -> Earlier:
    """f_0 of :mod:`gfgnn.label_reuse`, which has the blocks of ``model`` and these weights."""
    return lambda graph: predict_mean(model.task, _scores(model, weights, graph, room))


def _scores(model: Model, weights: dict[str, Tensor], graph: Graph, room: Room) -> Tensor:
    """Scores ``[N, C]`` of all nodes, for a graph whose features are the network's inputs."""
    dtype, parts = next(iter(weights.values())).dtype, room.parts
    unlabelled = _unlabelled(graph, model)
    if parts is None and room.memory_limit is not None:
        parts = forward_parts(model, unlabelled, room.memory_limit, dtype.itemsize)
    if parts is not None and parts > 1:
        if room.device != "cpu":
            raise InputError(
                f"parts go one after the other on the CPU; got {parts} parts on device {room.device}."
            )
        known = room.partition if room.partition and room.partition.num_parts == parts else None
        return scores_in_turns(model, weights, unlabelled, parts, room.memory_limit, known)
    with torch.inference_mode():
        problem = prepare(model, unlabelled, dtype=dtype, device=room.device)
        return forward(problem, {name: value.to(room.device) for name, value in weights.items()}).cpu()


def _of_embeddings(trained: Trained, graph: Graph) -> Predictions:
    if isinstance(trained, tuple):
        raise InputError(
            "transductive predictions need a training result or a run's folder; got a network alone."
        )
    if not isinstance(trained, Result):
        return _predictions(load_model(trained)[0], graph, load_embedding_scores(trained, graph))
    if trained.embedding_scores is None:
        raise InputError(
            f"solver {trained.config.solver} left no embeddings; only admm on one device does. Predict with the "
            "network, without transductive."
        )
    check_same_graph(fingerprint(trained.graph), trained.graph.name, graph)
    return _predictions(trained.model, graph, trained.embedding_scores.clone())


def _predictions(model: Model, graph: Graph, scores: Tensor) -> Predictions:
    """What scores ``[N, C]`` mean for the model's task, some rows at a time. Scores that callers may change are
    overwritten: they may be in a file, because memory has no room for them twice."""
    ids = torch.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    if model.task == "regression":
        return Predictions(node_id=ids, value=scores)
    probability, pieces = (
        torch.empty(scores.shape, dtype=scores.dtype) if scores.is_inference() else scores,
        [],
    )
    for given, some in zip(scores.split(PIECE), probability.split(PIECE), strict=True):
        some.copy_(torch.sigmoid(given) if model.task == "multilabel" else torch.softmax(given, 1))
        pieces.append(_decided(model.task, some))
        page_out([some])
    return Predictions(node_id=ids, prediction=torch.cat(pieces), probability=probability)


def _decided(task: str, probability: Tensor) -> Tensor:
    """Labels ``[N, C]`` or classes ``[N]`` of probabilities ``[N, C]``."""
    return (probability > 0.5).long() if task == "multilabel" else probability.argmax(1)


def smoothed(predictions: Predictions, graph: Graph, config: CorrectAndSmoothConfig) -> Predictions:
    """``predictions`` for ``graph`` after :func:`gfgnn.correct_and_smooth`, which says what labels it reads."""
    check_post(graph, config)
    assert predictions.probability is not None  # the graph's labels are of the network's task
    probability = correct_and_smooth(graph, predictions.probability, config)
    return replace(predictions, prediction=_decided(graph.task, probability), probability=probability)


def check_fits(model: Model, graph: Graph) -> None:
    """Raises :class:`InputError` unless ``graph`` has the model's features and, if any labels, its task and classes.

    Labels of a part of the classes are fine: the largest may not occur in this graph.
    """
    features = model.num_features - model.num_label_inputs
    if graph.num_features != features:
        raise InputError(
            f"The model was trained on {features} features a node; {graph.name} has {graph.num_features}. "
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
