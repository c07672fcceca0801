"""The work of one iteration of the block solver, counted for each block.

Follows the solver line by line (docs/solver.md, sections 3, 4, 9): N nodes, p = fan_in and d = out_channels
of a block, k labelled rows, C classes. A *pass* is one reading or one writing of an array; work on vectors
(biases, means of columns) is left out. Settings that trade work for memory (``storage``, ``recompute``), Gram
matrices that serve for several iterations and rows that weigh nothing are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from gfgnn.checks import check_choice
from gfgnn.model.blocks import Block
from gfgnn.model.build import Model
from gfgnn.plan.work import BlockCost, Rates, Sizes, seconds

STEPS = ("sweep", "polar")

#: What gfgnn.solver does, which lies above this package; tests compare the numbers.
GRAM_LIMIT, CG_ITERATIONS, SPREAD_ROWS = 4096, 12, 16384

INDEX_BYTES = 4  #: of a column index of a sparse matrix
CACHE_BYTES = 8 << 20  #: of an array from which a sparse product gathers at the speed of a cache (measured)
#: Passes that would take as long as copying rows to or from scattered places (measured).
SCATTER_PASSES = 4
#: Passes that would take as long as loss and residual, dominated by two softmaxes (measured).
SCORE_PASSES = 28
#: An eigendecomposition takes as long as so many d^3 flops of triangular solves (measured, d = 64 to 256).
EIGH = 20
#: Passes over a weight matrix: look-ahead or running means, right-hand sides, update, velocity, gauge.
WEIGHT_PASSES = {"sweep": 24, "polar": 44}
#: Passes over ``[fan_in, d]`` in one iteration of conjugate gradients.
CG_PASSES = 31


def block_costs(model: Model, sizes: Sizes, step: str) -> tuple[BlockCost, ...]:
    """The work of each block of ``model`` in one iteration of step ``sweep`` or ``polar``.

    Hidden blocks propagate and transform forward, then go through gate, moments, solve, inverse and adjoint
    product. The output block works on the labelled rows alone and writes one message ``[N, d]``. The first
    block's inputs never change, so it has two products and a solve with a ready factor, or conjugate
    gradients (taken to need all their iterations). A network of one block is both ends at once.

    Raises:
        InputError: ``step`` is neither of the two.
    """
    check_choice("step", step, STEPS)
    count = _Count(sizes, step)
    first, *rest = model.blocks
    if not rest:
        return (count.single(first),)
    costs = [count.encoder(first), *map(count.hidden, rest[:-1]), count.head(rest[-1])]
    if step == "sweep":  # the gauge takes the norm of the last activations below the output
        costs[-2] += count.passes(1, sizes.num_nodes * rest[-1].in_channels)
    return tuple(costs)


@dataclass(frozen=True)
class _Count:
    """Counts for one graph and one step."""

    sizes: Sizes
    step: str

    @property
    def polar(self) -> bool:
        return self.step == "polar"

    def sparse(self, nnz: int, shape: tuple[int, int], width: int) -> BlockCost:
        """A sparse matrix ``[rows, columns]`` times a dense one of ``width`` columns."""
        (rows, columns), item = shape, self.sizes.itemsize
        moved = nnz * (INDEX_BYTES + item) + (nnz + rows) * width * item
        if columns * width * item <= CACHE_BYTES:
            return BlockCost(sparse_flops=2 * nnz * width, cached_bytes=moved)
        return BlockCost(sparse_flops=2 * nnz * width, sparse_bytes=moved)

    def gather(self, width: int) -> BlockCost:
        """``S h`` or ``S' q``."""
        return self.sparse(self.sizes.nnz, (self.sizes.num_nodes, self.sizes.num_nodes), width)

    def passes(self, number: float, entries: int) -> BlockCost:
        return BlockCost(elementwise_bytes=number * entries * self.sizes.itemsize)

    def gate(self, block: Block) -> BlockCost:
        """Z is read and a bit of each entry written; on the way back the bits and the message are read, the message
        is written."""
        if block.activation == "identity":
            return BlockCost()
        return self.passes(3 + 2 / (8 * self.sizes.itemsize), self.sizes.num_nodes * block.out_channels)

    def gram(self, rows: int, block: Block) -> BlockCost:
        """Weighted second moments: a weighted copy of T, some rows at a time, times T; T times the weighted shifts;
        with a bias the means of both."""
        p, d, bias = block.fan_in, block.out_channels, block.bias
        read = ((2 + bias) * p + bias * d) * rows * self.sizes.itemsize
        return BlockCost(gram_flops=2 * rows * p * (p + d), gram_bytes=read)

    def single(self, block: Block) -> BlockCost:
        """Head and encoder in one: the residual is spread over all nodes and solved on the input system."""
        n, k, d = self.sizes.num_nodes, self.sizes.num_train, block.out_channels
        spread = self.passes(1, n * d) + self.passes(SCATTER_PASSES, k * d)
        return (
            self.inputs_product(block) + self.passes(SCATTER_PASSES + 2 + SCORE_PASSES + 2, k * d)
            + spread + self.cross(block) + self.input_solve(block)
            + self.passes(WEIGHT_PASSES[self.step], block.fan_in * d)
        )  # fmt: skip

    def encoder(self, block: Block) -> BlockCost:
        """Block 0."""
        n, p, d = self.sizes.num_nodes, block.fan_in, block.out_channels
        acts = block.activation != "identity"
        forward = self.inputs_product(block) + self.passes(2 * block.bias + 2 * acts, n * d)
        if self.polar:
            forward += self.unit_spread(block, product=self.sizes.feature_nnz is None)
            if self.sizes.feature_nnz is not None:  # Z is there, and is rescaled instead of computed again
                forward += self.passes(2, n * d)
        update = self.input_solve(block) * (2 if self.polar else 1) + self.whitening(p, d)
        update += self.passes(WEIGHT_PASSES[self.step], p * d)
        return forward + self.gate(block) + self.cross(block) + update

    def hidden(self, block: Block) -> BlockCost:
        n, p, d = self.sizes.num_nodes, block.fan_in, block.out_channels
        acts, skips = block.activation != "identity", block.skip is not None
        forward = self.propagate(block) + _dense(n, p, d)
        forward += self.passes(2 * block.bias + 2 * acts + 3 * skips, n * d)
        if self.polar:
            forward += self.unit_spread(block, product=True)
        gate = self.gate(block) + self.passes(2 * (skips and block.skip != 1.0), n * d)
        solves = 2 if self.polar else 1
        update = BlockCost(solve_flops=p**3 / 3 + solves * 2 * p * p * d) + self.whitening(p, d)
        update += self.passes(WEIGHT_PASSES[self.step], p * d)
        down = _inverse(p, d) + _dense(n, d, p) + self.propagate_adjoint(block)
        return forward + gate + self.gram(n, block) + update + down + self.passes(3 * skips, n * d)

    def head(self, block: Block) -> BlockCost:
        """The output block on its k labelled rows; its solve runs twice in the sweep step."""
        n, k, nnz = self.sizes.num_nodes, self.sizes.num_train, self.sizes.head_nnz
        p, width, c = block.fan_in, block.in_channels, block.out_channels
        scatter = self.passes(SCATTER_PASSES, k * width)
        if block.propagate == "none":
            forward, down = scatter, _dense(k, c, p) + self.passes(1, n * width) + scatter
        else:
            forward = self.sparse(nnz, (k, n), width)
            down = self.sparse(nnz, (n, k), c) + _dense(n, c, width)
        if block.propagate == "concat":
            forward += scatter + self.passes(4, k * width)
            down += _dense(k, c, width) + scatter
        # what is wanted, and what is left of it, weighted and taken from each other
        scores = _dense(k, p, c) * 2 + self.passes(SCORE_PASSES + 4 * block.bias + 7, k * c)
        squares = self.passes(3, k * p)
        solves = 1 if self.polar else 2
        update = BlockCost(solve_flops=solves * (p**3 / 3 + 2 * p * p * c))
        update += self.passes(WEIGHT_PASSES[self.step], p * c)
        return forward + scores + squares + self.gram(k, block) + update + _inverse(p, c) + down

    def unit_spread(self, block: Block, product: bool) -> BlockCost:
        """The spread of Z on every so-many-th row, and the ``product`` that makes these if there is no Z."""
        n, d = self.sizes.num_nodes, block.out_channels
        rows = -(-n // max(1, n // SPREAD_ROWS))
        # to float64 (1 + 2 passes of this precision), squares, their sum and, with a bias, the plain sum
        spread = self.passes(11 if block.bias else 9, rows * d)
        spread += self.passes(2, rows * (block.fan_in if product else d))  # the rows are picked
        return spread + _dense(rows, block.fan_in, d) if product else spread

    def whitening(self, p: int, d: int) -> BlockCost:
        """The polar step's second moment, eigendecomposition and products with the whitener."""
        return BlockCost(solve_flops=(EIGH + 2) * d**3 + 4 * p * d * d if self.polar else 0)

    def propagate(self, block: Block) -> BlockCost:
        """T of a hidden block; what is added to ``S h`` is added in the same pass."""
        entries = self.sizes.num_nodes * block.in_channels
        extra = {"none": 0, "graph": 0, "initial": 1, "concat": 4}[block.propagate]
        products = 0 if block.propagate == "none" else 1
        return self.gather(block.in_channels) * products + self.passes(extra, entries)

    def propagate_adjoint(self, block: Block) -> BlockCost:
        """The message below a hidden block. H_0's share is scaled and added to those of the blocks above; the highest
        one has nothing to be added to, and their sum is added once more, to the message for block 0."""
        entries = self.sizes.num_nodes * block.in_channels
        extra = {"none": 0, "graph": 0, "initial": 5, "concat": 1}[block.propagate]
        products = 0 if block.propagate == "none" else 1
        return self.gather(block.in_channels) * products + self.passes(extra, entries)

    def inputs_product(self, block: Block) -> BlockCost:
        """``T_0 W``: with the dense table, or through the sparse features and S."""
        n, d, nnz = self.sizes.num_nodes, block.out_channels, self.sizes.feature_nnz
        if nnz is None:
            return _dense(n, block.fan_in, d)
        parts, hops = _parts_and_hops(block)
        adds = self.passes(parts - 1, n * d)  # Horner's scheme, each sum in the pass of a product
        return self.sparse(nnz, (n, block.in_channels), d) * parts + self.gather(d) * hops + adds

    def inputs_adjoint(self, block: Block) -> BlockCost:
        """``T_0' r``."""
        n, d, nnz = self.sizes.num_nodes, block.out_channels, self.sizes.feature_nnz
        if nnz is None:
            return _dense(block.fan_in, n, d)
        parts, hops = _parts_and_hops(block)
        joined = self.passes(2 * (parts > 1), block.fan_in * d)
        return self.sparse(nnz, (block.in_channels, n), d) * parts + self.gather(d) * hops + joined

    def cross(self, block: Block) -> BlockCost:
        """``T_0' r`` centred, and the mean shift."""
        n, p, d = self.sizes.num_nodes, block.fan_in, block.out_channels
        return self.inputs_adjoint(block) + self.passes(1, n * d) + self.passes(6, p * d)

    def input_solve(self, block: Block) -> BlockCost:
        """One solve of the input system: two triangular solves, or conjugate gradients."""
        n, p, d = self.sizes.num_nodes, block.fan_in, block.out_channels
        if p <= GRAM_LIMIT:
            return BlockCost(solve_flops=2 * p * p * d)
        product = self.inputs_product(block) + self.passes(2, n * d) + self.inputs_adjoint(block)
        return (product + self.passes(CG_PASSES, p * d)) * CG_ITERATIONS


def _dense(m: int, k: int, n: int) -> BlockCost:
    """``[m, k] @ [k, n]``."""
    return BlockCost(dense_flops=2 * m * k * n)


def _inverse(p: int, d: int) -> BlockCost:
    """The regularised inverse of ``W [p, d]``: a Gram matrix of the smaller size, its factor and a solve."""
    small, large = min(p, d), max(p, d)
    return BlockCost(solve_flops=4 * small * small * large + small**3 / 3)


def _parts_and_hops(block: Block) -> tuple[int, int]:
    """Products with sparse features and with S that one product with T_0 takes."""
    if block.propagate == "hops":
        return block.hops + 1, block.hops
    if block.propagate == "power":
        return 1, block.hops
    return {"none": (1, 0), "graph": (1, 1), "concat": (2, 1)}[block.propagate]


__all__ = ["STEPS", "BlockCost", "Rates", "Sizes", "block_costs", "seconds"]
