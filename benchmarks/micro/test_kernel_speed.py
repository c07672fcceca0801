"""The kernels of an iteration one by one, for pytest-benchmark: ``pytest benchmarks/micro -n 0``.

For the effect of a change on one machine. Sizes are those of a hidden layer of 128 columns on 20,000 nodes; freed
memory is kept, as in training. ``OMP_NUM_THREADS`` says how many threads work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import gfgnn
from gfgnn.model.build import build_model
from gfgnn.ops import gate
from gfgnn.ops.gate import Gate
from gfgnn.ops.memory import keep_freed_memory
from gfgnn.ops.ridge import factor, moment_sums, solve
from gfgnn.ordering import order_of
from gfgnn.problem import prepare
from gfgnn.solver.updates import polar_direction
from gfgnn.train import make_solver

pytest.importorskip("pytest_benchmark", reason="pip install -e '.[bench]'")

NODES, WIDTH = 20_000, 128


@pytest.fixture(autouse=True)
def _as_in_training() -> Iterator[None]:
    keep_freed_memory()
    with torch.inference_mode():
        yield


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("gram", [True, False], ids=["gram", "cross-only"])
def test_moments(benchmark: Any, gram: bool) -> None:
    t, r, c = numbers(NODES, WIDTH), numbers(NODES, WIDTH, seed=1), torch.rand(NODES)
    benchmark(moment_sums, t, c, r, centred=True, gram=gram)


@pytest.mark.parametrize("kind", ["bits", "bytes"])
@pytest.mark.parametrize("work", ["pack", "through"])
def test_gate(benchmark: Any, monkeypatch: pytest.MonkeyPatch, work: str, kind: str) -> None:
    if kind == "bits" and not gate._kernels():
        pytest.skip("no compiled kernel")
    if kind == "bytes":
        monkeypatch.setattr(gate, "_kernels", dict)
    z = numbers(NODES, WIDTH)
    if work == "pack":
        benchmark(Gate.of, z)
    else:
        benchmark(Gate.of(z).through, numbers(NODES, WIDTH, seed=1), 0.0, in_place=True)


@pytest.mark.parametrize("work", ["factor", "solve"])
@pytest.mark.parametrize("features", [128, 500, 1433])
def test_encoder(benchmark: Any, features: int, work: str) -> None:
    """The system of the first block: its factor, once in a run, and a solve with it, in each iteration."""
    t = numbers(2 * features, features)
    gram, rhs, damping = t.t() @ t, numbers(features, WIDTH, seed=1), torch.tensor(1.0)
    lower = factor(gram, damping)
    if work == "factor":
        benchmark(factor, gram, damping)
    else:
        benchmark(torch.cholesky_solve, rhs, lower)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_hidden_solve(benchmark: Any, width: int) -> None:
    """Factor and solve of a hidden layer, in float64."""
    t = numbers(2 * width, width, dtype=torch.float64)
    rhs = numbers(width, width, seed=1, dtype=torch.float64)
    benchmark(solve, t.t() @ t, torch.tensor(1.0, dtype=torch.float64), rhs)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_polar_direction(benchmark: Any, width: int) -> None:
    """Two products, an eigendecomposition and the whitening, in float64."""
    t = numbers(2 * width, width, dtype=torch.float64)
    gradient = numbers(width, width, seed=1, dtype=torch.float64)
    natural = solve(t.t() @ t, torch.tensor(1.0, dtype=torch.float64), gradient)
    vector = numbers(width, seed=2, dtype=torch.float64)
    benchmark(polar_direction, natural, gradient, vector, vector, 0.1)


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_iteration(benchmark: Any, family: str, step: str) -> None:
    """A whole iteration of 4 layers on a generated graph."""
    graph = gfgnn.load(f"synthetic:nodes={NODES},classes=8,features=64,degree=10,seed=0")
    config = gfgnn.TrainConfig(iters=1000, target=gfgnn.TargetConfig(step=step))
    model = build_model(gfgnn.ModelConfig(family=family, layers=4, hidden=WIDTH), graph)
    problem, solver = prepare(model, graph, order=order_of(graph, config)), make_solver(config, model)
    state = solver.init(problem, torch.Generator().manual_seed(0))
    benchmark(solver.step, problem, state)
