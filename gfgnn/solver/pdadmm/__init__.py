"""pdADMM-G of Wang, Li, Chai, Wang and Zhao (2021, arXiv 2105.09837) for graph-augmented MLPs, for comparison."""

from gfgnn.solver.pdadmm.solver import PdadmmSolver

__all__ = ["PdadmmSolver"]
