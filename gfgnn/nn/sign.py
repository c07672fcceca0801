"""SIGN: linear layers on features of 0 to K hops, none of which is learnt."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.typing import Adj, OptTensor

from gfgnn.checks import InputError, check_between, check_count
from gfgnn.nn.adjacency import Settings, matrix_of
from gfgnn.nn.cache import TensorCache
from gfgnn.nn.product import product
from gfgnn.nn.suits import is_features

#: The hops of features that need no gradient are kept: they are the same in every epoch. Few, since they are large.
_hops: TensorCache[_Kept] = TensorCache(2)


class _Kept:
    """``[S X, ..., S^K X]``, and the versions of the tensors: whoever was given them may have changed them."""

    def __init__(self, xs: list[Tensor]) -> None:
        self.xs = xs
        self.versions = [x._version for x in xs]

    @property
    def unchanged(self) -> bool:
        return self.versions == [x._version for x in self.xs]


class Hops(torch.nn.Module):
    """``[X, S X, ..., S^K X]`` with ``S = D^-1/2 A D^-1/2``, without self-loops (``torch_geometric.transforms.SIGN``).

    Args:
        num_hops: K.
    """

    def __init__(self, num_hops: int) -> None:
        super().__init__()
        check_count("num_hops", num_hops, 0)
        self.num_hops = num_hops

    @torch.compiler.disable
    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> list[Tensor]:
        """K + 1 tensors of the shape of ``x`` ``[N, F]``.

        Where neither ``x`` nor ``edge_weight`` requires a gradient, the hops of unchanged tensors are kept from one
        call to the next.

        Raises:
            InputError: ``x`` is not dense ``[N, F]`` in float32 or float64, or ``edge_index`` and ``edge_weight`` are
                not a graph of N nodes in the same numbers.
        """
        if not (isinstance(x, Tensor) and x.dim() == 2 and x.layout == torch.strided):
            raise InputError(f"x must be a dense matrix [N, F]; got {_described(x)}.")
        if self.num_hops == 0:
            return [x]
        weighted = isinstance(edge_weight, Tensor)
        learnt = x.requires_grad or (weighted and edge_weight.requires_grad)
        tensors = (x, edge_index, edge_weight) if weighted else (x, edge_index)
        if learnt or type(edge_index) is not Tensor:
            return [x, *self._propagated(x, edge_index, edge_weight)]
        # Not in inference mode, whose tensors could not be saved for a later backward pass.
        with torch.inference_mode(False), torch.no_grad():
            kept = _hops.get(
                tensors, self.num_hops, lambda: _Kept(self._propagated(x, edge_index, edge_weight))
            )
        if kept is None or not kept.unchanged:
            _hops.clear()
            return self.forward(x, edge_index, edge_weight)
        return [x, *kept.xs]

    def _propagated(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor) -> list[Tensor]:
        _check_ends(edge_index, x.size(0))
        settings = Settings(x.size(0), x.size(0), x.dtype, add_self_loops=False)
        matrix = matrix_of(x, edge_index, edge_weight, settings) if is_features(x) else None
        if matrix is None:
            raise InputError(
                f"hops need float32 or float64 features without autocast and a graph of their {x.size(0)} nodes, "
                f"with weights of the same type; got x {_described(x)}, edge_index {_described(edge_index)}, "
                f"edge_weight {_described(edge_weight)}."
            )
        xs = [x]
        for _ in range(self.num_hops):
            xs.append(product(matrix, xs[-1]))
        return xs[1:]

    def extra_repr(self) -> str:
        return f"num_hops={self.num_hops}"


class SIGN(torch.nn.Module):
    """``W [drop(relu(X W_0)), ..., drop(relu(S^K X W_K))] + b`` (Frasca et al. 2020); scores, not probabilities.

    Args:
        in_channels: columns of the features; -1 takes them from the first call.
        hidden_channels: columns of each of the K + 1 linear layers.
        out_channels: columns of the result.
        num_hops: K.
        dropout: the probability.

    Raises:
        InputError: channels below one, hops below zero, or a dropout out of range.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, num_hops: int, dropout: float = 0.5
    ) -> None:
        super().__init__()
        check_count("hidden_channels", hidden_channels, 1)
        check_count("out_channels", out_channels, 1)
        check_between("dropout", dropout, 0, 1)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_hops = num_hops
        self.hops = Hops(num_hops)
        self.lins = torch.nn.ModuleList(Linear(in_channels, hidden_channels) for _ in range(num_hops + 1))
        self.dropout = torch.nn.Dropout(dropout)
        self.lin = Linear((num_hops + 1) * hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for lin in (*self.lins, self.lin):
            lin.reset_parameters()

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Features ``[N, in_channels]`` to scores ``[N, out_channels]``; graphs as for GCNConv."""
        xs = self.hops(x, edge_index, edge_weight)
        hs = [self.dropout(torch.relu(lin(xs[k]))) for k, lin in enumerate(self.lins)]
        return self.lin(torch.cat(hs, dim=-1))

    def __repr__(self) -> str:
        channels = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        return f"{self.__class__.__name__}({channels}, num_hops={self.num_hops})"


def _check_ends(edge_index: object, num_nodes: int) -> None:
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided or edge_index.numel() == 0:
        return
    low, high = edge_index.min().item(), edge_index.max().item()
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"edge_index must number nodes from 0 to {num_nodes - 1}, the rows of x; got {low} to {high}."
        )


def _described(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
