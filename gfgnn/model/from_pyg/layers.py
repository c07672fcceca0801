"""Which layers can be trained, and what to say of those that cannot."""

from __future__ import annotations

from typing import Any

import torch

from gfgnn.model.from_pyg.convolutions import CONVOLUTIONS, MEANS, SUMS, named
from gfgnn.model.from_pyg.slots import Norm
from gfgnn.model.from_pyg.trace import kind_of

#: Layers that pass their input on, in evaluation.
PASSING = ("Identity", "Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout")
#: Stripped where they stand at the very end.
ENDINGS = ("LogSoftmax", "Softmax", "Sigmoid")

ATTENTION = (
    "GATConv", "GATv2Conv", "FusedGATConv", "TransformerConv", "AGNNConv", "SuperGATConv", "FAConv", "RGATConv",
    "HGTConv", "HANConv", "HEATConv", "PointTransformerConv", "GPSConv", "DNAConv", "ResGatedGraphConv", "FiLMConv",
    "FeaStConv",
    "MultiheadAttention", "SGFormerAttention", "PerformerAttention", "PolynormerAttention", "QFormer",
)  # fmt: skip
NORMALISATIONS = (
    "LayerNorm", "GraphNorm", "InstanceNorm", "GraphSizeNorm", "PairNorm", "MessageNorm", "DiffGroupNorm",
    "MeanSubtractionNorm", "HeteroLayerNorm", "HeteroBatchNorm",
    "InstanceNorm1d", "GroupNorm", "RMSNorm", "SyncBatchNorm", "BatchNorm2d",
)  # fmt: skip
HOMOGENEOUS = "only relu, leaky_relu and no activation can be trained"


def objection(layer: torch.nn.Module) -> str | None:
    """Why a layer cannot be trained; None where it can."""
    why = _objection_to_kind(layer)
    if why is None and (layer._forward_hooks or layer._forward_pre_hooks):
        return "has forward hooks, which may change what it computes; remove them for training"
    return why


def _objection_to_kind(layer: torch.nn.Module) -> str | None:
    from torch_geometric.nn import MessagePassing

    kind, name = kind_of(layer), type(layer).__name__
    if isinstance(layer, MessagePassing):
        return _objection_to_conv(layer, kind)
    if kind == "JumpingKnowledge":
        return (
            None if layer.mode == "cat" else f"mode {layer.mode!r} is not linear; mode 'cat' can be trained"
        )
    if kind in ("BatchNorm", "BatchNorm1d"):
        norm = norm_of("", layer)
        if not norm.affine and not norm.tracks:
            return "keeps neither gains nor statistics, so trained ones have no place; use affine=True"
        return None
    if kind == "Linear":
        if not isinstance(layer.weight, torch.nn.Parameter):
            return "its weight is computed from other parameters, not a parameter itself"
        return None
    if kind in (*PASSING, "ReLU", "LeakyReLU", "Hops"):
        return None
    if kind in ENDINGS:
        return "can stand only at the very end, with dim 1"
    if name in ATTENTION:
        return "attention coefficients depend on the features, and gfgnn propagates by fixed matrices"
    if name in NORMALISATIONS:
        return "normalises by values of single nodes or graphs; BatchNorm, over all nodes, can be trained"
    if name == "PReLU":
        return f"its slope is learnt; {HOMOGENEOUS}"
    if type(layer).__module__ == "torch.nn.modules.activation":
        return f"scaling its input does not scale its output; {HOMOGENEOUS}"
    return "is not a layer gfgnn can train"


def _objection_to_conv(conv: Any, kind: str | None) -> str | None:
    name = type(conv).__name__
    if name in ATTENTION:
        return "attention coefficients depend on the features, and gfgnn propagates by fixed matrices"
    if kind is None:
        return f"is a convolution of its own ({type(conv).__module__}), whose messages gfgnn does not know"
    if kind not in (*CONVOLUTIONS, "GINConv"):
        return f"is not among the convolutions that can be trained: {', '.join((*CONVOLUTIONS, 'GINConv'))}"
    if conv.flow != "source_to_target":
        return f"flow is {conv.flow!r}; it must be 'source_to_target'"
    if conv.node_dim not in (0, -2):
        return f"node_dim is {conv.node_dim}; it must be -2, the rows"
    may_average = kind in ("SAGEConv", "GraphConv", "RGCNConv", "FastRGCNConv")
    if not (conv.aggr in SUMS or (may_average and conv.aggr in MEANS)):
        allowed = "the sum or the mean" if may_average else "the sum"
        return f"aggregates by {conv.aggr!r}; gfgnn propagates by fixed matrices, {allowed}"
    hooks = [
        f"_{step}_forward{pre}_hooks"
        for step in ("propagate", "message", "aggregate")
        for pre in ("_pre", "")
    ]
    if any(getattr(conv, hook, None) for hook in hooks):
        return "has hooks on its messages"
    return _objection_to_settings(conv, kind)


def _objection_to_settings(conv: Any, kind: str) -> str | None:
    if kind == "SAGEConv" and conv.normalize:
        return "normalize=True divides every node by its own length; normalize=False can be trained"
    if kind in ("RGCNConv", "FastRGCNConv") and (conv.num_bases is not None or conv.num_blocks is not None):
        return "weights of relations are made from others; it can be trained without num_bases and num_blocks"
    if kind == "GCN2Conv" and conv.beta == 0.0:
        return "its weights do not count, because theta is 0; give a positive theta"
    inner = {
        "GCNConv": ("lin",),
        "SGConv": ("lin",),
        "SAGEConv": ("lin_l", "lin_r"),
        "GraphConv": ("lin_rel", "lin_root"),
    }
    for name in inner.get(kind, ()):
        layer = getattr(conv, name, None)
        if layer is not None and (
            kind_of(layer) != "Linear" or not isinstance(layer.weight, torch.nn.Parameter)
        ):
            return f"its {name} is {type(layer).__name__}, not a plain Linear"
    return None


def is_weighted(layer: torch.nn.Module) -> bool:
    """Whether a layer without objection has weights that would be trained."""
    return kind_of(layer) in (*CONVOLUTIONS, "Linear")


def norm_of(path: str, layer: Any) -> Norm:
    """What is to be known of a BatchNorm of torch or PyG."""
    inner, name = (layer.module, named(path, "module")) if kind_of(layer) == "BatchNorm" else (layer, path)
    return Norm(path, name, inner.eps, inner.weight is not None, inner.running_mean is not None)
