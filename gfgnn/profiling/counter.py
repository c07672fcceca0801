"""Counts the work of one iteration: calls, bytes and flops by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from gfgnn.profiling.labels import KINDS, Cost
from gfgnn.profiling.operators import name_of, operator_cost


@dataclass
class Count:
    """Of one kind of work."""

    calls: int = 0
    bytes: int = 0
    flops: int = 0

    def add(self, cost: Cost, calls: int = 1) -> None:
        self.calls += calls
        self.bytes += cost.bytes
        self.flops += cost.flops


class Counter(TorchDispatchMode):
    """Sees every operator that torch runs in this thread while it is entered, and is told of labels.

    Operators within a label are part of its work, whose cost the label knows. This takes 10 to 20 µs an operator: it is
    for counting, not for timing.

    Attributes:
        counts: by kind.
        working: the operators that computed or moved anything.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = {kind: Count() for kind in KINDS}
        self.working: set[str] = set()
        self._labels: list[str] = []

    def open(self, kind: str) -> None:
        self._labels.append(kind)

    def close(self, cost: Callable[[], Cost]) -> None:
        found = cost()  # asked before the label ends: what it looks at must not count
        kind = self._labels.pop()
        again = bool(self._labels) and self._labels[-1] == kind
        self.counts[kind].add(found, calls=0 if again else 1)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._labels and (found := operator_cost(func, args, result)) is not None:
            kind, cost = found
            self.counts[kind].add(cost)
            self.working.add(name_of(func.overloadpacket.__name__))
        return result
