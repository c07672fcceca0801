"""Large arrays that are used again: an iteration makes the same few in the same order as the one before.

The system hands out fresh memory page by page, each with an interrupt and full of zeros (a sparse product into fresh
pages takes 1.4 times as long); a C library that keeps freed memory instead finds ever fewer holes of the right size. In
a thread where an :class:`Arena` is active, :func:`empty` gives out arrays that were recycled before.

A thread may also have a *store*, which makes such arrays elsewhere than in memory: for runs whose parts take turns.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from gfgnn.ops.memory import is_lean

_here = threading.local()

#: Makes an array ``[rows, columns]`` with anything in it.
Store = Callable[[int, int, torch.dtype], Tensor]


@contextmanager
def stored_in(store: Store) -> Iterator[None]:
    """Makes the large arrays of this thread in ``store``: those of arenas, those that :func:`empty` gives out where no
    arena is active, and copies of :func:`kept`."""
    before = getattr(_here, "store", None)
    _here.store = store
    try:
        yield
    finally:
        _here.store = before


class Arena:
    """Arrays on the CPU waiting to be used again, by type and shape.

    Args:
        poison: fill what is recycled with NaN, so that a use after that shows; for tests.
    """

    def __init__(self, *, poison: bool = False) -> None:
        self._free: dict[tuple[torch.dtype, torch.Size], list[Tensor]] = defaultdict(list)
        self._lent: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # by address
        self._poison = poison

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes :func:`empty` and :func:`recycle` of this thread work on this arena.

        Afterwards nothing is kept where memory is to be given back at once (``lean``).
        """
        before = getattr(_here, "arena", None)
        _here.arena = self
        try:
            yield
        finally:
            _here.arena = before
            if is_lean():
                self._free.clear()

    def take(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """An array ``[rows, columns]`` with anything in it."""
        waiting = self._free[dtype, torch.Size((rows, columns))]
        found = waiting.pop() if waiting else _new(rows, columns, dtype)
        self._lent[found.data_ptr()] = found
        return found

    def give(self, tensor: Tensor) -> None:
        """Takes back an array that nothing refers to any more; passes over those that came from elsewhere, of which
        there would be more with every iteration."""
        if self._lent.get(tensor.data_ptr()) is not tensor:
            return
        del self._lent[tensor.data_ptr()]
        if self._poison:
            tensor.fill_(torch.nan)
        self._free[tensor.dtype, tensor.shape].append(tensor)

    @property
    def nbytes(self) -> int:
        """What is waiting."""
        return sum(tensor.nbytes for waiting in self._free.values() for tensor in waiting)


def empty(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor | None:
    """An array ``[rows, columns]`` of the type of ``like``, or of ``dtype``, for a result to be written to; None where
    neither arena nor store is active or ``like`` is elsewhere: let torch make one."""
    arena: Arena | None = getattr(_here, "arena", None)
    if like.device.type != "cpu":
        return None
    if arena is not None:
        return arena.take(rows, columns, dtype or like.dtype)
    return None if getattr(_here, "store", None) is None else _new(rows, columns, dtype or like.dtype)


def _new(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    store: Store | None = getattr(_here, "store", None)
    if store is None or rows * columns == 0:
        return torch.empty(rows, columns, dtype=dtype)
    return store(rows, columns, dtype)


def kept(tensor: Tensor) -> Tensor:
    """``tensor``, for long: a copy in the thread's store, where it has one and the tensor is a strided one."""
    store: Store | None = getattr(_here, "store", None)
    if (
        store is None
        or tensor.dim() == 0
        or tensor.numel() == 0
        or tensor.layout != torch.strided
        or tensor.device.type != "cpu"
    ):
        return tensor
    rows = tensor.reshape(tensor.size(0), -1)
    return store(rows.size(0), rows.size(1), tensor.dtype).copy_(rows).view(tensor.shape)


def copy_of(tensor: Tensor) -> Tensor:
    """A copy of ``tensor``, in the thread's store where it has one."""
    found = kept(tensor)
    return tensor.clone() if found is tensor else found


def recycle(tensor: Tensor) -> None:
    """Gives an array to this thread's arena, if there is one. Nothing may refer to it, or to a view of it, any more."""
    arena: Arena | None = getattr(_here, "arena", None)
    if arena is not None and tensor.device.type == "cpu" and tensor.dim() == 2 and tensor.is_contiguous():
        arena.give(tensor)


def converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor`` ``[N, d]`` in another type, in an array of the arena; itself where it has that type."""
    if tensor.dtype == dtype:
        return tensor
    out = empty(tensor.size(0), tensor.size(1), tensor, dtype)
    return tensor.to(dtype) if out is None else out.copy_(tensor)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of dense matrices, in an array of the arena."""
    return torch.mm(a, b, out=empty(a.size(0), b.size(1), a))


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """``[N, d_1 + d_2 + ...]`` of several ``[N, d_i]``, in an array of the arena."""
    first = parts[0]
    out = empty(first.size(0), sum(part.size(1) for part in parts), first)
    return torch.cat(list(parts), dim=1) if out is None else torch.cat(list(parts), dim=1, out=out)


def chosen(rows: Tensor, index: Tensor) -> Tensor:
    """``rows[index]`` ``[k, d]``, in an array of the arena."""
    return torch.index_select(rows, 0, index, out=empty(index.numel(), rows.size(1), rows))


def zeros(rows: int, columns: int, like: Tensor) -> Tensor:
    """An array of zeros ``[rows, columns]`` of the type of ``like``, in an array of the arena."""
    out = empty(rows, columns, like)
    return like.new_zeros(rows, columns) if out is None else out.zero_()


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """``factor * tensor`` ``[N, d]``, in an array of the arena."""
    return torch.mul(tensor, factor, out=empty(tensor.size(0), tensor.size(1), tensor))


def total(a: Tensor, b: Tensor) -> Tensor:
    """``a + b`` of ``[N, d]``, in an array of the arena."""
    return torch.add(a, b, out=empty(a.size(0), a.size(1), a))
