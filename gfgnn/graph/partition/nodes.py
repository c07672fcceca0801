"""``partition_nodes``: checks what is asked, chooses a method, and mends and measures its answer."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError, check_between, check_choice, check_count
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import ldg, with_metis, with_pymetis
from gfgnn.graph.partition.check import check_problem, degenerate, exceeded_limit
from gfgnn.graph.partition.memory import breadth_first_bytes, metis_bytes, too_large
from gfgnn.graph.partition.partition import Partition, check_assignment
from gfgnn.graph.partition.problem import BALANCE, PartitionProblem, neighbours, node_weights
from gfgnn.graph.partition.repair import repair
from gfgnn.graph.partition.report import measure
from gfgnn.ops.memory import available_memory, page_out

TOLERANCE = 1e-3  #: METIS itself rounds the imbalance it is given
METHODS = ("auto", "pymetis", "metis", "ldg")


class Library(Protocol):
    """A module that calls METIS."""

    def load(self) -> Any: ...
    def index_dtype(self, library: Any, /) -> np.dtype[Any]: ...
    def assign(self, library: Any, problem: PartitionProblem, /) -> NDArray[np.int64]: ...


LIBRARIES: dict[str, Library] = {"pymetis": with_pymetis, "metis": with_metis}


def partition_nodes(
    graph: Graph,
    num_parts: int,
    *,
    method: str = "auto",
    balance: Sequence[str] = ("nodes",),
    work: Tensor | None = None,
    target_shares: Sequence[float] | None = None,
    imbalance: float = 0.03,
    seed: int = 0,
    memory: int | None = None,
) -> Partition:
    """Divides the nodes into parts with few edges between them.

    Directions and weights of edges do not matter for where the cut goes. The same seed gives the same assignment, as
    long as memory leads to the same choice. ``ldg`` takes a few numbers for each node, and 5 bytes an edge where that
    fits; the edges may be mapped from a file. Directed graphs are mirrored in memory, for any method.

    Args:
        graph: directed or not, weighted or not.
        num_parts: K, 1 to N.
        method: ``pymetis`` (one constraint), ``metis`` (any number of constraints), ``ldg`` (any number, no library,
            see :mod:`gfgnn.graph.partition.ldg`), or ``auto``: the first of these that can be used, and whose
            estimated memory is there.
        balance: what the parts should hold their share of: ``nodes``, ``edges`` (those that lead into a part's
            nodes), ``labelled`` (labelled training nodes), ``work`` (as stated in ``work``), or several of these.
        work: ``[N]`` positive numbers in any unit, what each node costs; only for ``balance`` work.
        target_shares: ``[K]`` positive numbers, the sizes of the parts relative to each other; None for equal parts.
        imbalance: how far above its share a part may go, 0.03 for 3%; where that cannot be kept, a note says so.
        seed: of the method.
        memory: bytes the method may take; None for what :func:`gfgnn.ops.memory.available_memory` finds.

    Raises:
        InputError: an argument does not fit, or a method that was asked for by name cannot be used, be it for its
            memory.
    """
    kinds = _check_balance(balance)
    check_count("num_parts", num_parts, 1)
    if num_parts > graph.num_nodes:
        raise InputError(
            f"num_parts must be at most {graph.num_nodes}, the number of nodes of {graph.name}; got {num_parts}."
        )
    check_choice("method", method, METHODS)
    check_between("imbalance", imbalance, 0.0, 1.0)
    check_count("seed", seed, 0, 2**31 - 1)
    if memory is not None:
        check_count("memory", memory, 1)
    if method == "pymetis" and len(kinds) > 1:
        raise InputError(
            f"pymetis balances one of {', '.join(BALANCE)}; got {', '.join(kinds)}. Use metis or ldg for several."
        )
    shares = _check_shares(target_shares, num_parts)
    cost = _check_work(work, kinds, graph.num_nodes)

    problem, kept, notes = _problem(graph, kinds, cost, shares, float(imbalance), int(seed))
    used, answer, why = _solve(problem, method, available_memory() if memory is None else memory)
    answer, mended = repair(problem, answer)
    notes += [why, *([mended] if mended else []), *_above_capacity(problem, kept, answer)]
    assignment = torch.from_numpy(answer)
    check_assignment(assignment, graph.num_nodes, num_parts)
    report = measure(graph, assignment, shares.tolist())
    page_out(graph.mapped_parts())
    return Partition(
        assignment=assignment,
        num_parts=int(num_parts),
        method=used,
        seed=int(seed),
        balance=kinds,
        target_shares=tuple(shares.tolist()),
        fingerprint=fingerprint(graph),
        notes=tuple(notes),
        report=report,
    )


def _check_balance(balance: Sequence[str]) -> tuple[str, ...]:
    kinds = (balance,) if isinstance(balance, str) else tuple(balance)
    for kind in kinds:
        check_choice("balance", kind, BALANCE)
    if not kinds or len(set(kinds)) < len(kinds):
        raise InputError(f"balance must name some of {', '.join(BALANCE)}, each once; got {kinds!r}.")
    return kinds


def _check_shares(target_shares: Sequence[float] | None, num_parts: int) -> NDArray[np.float64]:
    """The shares, made to sum to 1."""
    if target_shares is None:
        return np.full(num_parts, 1 / num_parts)
    values = list(target_shares)
    if len(values) != num_parts:
        raise InputError(
            f"target_shares must have one number for each of {num_parts} parts; got {len(values)}: {values}."
        )
    if not all(isinstance(v, Real) and np.isfinite(v) and v > 0 for v in values):
        raise InputError(f"target_shares must be positive numbers; got {values}.")
    shares = np.array(values, dtype=np.float64)
    return shares / shares.sum()


def _check_work(work: Tensor | None, kinds: tuple[str, ...], num_nodes: int) -> NDArray[np.float64] | None:
    if (work is None) == ("work" in kinds):
        raise InputError(
            f"balance and work must name work together; got balance {kinds!r} and work {work!r}."
        )
    if work is None:
        return None
    values = np.asarray(work, dtype=np.float64)
    if values.shape != (num_nodes,) or not np.isfinite(values).all() or not (values > 0).all():
        raise InputError(f"work must be a positive number for each of {num_nodes} nodes; got {work!r}.")
    return values


def _problem(
    graph: Graph,
    kinds: tuple[str, ...],
    work: NDArray[np.float64] | None,
    shares: NDArray[np.float64],
    imbalance: float,
    seed: int,
) -> tuple[PartitionProblem, list[str], list[str]]:
    """The problem, its constraints without those that nothing falls under, and a note on each of the latter."""
    there = [kind for kind in kinds if node_weights(graph, [kind], work).any()] or ["nodes"]
    notes = [
        f"{graph.name} has no {'labelled training nodes' if kind == 'labelled' else kind} to balance"
        for kind in kinds
        if kind not in there
    ]
    indptr, indices = neighbours(graph)
    problem = PartitionProblem(
        indptr=indptr,
        indices=indices,
        weights=node_weights(graph, there, work),
        shares=shares,
        imbalance=imbalance,
        seed=seed,
    )
    check_problem(problem)
    return problem, there, notes


def _solve(problem: PartitionProblem, method: str, memory: int | None) -> tuple[str, NDArray[np.int64], str]:
    """The method used, its answer ``[N]``, and why that method."""
    if problem.num_parts == 1:
        return "trivial", np.zeros(problem.num_nodes, dtype=np.int64), "one part holds all nodes"
    if problem.num_parts == problem.num_nodes:
        return "trivial", np.arange(problem.num_nodes), "there are as many parts as nodes"
    if method == "ldg":
        return _streamed(problem, memory, "ldg was asked for")
    if reason := degenerate(problem):
        return _streamed(problem, memory, f"ldg, because METIS does not handle this: {reason}")
    if method != "auto":
        library = _usable(method, problem, memory)
        return method, LIBRARIES[method].assign(library, problem), f"{method} was asked for"
    several = problem.weights.shape[1] > 1
    refusals = []
    for name in ("metis",) if several else ("pymetis", "metis"):
        try:
            library = _usable(name, problem, memory)
        except InputError as error:
            refusals.append(str(error))
            continue
        why = "which balances several constraints" if several else "for one constraint"
        return (
            name,
            LIBRARIES[name].assign(library, problem),
            " ".join([f"auto took {name}, {why}", *refusals]),
        )
    return _streamed(problem, memory, " ".join(["auto took ldg:", *refusals]))


def _streamed(problem: PartitionProblem, memory: int | None, why: str) -> tuple[str, NDArray[np.int64], str]:
    """The answer of ``ldg``, which goes through the nodes in the order given where another would not fit."""
    reason = too_large(breadth_first_bytes(problem), memory, "another order")
    reason = reason or exceeded_limit(problem, np.int32)
    if reason is None:
        return "ldg", ldg.assign(problem), why
    return "ldg", ldg.assign(problem, in_order=True), f"{why}; it took nodes in the order given: {reason}"


def _usable(name: str, problem: PartitionProblem, memory: int | None) -> Any:
    """The library of a method; raises :class:`InputError` where it is missing or the graph too large for it."""
    library = LIBRARIES[name].load()
    dtype = LIBRARIES[name].index_dtype(library)
    if reason := exceeded_limit(problem, dtype):
        raise InputError(f"{name} cannot be used: {reason}. Use ldg, or a METIS with 64-bit integers.")
    if reason := too_large(metis_bytes(problem, dtype), memory, "METIS"):
        raise InputError(f"{name} cannot be used: {reason}. Use ldg, or a machine with more memory.")
    return library


def _above_capacity(
    problem: PartitionProblem, kinds: Sequence[str], assignment: NDArray[np.int64]
) -> list[str]:
    """A note for each constraint that the answer does not keep."""
    load = problem.load(assignment)
    fullest = (load / problem.target).max(axis=0)
    exceeded = np.any(load > (1 + TOLERANCE) * problem.capacity, axis=0).tolist()
    return [
        f"a part holds {ratio:.3f} of its share of {kind}; {1 + problem.imbalance:g} was asked for"
        for kind, ratio, over in zip(kinds, fullest, exceeded, strict=True)
        if over
    ]
