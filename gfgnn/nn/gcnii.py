"""GCNII: deep graph convolutions that keep the first features in sight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.resolver import activation_resolver, normalization_resolver
from torch_geometric.typing import Adj, OptTensor

from gfgnn.checks import check_at_least, check_between, check_count
from gfgnn.nn.conv import GCN2Conv


class GCNII(torch.nn.Module):
    """``H_0 = act(X W_in)``, then ``H_l = act(GCN2Conv_l(H_(l-1), H_0))``, then ``H_L W_out`` (Chen et al. 2020).

    Layer l mixes its weights in with ``beta = log(theta / l + 1)``. Features are dropped before every layer. What
    comes out are scores, not probabilities.

    Args:
        in_channels: columns of the features; -1 takes them from the first call.
        hidden_channels: columns of the hidden layers.
        num_layers: L, the number of GCN2Conv layers; the two linear layers are not counted.
        out_channels: columns of the result; None means ``hidden_channels``.
        dropout: the probability.
        alpha: the share of the first features in every layer.
        theta: see beta.
        shared_weights: one weight matrix for both parts of a layer; False gives GCNII*.
        act: the activation, as for PyTorch Geometric's models.
        norm: a normalisation of the output of each GCN2Conv before ``act``, by name or as a module to be copied;
            without ``batch``, which cannot be passed on.
        **kwargs: for :class:`~gfgnn.nn.GCN2Conv`.

    Raises:
        InputError: a number of layers or channels below one, or alpha, theta or dropout out of range.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
        act: str | Callable[..., Any] | None = "relu",
        norm: str | Callable[..., Any] | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_count("hidden_channels", hidden_channels, 1)
        check_count("num_layers", num_layers, 1)
        check_between("dropout", dropout, 0, 1)
        check_between("alpha", alpha, 0, 1)
        check_at_least("theta", theta, 0)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = hidden_channels if out_channels is None else out_channels
        check_count("out_channels", self.out_channels, 1)
        self.dropout = torch.nn.Dropout(dropout)
        self.act = activation_resolver(act)
        self.lins = torch.nn.ModuleList(
            [Linear(in_channels, hidden_channels), Linear(hidden_channels, self.out_channels)]
        )
        self.convs = torch.nn.ModuleList(
            GCN2Conv(hidden_channels, alpha, theta, layer, shared_weights, **kwargs)
            for layer in range(1, num_layers + 1)
        )
        self.norms = torch.nn.ModuleList(
            normalization_resolver(norm, hidden_channels, **(norm_kwargs or {})) or torch.nn.Identity()
            for _ in range(num_layers)
        )

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for module in (*self.lins, *self.convs, *self.norms):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Features ``[N, in_channels]`` to scores ``[N, out_channels]``; graphs as for GCNConv."""
        x = x_0 = self._activated(self.lins[0](self.dropout(x)))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self._activated(norm(conv(self.dropout(x), x_0, edge_index, edge_weight)))
        return self.lins[1](self.dropout(x))

    def _activated(self, x: Tensor) -> Tensor:
        return x if self.act is None else self.act(x)

    def __repr__(self) -> str:
        channels = f"{self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}"
        return f"{self.__class__.__name__}({channels}, out_channels={self.out_channels})"
