"""The plan that a configuration leads to: what is cut how, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from networks import branched

from gfgnn.checks import InputError, check_bytes
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.data.partition_file import save_partition
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import partition_nodes
from gfgnn.model.build import Model, build_model
from gfgnn.planning import check_grid, fit_memory, make_plan


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic:nodes=200,classes=4,features=40,degree=10")


@pytest.fixture(scope="module")
def model(graph: Graph) -> Model:
    return build_model(ModelConfig(family="gcnii", layers=6, hidden=16), graph)


def test_parts_are_cut_by_work_and_stages_by_the_slowest(graph: Graph, model: Model) -> None:
    plan = make_plan(model, graph, TrainConfig(parts=3, stages=2))
    assert plan.partition is not None
    assert plan.partition.balance == ("work",)
    assert plan.assignment(200).unique().tolist() == [0, 1, 2]
    assert plan.stages.chosen
    assert "3 parts" in plan.describe()
    assert "8 blocks in 2 stages" in plan.describe()


def test_one_part_needs_no_partition_and_one_stage_no_words(graph: Graph, model: Model) -> None:
    stages = make_plan(model, graph, TrainConfig(stages=2))
    assert stages.partition is None
    assert not stages.assignment(200).any()
    assert stages.describe().startswith("8 blocks in 2 stages")
    parts = make_plan(model, graph, TrainConfig(parts=2))
    assert parts.stages.bounds == (0, 8)
    assert "stage" not in parts.describe()


def test_given_bounds_and_a_given_partition_are_used(graph: Graph, model: Model, tmp_path: Path) -> None:
    file = tmp_path / "parts.npz"
    own = partition_nodes(graph, 2, method="ldg", seed=9)
    save_partition(file, own)
    config = TrainConfig(parts=2, stages=3, stage_bounds="1,7", partition=str(file))
    plan = make_plan(model, graph, config)
    assert plan.stages.bounds == (0, 1, 7, 8)
    assert torch.equal(plan.assignment(200), own.assignment)
    with pytest.raises(InputError, match="graph"):
        make_plan(model, load("synthetic:nodes=200,classes=4,features=40,degree=10,seed=1"), config)


def test_the_same_seed_gives_the_same_plan(graph: Graph, model: Model) -> None:
    """Any seed of a generator is one, even where a partitioner takes smaller ones only."""
    for seed in (3, 2**64 - 1):
        one, other = (make_plan(model, graph, TrainConfig(parts=4, seed=seed)) for _ in range(2))
        assert torch.equal(one.assignment(200), other.assignment(200))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(parts=201), "parts must be at most 200"),
        (TrainConfig(stages=9), "use 1 to 8 stages"),
        (TrainConfig(stages=2, stage_bounds="8"), "within 1 and 7"),
        (TrainConfig(stages=2, stage_bounds=""), "need 1 stage bounds"),
    ],
)
def test_grids_that_do_not_fit(graph: Graph, model: Model, config: TrainConfig, message: str) -> None:
    for check in (check_grid, make_plan):
        with pytest.raises(InputError, match=message):
            check(model, graph, config)
    check_grid(model, graph, TrainConfig(parts=200, stages=8))


def test_no_limit_no_choice(graph: Graph, model: Model) -> None:
    assert fit_memory(model, graph, TrainConfig()) is None


def test_a_limit_changes_what_it_must(graph: Graph) -> None:
    model = build_model(ModelConfig(family="gcn", layers=8, hidden=4096), graph)
    roomy = fit_memory(model, graph, TrainConfig(memory_limit="100GB"))
    assert roomy is not None
    assert roomy.config == TrainConfig(memory_limit="100GB")
    limit = roomy.peak - 8_000_000  # freed memory that is kept counts as 18 MB, and is measured within a few
    tight = fit_memory(model, graph, TrainConfig(memory_limit=f"{limit}B"))
    assert tight is not None
    assert tight.config.lean
    assert tight.limit == limit >= tight.peak
    assert tight.words in tight.describe()
    with pytest.raises(InputError, match="memory_limit is 1 MB, and this run needs"):
        fit_memory(model, graph, TrainConfig(memory_limit="1MB"))


def test_an_order_that_was_asked_for_counts(
    model: Model, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not dropped as one of auto is, so a limit without room for it is refused."""
    monkeypatch.setattr("gfgnn.planning._REORDERING", 10**9)  # far above the rest of this small graph
    auto = fit_memory(model, graph, TrainConfig(memory_limit="100GB"))
    assert auto is not None
    assert auto.config.order == "none"
    with pytest.raises(InputError, match=r"memory_limit is 100,000 MB.*in order metis"):
        fit_memory(model, graph, TrainConfig(memory_limit="100GB", order="metis"))


def test_a_limit_is_for_what_is_predicted(graph: Graph, model: Model) -> None:
    with pytest.raises(InputError, match="not for solver adam"):
        fit_memory(model, graph, TrainConfig(solver="adam", memory_limit="1GB"))
    with pytest.raises(InputError, match="not for networks with branches"):
        fit_memory(branched(graph), graph, TrainConfig(memory_limit="1GB"))


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16 * 10**9), ("1.5 GiB", 3 * 2**29), ("900m", 9 * 10**8), ("77", 77)]
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert check_bytes("memory_limit", text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "3 apples", "1e9"])
def test_no_amounts_of_memory(text: str) -> None:
    with pytest.raises(InputError, match="memory_limit must be an amount of memory, such as 16GB"):
        TrainConfig(memory_limit=text)
