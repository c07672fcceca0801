"""ADMM for graph neural networks: embeddings and weights as variables of their own (docs/algorithms.md)."""

from gfgnn.solver.admm.solver import AdmmSolver

__all__ = ["AdmmSolver"]
