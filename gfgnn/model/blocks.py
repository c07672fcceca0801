"""A graph neural network as a list of blocks: propagate, transform, activate.

Block l maps the activations ``H_{l-1}`` of all nodes to ``H_l`` (and may look at ``H_0``, the output of block 0)::

    T = propagate(H_{l-1}, H_0)        linear, made of sparse products
    Z = T W + 1 b'                     the only part with weights
    H_l = activate(Z) [scaled, plus H_{l-1} where the block has a skip connection]

Most families of :mod:`gfgnn.model.build` are such chains. Networks of other shapes (several relations, branches,
connections across many layers) have blocks that name their sources one by one: :class:`Term`, and
:mod:`gfgnn.model.wiring`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.graph.propagation import Propagator
from gfgnn.ops.arena import empty, product, scaled, side_by_side

PROPAGATIONS = ("none", "graph", "initial", "concat", "power", "hops", "terms", "sum")
LEAKY_SLOPE = 0.01
FEATURES = -1  #: the source that stands for the features X


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of T: ``scale * S^hops H_source + initial_scale * H_initial``, ``[N, width]``.

    Attributes:
        source: the block whose output it takes, or :data:`FEATURES`.
        width: its columns.
        hops: how often it is propagated; 0 takes it as it is.
        operator: which of the model's propagation matrices S is.
        initial: a second source that is added as it is; None where there is none.
    """

    source: int
    width: int
    hops: int = 0
    operator: int = 0
    scale: float = 1.0
    initial: int | None = None
    initial_scale: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer.

    Attributes:
        propagate: how T comes from H and H_0, S being the propagation matrix:
            ``none`` T = H; ``graph`` T = S H; ``initial`` T = (1 - alpha) S H + alpha H_0;
            ``concat`` T = [H, S H]; ``power`` T = S^hops H; ``hops`` T = [H, S H, ..., S^hops H];
            ``terms`` T = the ``terms`` side by side; ``sum`` T = their sum.
        in_channels: columns of H_{l-1}.
        out_channels: columns of H_l.
        activation: relu | leaky_relu | identity.
        bias: whether b exists.
        reference: what the ridge shrinks the weights towards: ``zero``, ``identity``, or ``random`` for a
            semi-orthogonal matrix drawn with the starting weights.
        alpha: share of H_0, for ``initial``.
        hops: K, for ``power`` and ``hops``.
        skip: None, or the factor tau of a residual block H_l = H_{l-1} + tau * activate(Z).
        beta: GCNII's strength of the identity mapping; it fixes how the weight is split into
            W = (1 - beta) I + beta W' for the Adam baseline and for PyG, and changes nothing for ridge solves.
        terms: what T is made of, for ``terms`` and ``sum``. Their sources take the place of H_{l-1}.
        adds: ``((source, factor), ...)``: H_l = branch * activate(Z) + sum of factor * H_source.
        branch: see ``adds``; positive.
        weighted: whether there are weights; without them Z = T.
        norm_eps: None, or the eps of a normalisation of Z without weights: Z * scale + shift, column by column, where
            training takes scale = (variance of Z over the nodes + eps)^-1/2 and shift = -mean * scale.
        slope: of ``leaky_relu``.
    """

    propagate: str
    in_channels: int
    out_channels: int
    activation: str = "relu"
    bias: bool = True
    reference: str = "zero"
    alpha: float = 0.0
    hops: int = 1
    skip: float | None = None
    beta: float | None = None
    terms: tuple[Term, ...] = ()
    adds: tuple[tuple[int, float], ...] = ()
    branch: float = 1.0
    weighted: bool = True
    norm_eps: float | None = None
    slope: float = LEAKY_SLOPE

    @property
    def fan_in(self) -> int:
        """Columns of T, which is rows of W."""
        if self.propagate == "terms":
            return sum(term.width for term in self.terms)
        if self.propagate == "concat":
            return 2 * self.in_channels
        if self.propagate == "hops":
            return (self.hops + 1) * self.in_channels
        return self.in_channels

    @property
    def slope_below(self) -> float:
        """The slope of the activation where Z is negative: 0 of relu, 1 of the identity."""
        return {"relu": 0.0, "leaky_relu": self.slope, "identity": 1.0}[self.activation]

    @property
    def num_parts(self) -> int:
        """How many sources stand side by side in T."""
        if self.propagate == "concat":
            return 2
        return len(self.terms) if self.propagate == "terms" else 1

    @property
    def total_scale(self) -> float:
        """The magnitudes of all factors in T, summed: what Z is of sources that are equal, if every part's weight is
        the identity; 1 for chains, where SAGE's two halves make 2."""
        if self.terms:
            return sum(abs(term.scale) + abs(term.initial_scale) for term in self.terms)
        return 2.0 if self.propagate == "concat" else 1.0

    @property
    def takes_features(self) -> bool:
        """Whether T is made of the features alone, so that it never changes; chains know it by block 0 instead."""
        return bool(self.terms) and all(
            term.source == FEATURES and term.initial in (None, FEATURES) for term in self.terms
        )


def looks_back(blocks: Iterable[Block]) -> bool:
    """Whether any of the blocks looks at H_0."""
    return any(block.propagate == "initial" for block in blocks)


def activate(z: Tensor, activation: str, slope: float = LEAKY_SLOPE) -> Tensor:
    """The activation, elementwise and positively homogeneous (the gauge step relies on that)."""
    if activation == "relu":
        return torch.relu(z)
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(z, slope)
    return z


def propagate(block: Block, propagation: Propagator, h: Tensor, h0: Tensor | None = None) -> Tensor:
    """T of ``block`` from the activations below ``h`` ``[N, in_channels]``; ``h0`` is the output of block 0."""
    if block.propagate == "none":
        return h
    if block.propagate == "graph":
        return propagation.apply(h)
    if block.propagate == "initial":
        assert h0 is not None
        return propagation.apply(h, scale=1.0 - block.alpha, plus=h0, plus_scale=block.alpha)
    if block.propagate == "concat":
        return side_by_side([h, propagation.apply(h)])
    hops = [h]
    for _ in range(block.hops):
        hops.append(propagation.apply(hops[-1]))
    return hops[-1] if block.propagate == "power" else side_by_side(hops)


def propagate_adjoint(block: Block, propagation: Propagator, q: Tensor) -> tuple[Tensor, Tensor | None]:
    """The transpose of :func:`propagate`: what ``q`` ``[N, fan_in]`` means for the activations below and for H_0.

    Returns:
        ``[N, in_channels]`` for H_{l-1}, and the same for H_0 where the block looks at it, else None.
    """
    if block.propagate == "none":
        return q, None
    if block.propagate == "graph":
        return propagation.adjoint(q), None
    if block.propagate == "initial":
        return propagation.adjoint(q, scale=1.0 - block.alpha), scaled(q, block.alpha)
    assert block.propagate == "concat", f"{block.propagate} stands only in the first block"
    own, gathered = q.chunk(2, dim=1)
    return propagation.adjoint(gathered, plus=own), None


def carry(block: Block, propagation: Propagator, mass: Tensor) -> tuple[Tensor, Tensor | None]:
    """Node weights of the activations below (and of H_0) from the node weights ``mass`` ``[N]`` of T.

    ``sum_i mass_i |shift of T_i|^2 <= sum_j below_j |shift of H_{l-1, j}|^2 + sum_j initial_j |shift of H_{0, j}|^2``
    by :meth:`Propagation.carry` and the convexity of the square.
    """
    if block.propagate == "none":
        return mass, None
    if block.propagate == "graph":
        return propagation.carry(mass), None
    if block.propagate == "initial":
        return propagation.carry(mass).mul_(1.0 - block.alpha), block.alpha * mass
    assert block.propagate == "concat", f"{block.propagate} stands only in the first block"
    return propagation.carry(mass).add_(mass), None


def transform(t: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``t @ weight + bias``."""
    if bias is None:
        return product(t, weight)
    return torch.addmm(bias, t, weight, out=empty(t.size(0), weight.size(1), t))


def standardisation(z: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``scale`` and ``shift`` ``[d]`` with which ``z * scale + shift`` has mean 0 and variance ``v / (v + eps)``, v
    being the variance of the columns of ``z`` over the nodes (Ioffe and Szegedy 2015)."""
    wide = z.double()
    variance, mean = torch.var_mean(wide, dim=0, correction=0)
    scale = (variance + eps).rsqrt()
    return scale.to(z.dtype), (-mean * scale).to(z.dtype)


def output_of(block: Block, z: Tensor, below: Tensor | None) -> Tensor:
    """H_l from the pre-activation ``z`` (and the activations below, for a skip connection), ``adds`` left out.

    Overwrites ``z``: an array freed between two that stay leaves a hole too small for the next of its size.
    """
    if block.activation == "relu":
        z.relu_()
    elif block.activation == "leaky_relu":
        torch.nn.functional.leaky_relu_(z, block.slope)
    if block.skip is None:
        return z if block.branch == 1.0 else z.mul_(block.branch)
    assert below is not None
    return torch.add(below, z, alpha=block.skip, out=z)
