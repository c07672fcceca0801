"""Splits drawn on request: so many nodes of each class, so many nodes, or shares of the labelled nodes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gfgnn.checks import InputError, check_at_least
from gfgnn.graph.graph import Graph

KEYS = ("per_class", "train", "val_per_class", "val", "test")


def parse_split(text: str) -> dict[str, int | float]:
    """Reads a split such as ``per_class=20,val_per_class=30``.

    Grammar: ``key=value`` pairs separated by commas. A whole number counts nodes, a number with a decimal point
    between 0 and 1 is a share of the labelled nodes.

    ============== =====================================================
    per_class=20   20 training nodes of each class
    train=0.6      60% of the labelled nodes, uniformly (not by class)
    val_per_class  as per_class, for validation
    val=500        500 nodes, uniformly
    test=1000      1000 nodes; without it: all that remain
    ============== =====================================================

    A part that is not named stays empty, except test, which takes the rest; where only ``train`` is missing it takes
    the rest instead (``val=500,test=1000``).
    """
    if not isinstance(text, str):
        raise InputError(f"split must be text such as 'per_class=20,val_per_class=30'; got {text!r}.")
    parts: dict[str, int | float] = {}
    for item in text.split(","):
        key, _, value = item.strip().partition("=")
        if key not in KEYS:
            raise InputError(
                f"split must be pairs key=value with keys {', '.join(KEYS)}; got {item.strip()!r}."
            )
        if key in parts:
            raise InputError(f"split names {key} twice: {text!r}.")
        parts[key] = _parse_amount(key, value)
    for whole, each in (("train", "per_class"), ("val", "val_per_class")):
        if whole in parts and each in parts:
            raise InputError(f"split takes {whole} or {each}, not both; got {text!r}.")
    if not {"per_class", "train"} & parts.keys() and "test" not in parts:
        raise InputError(
            f"split must say how many nodes train has (per_class=20 or train=0.6); got {text!r}."
        )
    return parts


def draw_split(graph: Graph, split: str, seed: int = 0) -> Graph:
    """``graph`` with a split drawn from its labelled nodes; the rule and the seed are kept in its notes.

    The same graph, split and seed give the same masks on every machine: one permutation of the labelled nodes decides
    everything. First come training nodes by class or by number, then validation from the rest, then test.

    Raises:
        InputError: the split asks for more nodes than there are.
    """
    parts = parse_split(split)
    check_at_least("split_seed", seed, 0)
    known = graph.labelled(torch.ones(graph.num_nodes, dtype=torch.bool)).numpy()
    if known.size == 0:
        raise InputError(f"{graph.name} has no labelled node to draw a split from.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(known)
    rest = "test" if "test" not in parts else "train" if not {"per_class", "train"} & parts.keys() else None
    masks, uneven = {}, False
    for name, each in (("train", "per_class"), ("val", "val_per_class"), ("test", "")):
        if name == rest:
            continue
        if each in parts:
            chosen = _per_class(graph, order, int(parts[each]), split)
            uneven = (
                True  # the front of what is left has lost nodes of every class, so of rare ones nearly all
            )
        else:
            if uneven:
                order = rng.permutation(order)
            chosen = order[: _count(parts.get(name, 0), known.size, order.size, split)]
        masks[name] = _mask(chosen, graph.num_nodes)
        order = order[~masks[name].numpy()[order]]
    if rest is not None:
        masks[rest] = _mask(order, graph.num_nodes)
    return graph.replace(
        train_mask=masks["train"],
        val_mask=masks["val"],
        test_mask=masks["test"],
        notes=(*graph.notes, f"split {split} drawn with seed {seed}"),
    )


def check_split_index(split_index: int, count: int) -> None:
    """Raises :class:`InputError` unless ``split_index`` names one of ``count`` splits."""
    if count == 1 and split_index != 0:
        raise InputError(f"split_index must be 0, there is one split only; got {split_index}.")
    if not 0 <= split_index < count:
        raise InputError(f"split_index must lie between 0 and {count - 1}; got {split_index}.")


def _parse_amount(key: str, value: str) -> int | float:
    try:
        amount = float(value) if any(c in value for c in ".eE") else int(value)
    except ValueError:
        raise InputError(f"split: {key} must be a number; got {value!r}.") from None
    if amount < 0 or (isinstance(amount, float) and amount > 1):
        raise InputError(
            f"split: {key} must be a count (20) or a share between 0 and 1 (0.6); got {value!r}."
        )
    if key.endswith("per_class") and isinstance(amount, float):
        raise InputError(f"split: {key} counts nodes and must be whole; got {value!r}.")
    return amount


def _count(amount: int | float, total: int, left: int, split: str) -> int:
    count = amount if isinstance(amount, int) else int(amount * total + 1e-9)
    if count > left:
        raise InputError(f"split {split!r} asks for {count:,} nodes where {left:,} labelled ones are left.")
    return count


def _per_class(graph: Graph, order: np.ndarray, count: int, split: str) -> np.ndarray:
    if graph.task != "multiclass":
        raise InputError(
            f"split {split!r} counts nodes by class, but {graph.name} is {graph.task}; use shares."
        )
    labels = graph.y.numpy()[order]
    chosen = []
    for c in np.unique(graph.y[graph.y >= 0].numpy()):
        members = order[labels == c]
        if members.size < count:
            raise InputError(
                f"split {split!r} asks for {count} nodes of class {c}, which has {members.size} labelled ones left."
            )
        chosen.append(members[:count])
    return np.concatenate(chosen)


def _mask(nodes: np.ndarray, num_nodes: int) -> Tensor:
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[torch.from_numpy(nodes)] = True
    return mask
