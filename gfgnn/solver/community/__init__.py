"""Community-based layerwise ADMM of Li, Wang, Wang, Cheng and Zhao (2021, arXiv 2112.09335), for comparison."""

from gfgnn.solver.community.solver import CommunitySolver

__all__ = ["CommunitySolver"]
