"""The steps of community-based layerwise ADMM: pure functions of tensors.

With Z_l for the activations of layer l, Z_0 = X, and Z_L for the scores, the augmented Lagrangian is

    R(Z_L; y) + nu/2 sum_{l<L} |Z_l - f(S Z_{l-1} W_l)|^2
    + <U, Z_L - S Z_{L-1} W_L> + rho/2 |Z_L - S Z_{L-1} W_L|^2        [+ ridge/2 sum_l |W_l|^2]

(Li, Wang, Wang, Cheng and Zhao 2021, arXiv 2112.09335; the ridge is in the authors' program only). Layers may have a
bias b_l, which counts as one more row of W_l.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from torch import Tensor
from torch.nn.functional import leaky_relu

#: Relative error of a sum of squares. A search ends without a step where even the majoriser falls by less: f has
#: kinks, at which a gradient may say too little.
ROUNDING = 1e-12


def square(x: Tensor) -> float:
    """``|x|_F^2``."""
    return float(x.double().square().sum())


@dataclass(frozen=True, eq=False)
class Link:
    """The terms between a layer's values Z and what it fits, a = S Z_below W + b:
    ``<dual, Z - f(a)> + penalty / 2 |Z - f(a)|^2``.

    Attributes:
        values: Z ``[n, d]``.
        slope_below: the slope of f below 0; 1 for the identity.
        dual: U ``[n, d]``; None for hidden layers, whose terms are penalties only.
        counted: 1 for each row that counts, else 0, ``[n, 1]``; None: all count.
    """

    penalty: float
    values: Tensor
    slope_below: float
    dual: Tensor | None = None
    counted: Tensor | None = None

    def apart(self, a: Tensor) -> Tensor:
        """``Z - f(a)`` in the rows that count, 0 in others."""
        off = self.values - leaky_relu(a, self.slope_below)
        return off if self.counted is None else off.mul_(self.counted)

    def value(self, a: Tensor) -> float:
        """The terms themselves."""
        off = self.apart(a)
        linear = 0.0 if self.dual is None else float((self.dual * off).double().sum())
        return linear + self.penalty / 2 * square(off)

    def slope(self, a: Tensor) -> Tensor:
        """Their gradient in a, ``[n, d]``; f' is the lower slope at 0."""
        pull = self.apart(a).mul_(-self.penalty)
        if self.dual is not None:
            pull -= self.dual if self.counted is None else self.dual * self.counted
        return pull.where(a > 0, pull * self.slope_below)


def backtracked(value: Callable[[float], float], slope: float, start: float, factor: float) -> float | None:
    """tau, by backtracking: ``start`` times ``factor``, as often as it takes until phi at ``x - g / tau`` is not above
    the majoriser there, ``phi(x) - |g|^2 / (2 tau)``. None where no such step is worth while.

    Args:
        value: ``phi(x - t g)`` for a step t.
        slope: ``|g|^2``.
    """
    tau, before = start, value(0.0)
    while isfinite(slope) and (fall := slope / (2 * tau)) > ROUNDING * abs(before):
        if value(1 / tau) <= before - fall:
            return tau
        tau *= factor
    return None
