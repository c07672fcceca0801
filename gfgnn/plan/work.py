"""An amount of work, counted by kind, and how long it takes at given rates."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gfgnn.checks import check_choice, check_count


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the work of an iteration depends on beside the network.

    Attributes:
        num_nodes: N.
        nnz: non-zeros of the propagation matrix S, self-loops included.
        num_train: k, labelled training rows.
        head_nnz: non-zeros of S in the labelled rows.
        feature_nnz: non-zeros of sparse features; None where features are dense.
        itemsize: bytes of a number, 4 (float32) or 8 (float64).
    """

    num_nodes: int
    nnz: int
    num_train: int
    head_nnz: int
    feature_nnz: int | None = None
    itemsize: int = 4

    def __post_init__(self) -> None:
        check_count("num_nodes", self.num_nodes, 1)
        check_count("nnz", self.nnz, 0)
        check_count("num_train", self.num_train, 1, self.num_nodes)
        check_count("head_nnz", self.head_nnz, 0, self.nnz)
        if self.feature_nnz is not None:
            check_count("feature_nnz", self.feature_nnz, 0)
        check_choice("itemsize", self.itemsize, (4, 8))


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """The work of one block in one iteration. Kinds are kept apart, since each runs at a rate of its own.

    Attributes:
        sparse_flops: of sparse products, 2 for each non-zero and column.
        sparse_bytes: moved by sparse products: matrix, gathered rows, result.
        cached_bytes: the same where the gathered rows come from an array small enough for a cache.
        dense_flops: of dense products over rows of nodes, 2 m k n for ``[m, k] @ [k, n]``.
        gram_flops: of the weighted second moments of such rows.
        gram_bytes: read and written by passes over these rows, to weigh and to average them.
        solve_flops: of matrices without a dimension N: factors, triangular solves, eigendecompositions.
        elementwise_bytes: read and written by passes over dense arrays.
    """

    sparse_flops: float = 0.0
    sparse_bytes: float = 0.0
    cached_bytes: float = 0.0
    dense_flops: float = 0.0
    gram_flops: float = 0.0
    gram_bytes: float = 0.0
    solve_flops: float = 0.0
    elementwise_bytes: float = 0.0

    def __add__(self, other: BlockCost) -> BlockCost:
        return BlockCost(**{kind: amount + getattr(other, kind) for kind, amount in asdict(self).items()})

    def __mul__(self, times: int) -> BlockCost:
        return BlockCost(**{kind: amount * times for kind, amount in asdict(self).items()})

    @property
    def flops(self) -> float:
        """Floating-point operations of all products and solves."""
        return self.sparse_flops + self.dense_flops + self.gram_flops + self.solve_flops

    @property
    def bytes(self) -> float:
        """Bytes moved by sparse products and passes."""
        return self.sparse_bytes + self.cached_bytes + self.gram_bytes + self.elementwise_bytes


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How fast a machine works, by kind.

    The defaults were measured with one thread of a server CPU in float32, on ogbn_arxiv (169,343 nodes) at
    width 128 with compiled kernels, nodes in METIS order and freed memory kept by the process as in training
    (``benchmarks/iteration.py floor``); ``cached`` and ``solve`` on graphs of 2,000 to 20,000 nodes. Only their ratios
    matter to a split.

    Attributes:
        sparse: bytes a second of sparse products.
        cached: the same where the dense factor fits into a cache.
        dense: flops a second of dense products, those of second moments included.
        solve: flops a second of triangular solves and their like.
        elementwise: bytes a second of elementwise passes.
        overhead: seconds that a block takes however small it is: a hundred calls of torch.
    """

    sparse: float = 23e9
    cached: float = 35e9
    dense: float = 76e9
    solve: float = 45e9
    elementwise: float = 11e9
    overhead: float = 8e-4


def seconds(cost: BlockCost, rates: Rates) -> float:
    """Predicted seconds of a block: memory bounds sparse products, arithmetic dense ones and solves."""
    return (
        rates.overhead
        + cost.sparse_bytes / rates.sparse
        + cost.cached_bytes / rates.cached
        + (cost.dense_flops + cost.gram_flops) / rates.dense
        + cost.solve_flops / rates.solve
        + (cost.elementwise_bytes + cost.gram_bytes) / rates.elementwise
    )
