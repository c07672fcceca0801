"""Unmodified modules of PyTorch Geometric as networks of blocks: read, trained, and written back.

:func:`from_pyg` traces a module, :mod:`.reader` reads its operations one by one, :mod:`.builder` makes blocks of them,
and :class:`PygModel` reads and writes the weights where the module has them (:mod:`.slots`).
"""

from gfgnn.model.from_pyg.convert import from_pyg
from gfgnn.model.from_pyg.pyg_model import PygModel

__all__ = ["PygModel", "from_pyg"]
