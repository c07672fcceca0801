"""Layers of PyTorch Geometric, with the same parameters and results, that aggregate by one sparse product.

Each is a subclass of the layer of the same name and takes the same arguments; its state dictionary fits both. What the
product cannot do goes to PyTorch Geometric's own ``forward``:

- ``aggr`` other than the sum (for :class:`SAGEConv` also the mean), ``node_dim`` other than -2, ``decomposed_layers``;
- hooks on messages, explanations, a subclass that redefines messages or their aggregation;
- features that are not ``[N, F]`` in float32 or float64, or autocast; sparse features except for :class:`GCNConv`;
- weights of another type than the features;
- ``torch_sparse.SparseTensor``, sparse tensors that require a gradient or are not coalesced;
- pairs of features with ``flow="target_to_source"``, or without features of the targets;
- ``torch.jit`` and ``torch.export``; whatever PyTorch Geometric answers with an error.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from gfgnn.nn.adjacency import Settings, matrix_of
from gfgnn.nn.product import Matrix, product
from gfgnn.nn.suits import SUMS, is_features, is_plain, passes_messages_plainly

#: Each class starts from this, not from what PyTorch Geometric compiled for the class of the same name, which would be
#: taken for it in explanations and knows nothing of their masks.
_propagate = MessagePassing.propagate


def _named(function: Any, name: str) -> Any:
    """A copy of a function under another name: TorchScript wants one name for each function of a class."""
    copy = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copy.__annotations__ = function.__annotations__
    return copy


class GCNConv(pyg.GCNConv):
    """``P X W + b`` with ``P = D^-1/2 (A + I) D^-1/2`` (Kipf and Welling 2017).

    ``P (X W)`` or ``(P X) W``, whichever multiplies P with fewer columns, forward and backward together. Arguments,
    parameters and errors are those of :class:`torch_geometric.nn.GCNConv`.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012 - read by PyTorch Geometric
    propagate = _propagate
    forward_of_pyg = _named(pyg.GCNConv.forward, "forward_of_pyg")

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Features ``[N, in_channels]``, dense or sparse, to ``[N, out_channels]``.

        Args:
            edge_index: ``[2, E]``, an ``EdgeIndex``, or the transposed adjacency ``[N, N]`` as a sparse tensor.
            edge_weight: ``[E]``.
        """
        if torch.jit.is_scripting():
            return self.forward_of_pyg(x, edge_index, edge_weight)
        else:  # TorchScript does not look in here
            out = self._by_product(x, edge_index, edge_weight)
            return super().forward(x, edge_index, edge_weight) if out is None else out

    def _by_product(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor) -> Tensor | None:
        matrix = None
        if passes_messages_plainly(self, pyg.GCNConv, SUMS) and is_features(x, sparse=True):
            matrix = _propagation(self, x, edge_index, edge_weight, improved=self.improved)
        if matrix is None:
            return None
        if self._propagates_first(x):
            out = self.lin(product(matrix, x))
        else:
            out = product(matrix, self.lin(x))
        return out if self.bias is None else out + self.bias

    def _propagates_first(self, x: Tensor) -> bool:
        if x.layout != torch.strided or not is_plain(self.lin):
            return False
        grad = torch.is_grad_enabled()
        return x.size(1) * (1 + (grad and x.requires_grad)) < self.out_channels * (1 + grad)


class GCN2Conv(pyg.GCN2Conv):
    """``((1 - alpha) P X + alpha X_0) ((1 - beta) I + beta W)``, GCNII's layer (Chen et al. 2020).

    Arguments, parameters and errors are those of :class:`torch_geometric.nn.GCN2Conv`.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012
    propagate = _propagate
    forward_of_pyg = _named(pyg.GCN2Conv.forward, "forward_of_pyg")

    def forward(self, x: Tensor, x_0: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Features and first features, both ``[N, channels]``, to ``[N, channels]``; the rest as for GCNConv."""
        if torch.jit.is_scripting():
            return self.forward_of_pyg(x, x_0, edge_index, edge_weight)
        else:  # TorchScript does not look in here
            out = self._by_product(x, x_0, edge_index, edge_weight)
            return super().forward(x, x_0, edge_index, edge_weight) if out is None else out

    def _by_product(self, x: Tensor, x_0: Tensor, edge_index: Adj, edge_weight: OptTensor) -> Tensor | None:
        matrix = None
        if passes_messages_plainly(self, pyg.GCN2Conv, SUMS) and is_features(x) and is_features(x_0):
            matrix = _propagation(self, x, edge_index, edge_weight)
        if matrix is None or x.dtype != x_0.dtype:
            return None
        h, h_0 = product(matrix, x), x_0[: x.size(0)]
        keep = 1.0 - self.beta
        if self.weight2 is None:
            mixed = torch.lerp(h, h_0, self.alpha)
            return torch.addmm(mixed, mixed, self.weight1, beta=keep, alpha=self.beta)
        h, h_0 = (1.0 - self.alpha) * h, self.alpha * h_0
        out = torch.addmm(h, h, self.weight1, beta=keep, alpha=self.beta)
        return out + torch.addmm(h_0, h_0, self.weight2, beta=keep, alpha=self.beta)


class SGConv(pyg.SGConv):
    """``P^K X W + b`` (Wu et al. 2019); W comes first where that leaves fewer columns and nothing is to be cached.

    Arguments, parameters and errors are those of :class:`torch_geometric.nn.SGConv`.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012
    propagate = _propagate
    forward_of_pyg = _named(pyg.SGConv.forward, "forward_of_pyg")

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]``; the rest as for GCNConv."""
        if torch.jit.is_scripting():
            return self.forward_of_pyg(x, edge_index, edge_weight)
        else:  # TorchScript does not look in here
            out = self._by_product(x, edge_index, edge_weight)
            return super().forward(x, edge_index, edge_weight) if out is None else out

    def _by_product(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor) -> Tensor | None:
        matrix, known = None, getattr(self, "_cached_x", None)
        if known is None and passes_messages_plainly(self, pyg.SGConv, SUMS) and is_features(x):
            settings = _square(x, flow=self.flow, add_self_loops=self.add_self_loops)
            matrix = matrix_of(x, edge_index, edge_weight, settings)
        if matrix is None:
            return None
        narrows = self.out_channels < x.size(1) and not self.cached and is_plain(self.lin)
        h = F.linear(x, self.lin.weight) if narrows else x
        for _ in range(self.K):
            h = product(matrix, h)
        if narrows:
            return h if self.lin.bias is None else h + self.lin.bias
        if self.cached and self.K > 0:
            self._cached_x = h
        return self.lin(h)


class SAGEConv(pyg.SAGEConv):
    """``W_1 mean_j x_j + W_2 x_i + b`` (Hamilton et al. 2017); W_1 comes first where that leaves fewer columns.

    Arguments, parameters and errors are those of :class:`torch_geometric.nn.SAGEConv`.
    """

    propagate_type = {"x": OptPairTensor}  # noqa: RUF012
    propagate = _propagate
    forward_of_pyg = _named(pyg.SAGEConv.forward, "forward_of_pyg")

    def forward(self, x: Tensor | OptPairTensor, edge_index: Adj, size: Size = None) -> Tensor:
        """Features ``[N, in_channels]``, or a pair of the sources' and the targets', to ``[N, out_channels]``.

        Args:
            edge_index: ``[2, E]``, an ``EdgeIndex``, or the transposed adjacency as a sparse tensor, whose values
                weigh the neighbours.
            size: the numbers of sources and targets.
        """
        if torch.jit.is_scripting():
            return self.forward_of_pyg(x, edge_index, size)
        else:  # TorchScript does not look in here
            out = self._by_product(x, edge_index, size)
            return super().forward(x, edge_index, size) if out is None else out

    def _by_product(self, x: Tensor | OptPairTensor, edge_index: Adj, size: Size) -> Tensor | None:
        matrix = None
        if passes_messages_plainly(self, pyg.SAGEConv, (*SUMS, "mean")):
            matrix = _neighbours(x, edge_index, size, self.flow)
        if matrix is None:
            return None
        source, target = (x, x) if isinstance(x, Tensor) else x
        if self.project:
            source = self.lin(source).relu()
        if self.out_channels < source.size(1) and is_plain(self.lin_l):
            out = self._gathered(matrix, F.linear(source, self.lin_l.weight))
            out = out if self.lin_l.bias is None else out + self.lin_l.bias
        else:
            out = self.lin_l(self._gathered(matrix, source))
        if self.root_weight:
            out = out + self.lin_r(target)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _gathered(self, matrix: Matrix, x: Tensor) -> Tensor:
        # Ones are divided afterwards: the matrix of an undirected graph stays its own transpose.
        out = product(matrix, x)
        return out / matrix.row_counts() if self.aggr == "mean" else out


class GINConv(pyg.GINConv):
    """``nn((1 + eps) x_i + sum_j x_j)`` (Xu et al. 2019).

    Arguments, parameters and errors are those of :class:`torch_geometric.nn.GINConv`.
    """

    propagate_type = {"x": OptPairTensor}  # noqa: RUF012
    propagate = _propagate
    forward_of_pyg = _named(pyg.GINConv.forward, "forward_of_pyg")

    def forward(self, x: Tensor | OptPairTensor, edge_index: Adj, size: Size = None) -> Tensor:
        """Features, or a pair of the sources' and the targets', to what ``nn`` makes of their sums; see SAGEConv."""
        if torch.jit.is_scripting():
            return self.forward_of_pyg(x, edge_index, size)
        else:  # TorchScript does not look in here
            out = self._by_product(x, edge_index, size)
            return super().forward(x, edge_index, size) if out is None else out

    def _by_product(self, x: Tensor | OptPairTensor, edge_index: Adj, size: Size) -> Tensor | None:
        matrix = None
        if passes_messages_plainly(self, pyg.GINConv, SUMS):
            matrix = _neighbours(x, edge_index, size, self.flow)
        if matrix is None:
            return None
        source, target = (x, x) if isinstance(x, Tensor) else x
        return self.nn(product(matrix, source) + (1 + self.eps) * target)


def _propagation(
    conv: GCNConv | GCN2Conv, x: Tensor, edge_index: Adj, edge_weight: OptTensor, improved: bool = False
) -> Matrix | None:
    """The layer's matrix; with ``cached`` that of the first graph, kept where PyTorch Geometric keeps it."""
    settings = _square(x, conv.flow, conv.add_self_loops, conv.normalize, improved)
    if conv.normalize and conv.cached:
        if not isinstance(edge_index, Tensor):
            return None
        if conv._cached_edge_index is None:
            conv._cached_edge_index = gcn_norm(
                edge_index, edge_weight, x.size(0), improved, conv.add_self_loops, conv.flow, x.dtype
            )
        edge_index, edge_weight = conv._cached_edge_index
        settings = _square(x, conv.flow, normalize=False)
    return matrix_of(x, edge_index, edge_weight, settings)


def _square(
    x: Tensor, flow: str, add_self_loops: bool = False, normalize: bool = True, improved: bool = False
) -> Settings:
    return Settings(x.size(0), x.size(0), x.dtype, normalize, improved, add_self_loops, flow)


def _neighbours(x: Tensor | OptPairTensor, edge_index: Adj, size: Size, flow: str) -> Matrix | None:
    """The plain adjacency of sources and targets."""
    pair = (x, x) if isinstance(x, Tensor) else x
    if (
        len(pair) != 2
        or not is_features(pair[0])
        or not is_features(pair[1])
        or pair[0].dtype != pair[1].dtype
    ):
        return None
    source, target = pair
    sizes = (source.size(0), target.size(0))
    if (source is not target and flow != "source_to_target") or (size is not None and tuple(size) != sizes):
        return None
    settings = Settings(sizes[1], sizes[0], source.dtype, normalize=False, flow=flow)
    return matrix_of(source, edge_index, None, settings)
