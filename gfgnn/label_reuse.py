"""Labels of training nodes as inputs of the network, beside the features, and its predictions where there is none.

After Wang et al. (2021, arXiv 2103.13355) and Shi et al. (2020, arXiv 2009.03509). With X the features, A and B two
halves of the labelled training nodes T, drawn once for a run, and f a network on ``[X | columns]``::

    columns(S, P) = Y - m on S,  P - m elsewhere (0 where there is no P);   m the mean of Y on S

    label inputs:  f   learns B from columns(A);             predicts from columns(T)
    label reuse:   f_0 learns B from columns(A);
                   f_1 learns A from columns(B, f_0 | B);    predicts from columns(T, f_0 | T)

where Y ``[N, C]`` are one-hot or 0/1 labels, and ``f_0 | S`` are the probabilities that f_0 gives with columns(S) as
inputs. What a network learns is never among its inputs: f_1's predictions of A come from a network that learnt B, with
labels of B as inputs. (f_0 has been trained on inputs that held labels of A; that is in its weights, and in no input.)

The authors draw A anew in each epoch, so that all of T is learnt, put predictions of the same network in, and leave m
out. Here inputs are set up once: a half is learnt, and a network trained without predictions among its inputs loses by
them (docs/post.md), so that reuse takes a second one. With m left out, a node without a label would be of no class at
all, and the inputs of a node would double when predictions are made from all of T.
"""

from __future__ import annotations

from collections.abc import Callable

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.features import csr_tensor, is_sparse
from gfgnn.graph.graph import Graph
from gfgnn.ops.spmm import to_scipy

#: before the names of f_0's weights, which are kept beside f_1's
EARLIER = "earlier."

#: f_0: probabilities ``[N, C]`` of all nodes of a graph that has the label columns among its features
Earlier = Callable[[Graph], Tensor]


def training_inputs(graph: Graph, seed: int, earlier: Earlier | None = None) -> Graph:
    """What a network with label inputs is trained on: features with label columns, and the half that it learns.

    Args:
        seed: of the draw of A and B.
        earlier: f_0, to train f_1; None to train f or f_0.

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
    shown, learnt = drawn.tensor_split(2)
    if earlier is not None:
        shown, learnt = learnt, shown
    mask = torch.zeros_like(graph.train_mask)
    mask[learnt] = True
    return _with_labels(graph, shown, graph.num_classes, earlier).replace(train_mask=mask)


def prediction_inputs(graph: Graph, num_classes: int, earlier: Earlier | None = None) -> Graph:
    """What a network with label inputs predicts from: features with the labels of all training nodes beside them.

    Labels of other nodes are not read.

    Args:
        num_classes: C of the network; a graph may lack the last classes.
        earlier: f_0, for f_1.

    Raises:
        InputError: no training node has a label.
    """
    train = graph.labelled(graph.train_mask)
    if not train.numel():
        raise InputError(
            f"The network takes the labels of training nodes as inputs, and {graph.name} has none; load the graph with "
            "its labels and split."
        )
    return _with_labels(graph, train, num_classes, earlier)


def _with_labels(graph: Graph, shown: Tensor, num_classes: int, earlier: Earlier | None) -> Graph:
    """``[X | columns(shown, earlier | shown)]``; an unknown entry of a label is the mean of the known ones."""
    if graph.task == "multiclass":
        labels = torch.nn.functional.one_hot(graph.y[shown], num_classes).float()
    else:
        labels = graph.y[shown].float()
    mean = labels.nanmean(0).nan_to_num(0.0)
    if earlier is None:
        columns = torch.zeros(graph.num_nodes, num_classes)
    else:
        columns = earlier(_with_labels(graph, shown, num_classes, None)).float() - mean
    columns[shown] = (labels - mean).nan_to_num(0.0)
    return _beside(graph, columns)


def _beside(graph: Graph, columns: Tensor) -> Graph:
    """``graph`` with ``columns`` ``[N, C]`` to the right of its features."""
    x = graph.x
    assert x is not None
    if not is_sparse(x):
        return graph.replace(x=torch.cat([x, columns.to(x.dtype)], dim=1))
    both = scipy.sparse.hstack([to_scipy(x), scipy.sparse.csr_matrix(columns.numpy())], format="csr")
    indptr, indices, values = (torch.from_numpy(array) for array in (both.indptr, both.indices, both.data))
    return graph.replace(x=csr_tensor(indptr, indices, values, (x.size(0), both.shape[1])))
