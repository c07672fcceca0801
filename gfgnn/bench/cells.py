"""Runs that are compared with each other, and the figures that come from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from gfgnn.bench.outcome import Outcome
from gfgnn.bench.records import Line, cell_of, runs_of

#: Seconds that a run took to something, and whether it got there; all its seconds where it did not.
Measure = Callable[[Outcome], tuple[float, bool]]
#: what another version may have written beside is passed over
KNOWN = frozenset(f.name for f in fields(Outcome))


@dataclass(frozen=True)
class Run:
    """A run as a line has it."""

    line: Line
    outcome: Outcome

    @property
    def done(self) -> bool:
        return self.outcome.status == "done"


@dataclass(frozen=True)
class Cell:
    """The runs of all contenders on the same data with the same number of layers.

    Attributes:
        title: of the case.
        against: the label of the contender that the others are compared with.
        reach: test scores, the time to which is compared.
        runs: by label, one for each seed, whatever became of it.
    """

    case: str
    title: str
    data: str
    layers: int
    against: str
    reach: tuple[float, ...]
    runs: dict[str, list[Run]]

    def done(self, label: str) -> list[Outcome]:
        """The outcomes that figures are made of."""
        return [run.outcome for run in self.runs.get(label, []) if run.done]

    def pairs(self, label: str, other: str) -> list[tuple[Outcome, Outcome]]:
        """Runs of two contenders with the same seed, made one after the other, both done."""
        first = {(run.line["session"], run.line["seed"]): run for run in self.runs.get(label, []) if run.done}
        second = {
            (run.line["session"], run.line["seed"]): run for run in self.runs.get(other, []) if run.done
        }
        return [(first[key].outcome, second[key].outcome) for key in first if key in second]


def cells(lines: list[Line]) -> list[Cell]:
    """The cells of a benchmark, in the order in which they were first run."""
    found: dict[tuple[str, str, int], Cell] = {}
    for line in runs_of(lines):
        case, data, layers = cell_of(line)
        cell = found.setdefault(
            (case, data, layers),
            Cell(case, line["title"], data, layers, line["against"], tuple(line["reach"]), {}),
        )
        known = {name: value for name, value in line["outcome"].items() if name in KNOWN}
        cell.runs.setdefault(line["label"], []).append(Run(line, Outcome(**known)))
    return list(found.values())


def to_best(outcome: Outcome) -> tuple[float, bool]:
    """Seconds to the best validation score; without one, to the end."""
    best = outcome.best
    return (_all_seconds(outcome), False) if best is None else (best["seconds"], True)


def to_score(score: float) -> Measure:
    """Seconds until the test score was first reached."""

    def measure(outcome: Outcome) -> tuple[float, bool]:
        seconds = outcome.seconds_to(score)
        return (_all_seconds(outcome), False) if seconds is None else (seconds, True)

    return measure


def per_iteration(outcome: Outcome) -> tuple[float, bool]:
    """Seconds of an iteration; none where the contender has no iterations."""
    seconds = outcome.seconds_per_iteration
    return (0.0, False) if seconds is None else (seconds, True)


@dataclass(frozen=True)
class Ratio:
    """How many times as long a contender took as another, over pairs of runs.

    Attributes:
        median, low, high: over pairs.
        bound: the contender never got there in some pair and counts with all its time: the ratio is at least this.
        pairs: how many there are.
    """

    median: float
    low: float
    high: float
    bound: bool
    pairs: int


def ratio(pairs: Sequence[tuple[Outcome, Outcome]], measure: Measure) -> Ratio | None:
    """Time of the second of each pair over that of the first; None where no pair can be compared.

    A pair in which the first alone never got there counts as 0, which is to its disadvantage, and one in which neither
    did says nothing.
    """
    both = [(measure(first), measure(second)) for first, second in pairs]
    found = [pair for pair in both if pair[0][1] or pair[1][1]]
    ratios = [b / a if there else 0.0 for (a, there), (b, _) in found if a > 0 and b > 0]
    if not ratios:
        return None
    bound = any(not there for _, (_, there) in found)
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), bound, len(ratios))


def best_tests(outcomes: Iterable[Outcome]) -> list[float]:
    """Test scores at the best validation score; at the end where nothing is labelled for validation."""
    lines = [outcome.best or outcome.last for outcome in outcomes]
    return [line["test"] for line in lines if line is not None and line["test"] is not None]


def last_tests(outcomes: Iterable[Outcome]) -> list[float]:
    """Test scores at the end."""
    return [outcome.last["test"] for outcome in outcomes if outcome.last is not None]


def _all_seconds(outcome: Outcome) -> float:
    return float(outcome.history[-1]["seconds"])
