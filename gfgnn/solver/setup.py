"""What the block solver computes once per problem: node weights, the head's rows, the response, the input system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfgnn.exchange.sums import sum_over
from gfgnn.graph.propagation import Product, Propagator
from gfgnn.model.blocks import FEATURES, Block, Term
from gfgnn.model.wiring import (
    INITIAL,
    Outputs,
    Shares,
    add_shares,
    add_to,
    gather,
    is_input,
    scatter,
    spread,
)
from gfgnn.ops.arena import chosen, product, recycle, side_by_side, zeros
from gfgnn.problem import Problem
from gfgnn.solver.head import CURVATURE


@dataclass(frozen=True, eq=False)
class HeadRows:
    """The output block's propagation for the k labelled rows alone.

    Attributes:
        block: the output block.
        number: its number.
        index: the labelled rows, ``[k]``.
        propagations: the model's propagation matrices.
        gathers: products with S[index], ``[N, d] -> [k, d]``, for each matrix; none where the block does not propagate.
        scatters: the products with their transposes.
    """

    block: Block
    number: int
    index: Tensor
    propagations: tuple[Propagator, ...]
    gathers: tuple[Product, ...]
    scatters: tuple[Product, ...]

    def apply(self, outputs: Outputs) -> Tensor:
        """T of the labelled rows, ``[k, fan_in]``, from the outputs of other blocks."""
        parts = [self._gathered(term, outputs) for term in self._terms]
        return side_by_side(parts) if len(parts) > 1 else parts[0]

    def _gathered(self, term: Term, outputs: Outputs) -> Tensor:
        h = outputs(term.source)
        for _ in range(term.hops - 1):
            h = self.propagations[term.operator].apply(h)
        rows = self.gathers[term.operator](h) if term.hops else chosen(h, self.index)
        if term.scale != 1.0:
            rows = rows * term.scale
        return rows if term.initial is None else rows + term.initial_scale * outputs(term.initial)[self.index]

    def message(self, r: Tensor, inverse: Tensor) -> Shares:
        """The transpose of :meth:`apply` on ``r @ inverse``, for each source ``[N, width]``; narrow products first.

        Args:
            r: weighted shifts of the scores, ``[k, C]``.
            inverse: ``[C, fan_in]`` from :func:`gfgnn.solver.updates.pass_down`.
        """
        found: dict[int, Tensor] = {}
        spread_out: dict[int, Tensor] = {}  # S' r of each matrix, wanted by several terms
        # terms as they are come last: adding single rows to a whole array is cheaper than the reverse
        for term, part in sorted(
            zip(self._terms, inverse.split([t.width for t in self._terms], dim=1), strict=True),
            key=lambda pair: pair[0].hops == 0,
        ):
            if term.initial is not None and term.initial != FEATURES:
                self._add_rows(found, term.initial, (r @ part) * term.initial_scale)
            if term.source == FEATURES:
                continue
            part = part * term.scale if term.scale != 1.0 else part
            if term.hops == 0:
                self._add_rows(found, term.source, r @ part)
                continue
            if term.operator not in spread_out:
                spread_out[term.operator] = self.scatters[term.operator](r)
            moved = spread_out[term.operator]
            for _ in range(term.hops - 1):
                moved = self.propagations[term.operator].adjoint(moved)
            moved = product(moved, part)
            found[term.source] = found[term.source].add_(moved) if term.source in found else moved
        for moved in spread_out.values():
            recycle(moved)
        return list(found.items())

    def _add_rows(self, found: dict[int, Tensor], source: int, rows: Tensor) -> None:
        if source not in found:
            found[source] = zeros(self.propagations[0].num_nodes, rows.size(1), rows)
        found[source].index_add_(0, self.index, rows)

    @property
    def _terms(self) -> tuple[Term, ...]:
        """What T is made of; of a chain's kinds those that an output block may have."""
        if self.block.terms:
            return self.block.terms
        below, width = self.number - 1, self.block.in_channels
        own, gathered = Term(source=below, width=width), Term(source=below, width=width, hops=1)
        kinds = {"none": (own,), "graph": (gathered,), "concat": (own, gathered)}
        return kinds[self.block.propagate]


def make_head_rows(problem: Problem) -> HeadRows:
    """Cuts the labelled rows out of every S that the output block multiplies by."""
    number = len(problem.model.blocks) - 1
    block, index, propagations = problem.model.blocks[-1], problem.train_index, problem.propagations
    used = block.propagate in ("graph", "concat") or any(term.hops for term in block.terms)
    pairs = [s.rows(index) for s in propagations] if used else []
    gathers, scatters = tuple(g for g, _ in pairs), tuple(s for _, s in pairs)
    return HeadRows(block, number, index, propagations, gathers, scatters)


def node_weights(problem: Problem, kind: str) -> list[Tensor]:
    """The weight of every node in every block, ``[blocks][N]``; entry l weighs rows of Z_l. Called by every part.

    ``mass``: the labels' weight ``curvature / k`` carried back through the blocks by
    :func:`gfgnn.model.blocks.carry`. ``uniform``: the same total spread evenly over the nodes below the output.
    """
    blocks, facts = problem.model.blocks, problem.facts
    double = [s.to(torch.float64, problem.device) for s in problem.propagations_for("setup")]
    curvature = CURVATURE[problem.model.task]
    top = torch.zeros(double[0].num_nodes, dtype=torch.float64, device=problem.device)
    top[problem.train_index] = curvature / facts.num_train
    if kind == "uniform":
        return [torch.full_like(top, curvature / facts.num_nodes)] * (len(blocks) - 1) + [top]
    weights = [torch.zeros_like(top) for _ in blocks[:-1]] + [top]
    initial = torch.zeros_like(top)
    for index in range(len(blocks) - 1, -1, -1):
        block, mass = blocks[index], weights[index]
        if is_input(blocks, index):
            continue
        shares = spread(block, index, double, mass)
        if block.propagate == "concat":
            (total,) = sum_over(problem.grid.parts, shares[0][1].sum(), purpose="setup")
            shares = [(source, share * (curvature / total)) for source, share in shares]
        elif len(block.terms) > 1 or block.adds:
            shares = _as_much_as(mass, block, shares)
        for source, share in shares:
            if source == INITIAL:
                initial += share
                continue
            if block.skip is not None:  # H_l = H_{l-1} + tau A: the mass is shared between both paths
                share = (mass + block.skip * share) / (1.0 + block.skip)
            weights[source] = weights[source] + share
    weights[0] = weights[0] + initial
    return weights


def _as_much_as(mass: Tensor, block: Block, shares: Shares) -> Shares:
    """The shares of several terms, brought to the total of ``mass``, and those of what the block adds."""
    total = block.branch + sum(abs(factor) for _, factor in block.adds)
    carried = sum((float(share.sum()) for _, share in shares), 0.0)
    factor = float(mass.sum()) * block.branch / total / carried if carried > 0 else 0.0
    added = [(source, mass * (abs(part) / total)) for source, part in block.adds if source != FEATURES]
    return [(source, share * factor) for source, share in shares] + added


def mass_fractions(blocks: Sequence[Block]) -> list[float]:
    """The share of the labels' weight that comes down to each block, as :func:`node_weights` distributes it; all of it
    comes down to the first block of a chain."""
    found = [0.0] * (len(blocks) - 1) + [1.0]
    for index in range(len(blocks) - 1, 0, -1):
        block = blocks[index]
        if is_input(blocks, index):
            continue
        parts = [(index - 1, 1.0)] if not block.terms else []
        for term in block.terms:
            parts.append((term.source, abs(term.scale)))
            parts += [] if term.initial is None else [(term.initial, abs(term.initial_scale))]
        parts = [(source, part) for source, part in parts if source != FEATURES]
        all_parts = sum(part for _, part in parts)
        total = block.branch + sum(abs(factor) for _, factor in block.adds)
        for source, part in parts:
            found[source] += found[index] * block.branch / total * part / all_parts
        for source, factor in block.adds:
            if source != FEATURES:
                found[source] += found[index] * abs(factor) / total
    return found


def response(problem: Problem) -> float:
    """How much of a label signal survives the trip down to the input blocks and up again, with open gates and identity
    weights.

    ``<answer, E> / <E, E>`` on the labelled rows for E the centred targets, 0 where unknown; 1 where nothing is lost.
    The sweep step divides the encoder's shift by it. Called by every part of the first stage.
    """
    parts = problem.grid.parts
    known = ~torch.isnan(problem.targets)
    total, count = sum_over(
        parts, problem.targets.nansum(0), known.sum(0).to(problem.targets), purpose="setup"
    )
    e = torch.where(known, problem.targets - total / count.clamp(min=1), 0.0)
    blocks, propagations = problem.model.blocks, problem.propagations_for("setup")
    if len(blocks) == 1:
        return 1.0
    head = make_head_rows(replace(problem, propagations=propagations))
    identity = torch.eye(e.size(1), dtype=e.dtype, device=e.device)
    messages: dict[int, Tensor] = {}

    def receive(shares: Shares) -> None:
        for source, share in shares:
            source = max(source, 0) if source == INITIAL else source
            messages[source] = messages[source] + share if source in messages else share

    narrow = _narrowed(head.block, e.size(1))
    receive(replace(head, block=narrow).message(e, _widened(head.block, identity)))
    for index in range(len(blocks) - 2, -1, -1):
        if is_input(blocks, index) or index not in messages:
            continue
        block, message = _narrowed(blocks[index], e.size(1)), messages.pop(index)
        own, others = add_shares(block)
        receive([(source, factor * message) for source, factor in others if source != FEATURES])
        if block.skip is not None:
            receive([(index - 1, message)])
        own = own if block.skip is None else block.skip
        receive(scatter(block, index, propagations, _widened(block, own * message)))
    # a message is a shift times node weights: a branch that got a share of both moves by the whole of it
    fractions = mass_fractions(blocks)
    values = {index: message / fractions[index] for index, message in messages.items()}
    nothing = torch.zeros(propagations[0].num_nodes, e.size(1), dtype=e.dtype, device=e.device)
    for index in range(len(blocks) - 1):
        if is_input(blocks, index):
            values.setdefault(index, nothing)
            continue
        block = _narrowed(blocks[index], e.size(1))
        outputs = _values(values, nothing)
        t = _averaged(block, gather(block, index, propagations, outputs))
        if block.skip is not None:
            t = values[index - 1] + block.skip * t
        values[index] = add_to(block, block.branch * t if block.branch != 1.0 or block.adds else t, outputs)
    answer = _averaged(narrow, replace(head, block=narrow).apply(_values(values, nothing)))
    answered, energy = sum_over(parts, (answer * e).sum(), (e * e).sum(), purpose="setup")
    return float((answered / energy.clamp(min=1e-30)).clamp(min=1e-6))


def _values(values: dict[int, Tensor], nothing: Tensor) -> Outputs:
    return lambda source: values.get(source, nothing)


def _narrowed(block: Block, columns: int) -> Block:
    """The block with every source ``columns`` wide."""
    terms = tuple(replace(term, width=columns) for term in block.terms)
    return replace(block, terms=terms, in_channels=columns)


def _widened(block: Block, q: Tensor) -> Tensor:
    """What identity weights, shared among the parts of T, pass down of ``q``."""
    parts = block.num_parts
    return q if parts == 1 else side_by_side([q] * parts).div_(block.total_scale)


def _averaged(block: Block, t: Tensor) -> Tensor:
    """Z of identity weights, shared among the parts of T."""
    parts = block.num_parts
    return t if parts == 1 else torch.stack(t.chunk(parts, dim=1)).sum(0) / block.total_scale


def reference_weights(problem: Problem) -> dict[str, Tensor]:
    """What the ridge shrinks each weight of this stage's blocks towards: the identity for square hidden blocks (half
    of it on each half of a concatenation), zero elsewhere."""
    references = {}
    for index in problem.span:
        block = problem.model.blocks[index]
        if not block.weighted:
            continue
        reference = torch.zeros(block.fan_in, block.out_channels, dtype=problem.dtype, device=problem.device)
        if block.reference == "identity" and block.fan_in % block.out_channels == 0 and index > 0:
            for part in reference.split(block.out_channels):
                part.fill_diagonal_(1.0 / block.total_scale)
        references[f"block{index}.weight"] = reference
    return references


def semi_orthogonal(weight: Tensor) -> Tensor:
    """The matrix with orthonormal columns (or rows, where those are fewer) nearest to a random ``weight``: the
    reference of hidden blocks that are wider or narrower than what they take, for which there is no identity."""
    u, _, vt = torch.linalg.svd(weight.double(), full_matrices=False)
    return (u @ vt).to(weight)
