"""The order of nodes that a training configuration leads to, found once for every graph."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gfgnn.config import TrainConfig
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.order import Order, find_order, metis_parts, node_order

#: orders by method, for as long as their graph is there
_found: WeakKeyDictionary[Graph, dict[str, Order]] = WeakKeyDictionary()


def order_of(graph: Graph, config: TrainConfig) -> Order:
    """The order that ``config`` asks for, from memory or the cache on disk where it has been found before.

    ``auto`` leaves graphs on other devices than the CPU as they are: what an order is worth was measured there only;
    and where parts take turns, which are to need little memory.

    Raises:
        InputError: ``metis`` was asked for and cannot be used.
    """
    asis = config.device != "cpu" or config.out_of_core
    method = "none" if config.order == "auto" and asis else config.order
    known = _found.setdefault(graph, {})
    if method not in known:
        known[method] = node_order(graph, method, _from_disk)
    return known[method]


def _from_disk(graph: Graph, method: str) -> NDArray[np.int64]:
    """:func:`gfgnn.graph.order.find_order` through the cache of :mod:`gfgnn.data.cache`."""
    from gfgnn.data.cache import cached

    def make() -> NDArray[np.integer]:
        return find_order(graph, method).astype(np.int32 if graph.num_nodes < 2**31 else np.int64)

    name = f"order-metis{metis_parts(graph)}" if method == "metis" else f"order-{method}"
    return cached(name, fingerprint(graph), make).astype(np.int64)
