"""Whole networks from the layers of :mod:`gfgnn.nn.conv`: PyTorch Geometric's, with the same parameters."""

from __future__ import annotations

from typing import Any

from torch_geometric.nn import models as pyg
from torch_geometric.nn.conv import MessagePassing

from gfgnn.nn.conv import GCNConv, GINConv, SAGEConv


class GCN(pyg.GCN):
    """Layers :class:`~gfgnn.nn.GCNConv` (Kipf and Welling 2017).

    Arguments, parameters and results are those of :class:`torch_geometric.nn.GCN`.
    """

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        return GCNConv(in_channels, out_channels, **kwargs)


class GraphSAGE(pyg.GraphSAGE):
    """Layers :class:`~gfgnn.nn.SAGEConv` (Hamilton et al. 2017).

    Arguments, parameters and results are those of :class:`torch_geometric.nn.GraphSAGE`.
    """

    def init_conv(
        self, in_channels: int | tuple[int, int], out_channels: int, **kwargs: Any
    ) -> MessagePassing:
        return SAGEConv(in_channels, out_channels, **kwargs)


class GIN(pyg.GIN):
    """Layers :class:`~gfgnn.nn.GINConv` around networks of two linear layers (Xu et al. 2019).

    Arguments, parameters and results are those of :class:`torch_geometric.nn.GIN`.
    """

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        channels = [in_channels, out_channels, out_channels]
        mlp = pyg.MLP(
            channels, act=self.act, act_first=self.act_first, norm=self.norm, norm_kwargs=self.norm_kwargs
        )
        return GINConv(mlp, **kwargs)
