"""The penalty rho: within the bound of convergence, or following the residuals."""

from __future__ import annotations

from collections.abc import Sequence

from gfgnn.config import AdmmConfig
from gfgnn.model.blocks import Block

#: Of residual balancing (Boyd et al. 2011, section 3.4.1): how far the residuals may be apart, by what rho changes,
#: how often it is looked at, and until when, since ADMM converges with penalties that change no more.
APART, FACTOR, EVERY, UNTIL = 10.0, 2.0, 5, 200


def starting_rho(config: AdmmConfig, blocks: Sequence[Block]) -> float:
    """rho of the first iteration; with ``penalties="convergent"`` raised to what :func:`bound` asks."""
    return max(config.rho, 1.01 * bound(config, blocks)) if config.penalties == "convergent" else config.rho


def bound(config: AdmmConfig, blocks: Sequence[Block]) -> float:
    """Above it no iteration raises the augmented Lagrangian, the dual's ascent included: ``4 nu`` times the updates
    that z and q get in an iteration, with activations of slope 1 at most (docs/algorithms.md has the proof)."""
    steepest = max(1.0, *(abs(block.slope_below) for block in blocks))
    passes = 2 if config.sweep == "backward-forward" else 1
    return 4.0 * config.nu * passes * steepest**2


def balanced(rho: float, primal: float, dual: float, iteration: int) -> float:
    """rho for the next iteration: doubled where the primal residual is far above the dual one, halved where it is far
    below."""
    if iteration % EVERY or iteration > UNTIL:
        return rho
    if primal > APART * dual:
        return rho * FACTOR
    return rho / FACTOR if dual > APART * primal else rho
