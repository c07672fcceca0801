"""Plans of stages, and what they say about themselves."""

from __future__ import annotations

import pytest

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.model.build import Model, make_model
from gfgnn.plan.cost import Rates, Sizes, block_costs, seconds
from gfgnn.plan.stages import StagePlan, plan_stages

SIZES = Sizes(num_nodes=2708, nnz=13264, num_train=140, head_nnz=700, feature_nnz=49216)


def model(layers: int = 16, features: int = 1433) -> Model:
    return make_model(ModelConfig(family="gcnii", layers=layers, hidden=64), features, 7, "multiclass")


def test_a_plan_adds_up() -> None:
    plan = plan_stages(model(), SIZES, "sweep", 4)
    expected = [seconds(cost, Rates()) for cost in block_costs(model(), SIZES, "sweep")]
    assert list(plan.block_seconds) == expected
    assert plan.bounds[0] == 0
    assert plan.bounds[-1] == 18
    assert sum(plan.stage_seconds) == pytest.approx(sum(expected))
    assert plan.bottleneck == max(plan.stage_seconds)
    assert plan.balance == pytest.approx(sum(expected) / 4 / plan.bottleneck)
    assert plan.bounds[1] - plan.bounds[0] < plan.bounds[2] - plan.bounds[1], (
        "the encoder takes most of a stage"
    )


def test_given_bounds_are_kept_and_the_best_ones_known() -> None:
    best = plan_stages(model(), SIZES, "sweep", 3)
    assert plan_stages(model(), SIZES, "sweep", 3, bounds=best.bounds) == best
    given = plan_stages(model(), SIZES, "sweep", 3, bounds=[0, 1, 2, 18])
    assert given.bounds == (0, 1, 2, 18)
    assert given.bottleneck > best.bottleneck
    assert "the bounds are given" in given.describe()
    with pytest.raises(InputError, match="3 stages need 2 stage bounds"):
        plan_stages(model(), SIZES, "sweep", 3, bounds=[0, 5, 18])
    with pytest.raises(InputError, match="stages > layers"):
        plan_stages(model(), SIZES, "sweep", 19)


def test_rates_change_the_split() -> None:
    """Where solves cost nothing the encoder's stage takes more blocks."""
    slow = plan_stages(model(), SIZES, "polar", 2, rates=Rates(solve=1e9))
    quick = plan_stages(model(), SIZES, "polar", 2, rates=Rates(solve=1e15))
    assert quick.bounds[1] > slow.bounds[1]


def test_description() -> None:
    roles = ("the encoder with 9 features", "hidden", "hidden", "the output of 3 columns")
    plan = StagePlan((0, 1, 4), (6.0, 1.0, 2.0, 1.0), roles, chosen=True)
    assert plan.describe().splitlines() == [
        "4 blocks in 2 stages, predicted balance 0.83 (mean/max)",
        "  stage 0: block 0 (the encoder with 9 features), 60.0% of the work",
        "  stage 1: blocks 1 to 3 (the output of 3 columns), 40.0% of the work",
        "  bottleneck: stage 0, 60.0%; an even split would be 50.0%, but block 0 (the encoder with 9 "
        "features) alone takes 60.0%",
    ]


@pytest.mark.parametrize(
    ("spent", "ending"),
    [((2.0, 1.0, 2.0, 1.0), "50.0%"), ((1.0, 2.0, 1.0, 1.0), "50.0%, but blocks stay whole")],
)
def test_even_and_uneven_plans(spent: tuple[float, ...], ending: str) -> None:
    text = StagePlan((0, 2, 4), spent, ("a", "b", "c", "d"), chosen=True).describe()
    assert text.endswith(f"an even split would be {ending}")


def test_one_stage_and_one_block() -> None:
    plan = plan_stages(model(), SIZES, "sweep", 1)
    assert plan.balance == pytest.approx(1.0)
    assert "bottleneck" not in plan.describe()
    sgc = make_model(ModelConfig(family="sgc", layers=2), 1433, 7, "multiclass")
    text = plan_stages(sgc, SIZES, "sweep", 1).describe()
    assert "block 0 (the encoder with 1433 features, which is the output, too), 100.0%" in text
