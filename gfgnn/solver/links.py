"""How the stages of the block solver hear of each other."""

from __future__ import annotations

from torch import Tensor

from gfgnn.exchange.routes import downward, upward
from gfgnn.exchange.stages import Agreement, Channel
from gfgnn.model.blocks import looks_back
from gfgnn.problem import Problem
from gfgnn.solver.state import Links, TargetState


def make_links(problem: Problem, staleness: int) -> Links:
    """The channels of this rank. Nothing is sent yet."""
    grid, blocks, like = problem.grid, problem.model.blocks, problem.targets
    staleness = staleness if grid.num_stages > 1 else 0
    up, down = (
        Channel(
            grid.stages,
            route(blocks, problem.bounds, grid.stage),
            staleness,
            problem.propagation.num_nodes,
            like,
        )
        for route in (upward, downward)
    )
    return Links(up, down, Agreement(grid.world, staleness, problem.device), staleness)


def receive(channel: Channel, state: TargetState) -> list[Tensor]:
    """The message that the present iteration works on, brought to the present scale.

    Messages are shifts or values of H, which every gauge factor since their iteration has divided.
    """
    tensors = channel.receive(state.iteration, state.synchronous)
    if state.lag == 0:
        return tensors
    factor = state.log[state.iteration - state.lag].scale / state.scale
    return tensors if factor == 1.0 else [tensor * factor for tensor in tensors]


def addressed(channel: Channel, first: Tensor | None, others: Tensor | None) -> list[Tensor]:
    """A tensor for each target of a channel: ``first`` for the neighbour, ``others`` for all that follow."""
    tensors = [first] + [others] * (len(channel.route.targets) - 1) if channel.route.targets else []
    return [t for t in tensors if t is not None]


def stages_above(problem: Problem) -> int:
    """How many stages lie over this rank's."""
    return problem.grid.num_stages - 1 - problem.grid.stage


def delay(problem: Problem, staleness: int) -> int:
    """Iterations from a step of this stage to the first message that knows what the step did to the output.

    With S the staleness it is S for each stage on the way up and down again. Where the network looks back at H_0, most
    of what reaches the encoder comes straight from every stage: then the way is one stage long.
    """
    way = stages_above(problem)
    if looks_back(problem.model.blocks):
        way = min(way, 1)
    return 2 * staleness * way


def delayed_share(step: str, delay: int) -> float:
    """The share of its update that a stage applies when it hears of the effect ``delay`` iterations later.

    The sweep step asks for the whole way to the target: with ``t = delay``, ``x <- x - a x(t iterations ago)`` does not
    overshoot for ``a <= t^t / (1 + t)^(1 + t)``. The polar step has a size of its own, which gets divided by the number
    of steps under way on the way up.
    """
    if delay == 0:
        return 1.0
    return delay**delay / (1 + delay) ** (1 + delay) if step == "sweep" else 1.0 / (1 + delay / 2)
