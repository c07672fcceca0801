"""What an epoch of backprop costs in each block, for cutting a network into stages of equal work."""

from __future__ import annotations

from gfgnn.baseline.settings import AdamSettings
from gfgnn.model.build import Model
from gfgnn.plan.cost import CACHE_BYTES, INDEX_BYTES
from gfgnn.plan.work import BlockCost, Sizes

#: Passes over an activation: bias, activation and its derivative, forward and backward (read or written once each).
ACTIVATION_PASSES = 7
#: Passes of a dropout: random bits, mask, product, and the product of the way back.
DROPOUT_PASSES = 8


def backprop_costs(model: Model, sizes: Sizes, settings: AdamSettings) -> tuple[BlockCost, ...]:
    """The work of each block in one epoch, forward and backward.

    A block has one product of its inputs with the weights forward, two backward (for weights and inputs; the first
    block for weights only), and one product with S each way, of the narrower side.
    """
    last = len(model.blocks) - 1
    costs = []
    for index, block in enumerate(model.blocks):
        rows = sizes.num_train if index == last else sizes.num_nodes
        nnz = sizes.head_nnz if index == last else sizes.nnz
        dense, d = 2 * rows * block.fan_in * block.out_channels, block.out_channels
        entries = rows * d * ACTIVATION_PASSES
        if index == 0:
            cost = BlockCost(dense_flops=2 * dense)
            if sizes.feature_nnz is not None:
                cost = _sparse(sizes.feature_nnz, d, sizes) * 2
            if settings.dropout_input and block.propagate == "graph":
                entries += DROPOUT_PASSES * (sizes.feature_nnz or rows * block.fan_in)
                cost += _sparse(nnz, min(d, block.in_channels), sizes) * 2
        else:
            cost = BlockCost(dense_flops=3 * dense)
            if block.propagate != "none":
                cost += _sparse(nnz, min(d, block.in_channels), sizes) * 2
            entries += DROPOUT_PASSES * bool(settings.dropout) * sizes.num_nodes * block.in_channels
        costs.append(cost + BlockCost(elementwise_bytes=float(entries * sizes.itemsize)))
    return tuple(costs)


def _sparse(nnz: int, width: int, sizes: Sizes) -> BlockCost:
    """A sparse matrix times a dense one of ``width`` columns."""
    item = sizes.itemsize
    moved = nnz * (INDEX_BYTES + item) + (nnz + sizes.num_nodes) * width * item
    if sizes.num_nodes * width * item <= CACHE_BYTES:
        return BlockCost(sparse_flops=2 * nnz * width, cached_bytes=moved)
    return BlockCost(sparse_flops=2 * nnz * width, sparse_bytes=moved)


__all__ = ["backprop_costs"]
