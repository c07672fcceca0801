"""Labels of training nodes as inputs of the network, beside the features."""

from __future__ import annotations

from collections.abc import Callable

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.features import csr_tensor, is_sparse
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model
from gfgnn.ops.spmm import to_scipy

#: of the labelled training nodes, those whose labels are inputs while the others are learnt
SHARE = 0.5


def draw_label_inputs(graph: Graph, seed: int) -> Graph:
    """What a network with label inputs is trained on: features ``[X | Y_A]``, and the training nodes B alone.

    The labelled training nodes are drawn into A, a half, and B, the others. Row i of ``Y_A`` ``[N, C]`` is the label of
    node i (one-hot, or its 0/1 entries, unknown ones 0) where i is in A, else zeros. No node of B, of validation or of
    test has its label among the inputs of any node: what is learnt and what is measured is never shown.

    The draw is that of a run. Wang et al. (2021) draw A anew in each epoch, so that every training node is learnt from.

    Raises:
        InputError: fewer than two training nodes have a label.
    """
    train = graph.labelled(graph.train_mask)
    if train.numel() < 2:
        raise InputError(
            f"label inputs are the labels of a half of the training nodes, and {graph.name} has {train.numel()} with "
            "a label."
        )
    drawn = train[torch.randperm(train.numel(), generator=torch.Generator().manual_seed(seed))]
    shown = drawn[: int(SHARE * drawn.numel())]
    learnt = graph.train_mask.clone()
    learnt[shown] = False
    return _beside(graph, label_columns(graph, shown, graph.num_classes)).replace(train_mask=learnt)


def reused_scores(model: Model, graph: Graph, scores_of: Callable[[Graph], Tensor]) -> Tensor:
    """Scores ``[N, C]`` of every node, with the labels of all training nodes as inputs.

    With T the labelled training nodes and f the network (Wang et al. 2021, after Shi et al. 2020)::

        Z = f([X | Y_T]);    label_reuses times:  Z = f([X | Y_T on T, mean(Z) elsewhere])

    where mean is the softmax (the sigmoid for multi-label targets): what the network said of the other nodes is put
    in, and it runs again. Labels of other nodes are not read.

    Args:
        model: a network with ``config.label_inputs``.
        graph: with the labels of its training nodes; features X without label columns.
        scores_of: f, from a graph with the features given to scores ``[N, C]``.

    Raises:
        InputError: no training node of ``graph`` has a label.
    """
    train = graph.labelled(graph.train_mask)
    if not train.numel():
        raise InputError(
            f"The network takes the labels of training nodes as inputs, and {graph.name} has none; load the graph with "
            "its labels and split."
        )
    columns = label_columns(graph, train, model.num_classes)
    scores = scores_of(_beside(graph, columns))
    for _ in range(model.config.label_reuses):
        said = torch.sigmoid(scores) if model.task == "multilabel" else torch.softmax(scores, 1)
        said[train] = columns[train].to(said)
        scores = scores_of(_beside(graph, said))
    return scores


def label_columns(graph: Graph, nodes: Tensor, num_classes: int) -> Tensor:
    """``[N, C]`` float32: labels of ``nodes``, as one-hot rows or 0/1 entries; zeros elsewhere and where unknown."""
    columns = torch.zeros(graph.num_nodes, num_classes)
    if graph.task == "multiclass":
        columns[nodes, graph.y[nodes]] = 1.0
    else:
        columns[nodes] = graph.y[nodes].float().nan_to_num(0.0)
    return columns


def _beside(graph: Graph, columns: Tensor) -> Graph:
    """``graph`` with ``columns`` ``[N, C]`` to the right of its features."""
    x = graph.x
    assert x is not None
    if not is_sparse(x):
        return graph.replace(x=torch.cat([x, columns.to(x.dtype)], dim=1))
    both = scipy.sparse.hstack([to_scipy(x), scipy.sparse.csr_matrix(columns.numpy())], format="csr")
    indptr, indices, values = (torch.from_numpy(array) for array in (both.indptr, both.indices, both.data))
    return graph.replace(x=csr_tensor(indptr, indices, values, (x.size(0), both.shape[1])))
