"""What work costs at least, read off the shapes of its operands."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gfgnn.profiling.labels import Cost


def spmm_cost(matrix: Tensor, dense: Tensor, *, plus: Tensor | None = None, **_: object) -> Cost:
    """Of a CSR ``matrix`` ``[M, N]`` with n non-zeros times ``[N, F]``: ``2 n F`` flops; values, indices, N rows and
    those added are read once, M rows written."""
    width, item = dense[:1].numel(), matrix.values().element_size()
    stored = sum(part.nbytes for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices()))
    moved = dense.size(0) * width * dense.element_size() + matrix.size(0) * width * item
    return Cost(stored + moved + (0 if plus is None else plus.nbytes), 2 * matrix.values().numel() * width)


def moments_cost(
    t: Tensor, c: Tensor, r: Tensor, centred: bool, *, rows: Tensor | None = None, gram: bool = True
) -> Cost:
    """Of ``T'CT`` ``[p, p]`` and ``T'R`` ``[p, d]`` over the n rows of R: ``2 n p (p + d)`` flops; T, R and c are read
    once. Without the Gram matrix ``2 n p d``."""
    (n, d), p = r.shape, t.size(1)
    read = n * p * t.element_size() + r.nbytes + n * c.element_size()
    columns = d + (p if gram else 0)
    return Cost(read + p * columns * r.element_size(), 2 * n * p * columns)


def gate_cost(gate: Any, x: Tensor, slope: float, **_: object) -> Cost:
    """Of passing x through a :class:`gfgnn.ops.gate.Gate`: x and the bits are read, as much as x is written."""
    return Cost(2 * x.nbytes + gate.positive.nbytes, x.numel())


def pack_cost(z: Tensor) -> Cost:
    """Of packing the signs of z."""
    return Cost(z.nbytes + z.numel() // 8, z.numel())


def product_flops(a: Tensor, b: Tensor) -> int:
    """Of ``a @ b``, with vectors and batches as torch takes them."""
    columns = b.size(-1) if b.dim() > 1 else 1
    rows = a.numel() // a.size(-1) if a.numel() else 0
    batches = b[..., 0, 0].numel() if b.dim() > 2 and a.dim() < 3 else 1
    return 2 * rows * a.size(-1) * columns * batches


def solve_flops(name: str, arguments: list[Tensor]) -> int:
    """Of torch's factorisations and solves, by the usual counts: n^3 / 3 for Cholesky, 2 n^2 for each right-hand side,
    9 n^3 for an eigendecomposition, 2 n^3 for an inverse; 0 for others."""
    n = arguments[0].size(-1)
    if name == "cholesky_solve":
        return 2 * arguments[1].size(-1) ** 2 * n  # the first argument is the right-hand side
    if "cholesky" in name:
        return n**3 // 3
    if "eigh" in name:
        return 9 * n**3
    return 2 * n**3 if "inv" in name else 0
