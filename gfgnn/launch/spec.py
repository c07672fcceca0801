"""What the launcher tells the processes it starts."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spec:
    """All that a rank needs to know. Travels as one line of JSON.

    Attributes:
        job: "module:function", called in every rank with its context.
        folder: where the logs go.
        size: number of ranks.
        threads: threads of each rank.
        timeout: seconds a rank may be silent to its peers.
        port: where the launcher's store listens.
        device: cpu or cuda.
        path: the launcher's ``sys.path``.
        parent: the launcher's process id.
        table: descriptor of the file behind :class:`gfgnn.launch.heartbeat.Table`.
        events: descriptor to which the zygote reports.
        reports: descriptor to which each rank reports.
    """

    job: str
    folder: str
    size: int
    threads: int
    timeout: float
    port: int
    device: str
    path: list[str]
    parent: int
    table: int
    events: int
    reports: list[int]

    def function(self) -> Callable[[Any], object]:
        """The function that ``job`` names."""
        module, _, name = self.job.partition(":")
        function: Callable[[Any], object] = getattr(importlib.import_module(module), name)
        return function


def tell(descriptor: int, **report: Any) -> None:
    """Sends a report as one line of JSON."""
    rest = memoryview(json.dumps(report).encode() + b"\n")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


__all__ = ["Spec", "tell"]
