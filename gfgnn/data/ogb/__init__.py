"""The door to OGB node data sets, read from their raw files; nothing is downloaded unasked, and nobody is asked."""

from gfgnn.data.ogb.load import load_ogb
from gfgnn.data.ogb.score import official_score, official_test
from gfgnn.data.ogb.sets import SETS, is_ogb

__all__ = ["SETS", "is_ogb", "load_ogb", "official_score", "official_test"]
