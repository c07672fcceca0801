"""Planted partitions of any size, for tests and for measuring at scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch

from gfgnn.checks import InputError, check_at_least, check_between
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph

CHUNK = 1 << 20  #: edges or feature entries drawn at a time


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """A degree-corrected planted partition with noisy class features.

    Edges: both ends are drawn in proportion to a node weight from a Pareto law with density ~ w^-skew (degrees then
    follow about that power law); with probability ``homophily`` the second end comes from the first end's class, else
    from any node. Features: ``x_i = m_y(i) + noise * e_i`` with standard normal class means m and noise e, so at noise
    1 a class is easy to tell with 64 features and at 5 hard.
    """

    nodes: int = 10_000
    classes: int = 8
    degree: float = 12.0  #: mean number of neighbours
    homophily: float = 0.8  #: probability that an edge is drawn inside a class
    skew: float = 2.5  #: exponent of the degree law; above 2, smaller is more skewed; 0: no skew
    features: int = 64  #: 0: none
    noise: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("synthetic: classes", self.classes, 1)
        check_at_least("synthetic: nodes", self.nodes, self.classes)
        check_at_least("synthetic: degree", self.degree, 0.0)
        check_between("synthetic: homophily", self.homophily, 0.0, 1.0)
        if self.skew != 0:
            check_at_least("synthetic: skew (0 for none)", self.skew, 2.0)
        check_at_least("synthetic: features", self.features, 0)
        check_at_least("synthetic: noise", self.noise, 0.0)
        check_at_least("synthetic: seed", self.seed, 0)


def parse_synthetic(text: str) -> SyntheticConfig:
    """Reads ``nodes=10000,classes=8``: any fields of :class:`SyntheticConfig`, separated by commas."""
    kinds = {f.name: type(f.default) for f in fields(SyntheticConfig)}
    settings: dict[str, int | float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = item.partition("=")
        if key not in kinds:
            raise InputError(f"synthetic: settings are {', '.join(kinds)}; got {item!r}.")
        try:
            number = float(value)
            if math.isnan(number):
                raise ValueError
            settings[key] = int(number) if kinds[key] is int else number
        except (ValueError, OverflowError):
            raise InputError(f"synthetic: {key} must be a number; got {value!r}.") from None
        if settings[key] != number:
            raise InputError(f"synthetic: {key} must be a whole number; got {value!r}.")
    return SyntheticConfig(**settings)  # type: ignore[arg-type]


def synthetic_graph(config: SyntheticConfig) -> Graph:
    """Draws the graph; the same config gives the same graph. The split is uniform: 60% train, 20% val, 20% test.

    Memory: 8 bytes for an edge drawn plus one sort of them, 4 bytes for a feature entry; the rest is chunks.
    """
    rng = np.random.default_rng(config.seed)
    n = config.nodes
    y = np.sort(rng.integers(config.classes, size=n)) if config.classes > 1 else np.zeros(n, np.int64)
    y[: config.classes] = np.arange(config.classes)  # every class exists
    y.sort()
    edge_index = _edges(config, y, rng)
    shuffle = rng.permutation(n)  # class and node number must not go together
    labels = np.empty_like(y)
    labels[shuffle] = y
    part = rng.choice(3, size=n, p=(0.6, 0.2, 0.2))
    graph = build_graph(
        shuffle[edge_index],
        n,
        x=_features(config, labels, rng) if config.features else None,
        y=labels,
        num_classes=config.classes,
        train_mask=torch.from_numpy(part == 0),
        val_mask=torch.from_numpy(part == 1),
        test_mask=torch.from_numpy(part == 2),
        symmetrise=True,
        name="synthetic",
    )
    return graph.replace(notes=(f"drawn by {config}", *graph.notes))


def _edges(config: SyntheticConfig, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Both ends of about N * degree / 2 undirected edges, ``[2, M]`` int32 or int64; nodes sorted by class."""
    n, count = config.nodes, round(config.nodes * config.degree / 2)
    # Pareto weights of density ~ w^-skew, cut at sqrt(N) times the least so that no node is everyone's neighbour
    weight = np.ones(n) if config.skew == 0 else np.minimum(rng.random(n) ** (-1 / (config.skew - 1)), n**0.5)
    cumulative = np.concatenate([[0.0], np.cumsum(weight)])
    start = np.searchsorted(y, np.arange(config.classes + 1))
    ends = np.empty((2, count), dtype=np.int32 if n < 2**31 else np.int64)
    for low in range(0, count, CHUNK):
        size = min(CHUNK, count - low)
        one = _draw(cumulative, np.zeros(size), np.full(size, cumulative[-1]), rng)
        inside = rng.random(size) < config.homophily
        first = np.where(inside, cumulative[start[y[one]]], 0.0)
        last = np.where(inside, cumulative[start[y[one] + 1]], cumulative[-1])
        ends[0, low : low + size] = one
        ends[1, low : low + size] = _draw(cumulative, first, last, rng)
    return ends


def _draw(cumulative: np.ndarray, low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Nodes in proportion to their weight, within the stretch [low, high) of the cumulative weights."""
    point = low + (high - low) * rng.random(low.size)
    return np.clip(np.searchsorted(cumulative, point, side="right") - 1, 0, cumulative.size - 2)


def _features(config: SyntheticConfig, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    means = rng.standard_normal((config.classes, config.features), dtype=np.float32)
    x = np.empty((config.nodes, config.features), dtype=np.float32)
    rows = max(1, CHUNK // config.features)
    for low in range(0, config.nodes, rows):
        part = x[low : low + rows]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(config.noise)
        part += means[labels[low : low + rows]]
    return x
