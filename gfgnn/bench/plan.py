"""The runs that a case asks for, in the order in which they are made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from gfgnn.bench.case import Case, Data, Entrant


@dataclass(frozen=True)
class Job:
    """One run, and what tells it from others.

    Attributes:
        case: name of the case; ``title`` is what it is called in reports.
        data: what the graph is called in tables; ``source`` is the name of the data set, and ``options`` are
            those of :func:`gfgnn.load`, for this contender and seed.
        contender: its name or place; ``label`` is what it is called in tables.
        model: of :class:`gfgnn.ModelConfig`.
        budget: of :class:`gfgnn.bench.outcome.Budget`.
        reach, against: see :class:`gfgnn.bench.case.Case`.
        limit_seconds, memory: of the process.
    """

    case: str
    title: str
    data: str
    source: str
    options: dict[str, Any]
    contender: str
    label: str
    settings: dict[str, Any]
    model: dict[str, Any]
    budget: dict[str, Any]
    seed: int
    threads: int
    warm_up: bool
    reach: tuple[float, ...]
    against: str
    limit_seconds: float
    memory: int | None

    @cached_property
    def key(self) -> str:
        """The same for runs that are made in the same way; limits and what only reports use do not enter."""
        made = asdict(self)
        for name in ("title", "reach", "against", "limit_seconds", "memory"):
            del made[name]
        text = json.dumps(made, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def jobs(case: Case, data: Data, seeds: int | None = None) -> Iterator[Job]:
    """The runs on one graph: for each depth and seed every contender in turn, A B A B, so that the runs of a seed,
    which are compared with each other, follow one another. Contenders that are missing have none."""
    for layers in case.layers:
        for seed in range(seeds or case.seeds):
            for entrant in case.entrants:
                if entrant.missing is None and layers in (entrant.layers or case.layers):
                    yield _job(case, data, entrant, layers, seed)


def _job(case: Case, data: Data, entrant: Entrant, layers: int, seed: int) -> Job:
    options = {**data.options, **entrant.data}
    if "split" in options:  # drawn anew for every seed, and the same for all contenders
        options["split_seed"] = seed
    return Job(
        case=case.name,
        title=case.title,
        data=data.label,
        source=data.name,
        options=options,
        contender=entrant.name,
        label=entrant.label,
        settings=entrant.settings,
        model={**case.model, **entrant.model, "layers": layers},
        budget=asdict(entrant.budget),
        seed=seed,
        threads=case.threads,
        warm_up=entrant.warm_up,
        reach=data.reach,
        against=case.against,
        limit_seconds=case.limit(entrant.budget),
        memory=case.memory,
    )
