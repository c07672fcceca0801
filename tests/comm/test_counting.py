"""The books: exact numbers of messages and bytes, and waits that took time."""

from __future__ import annotations

import time

import pytest
import torch

from gfgnn.comm.base import PURPOSES
from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.grid import make_grid
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.comm.thread import run_threads


def sent(comm: CountingCommunicator) -> dict[str, tuple[float, float]]:
    """Messages and bytes of the purposes that have any."""
    books = comm.books()
    assert set(books) == set(PURPOSES)
    return {name: (e["messages"], e["bytes"]) for name, e in books.items() if e["messages"] or e["bytes"]}


def test_messages_and_bytes() -> None:
    def function(inner):
        comm = CountingCommunicator(inner)
        grid = make_grid(comm, 2, 2)
        comm.all_reduce(torch.ones(5, dtype=torch.float64), purpose="gram").wait()
        comm.all_reduce(torch.ones(()), purpose="control", op="max").wait()
        # To itself and the next rank: 1 and 2 rows of 3 x 2 numbers of 2 bytes.
        right, left = (comm.rank + 1) % 4, (comm.rank - 1) % 4
        send_counts = [{comm.rank: 1, right: 2}.get(rank, 0) for rank in range(4)]
        recv_counts = [{comm.rank: 1, left: 2}.get(rank, 0) for rank in range(4)]
        x = torch.ones(3, 3, 2, dtype=torch.bfloat16)
        comm.all_to_all(x, send_counts, recv_counts, purpose="halo").wait()
        # In a group, to both: 10 bytes to the other; then nothing at all.
        grid.parts.all_to_all(torch.ones(15, dtype=torch.uint8), *swapped(grid.part), purpose="halo").wait()
        grid.parts.all_to_all(torch.ones(0, 4), [0, 0], [0, 0], purpose="evaluate").wait()
        # Stage 0 sends two messages, stage 1 receives them.
        buffers = [(1 - grid.stage, torch.ones(2)), (1 - grid.stage, torch.ones(4, dtype=torch.int64))]
        grid.stages.exchange(*((buffers, []) if grid.stage == 0 else ([], buffers)), purpose="stage").wait()
        comm.barrier()
        return grid.stage, sent(comm)

    for stage, books in run_threads(4, function):
        expected = {"gram": (1, 40), "control": (1, 4), "halo": (1 + 1, 2 * 6 * 2 + 10)}
        assert books == (expected | {"stage": (2, 8 + 32)} if stage == 0 else expected)


def swapped(part: int) -> tuple[list[int], list[int]]:
    """Counts of two ranks that send 10 to the other and keep 5."""
    counts = [5, 10] if part == 0 else [10, 5]
    return counts, counts


def test_alone_nothing_is_sent() -> None:
    comm = CountingCommunicator(SerialCommunicator())
    comm.all_reduce(torch.ones(3), purpose="gram").wait()
    comm.all_to_all(torch.ones(3, 2), [3], [3], purpose="halo").wait()
    comm.group([0]).all_reduce(torch.ones(3), purpose="gram").wait()
    assert sent(comm) == {}


@pytest.mark.parametrize("trace", [False, True])
def test_waiting(trace: bool) -> None:
    def function(inner):
        comm = CountingCommunicator(inner, trace=trace)
        group = comm.group([0, 1])
        comm.barrier()
        start = time.perf_counter()
        if comm.rank == 1:
            time.sleep(0.2)
        work = group.all_reduce(torch.ones(1), purpose="gram")
        if comm.rank == 0:
            time.sleep(0.1)  # working, not waiting
        work.wait()
        return start, comm, group

    (start, comm, group), (_, late, _) = run_threads(2, function)
    assert 0.05 < comm.books()["gram"]["seconds"] < 0.15
    assert late.books()["gram"]["seconds"] < 0.05
    assert group.books() == comm.books()
    operations = [(purpose, operation) for _, _, purpose, operation in comm.waits]
    if not trace:
        assert operations == []
        return
    assert operations == [("setup", "group"), ("control", "barrier"), ("gram", "all_reduce")]
    begin, end, _, _ = comm.waits[-1]
    assert start + 0.1 <= begin < end
    assert end - begin == pytest.approx(comm.books()["gram"]["seconds"])
    assert group.waits is comm.waits


def test_reset() -> None:
    comm = CountingCommunicator(SerialCommunicator(), trace=True)
    group = comm.group([0])
    group.exchange([], [], purpose="stage").wait()
    assert comm.waits
    comm.reset()
    assert comm.waits == group.waits == []
    assert all(entry == {"messages": 0, "bytes": 0, "seconds": 0.0} for entry in group.books().values())
    group.exchange([], [], purpose="stage").wait()
    assert len(comm.waits) == 1
