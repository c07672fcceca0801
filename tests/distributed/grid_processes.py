"""Helpers of the end-to-end tests: a small problem, and commands in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from torch import Tensor
from waiting import wait_until

import gfgnn
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.result import Result

DATA = "synthetic:nodes=90,classes=3,features=6,noise=1.6,degree=8,seed=2"
MODEL = ModelConfig(family="gcnii", layers=4, hidden=8)
#: the same for the command line
OPTIONS = f"--data {DATA} --model gcnii --layers 4 --hidden 8".split()
#: seconds for a process to start and train a little, on a busy machine
START = 60.0
#: processes to end with the test
STARTED: list[subprocess.Popen[str]] = []

#: The handler is set by hand: a test run in the background inherits a SIGINT that is ignored.
_MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gfgnn.cli import main; main()"


@cache
def small() -> Graph:
    """90 nodes of three classes."""
    return gfgnn.load(DATA)


def trained(graph: Graph | None = None, model: ModelConfig = MODEL, **settings: Any) -> Result:
    """A short run."""
    settings = {"iters": 5, "dtype": "float64", "threads": 1, "timeout": 30.0, **settings}
    return gfgnn.train(model, graph or small(), TrainConfig(**settings))


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    assert a.dtype == b.dtype
    return float((a - b).abs().max() / b.abs().max())


def check_same(a: Result, b: Result, tolerance: float) -> None:
    """Weights of the best and the last iterate, predictions, losses and scores of two runs, each value of either."""
    for one, other in ((a.weights, b.weights), (a.last_weights, b.last_weights)):
        assert list(one) == list(other)
        for name, weight in one.items():
            assert distance(weight, other[name]) <= tolerance, name
    p, q = (gfgnn.predict(result, result.graph) for result in (a, b))
    for first, second in ((p.probability, q.probability), (p.value, q.value)):
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert distance(first, second) <= tolerance
    assert (a.best_iteration, a.iterations) == (b.best_iteration, b.iterations)
    check_lines(a.history, b.history, tolerance)


def check_lines(a: list[dict[str, Any]], b: list[dict[str, Any]], tolerance: float) -> None:
    """Losses and scores of two histories."""
    for line, other in zip(a, b, strict=True):
        for key in ("iteration", "step_loss", "loss", "val_loss", "train", "val", "test"):
            assert (line[key] is None) == (other[key] is None), (line["iteration"], key)
            if line[key] is not None:
                assert abs(line[key] - other[key]) <= tolerance * max(1.0, abs(line[key])), key


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """``gfgnn`` with these arguments, in a process of its own."""
    return popen([sys.executable, "-c", _MAIN, *arguments], **options)


def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A process whose output is kept."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **options.pop("env", {})}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )
    STARTED.append(process)
    return process


def wait_for_iterations(out: Path, count: int = 3) -> None:
    """Returns when the run that writes into ``out`` has completed so many iterations."""
    part = out / "metrics.jsonl.part"
    assert wait_until(lambda: part.exists() and part.read_text().count("\n") >= count, START), "no iteration"


def processes(out: Path) -> list[psutil.Process]:
    """Every process with the folder ``out`` in its command line but this one. Zombies have none."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(str(out) in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found
