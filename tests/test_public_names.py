"""The names of ``import gfgnn``: all there, loaded when used, and functions whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gfgnn


def test_every_public_name_is_there() -> None:
    for name in gfgnn.__all__:
        assert getattr(gfgnn, name) is not None, name
    assert set(gfgnn.__all__) <= set(dir(gfgnn))
    assert sorted(gfgnn.__all__) == gfgnn.__all__
    assert set(gfgnn._HOME) == set(gfgnn.__all__) - {"__version__"}


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gfgnn.nothing  # type: ignore[attr-defined]


ORDERS = [
    "import gfgnn",
    "import gfgnn.train, gfgnn.predict, gfgnn.tune",
    "from gfgnn.train import make_solver; from gfgnn.predict import Predictions; from gfgnn.tune import tune",
    "from gfgnn import train, predict, tune; import gfgnn.train, gfgnn.predict, gfgnn.tune, gfgnn",
    "import gfgnn; gfgnn.train; import gfgnn.train, gfgnn.predict; from gfgnn.tune import tune",
]
CHECK = """
import sys, types
for order in {orders!r}:
    for name in [m for m in sys.modules if m.split('.')[0] == 'gfgnn']:
        del sys.modules[name]
    exec(order)
    import gfgnn
    for name in ('train', 'predict', 'tune'):
        assert isinstance(getattr(gfgnn, name), types.FunctionType), (order, name)
        assert isinstance(sys.modules['gfgnn.' + name], types.ModuleType), (order, name)
        assert getattr(gfgnn, name) is getattr(sys.modules['gfgnn.' + name], name), (order, name)
"""


def test_functions_stay_functions_in_every_order_of_imports() -> None:
    subprocess.run([sys.executable, "-c", CHECK.format(orders=ORDERS)], check=True)


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys, gfgnn, gfgnn.cli; gfgnn.InputError, gfgnn.TrainConfig; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
