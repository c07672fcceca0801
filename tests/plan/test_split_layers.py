"""Splits into stages against all splits there are."""

from __future__ import annotations

import time
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfgnn.checks import InputError
from gfgnn.plan.layers import check_bounds, parse_bounds, split_layers


def stage_costs(costs: list[float], transfer: list[float], bounds: tuple[int, ...]) -> list[float]:
    """Each stage's cost; a cut after block b - 1 costs ``transfer[b - 1]`` on both its sides."""
    return [
        sum(costs[a:b]) + (transfer[a - 1] if a > 0 else 0) + (transfer[b - 1] if b < len(costs) else 0)
        for a, b in pairwise(bounds)
    ]


def best_of_all(costs: list[float], transfer: list[float], num_stages: int) -> tuple[int, ...]:
    """The smallest bottleneck, then the smallest sum of squares, then the earliest cuts."""
    splits = [(0, *cuts, len(costs)) for cuts in combinations(range(1, len(costs)), num_stages - 1)]

    def key(bounds: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        stages = stage_costs(costs, transfer, bounds)
        return max(stages), sum(cost**2 for cost in stages), bounds

    return min(splits, key=key)


#: whole numbers, so that sums are exact and ties are ties; from a few values, so that there are many
blocks = st.lists(st.sampled_from([0, 1, 2, 3, 7, 1000]) | st.integers(0, 100), min_size=1, max_size=9)


@given(blocks, st.data())
def test_best_of_all_splits(costs: list[float], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(costs)))
    assert split_layers(costs, num_stages) == best_of_all(costs, [0] * len(costs), num_stages)


@given(blocks, st.data())
def test_best_of_all_splits_with_transfers(costs: list[float], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(costs)))
    transfer = data.draw(st.lists(st.integers(0, 50), min_size=len(costs) - 1, max_size=len(costs) - 1))
    assert split_layers(costs, num_stages, transfer=transfer) == best_of_all(costs, transfer, num_stages)


@given(blocks, st.sampled_from([1e-6, 0.1, 1 / 3, 1e9]), st.data())
def test_the_unit_does_not_matter(costs: list[float], unit: float, data: st.DataObject) -> None:
    """Sums of seconds are rounded; equal stages must count as equal all the same."""
    num_stages = data.draw(st.integers(1, len(costs)))
    assert split_layers([cost * unit for cost in costs], num_stages) == split_layers(costs, num_stages)


@pytest.mark.parametrize(
    ("costs", "num_stages", "bounds"),
    [
        ([1, 1, 1, 1, 1, 1], 3, (0, 2, 4, 6)),
        ([1, 1, 1, 1, 1], 2, (0, 2, 5)),  # 2 + 3 and 3 + 2 are equal: the earlier cut
        ([0, 0, 0], 2, (0, 1, 3)),
        (
            [40, 10, 10, 10, 5],
            3,
            (0, 1, 3, 5),
        ),  # a wide encoder and a narrow output: 40, 20, 15 and not 40, 10, 25
        ([1, 1, 900, 1, 1, 1, 1], 3, (0, 2, 3, 7)),
        ([3, 1, 4], 1, (0, 3)),
        ([3, 1, 4], 3, (0, 1, 2, 3)),
        ([5], 1, (0, 1)),
    ],
)
def test_known_splits(costs: list[float], num_stages: int, bounds: tuple[int, ...]) -> None:
    assert split_layers(costs, num_stages) == bounds


def test_a_dear_boundary_is_avoided() -> None:
    assert split_layers([1, 1, 1, 1], 2) == (0, 2, 4)
    assert split_layers([1, 1, 1, 1], 2, transfer=[0, 5, 0]) == (0, 1, 4)


def test_a_thousand_layers_take_no_time() -> None:
    costs = np.random.default_rng(0).uniform(0.5, 1.5, 1003).tolist()
    start = time.process_time()
    bounds = split_layers(costs, 64)
    assert time.process_time() - start < 2.0
    stages = stage_costs(costs, [0] * 1003, bounds)
    assert len(stages) == 64
    assert max(stages) < sum(costs) / 64 + 1.5


@pytest.mark.parametrize(
    ("num_stages", "message"),
    [
        (0, "stages must be at least 1; got 0"),
        (-2, "got -2"),
        (4, "stages > layers: 4 stages .* has 3, .*; use 1 to 3 stages"),
        (1.5, "whole number; got 1.5"),
        (True, "whole number; got True"),
    ],
)
def test_impossible_numbers_of_stages(num_stages: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_layers([1, 2, 3], num_stages)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_impossible_costs(bad: float) -> None:
    with pytest.raises(InputError, match="finite and not negative"):
        split_layers([1.0, bad, 2.0], 2)
    with pytest.raises(InputError, match="finite and not negative"):
        split_layers([1.0, 1.0, 2.0], 2, transfer=[1.0, bad])


def test_bounds_are_read() -> None:
    assert parse_bounds("5,9,13", 18, 4) == (0, 5, 9, 13, 18)
    assert parse_bounds(" 2 , 3", 4, 3) == (0, 2, 3, 4)
    assert parse_bounds("", 4, 1) == (0, 4)


@pytest.mark.parametrize(
    ("text", "num_stages", "message"),
    [
        ("5,9", 4, "4 stages need 3 stage bounds, .* got 5,9"),
        ("5,9,13", 2, "2 stages need 1 stage bounds, .* got 5,9,13"),
        ("", 2, "got none"),
        ("9,5", 3, "ascend within 1 and 17, .* got 9,5"),
        ("5,5", 3, "got 5,5"),
        ("0,5", 3, "got 0,5"),
        ("5,18", 3, "got 5,18"),
        ("-3", 2, "got -3"),
        ("5,x", 3, "whole numbers such as 5,9,13; got '5,x'"),
        ("5,,9", 3, "got '5,,9'"),
        ("1.5", 2, "got '1.5'"),
        ("5", 19, "stages > layers: 19 stages"),
    ],
)
def test_wrong_bounds(text: str, num_stages: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_bounds(text, 18, num_stages)


@given(blocks, st.data())
def test_a_split_passes_its_own_check(costs: list[float], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(costs)))
    bounds = split_layers(costs, num_stages)
    assert check_bounds(list(bounds), len(costs), num_stages) == bounds
