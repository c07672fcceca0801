"""METIS through ``pymetis``, whose wheels bring the library with them; one constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError
from gfgnn.graph.partition.problem import PartitionProblem

RECURSIVE_UP_TO = (
    8  #: parts; METIS's manual: recursive bisection cuts less for few parts, k-way is faster for many
)


def load() -> Any:
    """The ``pymetis`` module; raises :class:`InputError` where it is not there or too old."""
    try:
        import pymetis
    except ImportError as error:
        raise InputError(f"pymetis cannot be used ({error}); install it with: pip install pymetis.") from None
    if not hasattr(pymetis, "CSRAdjacency"):
        raise InputError("pymetis is too old; install 2025.2 or newer with: pip install -U pymetis.")
    return pymetis


def index_dtype(pymetis: Any) -> np.dtype[Any]:
    """The integers METIS was compiled with."""
    return pymetis.zero_copy_dtype()


def assign(pymetis: Any, problem: PartitionProblem) -> NDArray[np.int64]:
    """The part of every node, ``[N]``. The call holds Python's global lock until METIS is done."""
    dtype = index_dtype(pymetis)
    (weights,) = problem.weights.T
    answer = pymetis.part_graph(
        problem.num_parts,
        pymetis.CSRAdjacency(problem.indptr.astype(dtype), problem.indices.astype(dtype)),
        vweights=None if (weights == 1).all() else weights.astype(dtype),
        tpwgts=problem.shares.tolist(),
        recursive=problem.num_parts <= RECURSIVE_UP_TO,
        options=pymetis.Options(seed=problem.seed, ufactor=max(1, round(1000 * problem.imbalance))),
    )
    return np.asarray(answer.vertex_part, dtype=np.int64)
