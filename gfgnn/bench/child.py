"""What the process of one run does: load, warm up, let the contender train, write down what came of it.

python -m gfgnn.bench.child OUTCOME.json < JOB.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

from gfgnn.bench.contenders import contender
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checkpoint import atomic_write, jsonable
from gfgnn.checks import InputError, is_out_of_memory
from gfgnn.config import ModelConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.result import peak_rss_bytes

#: what contenders warm up on, and for how long
SMALL, WARM_UP = "synthetic:nodes=300,classes=3,features=16", Budget(iterations=3)


def look(job: dict[str, Any]) -> dict[str, Any]:
    """Loads the data of a job once, so that what is cached is there for all runs; their size, or ``missing``: why."""
    try:
        graph = _load(job)
    except InputError as error:
        return {"missing": str(error)}
    return _size(graph)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a job's run, whatever becomes of it."""
    torch.set_num_threads(job["threads"])
    facts: dict[str, Any] = {}
    try:
        graph = _load(job)
        facts |= _size(graph)
        if job["warm_up"]:
            facts["warm_up"] = _warm_up(job)
        facts["loaded_bytes"] = peak_rss_bytes()
        with tempfile.TemporaryDirectory(prefix="gfgnn-bench-") as folder:
            # or the first run of a graph would pay for its order and the others not
            os.environ["GFGNN_CACHE"] = folder
            outcome = _call(job, graph)
            outcome.peak_bytes = outcome.peak_bytes or [peak_rss_bytes()]
            _count(job, graph, outcome)
    except Exception as error:
        traceback.print_exc()
        status = "out of memory" if is_out_of_memory(error) or _was_killed(error) else "failed"
        outcome = Outcome(contender=job["label"], status=status, reason=_words(error))
    outcome.contender = job["label"]
    outcome.facts = {**facts, **outcome.facts}
    return outcome.to_dict()


def _load(job: dict[str, Any]) -> Graph:
    return load(job["source"], job["root"], **job["options"])


def _size(graph: Graph) -> dict[str, Any]:
    return {"nodes": graph.num_nodes, "edges": graph.num_edges}


def _call(job: dict[str, Any], graph: Graph) -> Outcome:
    outcome = contender(job["contender"])(
        graph,
        ModelConfig(**job["model"]),
        budget=Budget(**job["budget"]),
        seed=job["seed"],
        threads=job["threads"],
        **job["settings"],
    )
    if outcome.status == "done" and outcome.last is None:
        raise ValueError("the contender says that it is done, and has evaluated nothing")
    return outcome


def _count(job: dict[str, Any], graph: Graph, outcome: Outcome) -> None:
    """Counts the operations of an iteration where the contender has not, and can."""
    count = getattr(contender(job["contender"]), "count", None)
    if outcome.flops_per_iteration is None and count is not None and outcome.status == "done":
        given = {"seed": job["seed"], "threads": job["threads"], **job["settings"]}
        try:
            outcome.flops_per_iteration = count(graph, ModelConfig(**job["model"]), **given)
            outcome.facts["flops"] = "counted by gfgnn.profiling in a run of its own"
        except Exception as error:  # what has been measured stays
            outcome.facts["flops"] = f"not counted: {_words(error)}"


def _warm_up(job: dict[str, Any]) -> str:
    """Pays for what only a first run pays: modules, threads, memory. A small graph may not suit a contender."""
    small = {**job, "model": {**job["model"], "layers": 2, "hidden": 16}, "budget": vars(WARM_UP)}
    try:
        _call(small, load(SMALL))
    except Exception as error:
        return f"failed: {_words(error)}"
    return "done"


def _was_killed(error: Exception) -> bool:
    """A rank of a grid was killed, which the system does where memory runs out."""
    return getattr(error, "kind", None) == "killed"


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def main() -> None:
    """The process."""
    job = json.load(sys.stdin)
    found = look(job) if job["look"] else run(job)
    atomic_write(Path(sys.argv[1]), json.dumps(jsonable(found)).encode())


if __name__ == "__main__":
    main()
