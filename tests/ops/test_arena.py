"""Arrays that are used again."""

from __future__ import annotations

import threading

import pytest
import torch

from gfgnn.ops import arena as module
from gfgnn.ops.arena import Arena, copy_of, empty, kept, product, recycle, stored_in

LIKE = torch.zeros(1)


@pytest.fixture(autouse=True)
def _not_lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests of this process have asked for."""
    monkeypatch.setattr(module, "is_lean", lambda: False)


def test_what_is_recycled_is_given_out_again() -> None:
    arena = Arena()
    with arena.active():
        first = empty(3, 2, LIKE)
        assert first is not None
        place = first.data_ptr()
        recycle(first)
        assert arena.nbytes == 24
        again, other = empty(3, 2, LIKE), empty(3, 2, LIKE)
        assert again is not None
        assert other is not None
        assert again.data_ptr() == place != other.data_ptr()
        assert empty(2, 3, LIKE).shape == (2, 3)  # type: ignore[union-attr]
        assert empty(3, 2, LIKE.double()).dtype == torch.float64  # type: ignore[union-attr]


def test_arrays_from_elsewhere_and_twice() -> None:
    """Else there would be more of them with every iteration, or one for two uses."""
    arena = Arena()
    with arena.active():
        recycle(torch.zeros(3, 2))
        assert arena.nbytes == 0
        own = empty(3, 2, LIKE)
        assert own is not None
        recycle(own)
        recycle(own)
        assert arena.nbytes == 24


def test_without_an_arena_nothing_is_kept() -> None:
    assert empty(3, 2, LIKE) is None
    recycle(torch.zeros(3, 2))
    a, b = torch.randn(3, 4), torch.randn(4, 2)
    assert torch.equal(product(a, b), a @ b)


def test_an_arena_is_its_threads_own() -> None:
    seen = []
    with Arena().active():
        thread = threading.Thread(target=lambda: seen.append(empty(1, 1, LIKE)))
        thread.start()
        thread.join()
        inner = Arena()
        with inner.active():
            recycle(empty(2, 2, LIKE))  # type: ignore[arg-type]
        assert inner.nbytes == 16
    assert seen == [None]


def test_poison_shows_a_use_after_recycling() -> None:
    with Arena(poison=True).active():
        a = product(torch.ones(2, 2), torch.ones(2, 2))
        recycle(a)
        assert a.isnan().all()


def test_where_memory_is_given_back_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_lean", lambda: True)
    arena = Arena()
    with arena.active():
        recycle(empty(2, 2, LIKE))  # type: ignore[arg-type]
        assert arena.nbytes == 16
    assert arena.nbytes == 0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0, 3)])
def test_copies_for_long_have_any_shape(shape: tuple[int, ...]) -> None:
    tensor = torch.rand(shape)
    with stored_in(lambda rows, columns, dtype: torch.empty(rows, columns, dtype=dtype)):
        for copy in (kept(tensor), copy_of(tensor)):
            assert torch.equal(copy, tensor)
        assert tensor.numel() == 0 or copy_of(tensor).data_ptr() != tensor.data_ptr()
