"""Where a block's weights are in a module: tensors of the module as parts of ``W`` and ``b``, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gfgnn.checks import InputError

if TYPE_CHECKING:
    from gfgnn.model.from_pyg.values import Ref

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Slot:
    """A matrix of a module as rows of W.

    Attributes:
        name: of the tensor, as in ``module.state_dict()``.
        transposed: whether the module keeps it as ``[out, in]``.
        index: which matrix of a stack ``[R, in, out]``; None where it is the whole tensor.
        beta: of GCN2Conv, whose W is ``(1 - beta) I + beta * tensor``.
    """

    name: str
    transposed: bool = True
    index: int | None = None
    beta: float | None = None

    def read(self, tensors: Tensors) -> Tensor:
        """The rows of W, ``[in, out]`` in float64."""
        matrix = tensors[self.name].detach().double()
        matrix = matrix if self.index is None else matrix[self.index]
        if self.beta is not None:
            identity = torch.eye(matrix.size(0), dtype=matrix.dtype, device=matrix.device)
            matrix = (1.0 - self.beta) * identity + self.beta * matrix
        return matrix.t() if self.transposed else matrix

    def write(self, tensors: Tensors, matrix: Tensor) -> None:
        """The inverse of :meth:`read`, into the tensor that is there."""
        matrix = matrix.t() if self.transposed else matrix
        if self.beta is not None:
            identity = torch.eye(matrix.size(0), dtype=matrix.dtype, device=matrix.device)
            matrix = (matrix - (1.0 - self.beta) * identity) / self.beta
        tensor = tensors[self.name]
        (tensor if self.index is None else tensor[self.index]).copy_(matrix)


@dataclass(frozen=True)
class Piece:
    """``factor * T_piece @ slot``, T_piece being some terms side by side."""

    refs: tuple[Ref, ...]
    slot: Slot
    factor: float = 1.0

    @property
    def rows(self) -> int:
        return sum(ref.width for ref in self.refs)


@dataclass(frozen=True)
class Norm:
    """A BatchNorm of a module.

    Attributes:
        path: of the layer that is called.
        inner: of the ``torch.nn.BatchNorm1d`` in it, whose tensors they are.
    """

    path: str
    inner: str
    eps: float
    affine: bool
    tracks: bool

    @property
    def names(self) -> list[str]:
        """Names of the tensors it reads and writes."""
        own = ["weight", "bias"] if self.affine else []
        return [
            self.name(tensor) for tensor in own + (["running_mean", "running_var"] if self.tracks else [])
        ]

    def name(self, tensor: str) -> str:
        return f"{self.inner}.{tensor}" if self.inner else tensor

    def read(
        self, tensors: Tensors, statistics: Mapping[str, tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """``scale`` and ``shift`` with which it maps z to ``z * scale + shift``, ``[d]`` in float64 each.

        Args:
            statistics: mean and variance of its input by path, for layers that keep none.
        """
        if self.tracks:
            mean = tensors[self.name("running_mean")].detach().double()
            variance = tensors[self.name("running_var")].detach().double()
        else:
            mean, variance = statistics[self.path]
        scale = (variance + self.eps).rsqrt()
        if not self.affine:
            return scale, -mean * scale
        scale = scale * tensors[self.name("weight")].detach().double()
        return scale, tensors[self.name("bias")].detach().double() - mean * scale

    def write(self, tensors: Tensors, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Makes it map z to ``z * scale + shift`` exactly.

        Args:
            mean, variance: of z over all nodes. They become the layer's running statistics where it has gains and
                offsets of its own; where it has none the statistics themselves must say the map.

        Raises:
            InputError: there are no gains, and no statistics give this scale.
        """
        if self.affine:
            if self.tracks:
                tensors[self.name("running_mean")].copy_(mean)
                tensors[self.name("running_var")].copy_(variance)
            tensors[self.name("weight")].copy_(scale * (variance + self.eps).sqrt())
            tensors[self.name("bias")].copy_(shift + mean * scale)
            return
        needed = scale.pow(-2) - self.eps
        if not bool(((scale > 0) & (needed > -1e-3 * self.eps)).all()):
            raise InputError(
                f"{self.path} (BatchNorm without gains) cannot multiply by {scale.max().item():.3g} or more than "
                f"{self.eps**-0.5:.3g}, nor by numbers below 0; make it with affine=True."
            )
        tensors[self.name("running_mean")].copy_(-shift / scale)
        tensors[self.name("running_var")].copy_(needed.clamp(min=0.0))


@dataclass(frozen=True)
class Part:
    """``factor * norm(sum of the pieces + sum of factor * bias)``, ``norm`` being left out where it is None.

    Attributes:
        biases: names and factors.
    """

    pieces: tuple[Piece, ...]
    biases: tuple[tuple[str, float], ...] = ()
    norm: Norm | None = None
    factor: float = 1.0

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(ref for piece in self.pieces for ref in piece.refs)

    @property
    def has_bias(self) -> bool:
        return bool(self.biases) or self.norm is not None

    @property
    def names(self) -> list[str]:
        """Names of the tensors it reads and writes."""
        found = [piece.slot.name for piece in self.pieces] + [name for name, _ in self.biases]
        return found + ([] if self.norm is None else self.norm.names)

    def scaled(self, factor: float) -> Part:
        return replace(self, factor=self.factor * factor)

    def flat(self) -> Part:
        """Itself with the factor moved into pieces and biases; only where there is no norm."""
        assert self.norm is None
        pieces = tuple(replace(piece, factor=piece.factor * self.factor) for piece in self.pieces)
        biases = tuple((name, factor * self.factor) for name, factor in self.biases)
        return Part(pieces, biases)

    def read(
        self, tensors: Tensors, statistics: Mapping[str, tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor | None]:
        """Its rows of W and its share of b, float64."""
        weight = torch.cat([piece.factor * piece.slot.read(tensors) for piece in self.pieces])
        bias = self._own_bias(tensors)
        if self.norm is not None:
            scale, shift = self.norm.read(tensors, statistics)
            weight, bias = weight * scale, shift if bias is None else bias * scale + shift
        return weight * self.factor, None if bias is None else bias * self.factor

    def _own_bias(self, tensors: Tensors) -> Tensor | None:
        own = [factor * tensors[name].detach().double() for name, factor in self.biases]
        return torch.stack(own).sum(0) if own else None

    def write_linear(self, tensors: Tensors, weight: Tensor, bias: Tensor | None) -> None:
        """Writes its rows of W and its share of b; under a norm the biases become zero, the norm has the share."""
        rows = weight / self.factor
        for piece, own in zip(self.pieces, rows.split([piece.rows for piece in self.pieces]), strict=True):
            piece.slot.write(tensors, own / piece.factor)
        for name, _ in self.biases:
            tensors[name].zero_()
        if bias is not None and self.norm is None and self.biases:
            name, factor = self.biases[0]
            tensors[name].copy_(bias / (self.factor * factor))


def tensors_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by every name they have."""
    found: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return found | dict(module.named_buffers(remove_duplicate=False))
