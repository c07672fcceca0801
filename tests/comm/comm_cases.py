"""The contract of :class:`gfgnn.comm.base.Communicator`, as functions that every rank runs.

A case asserts what one rank can see. Where it returns something, that must be the same on every rank. Tensors are made
on torch's default device, so that the same cases run on CUDA.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.base import CommError, Communicator
from gfgnn.comm.grid import make_grid

DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16)


def rows(
    source: int, destination: int, count: int, *shape: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Rows that tell who sent them to whom and which they are; the numbers fit into a byte."""
    first = 50 * source + 10 * destination + torch.arange(count)
    return first.reshape(count, *[1] * len(shape)).expand(count, *shape).to(dtype).contiguous()


def count_of(source: int, destination: int) -> int:
    """Uneven: 0, 1 or 2 rows, different in both directions."""
    return (source + 2 * destination) % 3


def to_all(comm: Communicator, count: Callable[[int, int], int], *shape: int, **kwargs) -> tuple:
    """Arguments of an all_to_all, and what must come of it."""
    ranks = range(comm.size)
    sent = torch.cat([rows(comm.rank, other, count(comm.rank, other), *shape, **kwargs) for other in ranks])
    expected = torch.cat(
        [rows(other, comm.rank, count(other, comm.rank), *shape, **kwargs) for other in ranks]
    )
    return sent, [count(comm.rank, r) for r in ranks], [count(r, comm.rank) for r in ranks], expected


def same(actual: Tensor, expected: Tensor) -> None:
    """To the bit. (torch.testing would take each process seconds to import.)"""
    assert actual.dtype == expected.dtype
    assert torch.equal(actual, expected), f"{actual}\nis not\n{expected}"


def sum_and_maximum(comm: Communicator) -> None:
    for dtype in DTYPES:
        start = torch.arange(6).reshape(2, 3).to(dtype)
        x = start + comm.rank
        work = comm.all_reduce(x, purpose="gram")
        assert work.wait() is x
        assert work.wait() is x
        same(x, start * comm.size + sum(range(comm.size)))
        x = start + comm.rank
        same(comm.all_reduce(x, purpose="control", op="max").wait(), start + comm.size - 1)


def sums_are_the_same_bits(comm: Communicator) -> list[str]:
    """On every rank (compared by the test) and every time, for sizes that are split differently."""
    bits = []
    for size in (1, 7, 1000, 100_003):
        generator = torch.Generator().manual_seed(comm.rank)
        mine = torch.randn(size, generator=generator, device="cpu").to(torch.get_default_device())
        first, second = (comm.all_reduce(mine.clone(), purpose="gram").wait() for _ in range(2))
        assert torch.equal(first, second)
        bits.append(hashlib.sha256(first.cpu().numpy().tobytes()).hexdigest())
    return bits


def all_to_all_with_uneven_counts(comm: Communicator) -> None:
    for shape in ((), (3,), (2, 3)):
        sent, send_counts, recv_counts, expected = to_all(comm, count_of, *shape)
        work = comm.all_to_all(sent, send_counts, recv_counts, purpose="halo")
        same(work.wait(), expected)
        assert work.wait() is work.wait()


def all_to_all_of_every_dtype(comm: Communicator) -> None:
    for dtype in DTYPES:
        sent, send_counts, recv_counts, expected = to_all(comm, count_of, 2, dtype=dtype)
        same(comm.all_to_all(sent, send_counts, recv_counts, purpose="halo").wait(), expected)


def all_to_all_of_nothing(comm: Communicator) -> None:
    none = [0] * comm.size
    for shape in ((0,), (0, 5), (0, 2, 3)):
        assert comm.all_to_all(torch.zeros(shape), none, none, purpose="halo").wait().shape == shape
    assert comm.all_reduce(torch.zeros(0, 4), purpose="gram").wait().shape == (0, 4)
    # One sender, one receiver, and rows without elements.
    alone = [int(comm.rank == comm.size - 1), *none[1:]]
    received = [0] * (comm.size - 1) + [int(comm.rank == 0)]
    for columns in (0, 2):
        x = torch.ones(sum(alone), columns)
        same(comm.all_to_all(x, alone, received, purpose="halo").wait(), torch.ones(sum(received), columns))


def what_is_sent_may_change_after_wait(comm: Communicator) -> None:
    """Nothing that was sent is modified by the communicator, nor by the sender before slow receivers have it."""
    sent, send_counts, recv_counts, expected = to_all(comm, count_of, 2)
    before = sent.clone()
    work = comm.all_to_all(sent, send_counts, recv_counts, purpose="halo")
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    message, received = torch.full((4,), float(comm.rank)), torch.empty(4)
    peers = comm.size > 1
    messages = comm.exchange([(right, message)] * peers, [(left, received)] * peers, purpose="stage")
    if comm.rank % 2:
        time.sleep(0.1)
    result = work.wait()
    messages.wait()
    same(sent, before)
    same(message, torch.full((4,), float(comm.rank)))
    sent.fill_(-1)
    message.fill_(-1)
    same(result, expected)
    if peers:
        same(received, torch.full((4,), float(left)))


def operations_overlap(comm: Communicator) -> None:
    """Starting does not wait for late ranks; works of several groups are out at once and waited for in any order."""
    halves = comm.group([rank for rank in range(comm.size) if rank % 2 == comm.rank % 2])
    comm.barrier()
    if comm.rank == comm.size - 1:
        time.sleep(0.4)
    start = time.monotonic()
    one, *counts_one, expected_one = to_all(comm, count_of, 3)
    two, *counts_two, expected_two = to_all(comm, lambda source, destination: 1 + source, 2)
    works = [
        comm.all_to_all(one, *counts_one, purpose="halo"),
        halves.all_reduce(torch.full((5,), comm.rank), purpose="gram"),
        comm.all_to_all(two, *counts_two, purpose="halo"),
        comm.all_reduce(torch.ones(2), purpose="gram"),
    ]
    assert time.monotonic() - start < 0.3
    results = [work.wait() for work in reversed(works)][::-1]
    same(results[0], expected_one)
    same(results[1], torch.full((5,), sum(range(comm.rank % 2, comm.size, 2))))
    same(results[2], expected_two)
    same(results[3], torch.full((2,), float(comm.size)))


def exchange_in_a_ring(comm: Communicator) -> None:
    if comm.size == 1:
        assert comm.exchange([], [], purpose="stage").wait().numel() == 0
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for dtype in DTYPES:
        received = torch.empty(3, 2, dtype=dtype)
        message = rows(comm.rank, right, 3, 2, dtype=dtype)
        assert comm.exchange([(right, message)], [(left, received)], purpose="stage").wait().numel() == 0
        same(received, rows(left, comm.rank, 3, 2, dtype=dtype))


def exchange_of_a_pair_keeps_its_order(comm: Communicator) -> None:
    """Only the first and the last rank call; calls are split differently at both ends; one is large, one empty."""
    sizes = (3, 200_000, 0, 1, 3, 3)
    messages = [torch.full((size,), float(index)) for index, size in enumerate(sizes)]
    received = [torch.empty(size) for size in sizes]
    last = comm.size - 1
    if comm.size > 1 and comm.rank == 0:
        first = comm.exchange([(last, x) for x in messages[:2]], [], purpose="stage")
        back = torch.empty(2)
        second = comm.exchange([(last, x) for x in messages[2:]], [(last, back)], purpose="stage")
        second.wait()
        first.wait()
        same(back, torch.ones(2))
    elif comm.size > 1 and comm.rank == last:
        comm.exchange([], [(0, received[0])], purpose="stage").wait()
        works = [comm.exchange([(0, torch.ones(2))], [(0, x) for x in received[1:4]], purpose="stage")]
        works.append(comm.exchange([], [(0, x) for x in received[4:]], purpose="stage"))
        for work in works:
            work.wait()
        for actual, expected in zip(received, messages, strict=True):
            same(actual, expected)
    comm.barrier()


def barrier_waits_for_all(comm: Communicator) -> None:
    """Of one clock for all processes of a machine: the last arrives before the first leaves."""
    for late in range(comm.size):
        if comm.rank == late:
            time.sleep(0.05)
        arrived = torch.tensor([time.monotonic()], dtype=torch.float64)
        comm.barrier()
        left = time.monotonic()
        comm.all_reduce(arrived, purpose="control", op="max").wait()
        assert arrived.item() <= left


def groups_are_numbered_as_given(comm: Communicator) -> None:
    backwards = comm.group(range(comm.size - 1, -1, -1))
    assert (backwards.rank, backwards.size) == (comm.size - 1 - comm.rank, comm.size)
    sent, *counts, expected = to_all(backwards, count_of)
    same(backwards.all_to_all(sent, *counts, purpose="halo").wait(), expected)
    alone = backwards.group([backwards.rank])
    assert (alone.rank, alone.size) == (0, 1)
    same(alone.all_reduce(torch.ones(1), purpose="gram").wait(), torch.ones(1))
    backwards.close()
    backwards.close()
    comm.barrier()
    if comm.size > 1:
        with pytest.raises(CommError, match=r"all_reduce \(gram\).*closed"):
            backwards.all_reduce(torch.ones(1), purpose="gram")


def grid_of_parts_and_stages(comm: Communicator) -> None:
    for num_parts in [parts for parts in (1, 2, 4) if comm.size % parts == 0]:
        num_stages = comm.size // num_parts
        grid = make_grid(comm, num_parts, num_stages)
        assert grid.rank_of(grid.part, grid.stage) == comm.rank == grid.stage * num_parts + grid.part
        assert grid.describe(comm.rank) == f"rank {comm.rank} (part {grid.part}, stage {grid.stage})"
        assert (grid.parts.rank, grid.parts.size) == (grid.part, num_parts)
        assert (grid.stages.rank, grid.stages.size) == (grid.stage, num_stages)
        both = [
            group.all_reduce(torch.tensor([comm.rank]), purpose="gram") for group in (grid.parts, grid.stages)
        ]
        assert both[0].wait().item() == sum(grid.rank_of(part, grid.stage) for part in range(num_parts))
        assert both[1].wait().item() == sum(grid.rank_of(grid.part, stage) for stage in range(num_stages))
    with pytest.raises(InputError, match=f"3 parts x 5 stages need 15 processes; there are {comm.size}"):
        make_grid(comm, 3, 5)


def inference_tensors(comm: Communicator) -> None:
    """In inference mode, and of it: the works are waited for outside, where inference tensors must not change."""
    with torch.inference_mode():
        x = torch.full((3,), float(comm.rank))
        sent, *counts, expected = to_all(comm, count_of, 2)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        received = torch.empty(3)
        ring = ([(right, torch.ones(3))], [(left, received)]) if comm.size > 1 else ([], [])
        same(comm.all_reduce(x.clone(), purpose="gram").wait(), torch.full((3,), sum(range(comm.size)) * 1.0))
        same(comm.all_to_all(sent, *counts, purpose="halo").wait(), expected)
        comm.exchange(*ring, purpose="stage").wait()
        reduced = comm.all_reduce(x, purpose="gram")
        moved = comm.all_to_all(sent, *counts, purpose="halo")
        exchanged = comm.exchange(*ring, purpose="stage")
        comm.barrier()
    same(reduced.wait(), torch.full((3,), sum(range(comm.size)) * 1.0))
    same(moved.wait(), expected)
    exchanged.wait()
    assert comm.size == 1 or received.tolist() == [1, 1, 1]


CASES: dict[str, Callable[[Communicator], object]] = {
    case.__name__: case
    for case in (
        sum_and_maximum,
        sums_are_the_same_bits,
        all_to_all_with_uneven_counts,
        all_to_all_of_every_dtype,
        all_to_all_of_nothing,
        what_is_sent_may_change_after_wait,
        operations_overlap,
        exchange_in_a_ring,
        exchange_of_a_pair_keeps_its_order,
        barrier_waits_for_all,
        groups_are_numbered_as_given,
        grid_of_parts_and_stages,
        inference_tensors,
    )
}
