"""From what users of PyTorch Geometric pass as a graph to the matrix that a layer multiplies with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import is_torch_sparse_tensor

from gfgnn.nn.cache import TensorCache, sparse_parts
from gfgnn.nn.product import Matrix

#: Graphs kept at a time.
CACHED = 8


@dataclass(frozen=True)
class Settings:
    """What else the matrix depends on, in the words of ``gcn_norm``.

    Attributes:
        num_targets, num_sources: the shape of the matrix; equal where ``normalize``.
    """

    num_targets: int
    num_sources: int
    dtype: torch.dtype
    normalize: bool = True
    improved: bool = False
    add_self_loops: bool = True
    flow: str = "source_to_target"


@dataclass(frozen=True, eq=False)
class Structure:
    """Where the non-zeros of a matrix are, as in :class:`Matrix`; edge ``order[k]`` is non-zero k."""

    crow: Tensor
    col: Tensor
    crow_t: Tensor
    col_t: Tensor
    order_t: Tensor
    order: Tensor

    def fixed(self, weight: Tensor) -> Matrix:
        """The matrix of the edges' weights, which do not require a gradient."""
        value = weight.index_select(0, self.order)
        if self.crow_t is self.crow and torch.equal(value, value.index_select(0, self.order_t)):
            return Matrix(value, self.crow, self.col, self.crow, self.col, self.order_t[:0])
        return Matrix(value, self.crow, self.col, self.crow_t, self.col_t, self.order_t)

    def differentiable(self, weight: Tensor) -> Matrix:
        value = weight.index_select(0, self.order)
        return Matrix(value, self.crow, self.col, self.crow_t, self.col_t, self.order_t)


_matrices: TensorCache[Matrix] = TensorCache(CACHED)
_structures: TensorCache[Structure] = TensorCache(CACHED)


@torch.compiler.disable
def matrix_of(x: Tensor, edge_index: object, edge_weight: Tensor | None, settings: Settings) -> Matrix | None:
    """The matrix A with which targets gather from sources: ``gcn_norm``'s, or the weights as given.

    It is sorted once for a graph and kept, see :class:`~gfgnn.nn.cache.TensorCache`. With an ``edge_weight`` that
    requires a gradient only the places of the non-zeros are kept, and the values are worked out anew.

    Args:
        x: the features, for their device.
        edge_index: ``[2, E]`` of int64, an ``EdgeIndex``, or the transposed adjacency as a sparse tensor of torch.
        edge_weight: ``[E]``; ignored with a sparse tensor, as PyTorch Geometric does.

    Returns:
        None for what is left to PyTorch Geometric, its errors included: other types, numbers or devices, sparse
        tensors that require a gradient or are not coalesced, ``torch_sparse``, indices outside the shape.
    """
    if isinstance(edge_index, EdgeIndex):
        sizes = zip(edge_index.sparse_size(), (settings.num_sources, settings.num_targets), strict=True)
        if settings.flow != "source_to_target" or any(size not in (None, wanted) for size, wanted in sizes):
            return None
        edge_index = edge_index.as_tensor()
    if not isinstance(edge_index, Tensor) or not _has_memory(x) or edge_index.device != x.device:
        return None
    if is_torch_sparse_tensor(edge_index):
        return _of_sparse(edge_index, settings)
    if not _is_edge_index(edge_index) or not _is_weight(edge_weight, edge_index, settings.dtype):
        return None
    if edge_weight is not None and edge_weight.requires_grad:
        return _differentiable(edge_index, edge_weight, settings)
    tensors = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
    return _matrices.get(tensors, settings, lambda: _fixed(edge_index, edge_weight, settings))


def _fixed(edge_index: Tensor, edge_weight: Tensor | None, settings: Settings) -> Matrix | None:
    # Not in inference mode, whose tensors could not be saved for a later backward pass.
    with torch.inference_mode(False), torch.no_grad():
        edges, weight = _normalised(edge_index, edge_weight, settings)
        if edge_weight is None:  # no other weights will come on these edges
            structure = _structure(edges, settings)
        else:
            structure = _structures.get((edge_index,), settings, lambda: _structure(edges, settings))
        return None if structure is None else structure.fixed(weight)


def _differentiable(edge_index: Tensor, edge_weight: Tensor, settings: Settings) -> Matrix | None:
    edges, weight = _normalised(edge_index, edge_weight, settings)
    with torch.inference_mode(False), torch.no_grad():
        structure = _structures.get((edge_index,), settings, lambda: _structure(edges, settings))
    return None if structure is None else structure.differentiable(weight)


def _normalised(edge_index: Tensor, edge_weight: Tensor | None, settings: Settings) -> tuple[Tensor, Tensor]:
    if settings.normalize:
        return gcn_norm(
            edge_index, edge_weight, settings.num_targets, settings.improved, settings.add_self_loops,
            settings.flow, settings.dtype,
        )  # fmt: skip
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), dtype=settings.dtype, device=edge_index.device)
    return edge_index, edge_weight


def _structure(edges: Tensor, settings: Settings) -> Structure | None:
    source, target = edges if settings.flow == "source_to_target" else edges.flip(0)
    return build_structure(target, source, settings.num_targets, settings.num_sources)


def _of_sparse(adj_t: Tensor, settings: Settings) -> Matrix | None:
    values = adj_t._values() if adj_t.layout == torch.sparse_coo else adj_t.values()
    suits = (
        settings.flow == "source_to_target"
        and adj_t.shape == (settings.num_targets, settings.num_sources)
        and values.shape == (adj_t._nnz(),)
        and values.dtype == settings.dtype
        and not adj_t.requires_grad
        and not (adj_t.layout == torch.sparse_coo and not adj_t.is_coalesced())
        and not (adj_t.layout == torch.sparse_csc and settings.normalize)
    )
    return _matrices.get((adj_t,), settings, lambda: _fixed_sparse(adj_t, settings)) if suits else None


def _fixed_sparse(adj_t: Tensor, settings: Settings) -> Matrix | None:
    with torch.inference_mode(False), torch.no_grad():
        if settings.normalize:
            adj_t, _ = gcn_norm(
                adj_t, None, settings.num_targets, settings.improved, settings.add_self_loops,
                settings.flow, settings.dtype,
            )  # fmt: skip
        row, col, value = sparse_parts(adj_t)
        if adj_t.layout == torch.sparse_csr:
            row = _uncompressed(row)
        elif adj_t.layout == torch.sparse_csc:
            col = _uncompressed(col)
        structure = build_structure(row.long(), col.long(), settings.num_targets, settings.num_sources)
        return None if structure is None else structure.fixed(value)


def build_structure(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Structure | None:
    """The structure of a matrix with non-zeros at ``(row, col)`` ``[E]`` in any order; None where one lies outside."""
    if row.numel() and bool(
        (row.amin() < 0) | (row.amax() >= num_rows) | (col.amin() < 0) | (col.amax() >= num_cols)
    ):
        return None
    if max(num_rows, num_cols, row.numel()) < 2**31:  # half as long to sort, and what the product wants
        row, col = row.int(), col.int()
    order = torch.sort(col, stable=True).indices
    row, by_row = torch.sort(row.index_select(0, order), stable=True)
    order = order.index_select(0, by_row)
    crow, col = _compressed(row, num_rows), col.index_select(0, order)
    col_sorted, order_t = torch.sort(col, stable=True)
    crow_t, col_t = _compressed(col_sorted, num_cols), row.index_select(0, order_t)
    if torch.equal(crow, crow_t) and torch.equal(col, col_t):
        crow_t, col_t = crow, col
    return Structure(crow, col, crow_t, col_t, order_t.to(col.dtype), order)


def _compressed(index: Tensor, size: int) -> Tensor:
    pointers = torch.zeros(size + 1, dtype=torch.int64, device=index.device)
    torch.cumsum(torch.bincount(index, minlength=size), 0, out=pointers[1:])
    return pointers.to(index.dtype)


def _uncompressed(pointers: Tensor) -> Tensor:
    rows = torch.arange(pointers.numel() - 1, device=pointers.device)
    return torch.repeat_interleave(rows, pointers.long().diff())


def _is_edge_index(tensor: Tensor) -> bool:
    two_rows = tensor.dim() == 2 and tensor.size(0) == 2
    return two_rows and tensor.dtype == torch.int64 and tensor.layout == torch.strided and _has_memory(tensor)


def _is_weight(weight: Tensor | None, edge_index: Tensor, dtype: torch.dtype) -> bool:
    if weight is None:
        return True
    suits = isinstance(weight, Tensor) and weight.layout == torch.strided and weight.dtype == dtype
    same = suits and weight.shape == (edge_index.size(1),) and weight.device == edge_index.device
    return same and _has_memory(weight)


def _has_memory(tensor: Tensor) -> bool:
    """Whether numbers can be read: not so of meta tensors, and of tensors inside transforms of ``torch.func``."""
    if tensor.layout != torch.strided:
        return True
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return tensor.device.type in ("cpu", "cuda")
