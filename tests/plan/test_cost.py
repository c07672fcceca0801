"""Counted work against counts by hand, and against the products the solver really makes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
import torch
from random_graphs import random_graph
from torch.utils._python_dispatch import TorchDispatchMode

import gfgnn
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, TargetConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.model.build import FAMILY_BLOCKS, Model, build_model, make_model, propagation_settings
from gfgnn.plan import cost
from gfgnn.plan.cost import BlockCost, Rates, Sizes, block_costs, seconds
from gfgnn.plan.plan import sizes_of
from gfgnn.profiling.labels import Cost, recording
from gfgnn.solver.input_system import CG_ITERATIONS, GRAM_LIMIT
from gfgnn.solver.refresh import SPREAD_ROWS

SIZES = Sizes(num_nodes=10, nnz=30, num_train=6, head_nnz=18)
STEPS = ("sweep", "polar")
EIGH, SCORE, SCATTER = cost.EIGH, cost.SCORE_PASSES, cost.SCATTER_PASSES
BITS = 2 / 32  #: passes over the gate of an array of float32, a bit for each of its entries, there and back


def model(family: str, *, layers: int = 3, features: int = 5, hidden: int = 4) -> Model:
    return make_model(ModelConfig(family=family, layers=layers, hidden=hidden), features, 3, "multiclass")


def total(costs: tuple[BlockCost, ...]) -> BlockCost:
    return reduce(lambda a, b: a + b, costs)


def check(
    found: BlockCost,
    sparse: int,
    moved: int,
    dense: int,
    gram: int,
    weighed: int,
    solve: float,
    entries: float,
) -> None:
    assert found.sparse_flops == sparse
    assert found.sparse_bytes + found.cached_bytes == moved
    assert found.dense_flops == dense
    assert found.gram_flops == gram
    assert found.gram_bytes == 4 * weighed
    assert found.solve_flops == pytest.approx(solve)
    assert found.elementwise_bytes == 4 * entries


def test_gcn_by_hand() -> None:
    """N = 10, 30 non-zeros, 6 labelled rows with 18 of them; blocks 5 -> 4 -> 4 -> 3, sweep step."""
    encoder, hidden, head = block_costs(model("gcn"), SIZES, "sweep")
    weights = cost.WEIGHT_PASSES["sweep"]
    # T W and T'r; two triangular solves 5 x 5; bias 2, relu 2, gate 3 and its bits twice, column sum 1; centring 6
    check(encoder, 0, 0, 400 + 400, 0, 0, 200, (8 + BITS) * 40 + 6 * 20 + weights * 20)
    # S h and S'q, each 30 (4 + 4) + (30 + 10) 16 bytes; T W, r down; gram and cross, T c 2, means 1 and 1
    # bias 2, relu 2, gate 3 and its bits, and 1 of the gauge
    factor, inverse = 64 / 3, 4 * 64 + 64 / 3
    entries = (8 + BITS) * 40 + weights * 16
    check(hidden, 480, 2 * 880, 2 * 320, 640, 160, factor + 128 + inverse, entries)
    # S h on 6 rows, S'r of width 3; scores, what the update takes, message; t c 2, mean 1, sum 1
    # two solves (the update, and the part it takes itself), the inverse over 3 x 3; squares of t, 3
    entries = (SCORE + 4 + 7) * 18 + 3 * 24 + weights * 12
    solve = 2 * (64 / 3 + 96) + 4 * 9 * 4 + 9
    check(head, 144 + 108, 528 + 480, 144 + 144 + 240, 336, 3 * 24 + 18, solve, entries)


def test_gcnii_by_hand() -> None:
    """The same graph with 12 non-zeros in 5 sparse features; 5 -> 4 -> 4 -> 4 -> 3, polar step."""
    sizes = replace(SIZES, feature_nnz=12)
    encoder, *hidden, head = block_costs(model("gcnii", layers=2), sizes, "polar")
    weights = cost.WEIGHT_PASSES["polar"]
    # X W and X'r; two solves, whitening; bias 2, relu 2, rescaling 2, spread 2 + 11, gate 3 and bits, sum 1
    solve = 2 * 200 + (EIGH + 2) * 64 + 4 * 5 * 16
    check(encoder, 192, 448 + 368, 0, 0, 0, solve, (23 + BITS) * 40 + 6 * 20 + weights * 20)
    # T is (1-a) S H + a H_0: 1 pass more, its adjoint 5; relu 2, spread 2 + 9 without bias, gate 3 and bits; T c 2
    solve = 64 / 3 + 2 * 128 + (EIGH + 2) * 64 + 4 * 64 + 4 * 64 + 64 / 3
    for found in hidden:
        check(found, 480, 2 * 880, 3 * 320, 640, 80, solve, (22 + BITS) * 40 + weights * 16)
    # rows picked and put back, a message of zeros; one solve
    entries = 2 * SCATTER * 24 + 40 + (SCORE + 11) * 18 + 3 * 24 + weights * 12
    check(head, 0, 0, 3 * 144, 336, 90, 64 / 3 + 96 + 4 * 9 * 4 + 9, entries)


def test_conjugate_gradients_above_the_limit() -> None:
    """12 products with T_0 and T_0' a solve in place of triangular solves; the polar step solves twice."""
    at, above = model("gcn", features=cost.GRAM_LIMIT), model("gcn", features=cost.GRAM_LIMIT + 1)
    for step, solves in (("sweep", 1), ("polar", 2)):
        below, encoder = block_costs(at, SIZES, step)[0], block_costs(above, SIZES, step)[0]
        assert below.solve_flops - encoder.solve_flops >= solves * 2 * 4096**2 * 4 - 4 * 16
        rows = 0 if step == "sweep" else 1  # the spread's product
        assert encoder.dense_flops == (2 + rows + 24 * solves) * 2 * 10 * 4097 * 4


def test_the_solver_s_own_limits() -> None:
    assert (cost.GRAM_LIMIT, cost.CG_ITERATIONS, cost.SPREAD_ROWS) == (GRAM_LIMIT, CG_ITERATIONS, SPREAD_ROWS)


def test_rows_of_the_spread() -> None:
    """Of 40,000 nodes every second one: 20,000 rows."""
    sizes = Sizes(num_nodes=40_000, nnz=100_000, num_train=6, head_nnz=18)
    sweep, polar = (block_costs(model("gcn"), sizes, step)[1] for step in STEPS)
    assert polar.dense_flops - sweep.dense_flops == 2 * 20_000 * 4 * 4


class Products(TorchDispatchMode):
    """Flops of labelled work by kind, and of the dense products over rows of nodes outside of labels."""

    def __init__(self, rows: set[int]) -> None:
        super().__init__()
        self.rows, self.labels, self.flops = rows, [], Counter[str]()

    def open(self, kind: str, name: str) -> None:
        self.labels.append(kind)

    def close(self, cost: Callable[[], Cost]) -> None:
        self.flops[self.labels[-1]] += cost().flops
        self.labels.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.labels and func.overloadpacket.__name__ in ("matmul", "mm", "addmm"):
            a, b = args[-2:]
            if a.dim() == b.dim() == 2 and self.rows & {*a.shape, *b.shape}:
                self.flops["dense product"] += 2 * a.size(0) * a.size(1) * b.size(1)
        return func(*args, **(kwargs or {}))


def example(sparse: bool) -> Graph:
    """50 nodes, the first 31 of them labelled for training, so many that no row is left out of a Gram matrix."""
    graph = random_graph(nodes=50, features=6, labelled=31)
    assert graph.x is not None
    return replace(graph, x=torch.where(graph.x > 1, graph.x, 0.0).to_sparse_csr()) if sparse else graph


@pytest.mark.parametrize("sparse", [False, True], ids=["table", "sparse"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_products_are_those_of_the_solver(family: str, step: str, sparse: bool) -> None:
    """A run of three iterations makes one iteration's products more than a run of two."""
    graph, config = example(sparse), ModelConfig(family=family, layers=4, hidden=4)
    counts = []
    for iters in (2, 3):
        with Products({50, 31}) as counter, recording(counter):
            gfgnn.train(config, graph, TrainConfig(iters=iters, eval_every=9, target=TargetConfig(step=step)))
        counts.append(counter.flops)
    matrix = build_propagation(graph, *propagation_settings(config)).matrix
    crow = matrix.crow_indices()
    sizes = Sizes(
        num_nodes=50, nnz=int(crow[-1]), num_train=31, head_nnz=int(crow[31]),
        feature_nnz=graph.x.values().numel() if sparse else None,
    )  # fmt: skip
    predicted = total(block_costs(build_model(config, graph), sizes, step))
    found = {kind: counts[1][kind] - counts[0][kind] for kind in ("sparse product", "dense product", "Gram")}
    assert found["sparse product"] == predicted.sparse_flops
    assert found["dense product"] == predicted.dense_flops
    assert found["Gram"] == predicted.gram_flops


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage"])
def test_passes_are_those_of_the_solver(family: str, step: str) -> None:
    """The profile counts the operands of every operator. Work on vectors, which the prediction leaves out, and passes
    that stand for time (softmax, rows put back) are small here; the bias of a product is counted with the product."""
    graph = load("synthetic:nodes=3000,classes=3,features=48,seed=0")
    config = ModelConfig(family=family, layers=5, hidden=32)
    settings = TrainConfig(iters=2, eval_every=9, profile=True, order="none", target=TargetConfig(step=step))
    [profile] = gfgnn.train(config, graph, settings).profile["ranks"]
    network = build_model(config, graph)
    predicted = total(block_costs(network, sizes_of(network, graph, 4), step)).elementwise_bytes
    biases = sum(2 * 3000 * 32 * 4 for block in network.blocks[1:-1] if block.bias)
    assert profile["kinds"]["elementwise"]["bytes"] == pytest.approx(predicted - biases, rel=0.09)


@pytest.mark.parametrize("feature_nnz", [None, 40])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_every_block_has_a_cost(family: str, step: str, feature_nnz: int | None) -> None:
    network, sizes = model(family), replace(SIZES, feature_nnz=feature_nnz)
    costs = block_costs(network, sizes, step)
    assert len(costs) == len(network.blocks)
    for found in costs:
        assert found.flops > 0
        assert found.bytes > 0
        assert 0 < seconds(found, Rates()) < math.inf
    bare = [seconds(found, Rates(overhead=0)) for found in costs]
    assert sum(bare) == pytest.approx(seconds(total(costs), Rates(overhead=0)))


@pytest.mark.parametrize("larger", ["num_nodes", "nnz", "num_train", "head_nnz", "feature_nnz"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_larger_graphs_cost_more(family: str, step: str, larger: str) -> None:
    small = replace(SIZES, num_nodes=100, nnz=400, feature_nnz=40)
    large = replace(small, **{larger: getattr(small, larger) * 2})
    before, after = (block_costs(model(family), sizes, step) for sizes in (small, large))
    times = [(seconds(a, Rates()), seconds(b, Rates())) for a, b in zip(before, after, strict=True)]
    assert all(a <= b for a, b in times)
    uses_head = family in ("gcn", "sage")  # others do not propagate in the output block
    assert any(a < b for a, b in times) == (larger != "head_nnz" or uses_head)


def test_wide_and_narrow_blocks() -> None:
    """A wide encoder costs more than a hidden block, a head on few rows less; float64 moves more."""
    encoder, hidden, head = block_costs(model("gcn", features=500), SIZES, "sweep")
    assert seconds(encoder, Rates()) > seconds(hidden, Rates())
    wide = Sizes(num_nodes=10_000, nnz=50_000, num_train=6, head_nnz=18)
    encoder, hidden, head = block_costs(model("gcn", hidden=64), wide, "polar")
    assert seconds(head, Rates()) < seconds(hidden, Rates()) / 2
    double = block_costs(model("gcn", hidden=64), replace(wide, itemsize=8), "polar")[1]
    bits = 2 * 10_000 * 64 / 8  # those of a gate stay as they are
    assert double.elementwise_bytes - bits == 2 * (hidden.elementwise_bytes - bits)
    assert double.flops == hidden.flops


def test_products_from_large_arrays_leave_the_cache() -> None:
    small, large = (
        block_costs(model("gcn", hidden=64), Sizes(num_nodes=n, nnz=n, num_train=6, head_nnz=6), "sweep")[1]
        for n in (1000, 100_000)
    )
    assert (small.sparse_bytes, large.cached_bytes) == (0, 0)
    assert seconds(large, Rates()) > seconds(large, Rates(sparse=Rates().cached))


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match="step must be one of sweep, polar; got 'auto'"):
        block_costs(model("gcn"), SIZES, "auto")
    with pytest.raises(InputError, match="itemsize must be one of 4, 8; got 2"):
        replace(SIZES, itemsize=2)
    with pytest.raises(InputError, match="head_nnz must be at most 30; got 31"):
        replace(SIZES, head_nnz=31)
