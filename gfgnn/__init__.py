"""Deep graph neural networks trained without backpropagation."""

from gfgnn._version import __version__
from gfgnn.checks import InputError
from gfgnn.config import AdamConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph

__all__ = [
    "AdamConfig",
    "Graph",
    "InputError",
    "ModelConfig",
    "TargetConfig",
    "TrainConfig",
    "__version__",
    "load",
]
