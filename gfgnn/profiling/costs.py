"""What work costs at least, read off the shapes of its operands."""

from __future__ import annotations

from torch import Tensor

from gfgnn.profiling.labels import Cost


def spmm_cost(matrix: Tensor, dense: Tensor) -> Cost:
    """Of a CSR ``matrix`` ``[M, N]`` with n non-zeros times ``[N, F]``: ``2 n F`` flops; values, indices and N rows are
    read once, M rows written."""
    rows = matrix.size(0) + dense.size(0)
    stored = sum(part.nbytes for part in (matrix.values(), matrix.col_indices(), matrix.crow_indices()))
    width = dense[:1].numel()
    return Cost(stored + rows * width * dense.element_size(), 2 * matrix.values().numel() * width)


def moments_cost(t: Tensor, c: Tensor, r: Tensor, centred: bool) -> Cost:
    """Of ``T'CT`` ``[p, p]`` and ``T'R`` ``[p, d]`` over N rows: ``2 N p (p + d)`` flops; T, R and c are read once."""
    (n, p), d = t.shape, r.size(1)
    return Cost(t.nbytes + r.nbytes + c.nbytes + (p * p + p * d) * t.element_size(), 2 * n * p * (p + d))


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
