"""A small cache of what was derived from tensors, which never answers for tensors that have changed."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class _Dense:
    """What tells that a dense tensor is the one seen before, unchanged: the object, its memory, its version."""

    def __init__(self, tensor: Tensor) -> None:
        self.signature = _signature(tensor)
        # Held so that no other tensor can be given the same memory while this is compared with.
        self.storage = tensor.untyped_storage()

    def holds(self, tensor: Tensor) -> bool:
        return _signature(tensor) == self.signature


class _Sparse:
    """The same for a sparse tensor: a copy. Its version tells nothing of changes to the tensors it was made of."""

    def __init__(self, tensor: Tensor) -> None:
        self.copies = [part.clone() for part in sparse_parts(tensor)]
        self.shape = tensor.shape

    def holds(self, tensor: Tensor) -> bool:
        parts = sparse_parts(tensor)
        return self.shape == tensor.shape and all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(parts, self.copies, strict=True)
        )


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    place = (tensor.data_ptr(), tensor.storage_offset(), tensor.device)
    return (*place, tensor._version, tuple(tensor.shape), tensor.stride(), tensor.dtype)


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of a sparse tensor, in the form of its layout (compressed or not)."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout == torch.sparse_csc:
        return tensor.row_indices(), tensor.ccol_indices(), tensor.values()
    row, col = tensor._indices()
    return row, col, tensor._values()


@dataclass(frozen=True)
class _Entry(Generic[Value]):
    alive: list[weakref.ref[Tensor]]
    witnesses: list[_Dense | _Sparse]
    value: Value

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        return all(
            ref() is tensor and witness.holds(tensor)
            for ref, witness, tensor in zip(self.alive, self.witnesses, tensors, strict=True)
        )


class TensorCache(Generic[Value]):
    """Values derived from tensors, the latest used ``size`` of them.

    A value is given again only to the same tensor objects with the same memory, shape and version (the count that torch
    keeps of changes in place); to a sparse tensor, while its contents are equal. Tensors are not kept alive: a value
    goes with the first of its tensors. Changes that torch does not count, as through ``tensor.data`` or a NumPy array
    that shares the memory, are not seen in dense tensors. Any number of threads may ask.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self._lock = Lock()
        self._gone: deque[Hashable] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def get(
        self, tensors: Sequence[Tensor], settings: Hashable, make: Callable[[], Value | None]
    ) -> Value | None:
        """The value of ``tensors`` and ``settings``; from ``make()`` where there is none. None is not kept."""
        key = (tuple(map(id, tensors)), settings)
        with self._lock:
            self._let_go()
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is not None and entry.holds(tensors):
            return entry.value
        # Before make(): a change while it runs must not pass for what it saw.
        witnesses = _witnesses(tensors)
        value = make()
        if value is None or witnesses is None:
            return value
        alive = [weakref.ref(tensor, partial(self._forget, key)) for tensor in tensors]
        with self._lock:
            self._entries[key] = _Entry(alive, witnesses, value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return value

    def _forget(self, key: Hashable, _: object) -> None:
        # A collection may call this in the middle of anything, also of this thread's own work under the lock;
        # what cannot be dropped now is dropped with the next call.
        self._gone.append(key)
        if self._lock.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._lock.release()

    def _let_go(self) -> None:
        while self._gone:
            self._entries.pop(self._gone.popleft(), None)


def _witnesses(tensors: Sequence[Tensor]) -> list[_Dense | _Sparse] | None:
    """None where a tensor keeps no version (inference mode): nothing would tell of its changes."""
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return [_Dense(tensor) if tensor.layout == torch.strided else _Sparse(tensor) for tensor in tensors]
