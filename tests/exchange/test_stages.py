"""Messages between stages and agreements: the iteration they come from, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from grids import run_open
from torch import Tensor

from gfgnn.comm.counting import CountingCommunicator
from gfgnn.config import ModelConfig
from gfgnn.exchange.routes import Route, downward, upward
from gfgnn.exchange.stages import Agreement, Channel
from gfgnn.model.build import make_model

LIKE = torch.empty(0, dtype=torch.float64)


def blocks(family: str, layers: int) -> Any:
    return make_model(ModelConfig(family=family, layers=layers, hidden=4), 5, 3, "multiclass").blocks


def schedule(iters: int, staleness: int, returns: Sequence[int] = ()) -> list[bool]:
    """Which iterations are synchronous: the first, and as many after each return."""
    until, found = staleness, []
    for iteration in range(1, iters + 1):
        found.append(staleness == 0 or iteration <= until)
        if iteration in returns:
            until = iteration + staleness
    return found


def content(kind: str, source: int, target: int, iteration: int) -> Tensor:
    """What a stage sends another in an iteration; no two messages are alike."""
    number = (source * 10 + target) * 1000 + iteration + (0.5 if kind == "down" else 0.0)
    return torch.full((3, 4), number, dtype=torch.float64)


def check_messages(kind: str, route: Route, stage: int, iteration: int, found: Sequence[Tensor]) -> None:
    assert len(found) == len(route.sources)
    for (source, _), tensor in zip(route.sources, found, strict=True):
        assert torch.equal(tensor, content(kind, source, stage, iteration))


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
@pytest.mark.parametrize("returns", [(), (1,), (9,), (6, 8, 13)])
@pytest.mark.parametrize(("family", "bounds"), [("gcn", (0, 2, 5)), ("gcnii", (0, 2, 3, 7))])
def test_messages_come_from_the_right_iteration(
    staleness: int, returns: tuple[int, ...], family: str, bounds: tuple[int, ...]
) -> None:
    """Both directions, as the solver uses them: in an iteration in which it goes back nothing is sent down, and
    later ones are synchronous. Only messages of iterations with one are ever asked for."""
    network, stages = blocks(family, 5), len(bounds) - 1
    waits = schedule(16, staleness, returns)

    def job(inner: Any) -> dict[str, dict[str, float]]:
        comm = CountingCommunicator(inner)
        stage = comm.rank
        routes = {"up": upward(network, bounds, stage), "down": downward(network, bounds, stage)}
        up, down = (Channel(comm, route, staleness, 3, LIKE) for route in routes.values())

        def send(kind: str, channel: Channel, iteration: int, synchronous: bool) -> None:
            messages = [content(kind, stage, to, iteration) for to in channel.route.targets]
            channel.send(iteration, synchronous, messages)

        for iteration, synchronous in enumerate(waits, start=1):
            used = iteration if synchronous else iteration - staleness
            found = up.receive(iteration, synchronous)
            check_messages("up", routes["up"], stage, used, found)
            send("up", up, iteration, synchronous)
            if iteration in returns:
                continue
            found = down.receive(iteration, synchronous)
            check_messages("down", routes["down"], stage, used, found)
            send("down", down, iteration, synchronous)
        for channel in (up, down):
            assert len(channel._inbox) <= staleness, "old messages are let go"
            assert len(channel._sent) <= staleness + 1
            channel.drain()
            assert not channel._inbox
            assert not channel._sent
        return comm.books()

    books, left = run_open(stages, job)
    assert left == 0
    for stage, book in enumerate(books):
        ups, downs = upward(network, bounds, stage).targets, downward(network, bounds, stage).targets
        sent = 16 * len(ups) + (16 - len(returns)) * len(downs)
        assert book["stage"]["messages"] == sent
        assert sum(entry["messages"] for entry in book.values()) == sent


def test_stages_that_only_send_or_only_receive() -> None:
    def job(comm: Any) -> None:
        route = Route((), (1,)) if comm.rank == 0 else Route(((0, 2),), ())
        channel = Channel(comm, route, 1, 3, LIKE)
        for iteration in (1, 2, 3):
            found = channel.receive(iteration, iteration == 1)
            if comm.rank == 1:
                assert found[0].shape == (3, 2)
                assert bool((found[0] == max(1, iteration - 1)).all())
            channel.send(
                iteration, iteration == 1, [LIKE.new_full((3, 2), iteration)] if comm.rank == 0 else []
            )
        channel.drain()

    assert run_open(2, job)[1] == 0


@pytest.mark.parametrize("purpose", ["stage", "evaluate"])
def test_messages_are_booked_by_purpose(purpose: str) -> None:
    def job(inner: Any) -> dict[str, dict[str, float]]:
        comm = CountingCommunicator(inner)
        route = Route((), (1,)) if comm.rank == 0 else Route(((0, 4),), ())
        channel = Channel(comm, route, 0, 3, LIKE, purpose)
        channel.receive(1, True)
        channel.send(1, True, [LIKE.new_ones(3, 4)] if comm.rank == 0 else [])
        channel.drain()
        return comm.books()

    (first, second), left = run_open(2, job)
    assert left == 0
    assert (first[purpose]["messages"], first[purpose]["bytes"]) == (1, 3 * 4 * 8)
    assert second[purpose]["bytes"] == 0
    assert sum(entry["messages"] for entry in first.values()) == 1


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
@pytest.mark.parametrize("returns", [(), (1,), (9,), (6, 8, 13)])
def test_agreements_are_of_the_right_iteration(staleness: int, returns: tuple[int, ...]) -> None:
    """Sums that are never asked for, since all ranks went back, must arrive nevertheless."""
    waits = schedule(16, staleness, returns)

    def job(inner: Any) -> dict[str, dict[str, float]]:
        comm = CountingCommunicator(inner)
        agreement = Agreement(comm, staleness, torch.device("cpu"))
        for iteration, synchronous in enumerate(waits, start=1):
            known, (total, one) = agreement.reach(iteration, synchronous, (0.1 * iteration * comm.rank, 1.0))
            assert known == (iteration if synchronous else iteration - staleness)
            assert total == pytest.approx(0.1 * known * 3)
            assert one == 3.0
            assert len(agreement._pending) <= staleness
        agreement.drain()
        assert not agreement._pending
        return comm.books()

    books, left = run_open(3, job)
    assert left == 0
    for book in books:
        assert (book["control"]["messages"], book["control"]["bytes"]) == (16, 16 * 2 * 8)
        assert sum(entry["messages"] for entry in book.values()) == 16


def test_routes_by_hand() -> None:
    """GCN with widths 5 -> 4 -> 4 -> 4 -> 4 -> 3: neighbours only, 4 columns each."""
    network, bounds = blocks("gcn", 5), (0, 1, 3, 5)
    assert upward(network, bounds, 0) == Route((), (1,))
    assert upward(network, bounds, 1) == Route(((0, 4),), (2,))
    assert upward(network, bounds, 2) == Route(((1, 4),), ())
    assert downward(network, bounds, 0) == Route(((1, 4),), ())
    assert downward(network, bounds, 1) == Route(((2, 4),), (0,))
    assert downward(network, bounds, 2) == Route((), (1,))


def test_routes_of_a_network_that_looks_back() -> None:
    """Block 0, layers 1 to 4, output: the last stage has the output alone and does not look back."""
    network, bounds = blocks("gcnii", 4), (0, 2, 4, 5, 6)
    assert upward(network, bounds, 0) == Route((), (1, 1, 2))
    assert upward(network, bounds, 1) == Route(((0, 4), (0, 4)), (2,))
    assert upward(network, bounds, 2) == Route(((1, 4), (0, 4)), (3,))
    assert upward(network, bounds, 3) == Route(((2, 4),), ())
    assert downward(network, bounds, 3) == Route((), (2,))
    assert downward(network, bounds, 2) == Route(((3, 4),), (1, 0))
    assert downward(network, bounds, 1) == Route(((2, 4),), (0, 0))
    assert downward(network, bounds, 0) == Route(((1, 4), (1, 4), (2, 4)), ())


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage", "sign"])
@pytest.mark.parametrize("bounds", [(0, 1, 2, 3), (0, 2, 3), (0, 3)])
def test_every_message_has_a_receiver(family: str, bounds: tuple[int, ...]) -> None:
    """Between two stages as many tensors arrive as are sent, in both directions."""
    network = blocks(family, 3)
    ends = (*bounds[:-1], len(network))
    stages = range(len(ends) - 1)
    for route in (upward, downward):
        sent = sorted((s, to) for s in stages for to in route(network, ends, s).targets)
        received = sorted((source, s) for s in stages for source, _ in route(network, ends, s).sources)
        assert sent == received
