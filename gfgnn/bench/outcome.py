"""What one run of a contender comes to, whatever the contender is: the common ground of all tables and plots."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gfgnn.checks import check_choice
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph

#: Only runs that are ``done`` enter tables of accuracies; the others are shown as what they are.
STATUS = ("done", "out of time", "out of memory", "interrupted", "diverged", "failed")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may take.

    Attributes:
        seconds: of training, set-up included and evaluation not; None for no limit.
        iterations: of a solver, or epochs; None for the contender's own number.
    """

    seconds: float | None = None
    iterations: int | None = None


@dataclass(kw_only=True)
class Outcome:
    """One run.

    Attributes:
        contender: its name in tables.
        status: one of :data:`STATUS`.
        reason: why, where it is not ``done``.
        history: a line for each iteration: ``iteration``, ``seconds`` (of training so far, set-up included, evaluation
            not), ``loss``, ``train``, ``val``, ``test`` (scores of the task's measure; None where not evaluated).
        setup_seconds: before the first iteration.
        seconds_per_iteration: median.
        flops_per_iteration: counted; None where nobody counts.
        peak_bytes: highest memory of each rank's process, ``[ranks]``.
        bytes_per_iteration: sent by all ranks together, by purpose; empty on one rank.
        idle_share: of each rank's time in iterations, ``[ranks]``; empty where it is not measured.
        settings: everything that was tuned or chosen, as used.
        facts: versions, threads, seed and the like.
    """

    contender: str
    status: str = "done"
    reason: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    setup_seconds: float = 0.0
    seconds_per_iteration: float | None = None
    flops_per_iteration: float | None = None
    peak_bytes: list[int] = field(default_factory=list)
    bytes_per_iteration: dict[str, float] = field(default_factory=dict)
    idle_share: list[float] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("status", self.status, STATUS)

    @property
    def best(self) -> dict[str, Any] | None:
        """The line with the highest validation score, the earliest of equals; None where nothing was evaluated."""
        lines = [line for line in self.history if line.get("val") is not None]
        return max(lines, key=lambda line: line["val"]) if lines else None

    @property
    def last(self) -> dict[str, Any] | None:
        """The last evaluated line."""
        lines = [line for line in self.history if line.get("test") is not None]
        return lines[-1] if lines else None

    def seconds_to(self, score: float, split: str = "test") -> float | None:
        """Seconds of training until ``split`` first reached ``score``; None where it never did."""
        reached = (line for line in self.history if line.get(split) is not None and line[split] >= score)
        return next((line["seconds"] for line in reached), None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class Contender(Protocol):
    """Trains a network of some shape on a graph, by whatever method; called in a process of its own.

    Args:
        graph: with features, labels and split.
        model: the shape asked for: family, layers, hidden columns. A contender with a network of its own (RevGNN, label
            propagation) takes of it what applies and says the rest in ``settings``.
        budget: see :class:`Budget`.
        seed: of everything random.
        threads: of each rank.
    """

    def __call__(
        self, graph: Graph, model: ModelConfig, *, budget: Budget, seed: int, threads: int
    ) -> Outcome: ...
