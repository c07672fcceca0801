"""The propagation matrix S of a graph neural network, its transpose, and how label mass travels on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.ops.spmm import csr, rows_of, spmm, to_scipy, transpose, with_values

#: A product with a fixed sparse matrix.
Product = Callable[[Tensor], Tensor]


class Propagator(Protocol):
    """What networks and solvers use of S: the methods of :class:`Propagation`, which says what they mean.

    Where the nodes are spread over parts, tensors hold the rows of this part's nodes, and every part must call.
    """

    @property
    def num_nodes(self) -> int: ...

    def apply(
        self, h: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor: ...

    def adjoint(
        self, q: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor: ...

    def apply_sparse(self, table: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix: ...

    def carry(self, mass: Tensor) -> Tensor: ...

    def rows(self, index: Tensor) -> tuple[Product, Product]: ...

    def to(self, dtype: torch.dtype, device: torch.device | str) -> Propagator: ...

    def for_purpose(self, purpose: str) -> Propagator: ...


@dataclass(frozen=True, eq=False)
class Propagation:
    """A fixed sparse matrix S ``[N, N]``; row i holds the weights with which node i gathers from its neighbours.

    Attributes:
        matrix: S as sparse CSR.
        matrix_t: S' as sparse CSR; the very same tensor where S is symmetric.
        scale: a positive vector u ``[N]`` (the square root of the degree for the symmetric normalisation, else
            ones) that makes the bound of :meth:`carry` tight.
    """

    matrix: Tensor
    matrix_t: Tensor
    scale: Tensor

    @property
    def num_nodes(self) -> int:
        return self.matrix.size(0)

    def apply(
        self, h: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``scale * S h + plus_scale * plus``, in one pass over the result."""
        return spmm(self.matrix, h, scale=scale, plus=plus, plus_scale=plus_scale)

    def adjoint(
        self, q: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``scale * S' q + plus_scale * plus``."""
        return spmm(self.matrix_t, q, scale=scale, plus=plus, plus_scale=plus_scale)

    def apply_sparse(self, table: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
        """``S table`` for a sparse ``table`` ``[N, F]``."""
        return to_scipy(self.matrix) @ table

    def rows(self, index: Tensor) -> tuple[Product, Product]:
        """Products with the rows S[index], ``[N, d] -> [k, d]``, and with their transpose, ``[k, d] -> [N, d]``."""
        matrix = rows_of(self.matrix, index)
        return partial(spmm, matrix), partial(spmm, transpose(matrix))

    def carry(self, mass: Tensor) -> Tensor:
        """Node weights one propagation earlier: ``u^-1 * |S|'(mass * v)`` with ``v = |S| u``, ``[N]``.

        By Cauchy-Schwarz ``(S d)_i^2 <= v_i sum_j |S_ij| d_j^2 / u_j``, so for every shift ``d`` of the inputs
        ``sum_i mass_i (S d)_i^2 <= sum_j carry(mass)_j d_j^2``. For the random-walk normalisation this is one step
        of a random walk back from the labels, and total mass is kept at any depth; for the symmetric one of an
        undirected graph the sum of mass times degree is.
        """
        magnitude = _absolute(self.matrix)
        magnitude_t = magnitude if self.matrix_t is self.matrix else _absolute(self.matrix_t)
        v = (magnitude @ self.scale[:, None]).squeeze(1)
        return (magnitude_t @ (mass * v)[:, None]).squeeze(1) / self.scale

    def to(self, dtype: torch.dtype, device: torch.device | str) -> Propagation:
        matrix = _converted(self.matrix, dtype, device)
        symmetric = self.matrix_t is self.matrix
        matrix_t = matrix if symmetric else _converted(self.matrix_t, dtype, device)
        return Propagation(matrix, matrix_t, self.scale.to(device=device, dtype=dtype))

    def for_purpose(self, purpose: str) -> Propagation:
        """Itself: nothing is sent, whatever for."""
        return self


def _converted(matrix: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    return with_values(matrix, matrix.values().to(dtype)).to(device)


def _absolute(matrix: Tensor) -> Tensor:
    if bool((matrix.values() >= 0).all()):
        return matrix
    return with_values(matrix, matrix.values().abs())


def make_propagation(
    source: Tensor, target: Tensor, weight: Tensor, num_nodes: int, norm: str
) -> Propagation:
    """S from the edges of A, repeated ones summed, self-loops as they are.

    Args:
        source, target: ``[E]``; node i gathers over the edges whose target it is, as in PyG.
        weight: ``[E]`` float64.
        norm: ``sym``: D^-1/2 A D^-1/2 with D the weighted in-degree (Kipf and Welling 2017, and PyG's ``gcn_norm``);
            ``rw``: D^-1 A; ``none``: A; ``given``: A, whose weights are normalised already in a way that
            :func:`given_scale` knows. Rows of nodes without positive degree are zero where divided by it.
    """
    n = num_nodes
    degree = torch.zeros(n, dtype=torch.float64).index_add_(0, target, weight)
    scale = torch.ones(n, dtype=torch.float64)
    if norm in ("sym", "rw"):
        inverse, scale = normalisation(degree, norm)
        weight = (inverse[target] * inverse[source] if norm == "sym" else inverse[target]) * weight
    elif norm == "given":
        known = given_scale(source, target, weight, n)
        scale = scale if known is None else known
    matrix = csr(target, source, weight, (n, n))
    matrix_t = transpose(matrix)
    if same(matrix, matrix_t):
        matrix_t = matrix
    return Propagation(matrix, matrix_t, scale)


def normalisation(degree: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """What edges are multiplied by, and u of :class:`Propagation`, both ``[N]``, from weighted in-degrees.

    ``sym``: by d^-1/2 of either end; ``rw``: by 1/d of the target. It is 0 where d is not positive.
    """
    positive, one = degree > 0, torch.ones_like(degree)
    if norm == "rw":
        return torch.where(positive, 1.0 / degree, torch.zeros_like(degree)), one
    inverse = degree.clamp(min=0).pow(-0.5)
    inverse[~positive] = 0.0
    return inverse, torch.where(positive, degree.clamp(min=0).sqrt(), one)


def given_scale(source: Tensor, target: Tensor, weight: Tensor, num_nodes: int) -> Tensor | None:
    """The positive vector u ``[N]`` with ``S u = u`` of weights that are normalised already; None where they are not.

    It is known for means (u = 1) and for PyG's ``gcn_norm`` (u is the square root of the degree): with self-loops of
    weight 1, or without any of undirected edges of weight 1. Nodes that no edge reaches count for nothing.
    """
    if not weight.numel() or bool((weight < 0).any()):
        return None
    weight = weight.double()
    none = torch.zeros(num_nodes, dtype=torch.float64)
    reached = none.index_add(0, target, weight) > 0
    degree = none.index_add(0, target, torch.ones_like(weight))
    loop = source == target
    diagonal = none.index_add(0, target[loop], weight[loop])
    for squared in (torch.ones_like(none), degree, 1.0 / diagonal):
        u = torch.where(reached & squared.isfinite(), squared, 1.0).sqrt()
        moved = none.index_add(0, target, weight * u[source])
        if bool(((moved - u).abs() <= 1e-3 * u)[reached].all()):
            return u
    return None


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two sparse CSR tensors have the same non-zeros."""
    return (
        torch.equal(a.crow_indices(), b.crow_indices())
        and torch.equal(a.col_indices(), b.col_indices())
        and torch.equal(a.values(), b.values())
    )
