"""gfgnn's solvers, and Adam on the same blocks, as contenders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError
from gfgnn.comm.base import PURPOSES
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.result import Result
from gfgnn.toml import from_mapping
from gfgnn.train import train

#: what the runner decides, and what would change the times
RESERVED = ("solver", "iters", "max_seconds", "profile", "timeline")
#: purposes of the messages of an iteration
OF_ITERATIONS = tuple(purpose for purpose in PURPOSES if purpose not in ("setup", "evaluate"))
COLUMNS = ("iteration", "seconds", "loss", "train", "val", "test")


@dataclass(frozen=True)
class Ours:
    """One of gfgnn's solvers as a :class:`gfgnn.bench.outcome.Contender`.

    Settings are those of :class:`gfgnn.TrainConfig`, nested as in a configuration file:
    ``{"parts": 2, "target": {"step": "polar"}}``.
    """

    solver: str

    def __call__(
        self,
        graph: Graph,
        model: ModelConfig,
        *,
        budget: Budget,
        seed: int,
        threads: int,
        **settings: Any,
    ) -> Outcome:
        """Trains.

        Raises:
            InputError: settings, network and graph do not fit each other.
        """
        config = replace(
            self._config(settings, "settings"),
            seed=seed,
            threads=threads,
            iters=budget.iterations,
            max_seconds=budget.seconds,
        )
        return outcome_of(train(model, graph, config), self.solver)

    def count(self, graph: Graph, model: ModelConfig, *, seed: int, threads: int, **settings: Any) -> float:
        """Operations of an iteration on all ranks together, counted by :mod:`gfgnn.profiling` in a run of its own."""
        config = self._config(settings, "settings")
        result = train(model, graph, replace(config, seed=seed, threads=threads, iters=2, profile=True))
        assert result.profile is not None
        kinds = [tally for rank in result.profile["ranks"] for tally in rank["kinds"].values()]
        return float(sum(tally["flops"] for tally in kinds))

    def check(self, settings: Mapping[str, Any], source: str) -> None:
        """Raises :class:`InputError` for settings that :class:`gfgnn.TrainConfig` refuses."""
        self._config(settings, f"{source}: settings of {self.solver}")

    def _config(self, settings: Mapping[str, Any], source: str) -> TrainConfig:
        if bad := sorted(settings.keys() & set(RESERVED)):
            raise InputError(
                f"{source}: {', '.join(bad)} cannot be set here; budget, seeds and threads decide."
            )
        config: TrainConfig = from_mapping(TrainConfig, {**settings, "solver": self.solver}, source)
        return config


def outcome_of(result: Result, contender: str) -> Outcome:
    """A training run as an :class:`Outcome`, without a count of its work."""
    status, reason = "done", None
    if result.diverged:
        status, reason = "diverged", "; ".join(result.notes) or "the loss was not finite"
    elif result.interrupted:
        status, reason = "interrupted", "Ctrl-C"
    ranks = result.ranks
    return Outcome(
        contender=contender,
        status=status,
        reason=reason,
        history=[{name: line[name] for name in COLUMNS} for line in result.history],
        setup_seconds=result.setup_seconds,
        seconds_per_iteration=result.seconds_per_iteration,
        peak_bytes=[rank["peak_rss_bytes"] for rank in ranks] or [result.peak_rss_bytes],
        bytes_per_iteration=sent(result),
        idle_share=[idle(rank) for rank in ranks],
        settings={**result.settings, "parts": result.config.parts, "stages": result.config.stages},
        facts={"notes": list(result.notes), "order": result.config.order},
    )


def sent(result: Result) -> dict[str, float]:
    """Bytes that all ranks together send in an iteration, in the mean, by purpose."""
    return {
        purpose: sum(rank["traffic"][purpose]["bytes"] for rank in result.ranks) / result.iterations
        for purpose in (OF_ITERATIONS if result.ranks else ())
    }


def idle(rank: Mapping[str, Any]) -> float:
    """The share of a rank's time in iterations that it waited for others."""
    waited = sum(rank["traffic"][purpose]["seconds"] for purpose in OF_ITERATIONS)
    return min(1.0, waited / rank["step_seconds"]) if rank["step_seconds"] else 0.0


run_target, run_admm, run_adam = Ours("target"), Ours("admm"), Ours("adam")
run_pdadmm, run_community = Ours("pdadmm-g"), Ours("community-admm")
