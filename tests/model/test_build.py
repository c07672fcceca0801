"""The families' blocks: sizes, what layers count, starting weights."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from random_graphs import random_graph

from gfgnn.checks import InputError
from gfgnn.config import FAMILIES, ModelConfig
from gfgnn.model.build import FAMILY_BLOCKS, build_model, initial_weights, make_model, propagation_settings

F, D, C, L = 7, 5, 3, 4


def model(family: str, **changes: object):
    config = ModelConfig(family=family, layers=L, hidden=D, **changes)  # type: ignore[arg-type]
    return make_model(config, F, C, "multiclass")


def test_every_family_is_built() -> None:
    assert {*FAMILY_BLOCKS, "rgcn"} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_blocks_fit_together(family: str) -> None:
    blocks = model(family).blocks
    assert blocks[0].in_channels == F
    assert blocks[-1].out_channels == C
    assert blocks[-1].activation == "identity"
    for below, above in pairwise(blocks):
        assert above.in_channels == below.out_channels == D


@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_layers_count_graph_propagations(family: str) -> None:
    count = {"none": 0, "graph": 1, "initial": 1, "concat": 1}
    total = sum(
        b.hops if b.propagate in ("power", "hops") else count[b.propagate] for b in model(family).blocks
    )
    assert total == L


@pytest.mark.parametrize(
    ("family", "number"), [("gcn", 4), ("gcnii", 6), ("resgcn", 6), ("sage", 4), ("sgc", 1), ("sign", 3)]
)
def test_number_of_blocks(family: str, number: int) -> None:
    assert len(model(family).blocks) == number


def test_gcnii_follows_the_paper() -> None:
    inner = model("gcnii", alpha=0.2, theta=0.7).blocks[1:-1]
    assert [b.beta for b in inner] == [math.log(0.7 / k + 1) for k in range(1, L + 1)]
    assert all(b.alpha == 0.2 and not b.bias and b.reference == "identity" for b in inner)


def test_residual_branches_are_scaled_by_depth() -> None:
    assert all(b.skip == 1 / math.sqrt(L) for b in model("resgcn").blocks[1:-1])
    assert model("resgcn").blocks[0].skip is None


@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_bias_and_activation_are_passed_on(family: str) -> None:
    blocks = model(family, bias=False, activation="leaky_relu").blocks
    assert not any(b.bias for b in blocks)
    assert {b.activation for b in blocks[:-1]} <= {"leaky_relu"}


@pytest.mark.parametrize("family", FAMILY_BLOCKS)
def test_starting_weights_are_glorot_uniform(family: str) -> None:
    m = model(family)
    weights = initial_weights(m, torch.Generator().manual_seed(0), torch.float64)
    expected = set()
    for index, b in enumerate(m.blocks):
        weight = weights[f"block{index}.weight"]
        expected.add(f"block{index}.weight")
        assert weight.shape == (b.fan_in, b.out_channels)
        bound = math.sqrt(6 / (b.fan_in + b.out_channels))
        assert 0.6 * bound < float(weight.abs().max()) <= bound
        if b.bias:
            expected.add(f"block{index}.bias")
            assert not bool(weights[f"block{index}.bias"].any())
    assert set(weights) == expected


def test_a_seed_means_the_same_network_in_every_precision() -> None:
    m = model("gcn")
    single, double = (
        initial_weights(m, torch.Generator().manual_seed(3), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    for name, value in single.items():
        assert torch.equal(value, double[name].float())


def test_sizes_come_from_the_graph() -> None:
    graph = random_graph(features=6, classes=4)
    m = build_model(ModelConfig(family="gcn", layers=2, hidden=D), graph)
    assert (m.num_features, m.num_classes, m.task) == (6, 4, "multiclass")
    with pytest.raises(InputError, match="structure"):
        build_model(ModelConfig(), graph.replace(x=None))


@pytest.mark.parametrize(
    "bad",
    [{"layers": 1}, {"hidden": 0}, {"family": "gat"}, {"norm": "x"}, {"activation": "x"}, {"alpha": 1.5}],
)
def test_settings_that_do_not_fit(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ModelConfig(**bad)  # type: ignore[arg-type]


def test_sage_averages_over_neighbours_alone() -> None:
    assert propagation_settings(ModelConfig(family="sage")) == ("rw", False)
    assert propagation_settings(ModelConfig(family="gcn", norm="rw", self_loops=False)) == ("rw", False)
    assert propagation_settings(ModelConfig(family="gcnii")) == ("sym", True)
