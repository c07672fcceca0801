"""Old messages on the present scale, whom they are for, and how long a step's effect takes to be heard of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from grids import run_open
from problems import make, start

from gfgnn.comm.grid import make_grid
from gfgnn.exchange.routes import Route
from gfgnn.exchange.stages import Channel
from gfgnn.problem import Problem
from gfgnn.solver.links import addressed, delay, delayed_share, make_links, receive, stages_above
from gfgnn.solver.state import Links, Logged, TargetState


def staged(family: str, stages: int, stage: int) -> Any:
    """What the functions of delays look at: the network and the place of a rank."""
    grid = SimpleNamespace(num_stages=stages, stage=stage)
    return SimpleNamespace(model=make(family, layers=5).model, grid=grid)


def channel_to(*targets: int) -> Any:
    return SimpleNamespace(route=Route((), targets))


def state_of(links: Links, iteration: int, staleness: int, scales: dict[int, float]) -> TargetState:
    """A state in the middle of a run whose iterations ran on these scales."""
    _, state = start(make("gcn"))
    return replace(
        state,
        links=replace(links, staleness=staleness),
        iteration=iteration,
        synchronous_until=staleness,
        scale=scales[max(scales)],
        log={i: Logged({}, 0, scale) for i, scale in scales.items()},
    )


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_message_is_divided_by_the_gauge_factors_since(staleness: int) -> None:
    """Sent on the scale 2^i of iteration i and used ``staleness`` iterations later, where H is smaller by as much."""
    scales = {i: 2.0**i for i in range(1, 7)}

    def job(comm: Any) -> list[float]:
        routes = (Route((), (1,)), Route(((0, 1),), ()))
        channel = Channel(comm, routes[comm.rank], staleness, 1, torch.empty(0))
        _, plain = start(make("gcn"))
        found = []
        for iteration in range(1, 7):
            until_now = {i: s for i, s in scales.items() if i <= iteration}
            state = state_of(plain.links, iteration, staleness, until_now)
            tensors = receive(channel, state)
            found += [float(t) for t in tensors]
            message = torch.full((1, 1), float(iteration))
            channel.send(iteration, state.synchronous, [message] if comm.rank == 0 else [])
        channel.drain()
        return found

    (_, found), left = run_open(2, job)
    assert left == 0
    waits, late = range(1, staleness + 1), range(staleness + 1, 7)
    assert found == [*map(float, waits), *((i - staleness) / 2.0**staleness for i in late)]


def test_one_tensor_for_each_target() -> None:
    """The neighbour's first, then the same for all that look back; none without targets."""
    a, b = torch.zeros(1), torch.ones(1)
    assert addressed(channel_to(1, 1, 2), a, b) == [a, b, b]
    assert addressed(channel_to(1), a, b) == [a]
    assert addressed(channel_to(1), a, None) == [a]
    assert addressed(channel_to(), a, b) == []


@pytest.mark.parametrize(("family", "expected"), [("gcn", [12, 8, 4, 0]), ("gcnii", [4, 4, 4, 0])])
def test_delays(family: str, expected: list[int]) -> None:
    """With a staleness of 2: up and down again through every stage above, or straight where H_0 is looked at."""
    found = [delay(staged(family, 4, stage), 2) for stage in range(4)]
    assert found == expected
    assert [stages_above(staged(family, 4, stage)) for stage in range(4)] == [3, 2, 1, 0]
    assert [delay(staged(family, 4, stage), 0) for stage in range(4)] == [0] * 4


@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_nothing_is_held_back_where_nothing_is_late(step: str) -> None:
    assert delayed_share(step, 0) == 1.0


def test_shares_fall_with_the_delay() -> None:
    for step in ("sweep", "polar"):
        shares = [delayed_share(step, late) for late in range(9)]
        assert shares == sorted(shares, reverse=True)
        assert len(set(shares)) == 9
    assert [delayed_share("polar", late) for late in (2, 4)] == [1 / 2, 1 / 3]
    assert delayed_share("sweep", 1) == 1 / 4
    assert delayed_share("sweep", 2) == pytest.approx(4 / 27)


@pytest.mark.parametrize("late", [1, 2, 4, 6])
def test_the_sweep_share_is_the_largest_that_does_not_overshoot(late: int) -> None:
    """``x <- x - a x(late iterations ago)`` falls to zero from above; with a tenth more it swings below."""

    def lowest(share: float) -> float:
        x = [1.0] * (late + 1)
        for _ in range(600):
            x.append(x[-1] - share * x[-1 - late])
        return min(x[:600])

    assert lowest(delayed_share("sweep", late)) >= 0.0
    assert lowest(1.1 * delayed_share("sweep", late)) < 0.0


@pytest.mark.parametrize(("stages", "expected"), [(1, 0), (2, 3)])
def test_links_of_a_single_stage_are_never_late(stages: int, expected: int) -> None:
    problem = make("gcn")
    bounds = {1: (0, 3), 2: (0, 2, 3)}[stages]

    def job(world: Any) -> Links:
        placed: Problem = replace(problem, grid=make_grid(world, 1, stages), bounds=bounds)
        return make_links(placed, 3)

    found, left = run_open(stages, job)
    assert left == 0
    for links in found:
        assert links.staleness == links.agreement.staleness == expected
        assert links.up.staleness == links.down.staleness == expected
        assert links.up.rows == problem.propagation.num_nodes
        assert links.up.like.dtype == problem.dtype
