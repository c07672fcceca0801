"""Ranks that are processes, connected by torch.distributed: gloo between CPUs, NCCL between CUDA devices.

The communicators use the backends directly, without torch's global default group: groups are then ordinary objects,
several can be alive, and nothing outlives :meth:`TorchCommunicator.close`. Processes find each other through a store
that the launcher, which is no rank, hosts with :func:`host_store`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.base import CommError, Communicator, Work, check_counts
from gfgnn.comm.serial import SerialCommunicator

#: calls of :meth:`TorchCommunicator.from_environment` so far, the same number in every process of torchrun
_calls = itertools.count()

REDUCE = {"sum": dist.ReduceOp(dist.ReduceOp.SUM), "max": dist.ReduceOp(dist.ReduceOp.MAX)}


def host_store(port: int = 0) -> dist.TCPStore:
    """Hosts the store through which the ranks find each other; called by the launcher, which keeps it alive.

    Args:
        port: to listen on; 0 takes a free one, which the store returned tells as ``.port``.

    Raises:
        InputError: the port cannot be used.
    """
    try:
        return dist.TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        raise InputError(
            f"port must be free, or 0 for any that is; {port} is in use or not allowed ({_summary(error)})."
        ) from error


class TorchCommunicator:
    """One process of a group. See :class:`Communicator`.

    A peer that has gone is noticed at once; one that hangs, by gloo, after ``timeout`` seconds. A collective
    operation has this time from its start, not from ``wait``: ranks may be apart by no more than that. On CUDA,
    ``wait`` orders the device's work and does not block; there NCCL's watchdog ends the process after ``timeout``.

    After :class:`CommError` a rank should close, or end, soon: others may wait for it, as a failure is seen only by
    the ranks that talk to the one that failed.

    Sums are the same bits on all ranks, and in every run with the same size.

    Args:
        store: shared by all ranks of the group and used by no other group.
        rank: this process's rank.
        size: number of ranks.
        timeout: seconds after which a silent peer counts as failed.
        device: the device of every tensor; CUDA needs an index if the process uses several.

    Raises:
        CommError: a rank has not connected in time.
    """

    def __init__(
        self, store: dist.Store, rank: int, size: int, *, timeout: float, device: torch.device | str = "cpu"
    ) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._timeout = timeout
        self._device = torch.device(device)
        self._groups: list[Communicator] = []
        #: the failure after which neither this group nor those it belongs to, or has made, can be used
        self._failures: list[CommError] = []
        try:
            self._backend = _connect(store, rank, size, timeout, self._device)
        except RuntimeError as error:
            raise _failure(f"rank {rank} connecting", timeout, error) from error

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        rank: int,
        size: int,
        *,
        timeout: float,
        device: torch.device | str = "cpu",
    ) -> TorchCommunicator:
        """Connects the ranks of a launcher that hosts the store. Every rank must call it.

        Raises:
            CommError: no store answers there, or a rank has not connected in time.
        """
        try:
            store = dist.TCPStore(
                host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout)
            )
        except RuntimeError as error:
            raise CommError(f"rank {rank}: no launcher answers at {host}:{port}", timed_out=True) from error
        return cls(dist.PrefixStore("gfgnn", store), rank, size, timeout=timeout, device=device)

    @classmethod
    def from_environment(
        cls, *, timeout: float, device: torch.device | str = "cpu", patience: float = 3600.0
    ) -> TorchCommunicator:
        """Connects the ranks that torchrun has started: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say how.

        Args:
            patience: seconds to wait for the last rank to call: one of them may still be loading data.

        Raises:
            InputError: one of the variables is missing or unusable.
            CommError: a rank has not connected in time.
        """
        try:
            store, rank, size = next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=timeout))))
        except ValueError as error:
            raise InputError(f"torchrun must have set the environment: {_summary(error)}") from error
        except RuntimeError as error:
            raise CommError(f"torchrun's store does not answer: {_summary(error)}", timed_out=True) from error
        store = dist.PrefixStore(f"gfgnn{next(_calls)}", store)  # what an earlier run has left there is stale
        store.set(f"arrived/{rank}", "")
        try:
            store.wait([f"arrived/{other}" for other in range(size)], timedelta(seconds=patience))
        except RuntimeError as error:
            raise CommError(f"not all {size} ranks have come in {patience:g} s", timed_out=True) from error
        return cls(store, rank, size, timeout=timeout, device=device)

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        """Starts an allreduce; gloo reduces around a ring, so the order of a sum is fixed by sizes only."""
        what = f"all_reduce ({purpose})"
        options = dist.AllreduceOptions()
        options.reduceOp = REDUCE[op]
        with self._failing(what) as backend:
            work = backend.allreduce([x], options)
        return _Pending(self, [work], x, what, [x])

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        """Starts one all-to-all with uneven splits."""
        check_counts(x, send_counts, recv_counts, self.size)
        what = f"all_to_all ({purpose})"
        result = x.new_empty((sum(recv_counts), *x.shape[1:]))
        with self._failing(what) as backend:
            work = backend.alltoall_base(
                result, x, list(recv_counts), list(send_counts), dist.AllToAllOptions()
            )
        return _Pending(self, [work], result, what, [x])

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        """Starts every send and receive; NCCL gets them as one batch, as it would block otherwise."""
        messages = [*sends, *recvs]
        assert self.rank not in [rank for rank, _ in messages], "a rank sends nothing to itself"
        what = f"exchange ({purpose})"
        with self._failing(what) as backend:
            batch = backend.supports_coalescing and bool(messages)
            if batch:
                backend._start_coalescing()
            works = [backend.send([tensor], rank, 0) for rank, tensor in sends]
            works += [backend.recv([tensor], rank, 0) for rank, tensor in recvs]
            if batch:
                works = [backend._end_coalescing()]
        return _Pending(self, works, torch.empty(0), what, [tensor for _, tensor in messages])

    def barrier(self) -> None:
        """Sums one number, which needs everybody, and waits for it, on CUDA too."""
        with self._failing("barrier") as backend:
            x = torch.zeros(1, device=self._device)
            backend.allreduce([x], dist.AllreduceOptions()).wait()
            x.item()

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Connects the ranks of each group. A group of one is a :class:`SerialCommunicator`: it needs no connection."""
        assert self.rank in ranks, ranks
        made: Communicator
        if len(ranks) == 1:
            made = SerialCommunicator()
        else:
            # Groups of one call are disjoint, so that the smallest rank tells them apart.
            store = dist.PrefixStore(f"group {len(self._groups)} {min(ranks)}", self._store)
            with self._failing("group"):
                made = TorchCommunicator(
                    store,
                    list(ranks).index(self.rank),
                    len(ranks),
                    timeout=self._timeout,
                    device=self._device,
                )
            made._failures = self._failures
        self._groups.append(made)
        return made

    def close(self) -> None:
        """Ends the group and those made from it; peers that wait for this rank notice at once.

        An operation of gloo that is under way cannot be stopped: closing, and the end of the process, then wait for it,
        at most ``timeout`` seconds. A process that must go at once calls ``os._exit``.
        """
        for group in self._groups:
            group.close()
        if self._backend is not None:
            self._backend.shutdown()
        self._backend = None  # gloo disconnects when the last reference goes

    @contextmanager
    def _failing(self, what: str) -> Iterator[Any]:
        """Gives the backend, whose errors become :class:`CommError`, now and at every later call."""
        if self._failures:
            first = self._failures[0]
            raise CommError(f"{what}: not possible any more, after {first}", timed_out=first.timed_out)
        if self._backend is None:
            raise CommError(f"{what}: the communicator is closed")
        try:
            yield self._backend
        except RuntimeError as error:
            failure = error if isinstance(error, CommError) else _failure(what, self._timeout, error)
            self._failures.append(failure)
            raise failure from error


class _Pending:
    """A :class:`Work` of one or more of the backend's; holds the tensors that these read and write."""

    def __init__(
        self, comm: TorchCommunicator, works: list, result: Tensor, what: str, held: list[Tensor]
    ) -> None:
        self._comm = comm
        self._works = works
        self._result = result
        self._what = what
        self._held = held

    def wait(self) -> Tensor:
        if self._works:
            with self._comm._failing(self._what):
                for work in self._works:
                    work.wait()
            self._works = []
            self._held = []
        return self._result


def _connect(store: dist.Store, rank: int, size: int, timeout: float, device: torch.device) -> Any:
    """The backend for a device, connected to all others, so that no later message needs everybody."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=timeout)
        backend = dist.ProcessGroupNCCL(store, rank, size, options)
        backend.eager_connect_single_device(torch.device("cuda", torch.cuda.current_device()))
        return backend
    return dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout))


def _failure(what: str, timeout: float, error: RuntimeError) -> CommError:
    """What an error of the backend means; only its text tells."""
    text = _summary(error)
    if "timed out" in text.lower() or "timeout" in text.lower():
        return CommError(f"{what}: nothing from another rank for {timeout:g} s", timed_out=True)
    return CommError(f"{what}: failed, most likely because another rank has gone: {text}")


def _summary(error: Exception) -> str:
    """The first sentence of an error, without the place in torch's source before it."""
    return re.sub(r"^\[[^]]*\] ", "", str(error)).partition("\n")[0].partition(". ")[0]


__all__ = ["TorchCommunicator", "host_store"]
