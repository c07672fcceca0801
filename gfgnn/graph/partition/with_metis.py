"""METIS through the ``metis`` package (ctypes), which passes several constraints on."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError
from gfgnn.graph.partition.problem import PartitionProblem
from gfgnn.graph.partition.with_pymetis import RECURSIVE_UP_TO

INSTALL = (
    "install the package with: pip install metis, and METIS itself with: pip install cmeel-metis (Linux) or the "
    "system's libmetis5; METIS_DLL may name the library's file"
)


def load() -> Any:
    """The ``metis`` module with its library; raises :class:`InputError` where either is missing."""
    try:
        with _library_named():
            import metis
    except (ImportError, RuntimeError, OSError) as error:  # without a library the package raises RuntimeError
        raise InputError(f"metis cannot be used ({error}); {INSTALL}.") from None
    return metis


def index_dtype(metis: Any) -> np.dtype[Any]:
    """The integers METIS was compiled with; 32-bit unless METIS_IDXTYPEWIDTH says otherwise."""
    return np.dtype(metis.idx_t)


def assign(metis: Any, problem: PartitionProblem) -> NDArray[np.int64]:
    """The part of every node, ``[N]``.

    The seed permutes the nodes. METIS has an option for it, but the package sets options by their place in METIS 5.1,
    and in 5.2 that of the seed is the number of cuts to try.
    """
    dtype = index_dtype(metis)
    order = np.random.default_rng(problem.seed).permutation(problem.num_nodes)
    shuffled = problem.matrix()[order][:, order]
    shuffled.sort_indices()
    # The arrays must outlive the call: METIS is given pointers to them.
    arrays = [
        np.ascontiguousarray(a, dtype) for a in (shuffled.indptr, shuffled.indices, problem.weights[order])
    ]
    indptr, indices, weights = (a.ctypes.data_as(ctypes.POINTER(metis.idx_t)) for a in arrays)
    constraints, recursive = problem.weights.shape[1], problem.num_parts <= RECURSIVE_UP_TO
    # Recursive bisection spends what is allowed at every level.
    levels = math.ceil(math.log2(problem.num_parts)) if recursive else 1
    imbalance = max((1 + problem.imbalance) ** (1 / levels), 1.001)
    graph = metis.METIS_Graph(
        nvtxs=metis.idx_t(problem.num_nodes),
        ncon=metis.idx_t(constraints),
        xadj=indptr,
        adjncy=indices,
        vwgt=weights,
        vsize=None,
        adjwgt=None,
    )
    _, answer = metis.part_graph(
        graph,
        problem.num_parts,
        tpwgts=np.repeat(problem.shares, constraints).tolist(),
        ubvec=[imbalance] * constraints,
        recursive=recursive,
    )
    assignment = np.empty(problem.num_nodes, dtype=np.int64)
    assignment[order] = answer
    return assignment


@contextmanager
def _library_named() -> Iterator[None]:
    """METIS_DLL names the library of ``cmeel-metis`` meanwhile, unless it names another or there is none.

    The package looks for system libraries only, and only while it is imported.
    """
    library = None if "METIS_DLL" in os.environ else _cmeel_file("cmeel-metis", "libmetis")
    if library is None:
        yield
        return
    gklib = _cmeel_file("cmeel-gklib", "libGKlib")
    if gklib is not None:  # libmetis needs its symbols and does not find the file by itself
        ctypes.CDLL(gklib, mode=ctypes.RTLD_GLOBAL)
    os.environ["METIS_DLL"] = library
    try:
        yield
    finally:
        del os.environ["METIS_DLL"]


def _cmeel_file(package: str, name: str) -> str | None:
    """The shared library that a package of the cmeel project installed."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return None
    found = [file for file in files if file.name in (f"{name}.so", f"{name}.dylib")]
    return str(found[0].locate()) if found else None
