"""Features kept as float16: in the graph, in OGB's cache, through training on every road, prediction and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ogb_raw import write_ogb

import gfgnn
from gfgnn import InputError, load
from gfgnn.data import save_npz
from gfgnn.data.ogb.sets import SETS

DATA = "synthetic:nodes=120,classes=3,features=8"


@pytest.mark.parametrize("name", [*SETS, DATA])
def test_a_graph_has_them_rounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFGNN_DATA", raising=False)
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    if name in SETS:
        write_ogb(tmp_path, name)
    full, half = load(name, tmp_path).x, load(name, tmp_path, feature_storage="fp16").x
    assert full is not None
    assert half is not None
    assert (full.dtype, half.dtype) == (torch.float32, torch.float16)
    assert torch.equal(half, full.half())
    if name in SETS:
        files = [np.load(path, mmap_mode="r") for path in sorted((tmp_path / "cache").glob("*/x.npy"))]
        assert {file.dtype.name for file in files} == {"float32", "float16"}


@pytest.mark.parametrize(
    "settings",
    [
        gfgnn.TrainConfig(iters=3, threads=1),
        gfgnn.TrainConfig(iters=3, threads=1, parts=2, backend="thread"),
        gfgnn.TrainConfig(iters=3, threads=1, solver="adam"),
    ],
    ids=["block", "parts", "adam"],
)
def test_training_is_that_on_the_rounded_numbers(settings: gfgnn.TrainConfig) -> None:
    half = load(DATA, feature_storage="fp16")
    assert half.x is not None
    same = half.replace(x=half.x.float())
    network = gfgnn.ModelConfig(family="gcn", layers=2, hidden=8)
    results = [gfgnn.train(network, graph, settings) for graph in (half, same)]
    probabilities = [gfgnn.predict(r, g).probability for r, g in zip(results, (half, same), strict=True)]
    assert probabilities[0] is not None
    assert torch.equal(*probabilities)
    assert probabilities[0].dtype == torch.float32


def test_everything_else_takes_them(tmp_path: Path) -> None:
    half = load(DATA, feature_storage="fp16")
    assert half.x is not None
    assert half.statistics()["feature_storage"] == "dense, fp16"
    assert half.subgraph(range(20)).num_features == 8
    assert half.to_pyg().x.dtype == torch.float32
    save_npz(tmp_path / "half.npz", half)
    again = load(tmp_path / "half.npz", feature_storage="fp16")
    assert again.x is not None
    assert torch.equal(again.x, half.x)
    for how in ("rows", "columns"):
        scaled = load(DATA, normalise=how, feature_storage="fp16").x
        exact = load(DATA, normalise=how).x
        assert scaled is not None
        assert exact is not None
        assert torch.equal(scaled, exact.half())
        found = gfgnn.data.registry.normalised(half, how).x
        assert found is not None
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.float(), exact, rtol=2e-3, atol=2e-3)
    structure = load(DATA, features="structure:5", feature_storage="fp16").x
    assert structure is not None
    assert structure.dtype == torch.float16


def test_what_cannot_be_kept_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="for dense features; those of citeseer are sparse"):
        load("citeseer", feature_storage="fp16")
    with pytest.raises(InputError, match=r"feature_storage must be one of float32, fp16; got 'half'"):
        load(DATA, feature_storage="half")
    graph = load(DATA)
    assert graph.x is not None
    save_npz(tmp_path / "large.npz", graph.replace(x=graph.x + 7e4))
    with pytest.raises(InputError, match=r"numbers up to 65,504; large has features up to 7"):
        load(tmp_path / "large.npz", feature_storage="fp16")
    assert load("synthetic:nodes=50,classes=2,features=0", feature_storage="fp16").x is None
