"""Figures from runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import benchmark, line, outcome, started

from gfgnn.bench.cells import best_tests, cells, last_tests, ratio, to_best, to_score
from gfgnn.bench.plots import band


def test_best_and_last() -> None:
    (cell,) = cells(benchmark())
    assert best_tests(cell.done("ours")) == pytest.approx([0.835, 0.84, 0.845])
    assert last_tests(cell.done("ours")) == [0.9, 0.9, 0.9]
    assert to_best(cell.done("other")[0]) == (6.0, True)
    assert to_score(0.8)(cell.done("other")[0]) == (6.0, False)
    assert to_score(0.8)(cell.done("ours")[0]) == (2.0, True)


def test_ratios_within_pairs() -> None:
    (cell,) = cells(benchmark())
    found = ratio(cell.pairs("ours", "other"), to_score(0.8))
    assert found is not None
    assert (found.median, found.bound, found.pairs) == (3.0, True, 3)
    back = ratio(cell.pairs("other", "ours"), to_score(0.8))
    assert back is not None
    assert (back.low, back.bound) == (0.0, False)  # the first never got there with seed 0


def test_only_runs_of_one_session_are_pairs() -> None:
    lines = benchmark()
    lines[1]["outcome"]["of a later version"] = 1
    again = [{**record, "session": "later"} for record in lines if record.get("label") == "other"]
    (cell,) = cells([*lines, started("later"), *again])
    assert cell.pairs("ours", "other") == []
    assert len(cell.done("other")) == 3


def test_what_is_not_done_is_in_no_figure() -> None:
    killed = outcome((1.0, 0.9, 0.99), status="out of memory", reason="too much")
    (cell,) = cells([*benchmark(), line("ours", 0, killed)])
    assert best_tests(cell.done("ours")) == [0.84, 0.845]
    assert len(cell.pairs("ours", "other")) == 2


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_bands_hold_the_mean_and_end_where_runs_end(runs: list[list[tuple[float, float, float]]]) -> None:
    rising = [[(sum(s for s, _, _ in run[: i + 1]), v, t) for i, (_, v, t) in enumerate(run)] for run in runs]
    outcomes = [outcome(*points) for points in rising]
    found = band(outcomes)
    assert found is not None
    seconds, mean, low, high = found
    assert seconds[0] == max(points[0][0] for points in rising)
    assert seconds[-1] == max(points[-1][0] for points in rising)
    assert (low <= mean + 1e-12).all()
    assert (mean <= high + 1e-12).all()
    assert math.isclose(mean[-1], sum(best_tests(outcomes)) / len(outcomes), abs_tol=1e-9)
