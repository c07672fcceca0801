"""The loop of the baselines on one device: steps are timed, evaluation is not, and what came of it is an outcome."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import check_count, is_out_of_memory
from gfgnn.graph.graph import Graph
from gfgnn.ops.memory import keep_freed_memory, return_freed_memory
from gfgnn.profiling.recorder import Recorder
from gfgnn.result import peak_rss_bytes

SPLITS = ("train", "val", "test")


class Learner:
    """What a baseline trains. The constructor makes it ready to be trained, which counts as set-up.

    Attributes:
        settings: everything that was tuned or chosen, as used; JSON-ready.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def step(self) -> float:
        """One iteration; returns the loss it saw, NaN where it has none to tell."""
        raise NotImplementedError

    def scores(self) -> Tensor:
        """``[N, C]`` scores of all nodes by the present weights: what is evaluated."""
        raise NotImplementedError

    def finish(self) -> bool:
        """What follows the last step, timed and evaluated as another iteration; returns whether anything does."""
        return False


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When training ends, beside the budget.

    Attributes:
        iterations: the baseline's own number; that of a budget goes before it.
        patience: end after so many iterations without a better validation score or loss; None never does.
        eval_every: evaluate each so many iterations, and the last.
    """

    iterations: int
    patience: int | None = None
    eval_every: int = 1

    def __post_init__(self) -> None:
        for name in ("iterations", "eval_every"):
            check_count(name, getattr(self, name), 1)
        if self.patience is not None:
            check_count("patience", self.patience, 1)


def learn(
    contender: str,
    make: Callable[[], Learner],
    graph: Graph,
    stop: Stop,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    lean: bool = False,
) -> Outcome:
    """Makes a learner and has it take steps until ``stop`` or ``budget`` says so; then counts the work of one more.

    Seconds are those of ``make``, of steps and of ``finish``. A run that has used up its seconds is ``done``, as one
    that has done its iterations: ``facts["stopped"]`` says which. Peak memory is that of this process, evaluation
    included; ``facts["peak_bytes_before_evaluation"]`` is that of set-up and the first step.

    Args:
        lean: give freed memory back at once, for methods whose point is the memory they take; else it is kept for the
            next allocation, which is faster and leaves holes (:mod:`gfgnn.ops.memory`).

    Raises:
        InputError: whatever ``make`` finds wrong.
    """
    return_freed_memory() if lean else keep_freed_memory()
    outcome = Outcome(
        contender=contender, facts={"seed": seed, "threads": threads, "torch": torch.__version__}
    )
    with _threads(threads):
        run = _Run(outcome, graph, stop, budget)
        try:
            run.train(make)
        except KeyboardInterrupt:
            outcome.status, outcome.reason = "interrupted", "Ctrl-C"
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            outcome.status, outcome.reason = "out of memory", str(error) or type(error).__name__
        outcome.peak_bytes = [peak_rss_bytes()]
        if outcome.status == "done":
            assert run.learner is not None
            outcome.flops_per_iteration = flops_of(run.learner.step)
    return outcome


def flops_of(step: Callable[[], Any]) -> float:
    """Multiplications and additions of one call, counted by :mod:`gfgnn.profiling`; it is slow under counting."""
    recorder = Recorder(torch.device("cpu"))
    with recorder.iteration(1):
        step()
    recorder.spans(1)
    return float(sum(count.flops for count in recorder.counter.counts.values()))


class _Run:
    """The clock, the history and what decides to stop."""

    def __init__(self, outcome: Outcome, graph: Graph, stop: Stop, budget: Budget) -> None:
        self.outcome, self.graph, self.stop = outcome, graph, stop
        self.iterations = budget.iterations or stop.iterations
        self.limit = math.inf if budget.seconds is None else budget.seconds
        self.index = {split: graph.labelled(getattr(graph, f"{split}_mask")) for split in SPLITS}
        self.targets = {split: targets_of(graph, self.index[split]) for split in ("train", "val")}
        self.learner: Learner | None = None
        self.seconds = 0.0
        self.best, self.lowest, self.improved = -math.inf, math.inf, 0

    def train(self, make: Callable[[], Learner]) -> None:
        started = time.perf_counter()
        self.learner = learner = make()
        self.seconds = self.outcome.setup_seconds = time.perf_counter() - started
        self.outcome.settings = learner.settings
        steps = []
        for iteration in range(1, self.iterations + 1):
            started = time.perf_counter()
            loss = learner.step()
            steps.append(time.perf_counter() - started)
            self.outcome.seconds_per_iteration = statistics.median(steps)
            self.seconds += steps[-1]
            self.outcome.facts.setdefault("peak_bytes_before_evaluation", peak_rss_bytes())
            why = self._record(iteration, loss)
            if why is not None:
                break
        if self.outcome.status == "done":
            self.outcome.facts["stopped"] = why
            started = time.perf_counter()
            if learner.finish():
                self.seconds += time.perf_counter() - started
                self._evaluate(self._line(iteration + 1))

    def _record(self, iteration: int, loss: float) -> str | None:
        """A line of the history; returns why training ends with it, None where it goes on."""
        line = self._line(iteration)
        late = self.seconds >= self.limit
        if late or iteration == self.iterations or iteration % self.stop.eval_every == 0:
            self._evaluate(line)
        if math.isinf(loss) or (line["loss"] is not None and not math.isfinite(line["loss"])):
            self.outcome.status = "diverged"
            self.outcome.reason = f"the loss was not finite at iteration {iteration}"
            return "diverged"
        patience = self.stop.patience
        if late or iteration == self.iterations:
            return "seconds" if late else "iterations"
        return "patience" if patience is not None and iteration - self.improved >= patience else None

    def _line(self, iteration: int) -> dict[str, Any]:
        empty: dict[str, Any] = dict.fromkeys(("loss", *SPLITS))
        self.outcome.history.append({"iteration": iteration, "seconds": self.seconds, **empty})
        return self.outcome.history[-1]

    def _evaluate(self, line: dict[str, Any]) -> None:
        assert self.learner is not None
        graph, task = self.graph, self.graph.task
        with torch.no_grad():
            scores = self.learner.scores()
            for split in SPLITS:
                if self.index[split].numel():
                    line[split] = _known(metrics.score(task, scores, graph.y, self.index[split]))
            losses = {
                split: float(metrics.loss(task, scores[self.index[split]], targets))
                for split, targets in self.targets.items()
                if targets.size(0)
            }
        line["loss"] = losses.get("train")
        val, val_loss = line["val"], losses.get("val", math.inf)
        if (val is not None and val > self.best) or val_loss < self.lowest:
            self.improved = line["iteration"]
        self.best = self.best if val is None else max(self.best, val)
        self.lowest = min(self.lowest, val_loss)


def targets_of(graph: Graph, index: Tensor) -> Tensor:
    """``[k, C]``: one-hot classes, 0/1 labels or values of the nodes ``index``."""
    if graph.task == "multiclass":
        return torch.nn.functional.one_hot(graph.y[index], graph.num_classes)
    return graph.y[index]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
