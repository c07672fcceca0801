"""Correct and smooth: known labels and the errors made on them, carried along the edges after training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.checks import InputError
from gfgnn.config import CorrectAndSmoothConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.graph.propagation import Propagation

#: what an alpha of ``auto`` is chosen from; with 0 nothing reaches another node, so that doing nothing is among it
ALPHAS = (0.0, 0.2, 0.5, 0.756, 0.9, 0.979)


def correct_and_smooth(
    graph: Graph, probabilities: Tensor, config: CorrectAndSmoothConfig | None = None
) -> Tensor:
    """Probabilities corrected by the errors on training nodes, then smoothed along the edges (Huang et al. 2021).

    With S = D^-1/2 A D^-1/2 without self-loops, training nodes T, their labels Y (one-hot), probabilities Z, and
    ``P(f; R) = f(alpha S R + (1 - alpha) R_0)`` repeated from ``R = R_0``::

        E_0 = Y - Z on T, else 0;           E = P(f; E_0) with correction_alpha, ``corrections`` times
        Z'  = Z + g E
        R_0 = Y on T, else Z';              result = P(clamp to [0, 1]; R_0) with smoothing_alpha, ``smoothings`` times

    A ``scale`` of ``auto`` clamps E to [-1, 1] after each step, and g is for each node what makes the size of its
    correction, a sum over classes, the mean size of E_0 on T (1 where g would exceed 1000); a number is g itself, and
    E is set back to E_0 on T after each step. Results are those of PyG's ``CorrectAndSmooth`` with the edges of
    ``graph``, normalised by their weights and in-degrees as PyG's ``gcn_norm`` does.

    Args:
        graph: edges and training labels; labels of other nodes are read only for an alpha of ``auto``, and then those
            of validation nodes (:func:`choose_alphas`). Unknown entries of multi-label rows have no error and keep Z'.
        probabilities: Z ``[N, C]`` in [0, 1], float32 or float64; not logits, which softmax (or sigmoid) makes such.

    Returns:
        ``[N, C]`` in [0, 1] (where ``smoothings`` is not 0), of the type and on the device of Z. As in PyG, rows do not
        sum to 1: the largest entry is the class.

    Raises:
        InputError: a regression task, no labelled training node, or probabilities that are not.
    """
    config = choose_alphas(graph, probabilities, config or CorrectAndSmoothConfig())
    check_post(graph, config)
    s, truth, known = _prepare(graph, probabilities)
    return _smooth(s, _correct(s, probabilities, truth, known, config), truth, known, config)


def choose_alphas(
    graph: Graph, probabilities: Tensor, config: CorrectAndSmoothConfig
) -> CorrectAndSmoothConfig:
    """``config`` with each alpha of ``auto`` replaced by the one of :data:`ALPHAS` that is best on validation.

    Both are searched together, by the score (:func:`gfgnn.metrics.score`) that correct and smooth reaches on the
    labelled validation nodes; the first of equals is taken. Test labels are not read.

    Raises:
        InputError: an alpha is ``auto`` and no validation node has a label, or as :func:`correct_and_smooth`.
    """
    first, second = config.correction_alpha, config.smoothing_alpha
    if "auto" not in (first, second):
        return config
    check_post(graph, config)
    index = graph.labelled(graph.val_mask)
    s, truth, known = _prepare(graph, probabilities)
    best, chosen = -float("inf"), config
    for alpha in ALPHAS if first == "auto" else (first,):
        tried = replace(config, correction_alpha=alpha)
        corrected = _correct(s, probabilities, truth, known, tried)
        for other in ALPHAS if second == "auto" else (second,):
            tried = replace(tried, smoothing_alpha=other)
            smoothed = _smooth(s, corrected, truth, known, tried)
            value = metrics.score(graph.task, smoothed, graph.y, index)
            if value > best or chosen is config:
                best, chosen = value, tried
    return chosen


def check_post(graph: Graph, config: CorrectAndSmoothConfig) -> None:
    """Raises :class:`InputError` where ``graph`` lacks what correct and smooth needs, before any work is done."""
    if graph.task == "regression":
        raise InputError(
            f"correct and smooth is for classes and multi-label targets; {graph.name} is a regression."
        )
    if not graph.labelled(graph.train_mask).numel():
        raise InputError(
            f"correct and smooth starts from the labels of training nodes, and {graph.name} has none; load the graph "
            "with its labels and split."
        )
    chosen = "auto" in (config.correction_alpha, config.smoothing_alpha)
    if chosen and not graph.labelled(graph.val_mask).numel():
        raise InputError(
            f"alphas of auto are chosen on validation labels, and {graph.name} has none; give numbers."
        )


def _prepare(graph: Graph, probabilities: Tensor) -> tuple[Propagation, Tensor, Tensor]:
    """S, labels ``[N, C]`` with zeros where not known, and where they are known: training labels only."""
    z, n = probabilities, graph.num_nodes
    if z.dim() != 2 or z.size(0) != n or z.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"probabilities must be [{n}, classes] in float32 or float64; got {list(z.shape)} in {z.dtype}."
        )
    if not bool(((z >= 0) & (z <= 1)).all()):
        raise InputError(
            f"probabilities must lie in [0, 1]; got {float(z.min()):.4g} to {float(z.max()):.4g}. Take the softmax of "
            "scores (the sigmoid for multi-label targets) first."
        )
    y, mask = graph.y.to(z.device), graph.train_mask.to(z.device)
    if graph.task == "multiclass":
        known = (mask & (y >= 0))[:, None].expand_as(z)
        largest = int(torch.where(known[:, 0], y, -1).max())
        if largest >= z.size(1):
            raise InputError(
                f"probabilities have {z.size(1)} classes; {graph.name} has training labels up to {largest}."
            )
        truth = torch.nn.functional.one_hot(torch.where(known[:, 0], y, 0), z.size(1)).to(z.dtype) * known
    else:
        if y.size(1) != z.size(1):
            raise InputError(f"probabilities have {z.size(1)} columns; {graph.name} has {y.size(1)} labels.")
        known = mask[:, None] & ~torch.isnan(y)
        truth = torch.where(known, y, 0.0).to(z.dtype)
    return build_operator(graph, Operator(norm="sym", loops=0.0)).to(z.dtype, z.device), truth, known


def _correct(
    s: Propagation, z: Tensor, truth: Tensor, known: Tensor, config: CorrectAndSmoothConfig
) -> Tensor:
    error = torch.where(known, truth - z, 0.0)
    alpha, count = float(config.correction_alpha), config.corrections
    if config.scale != "auto":
        return z + config.scale * _propagate(s, error, alpha, count, lambda e: torch.where(known, error, e))
    carried = _propagate(s, error, alpha, count, lambda e: e.clamp_(-1.0, 1.0))
    factor = error.abs().sum() / known.any(1).sum() / carried.abs().sum(1, keepdim=True)
    # no error has arrived: 0 / 0 where there is none at all
    return z + torch.where(factor <= 1000.0, factor, 1.0) * carried


def _smooth(
    s: Propagation, z: Tensor, truth: Tensor, known: Tensor, config: CorrectAndSmoothConfig
) -> Tensor:
    start = torch.where(known, truth, z)
    return _propagate(
        s, start, float(config.smoothing_alpha), config.smoothings, lambda r: r.clamp_(0.0, 1.0)
    )


def _propagate(
    s: Propagation, start: Tensor, alpha: float, count: int, after: Callable[[Tensor], Tensor]
) -> Tensor:
    """``after(alpha S r + (1 - alpha) start)`` from ``r = start``, ``count`` times."""
    r = start
    for _ in range(count):
        r = after(s.apply(r, scale=alpha, plus=start, plus_scale=1.0 - alpha))
    return r
