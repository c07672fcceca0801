"""Features made from the graph alone, for graphs that have none."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.stats
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError, check_at_least

OVERSAMPLE = 16  #: extra columns carried through the iteration, so that the last wanted ones converge too
ROUNDS = 4  #: filter, orthonormalise, Rayleigh-Ritz
DEGREE = 8  #: of the Chebyshev filter: products with the matrix in a round
FIRST_CUT = 0.5  #: upper end of what the first round's filter damps; later ones take it from the Ritz values
MAX_CUT = 0.999  #: keeps the filter apart from the top eigenvalue
DENSE_NODES = 500  #: up to this size a dense eigendecomposition is exact and quick
ROWS = 1 << 12  #: rows summed in float32


def structure_features(
    edge_index: Tensor, num_nodes: int, k: int = 128, seed: int = 0, *, ranked: bool = True
) -> Tensor:
    """Leading eigenvectors of the normalised adjacency, and log degree.

    The matrix is ``S = (D + t)^-1/2 (A + I) (D + t)^-1/2`` of the symmetrised, unweighted graph, D the degree with the
    loop and t its mean; eigenvalues lie in (-1, 1). Without t the leading eigenvectors of a sparse graph sit on its
    crumbs and dangling trees (one eigenvalue 1 for every component) and say nothing about the rest: regularised
    spectral clustering, Qin and Rohe 2013, Zhang and Rohe 2018.
    Its k algebraically largest eigenvectors are found by subspace iteration: a random block ``[N, k + 16]`` goes
    through 4 rounds of a Chebyshev polynomial of degree 8 in S, which damps eigenvalues in [-1, cut] and amplifies
    those above (a plain power of S would need several times the products), orthonormalisation and Rayleigh-Ritz; the
    smallest Ritz value is the next round's cut. Columns are signed so that the sum of cubes is positive. Most of an
    eigenvector's weight sits on few nodes, which a linear map can do little with: with ``ranked`` each entry is
    replaced by its rank among the column's, spread evenly over (-sqrt(3), sqrt(3)); without it columns are scaled by
    sqrt(N). Either way a column's root mean square is 1. The last one is ``log(1 + degree)``, standardised.

    The number of steps is fixed, so the work is ``36 (k + 16) (2E + N)`` multiplications and the result depends on
    nothing but the arguments (and, in the last digits, on the number of BLAS threads). Where eigenvalues crowd, as at
    the top of a large graph's spectrum, single vectors are approximate while what they span is accurate. Memory: seven
    blocks ``[N, k + 16]`` of float32. On 169,343 nodes and 2.3 million stored edges it takes 40 s on one core.

    Args:
        edge_index: ``[2, E]``.
        num_nodes: N.
        k: number of eigenvectors, below N.
        seed: of the random starting block.
        ranked: whether entries are replaced by their ranks.

    Returns:
        ``[N, k + 1]`` float32.
    """
    check_at_least("the number of structure features", k, 1)
    if k >= num_nodes:
        raise InputError(f"structure features: k must be below the number of nodes, {num_nodes}; got {k}.")
    adjacency = _symmetric_adjacency(edge_index.numpy(), num_nodes)
    degree = np.diff(adjacency.indptr).astype(np.float64)
    matrix = _normalised(adjacency, degree)
    vectors = _leading_eigenvectors(matrix, k, np.random.default_rng(seed))
    signs = np.where((vectors.astype(np.float64) ** 3).sum(axis=0) < 0, -1.0, 1.0)
    features = np.empty((num_nodes, k + 1), dtype=np.float32)
    vectors = vectors * (signs * np.sqrt(num_nodes)).astype(np.float32)
    features[:, :k] = _ranked(vectors) if ranked else vectors
    features[:, k] = _standardised(np.log1p(degree))
    return torch.from_numpy(features)


def _ranked(columns: NDArray[np.float32]) -> NDArray[np.float64]:
    """Average ranks of each column's entries, centred and scaled to root mean square 1 (0 where all are equal).

    Entries are compared to six digits of the column's scale, so that what is equal but for rounding stays equal.
    """
    ranks = scipy.stats.rankdata(np.round(columns, 6), axis=0)
    ranks -= ranks.mean(axis=0)
    scale = np.sqrt((ranks**2).mean(axis=0))
    return ranks / np.where(scale > 0, scale, 1.0)


def _symmetric_adjacency(edge_index: NDArray[np.int64], num_nodes: int) -> sp.csr_array:
    """0/1 adjacency with both directions and no loops."""
    source, target = edge_index
    ones = np.ones(source.size, dtype=np.float32)
    one_way = sp.csr_array((ones, (target, source)), shape=(num_nodes, num_nodes))
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0.0)
    both.eliminate_zeros()
    both.data[:] = 1.0
    return both


def _normalised(adjacency: sp.csr_array, degree: NDArray[np.float64]) -> sp.csr_array:
    """``S = (D + t)^-1/2 (A + I) (D + t)^-1/2`` in float32, D the degree of A + I and t its mean."""
    num_nodes = degree.size
    regularised = degree + 1.0 + (degree.mean() + 1.0)
    scale = sp.dia_array((1.0 / np.sqrt(regularised)[None, :], [0]), shape=(num_nodes, num_nodes))
    return (scale @ (adjacency + sp.eye_array(num_nodes, format="csr")) @ scale).tocsr().astype(np.float32)


def _leading_eigenvectors(matrix: sp.csr_array, k: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Orthonormal ``[N, k]`` in descending order of eigenvalue."""
    num_nodes = matrix.shape[0]
    if num_nodes <= max(DENSE_NODES, 2 * (k + OVERSAMPLE)):
        _, vectors = np.linalg.eigh(matrix.toarray().astype(np.float64))
        return vectors[:, ::-1][:, :k].astype(np.float32)
    block = rng.standard_normal((num_nodes, k + OVERSAMPLE), dtype=np.float32)
    cut = FIRST_CUT
    for _ in range(ROUNDS):
        # Householder QR: the filter may leave the columns almost parallel, where a Cholesky factor would break down
        block = np.ascontiguousarray(
            scipy.linalg.qr(_filter(matrix, block, cut), mode="economic", overwrite_a=True)[0]
        )
        projected = _inner(block, matrix @ block)
        # the generalised eigenproblem, since float32 leaves the block orthonormal to about 1e-5 only
        values, rotation = scipy.linalg.eigh((projected + projected.T) / 2, _inner(block, block))
        block = block @ rotation[:, ::-1].astype(np.float32)
        cut = min(float(values[0]), MAX_CUT)
    return block[:, :k]


def _filter(matrix: sp.csr_array, block: NDArray[np.float32], cut: float) -> NDArray[np.float32]:
    """``T_8((S - c) / e) block``, with c and e the centre and half width of [-1, cut]; T_8 is at most 1 there."""
    centre, half = np.float32((cut - 1) / 2), np.float32((cut + 1) / 2)
    before, now = block, (matrix @ block - centre * block) / half
    for _ in range(DEGREE - 1):
        following = matrix @ now
        following -= centre * now
        following *= 2 / half
        following -= before
        before, now = now, following
    return now


def _inner(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """``a' b``, float32 within stretches of rows and float64 over them, so that the error does not grow with N."""
    total = np.zeros((a.shape[1], b.shape[1]))
    for low in range(0, a.shape[0], ROWS):
        total += a[low : low + ROWS].T @ b[low : low + ROWS]
    return total


def _standardised(column: NDArray[np.float64]) -> NDArray[np.float64]:
    deviation = column.std()
    return (column - column.mean()) / deviation if deviation > 0 else np.zeros_like(column)
