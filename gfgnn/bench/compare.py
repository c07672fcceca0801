"""What a later benchmark does worse than an earlier one."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from gfgnn.bench.cells import Cell, Ratio, cells, per_iteration, ratio, to_best
from gfgnn.bench.records import Line
from gfgnn.bench.sections import percent, ratio_text

#: Differences below this are no regression, however small the spread: of scores, of one seed alone, of time ratios.
SCORE, SCORE_OF_ONE, TIME = 0.005, 0.015, 0.8
#: standard errors of the mean difference that count as noise
ERRORS = 2.0


@dataclass(frozen=True)
class Change:
    """One figure of both benchmarks.

    Attributes:
        worse: it is worse than noise explains.
    """

    case: str
    data: str
    layers: int
    contender: str
    measure: str
    old: str
    new: str
    worse: bool


def compare(old: list[Line], new: list[Line]) -> list[Change]:
    """Scores, relative times and fates of what is in both benchmarks.

    A score is worse where it falls, in the mean over the seeds of both, by more than two standard errors of the
    differences, and by half a point at least (a point and a half where there is one seed). Seconds depend on machine
    and load and are not compared; ratios of seconds within pairs of runs are: the contender that others are measured
    against is worse where another takes less than .8 times as many of its times as before and the pairs of both
    benchmarks do not overlap. A contender whose runs were done and are not any more is worse.
    """
    before = {(cell.case, cell.data, cell.layers): cell for cell in cells(old)}
    changes = []
    for cell in cells(new):
        if (then := before.get((cell.case, cell.data, cell.layers))) is not None:
            for label in cell.runs:
                if label in then.runs:
                    changes += _of_contender(then, cell, label)
    return changes


def _of_contender(then: Cell, now: Cell, label: str) -> list[Change]:
    where = (now.case, now.data, now.layers, label)
    failed = [run.outcome for run in now.runs[label] if not run.done]
    if then.done(label) and failed:
        fates = ", ".join(sorted({outcome.status for outcome in failed}))
        return [
            Change(*where, "runs done", str(len(then.done(label))), f"{len(now.done(label))}; {fates}", True)
        ]
    changes = []
    first, second = _scores(then, label), _scores(now, label)
    if seeds := sorted(first.keys() & second.keys()):
        pairs = [(first[seed], second[seed]) for seed in seeds]
        shown = [percent([pair[i] for pair in pairs]) for i in (0, 1)]
        changes.append(Change(*where, "test at best val", shown[0], shown[1], score_is_worse(pairs)))
    if label != now.against == then.against:
        for name, measure in (("iteration", per_iteration), ("best val", to_best)):
            both = [ratio(cell.pairs(cell.against, label), measure) for cell in (then, now)]
            if both[0] is not None and both[1] is not None:
                title = f"{name}, times as long as {now.against}"
                worse = time_is_worse(both[0], both[1])
                changes.append(Change(*where, title, ratio_text(both[0]), ratio_text(both[1]), worse))
    return changes


def score_is_worse(pairs: list[tuple[float, float]]) -> bool:
    """Whether scores ``(old, new)`` of the same seeds have fallen beyond noise."""
    falls = [old - new for old, new in pairs]
    if len(falls) == 1:
        return falls[0] > SCORE_OF_ONE
    error = statistics.stdev(falls) / math.sqrt(len(falls))
    return statistics.fmean(falls) > max(SCORE, ERRORS * error)


def time_is_worse(old: Ratio, new: Ratio) -> bool:
    """Whether the contender that others are measured against has become slower beside this one, beyond noise."""
    return new.median < TIME * old.median and new.high < old.low


def _scores(cell: Cell, label: str) -> dict[int, float]:
    """Test score at the best validation score, by seed."""
    found = {run.line["seed"]: run.outcome.best or run.outcome.last for run in cell.runs[label] if run.done}
    return {
        seed: line["test"] for seed, line in found.items() if line is not None and line["test"] is not None
    }
