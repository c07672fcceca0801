"""Deep graph neural networks trained without backpropagation.

The public names are loaded when first used, so that ``import gfgnn`` and ``gfgnn --help`` do not wait for torch.

``gfgnn.train``, ``gfgnn.predict`` and ``gfgnn.tune`` are functions, though modules of the same names hold them; reach
into the modules with ``from gfgnn.train import ...``.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gfgnn._version import __version__

if TYPE_CHECKING:
    from gfgnn.checkpoint import load_model, save_model
    from gfgnn.checks import InputError
    from gfgnn.config import (
        AdamConfig,
        AdmmConfig,
        CommunityConfig,
        CorrectAndSmoothConfig,
        ModelConfig,
        PdadmmConfig,
        TargetConfig,
        TrainConfig,
    )
    from gfgnn.data import draw_split, load, save_npz
    from gfgnn.fit import fit
    from gfgnn.graph.graph import Graph
    from gfgnn.model.build import Model, build_model
    from gfgnn.model.from_pyg import from_pyg
    from gfgnn.post import correct_and_smooth
    from gfgnn.predict import Predictions, predict
    from gfgnn.result import Result
    from gfgnn.train import train
    from gfgnn.tune import tune

__all__ = [
    "AdamConfig",
    "AdmmConfig",
    "CommunityConfig",
    "CorrectAndSmoothConfig",
    "Graph",
    "InputError",
    "Model",
    "ModelConfig",
    "PdadmmConfig",
    "Predictions",
    "Result",
    "TargetConfig",
    "TrainConfig",
    "__version__",
    "build_model",
    "correct_and_smooth",
    "draw_split",
    "fit",
    "from_pyg",
    "load",
    "load_model",
    "predict",
    "save_model",
    "save_npz",
    "train",
    "tune",
]

#: public name -> the module that defines it
_HOME = {
    "AdamConfig": "gfgnn.config",
    "AdmmConfig": "gfgnn.config",
    "CommunityConfig": "gfgnn.config",
    "CorrectAndSmoothConfig": "gfgnn.config",
    "Graph": "gfgnn.graph.graph",
    "InputError": "gfgnn.checks",
    "Model": "gfgnn.model.build",
    "ModelConfig": "gfgnn.config",
    "PdadmmConfig": "gfgnn.config",
    "Predictions": "gfgnn.predict",
    "Result": "gfgnn.result",
    "TargetConfig": "gfgnn.config",
    "TrainConfig": "gfgnn.config",
    "build_model": "gfgnn.model.build",
    "correct_and_smooth": "gfgnn.post",
    "draw_split": "gfgnn.data",
    "fit": "gfgnn.fit",
    "from_pyg": "gfgnn.model.from_pyg",
    "load": "gfgnn.data",
    "load_model": "gfgnn.checkpoint",
    "predict": "gfgnn.predict",
    "save_model": "gfgnn.checkpoint",
    "save_npz": "gfgnn.data",
    "train": "gfgnn.train",
    "tune": "gfgnn.tune",
}


class _Package(ModuleType):
    """This package, with public names that load themselves.

    The import system binds every submodule it has loaded as an attribute of the package, over a function of the same
    name: after ``import gfgnn.train`` somewhere, ``gfgnn.train(...)`` would call a module. ``__setattr__`` is where
    that binding arrives, so the function of the submodule is kept in its place, whichever is used first. (A module's
    own ``__getattr__`` would not do: it is asked only for names that are not bound. It would also make mypy accept
    any name at all.)
    """

    def __getattr__(self, name: str) -> Any:
        if name == "data":  # gfgnn.data.load is written so often that it works without an import of its own
            return importlib.import_module("gfgnn.data")
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOME.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
