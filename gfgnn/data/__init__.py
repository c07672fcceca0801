"""Data sets: loading, splits, features for graphs that have none."""

from gfgnn.data.find import available
from gfgnn.data.grid_graph import grid_graph
from gfgnn.data.npz import load_npz, save_npz
from gfgnn.data.registry import load
from gfgnn.data.splits import draw_split
from gfgnn.data.structure import structure_features

__all__ = ["available", "draw_split", "grid_graph", "load", "load_npz", "save_npz", "structure_features"]
