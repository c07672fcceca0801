"""What counts as a regression."""

from __future__ import annotations

import pytest
from lines import benchmark, line, outcome

from gfgnn.bench.compare import compare, score_is_worse


def worse(old: list, new: list) -> set[tuple[str, str]]:
    return {(c.contender, c.measure.partition(",")[0]) for c in compare(old, new) if c.worse}


def test_the_same_is_no_regression() -> None:
    assert worse(benchmark(), benchmark()) == set()
    assert {c.contender for c in compare(benchmark(), benchmark())} == {"ours", "other"}


def test_scores_fall() -> None:
    assert worse(benchmark(), benchmark(ours=0.82)) == {("ours", "test at best val")}
    assert worse(benchmark(), benchmark(ours=0.837)) == set()  # below half a point
    assert worse(benchmark(ours=0.82), benchmark()) == set()


def test_ours_becomes_slower_beside_the_other() -> None:
    assert worse(benchmark(slow=3.0), benchmark(slow=2.0)) == {("other", "iteration"), ("other", "best val")}
    assert worse(benchmark(slow=3.0), benchmark(slow=2.8)) == set()
    assert worse(benchmark(slow=2.0), benchmark(slow=3.0)) == set()


def test_runs_that_are_not_done_any_more() -> None:
    failed = outcome((1.0, 0.9, 0.99), status="failed", reason="a bug")
    assert worse(benchmark(), [*benchmark(), line("ours", 1, failed)]) == {("ours", "runs done")}


@pytest.mark.parametrize(
    ("pairs", "is_worse"),
    [
        ([(0.80, 0.79)], False),
        ([(0.80, 0.78)], True),
        ([(0.80, 0.70), (0.80, 0.90), (0.80, 0.72)], False),  # seeds differ by more than they fall
        ([(0.80, 0.79), (0.82, 0.81), (0.84, 0.83)], True),
    ],
)
def test_noise_is_that_of_differences(pairs: list[tuple[float, float]], is_worse: bool) -> None:
    assert score_is_worse(pairs) is is_worse
