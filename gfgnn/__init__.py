"""Deep graph neural networks trained without backpropagation.

``gfgnn.train`` and ``gfgnn.predict`` are functions, though modules of the same names hold them; reach into the modules
with ``from gfgnn.train import ...``.
"""

from gfgnn._version import __version__
from gfgnn.checks import InputError
from gfgnn.config import AdamConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.data import load, save_npz
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.predict import Predictions, predict
from gfgnn.result import Result
from gfgnn.train import train

__all__ = [
    "AdamConfig",
    "Graph",
    "InputError",
    "Model",
    "ModelConfig",
    "Predictions",
    "Result",
    "TargetConfig",
    "TrainConfig",
    "__version__",
    "build_model",
    "load",
    "predict",
    "save_npz",
    "train",
]
