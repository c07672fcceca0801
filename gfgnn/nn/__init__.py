"""Layers and models of PyTorch Geometric on a sparse matrix that is sorted once, for networks trained by autograd.

    from gfgnn.nn import GCNConv   # instead of torch_geometric.nn

PyTorch Geometric gathers a row per edge and scatters it again; here a layer is one product with a matrix, kept from
one call to the next while the graph is the same. Arguments, parameters, state dictionaries and results (within
rounding) are those of PyTorch Geometric, whose own code does whatever the product cannot: see :mod:`gfgnn.nn.conv`.

- Layers: ``GCNConv``, ``GCN2Conv``, ``SAGEConv``, ``SGConv``, ``GINConv``, and ``Linear`` as it is there.
- Models: ``GCN``, ``GraphSAGE``, ``GIN``; ``GCNII`` and ``SIGN``, which it has as examples only.
- ``Hops``: the features of 0 to K hops that ``SIGN`` learns from.
"""

from torch_geometric.nn import Linear

from gfgnn.nn.conv import GCN2Conv, GCNConv, GINConv, SAGEConv, SGConv
from gfgnn.nn.gcnii import GCNII
from gfgnn.nn.models import GCN, GIN, GraphSAGE
from gfgnn.nn.sign import SIGN, Hops

__all__ = [
    "GCN",
    "GCNII",
    "GIN",
    "SIGN",
    "GCN2Conv",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "Hops",
    "Linear",
    "SAGEConv",
    "SGConv",
]
