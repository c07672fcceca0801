"""Sums over ranks, rows and objects gathered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from grids import run_open
from random_graphs import randn

from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.exchange.sums import gather_objects, gather_rows, sum_over


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums_keep_shape_and_precision(size: int) -> None:
    """One block of the widest precision: a float32 part of it gains nothing and loses nothing."""
    matrices = [randn(2, 3, seed=rank) for rank in range(size)]
    numbers = [randn(1, seed=rank).float().squeeze() for rank in range(size)]

    def job(comm: Any) -> tuple[list[torch.Tensor], dict[str, dict[str, float]]]:
        counted = CountingCommunicator(comm)
        found = sum_over(counted, matrices[comm.rank], numbers[comm.rank])
        return found, counted.books()

    results, left = run_open(size, job)
    assert left == 0
    for (matrix, number), books in results:
        torch.testing.assert_close(matrix, torch.stack(matrices).sum(0))
        assert (number.shape, number.dtype) == (torch.Size([]), torch.float32)
        torch.testing.assert_close(number, torch.stack(numbers).double().sum().float())
        assert torch.equal(matrix, results[0][0][0])
        assert books["gram"]["bytes"] == (7 * 8 if size > 1 else 0)
        assert books["gram"]["messages"] == (size > 1)


def test_sums_leave_what_they_were_given() -> None:
    own = [torch.ones(3), torch.ones(3)]
    run_open(2, lambda comm: sum_over(comm, own[comm.rank]))
    assert [o.tolist() for o in own] == [[1.0] * 3] * 2


def test_narrow_sums_stay_narrow() -> None:
    def job(comm: Any) -> float:
        counted = CountingCommunicator(comm)
        (found,) = sum_over(counted, torch.ones(4), purpose="setup")
        assert found.dtype == torch.float32
        return counted.books()["setup"]["bytes"]

    assert run_open(2, job)[0] == [16, 16]


def test_alone_the_tensors_come_back_themselves() -> None:
    x = torch.ones(2)
    assert sum_over(SerialCommunicator(), x)[0] is x
    assert gather_rows(SerialCommunicator(), x, purpose="evaluate") is x


@pytest.mark.parametrize("counts", [(2, 0, 3), (0, 0, 0), (0, 1, 0)])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_rows_of_every_rank(counts: tuple[int, ...], shape: tuple[int, ...]) -> None:
    rows = [torch.full((count, *shape), float(rank)) for rank, count in enumerate(counts)]
    results, left = run_open(3, lambda comm: gather_rows(comm, rows[comm.rank], purpose="evaluate"))
    assert left == 0
    assert all(torch.equal(found, torch.cat(rows)) for found in results)


def test_objects_of_every_rank() -> None:
    """Texts of different lengths, also longer than a byte could count."""
    values = [{"rank": rank, "text": "ü" * (300 * rank), "none": None} for rank in range(3)]
    results, left = run_open(
        3, lambda comm: gather_objects(comm, values[comm.rank], torch.device("cpu"), purpose="setup")
    )
    assert left == 0
    assert results == [values] * 3
