"""Correct and smooth: PyG's results, training labels only, and both commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from torch import Tensor
from typer.testing import CliRunner, Result

from gfgnn.checks import InputError
from gfgnn.cli import app
from gfgnn.config import CorrectAndSmoothConfig, ModelConfig, TrainConfig
from gfgnn.data import load, save_npz
from gfgnn.graph.graph import Graph
from gfgnn.metrics import score
from gfgnn.post import ALPHAS, choose_alphas, correct_and_smooth
from gfgnn.predict import predict, smoothed
from gfgnn.train import train

CS = CorrectAndSmoothConfig()
AUTO = replace(CS, correction_alpha="auto", smoothing_alpha="auto")


def probabilities(graph: Graph, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(graph.num_nodes, graph.num_classes, generator=generator, dtype=torch.float64)
    return (2 * scores).softmax(1).to(dtype)


def of_pyg(graph: Graph, z: Tensor, config: CorrectAndSmoothConfig, y: Tensor | None = None) -> Tensor:
    """PyG's class on the same edges; ``y`` are labels of training nodes in its own form."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.nn.models import CorrectAndSmooth

    auto = config.scale == "auto"
    module = CorrectAndSmooth(
        config.corrections, float(config.correction_alpha), config.smoothings, float(config.smoothing_alpha),
        autoscale=auto, scale=1.0 if auto else float(config.scale),
    )  # fmt: skip
    weight = None if graph.edge_weight is None else graph.edge_weight.to(z.dtype)
    edges, weight = gcn_norm(graph.edge_index, weight, graph.num_nodes, add_self_loops=False, dtype=z.dtype)
    truth = graph.y[graph.train_mask] if y is None else y
    corrected = module.correct(z, truth, graph.train_mask, edges, weight)
    return module.smooth(corrected, truth, graph.train_mask, edges, weight)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 999),
    directed=st.booleans(),
    weighted=st.booleans(),
    alphas=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    counts=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    scale=st.sampled_from(["auto", 0.0, 1.0, 20.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_as_pyg(seed, directed, weighted, alphas, counts, scale, dtype) -> None:  # type: ignore[no-untyped-def]
    graph = random_graph(seed, directed=directed, weighted=weighted)
    z = probabilities(graph, seed, dtype)
    before = z.clone()
    config = CorrectAndSmoothConfig(
        corrections=counts[0], correction_alpha=alphas[0],
        smoothings=counts[1], smoothing_alpha=alphas[1], scale=scale,
    )  # fmt: skip
    found = correct_and_smooth(graph, z, config)
    assert found.dtype == dtype
    assert torch.equal(z, before)
    # autoscale divides by what has arrived, however little
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(found, of_pyg(graph, z, config), **tolerance)


def test_multilabel_as_pyg_and_unknown_entries() -> None:
    graph = random_graph(3, weighted=True)
    labels = torch.nn.functional.one_hot(graph.y, 3).double()
    labels[:, 0] = 1.0
    multi = graph.replace(y=labels, task="multilabel")
    z = probabilities(graph)
    expected = of_pyg(graph, z, CS, labels[graph.train_mask])
    torch.testing.assert_close(correct_and_smooth(multi, z, CS), expected)
    # an unknown entry is neither an error nor a label: the prediction itself would say the same
    unknown, guessed = labels.clone(), labels.clone()
    unknown[2, 1], guessed[2, 1] = float("nan"), z[2, 1]
    config = replace(CS, corrections=0, scale=0.0)
    found = correct_and_smooth(multi.replace(y=unknown), z, config)
    torch.testing.assert_close(found, of_pyg(graph, z, config, guessed[graph.train_mask]))


def test_predictions_of_multilabel_networks() -> None:
    graph = load("synthetic:nodes=120,classes=3,features=6")
    multi = graph.replace(y=torch.nn.functional.one_hot(graph.y, 3).float(), task="multilabel")
    network = predict(
        train(ModelConfig(family="gcn", layers=2, hidden=8), multi, TrainConfig(iters=2)), multi
    )
    found = smoothed(network, multi, CS)
    assert found.probability is not None
    assert found.prediction is not None
    assert torch.equal(found.prediction, (found.probability > 0.5).long())
    assert not torch.equal(found.probability, network.probability)


def test_perfect_probabilities_are_no_division_by_zero() -> None:
    graph = random_graph()
    z = torch.nn.functional.one_hot(graph.y, 3).double()
    assert correct_and_smooth(graph, z, CS).isfinite().all()
    torch.testing.assert_close(correct_and_smooth(graph, z, replace(CS, smoothings=0)), z)


def test_labels_of_others_change_nothing() -> None:
    graph, other = random_graph(5), random_graph(5)
    z = probabilities(graph)
    other.y[~graph.train_mask] = (graph.y[~graph.train_mask] + 1) % 3
    assert torch.equal(correct_and_smooth(graph, z), correct_and_smooth(other, z))
    hidden = graph.replace(y=torch.where(graph.train_mask, graph.y, -1))
    assert torch.equal(correct_and_smooth(graph, z), correct_and_smooth(hidden, z))
    flipped = graph.replace(y=(graph.y + 1) % 3)
    assert not torch.equal(correct_and_smooth(graph, z), correct_and_smooth(flipped, z))


def test_alphas_are_the_best_on_validation_and_know_no_test_label() -> None:
    graph = load("synthetic:nodes=120,classes=3,features=6")
    z = probabilities(graph)
    chosen = choose_alphas(graph, z, AUTO)
    index = graph.labelled(graph.val_mask)

    def value(config: CorrectAndSmoothConfig) -> float:
        return score("multiclass", correct_and_smooth(graph, z, config), graph.y, index)

    tried = [replace(CS, correction_alpha=a, smoothing_alpha=b) for a in ALPHAS for b in ALPHAS]
    assert chosen == max(tried, key=value)
    assert len({value(config) for config in tried}) > 1
    # with both at 0 no node but the training nodes changes
    idle = correct_and_smooth(graph, z, replace(CS, correction_alpha=0.0, smoothing_alpha=0.0))
    torch.testing.assert_close(idle[~graph.train_mask], z[~graph.train_mask])
    assert torch.equal(correct_and_smooth(graph, z, AUTO), correct_and_smooth(graph, z, chosen))
    blind = graph.replace(y=torch.where(graph.test_mask, (graph.y + 1) % 3, graph.y))
    assert choose_alphas(blind, z, AUTO) == chosen
    half = choose_alphas(graph, z, replace(CS, smoothing_alpha="auto"))
    assert half.correction_alpha == CS.correction_alpha
    with pytest.raises(InputError, match="validation labels"):
        choose_alphas(graph.replace(val_mask=torch.zeros(120, dtype=torch.bool)), z, AUTO)


def test_what_does_not_fit_is_said() -> None:
    graph = random_graph()
    z = probabilities(graph)
    nobody = torch.zeros(graph.num_nodes, dtype=torch.bool)
    values = torch.randn(graph.num_nodes, 3)
    for changed, given_z, message in [
        (graph.replace(y=values, task="regression"), z, "regression"),
        (graph.replace(train_mask=nobody), z, "has none"),
        (graph, z.log(), "softmax"),
        (graph, z[:, :2], "2 classes"),
        (graph, z[1:], r"\[12, classes\]"),
        (graph, z * float("nan"), r"\[0, 1\]"),
    ]:
        with pytest.raises(InputError, match=message):
            correct_and_smooth(changed, given_z)
    for wrong in (
        {"corrections": -1},
        {"correction_alpha": 1.5},
        {"smoothing_alpha": "best"},
        {"scale": -1.0},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            CorrectAndSmoothConfig(**wrong)  # type: ignore[arg-type]


def test_cora(data_folder: Path) -> None:
    if not (data_folder / "cora.npz").is_file():
        pytest.skip("no cora.npz in the folder of larger data sets")
    graph = load(str(data_folder / "cora.npz"))
    config = TrainConfig(iters=5, threads=1)
    result = train(ModelConfig(family="gcn", layers=2), graph, config)
    z = predict(result, graph).probability
    assert z is not None
    assert result.test_accuracy is not None
    index = graph.labelled(graph.test_mask)
    after = score("multiclass", correct_and_smooth(graph, z, AUTO), graph.y, index)
    assert after > result.test_accuracy - 0.02
    # features that say nothing: the labels of 140 nodes alone, where chance is 30%
    blank = torch.full_like(z, 1 / z.size(1))
    assert score("multiclass", correct_and_smooth(graph, blank, CS), graph.y, index) > 0.6


DATA = "synthetic:nodes=120,classes=3,features=6"
SMALL = ["--data", DATA, "--model", "gcn", "--layers", "2", "--hidden", "8", "--threads", "1", "--iters", "3"]
POST = ["--post", "correct-and-smooth"]


def gfgnn(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("grid", [[], ["--parts", "2", "--backend", "thread"]])
def test_commands(tmp_path: Path, grid: list[str]) -> None:
    out, file = tmp_path / "run", tmp_path / "p.npz"
    options = [*POST, "--corrections", "9", "--correction-alpha", "0.5", "--smoothing-alpha", "auto"]
    done = gfgnn("train", *SMALL, *grid, *options, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert "with correct-and-smooth" in done.stdout
    summary = json.loads((out / "result.json").read_text())
    post = summary["post"]
    assert post["settings"]["corrections"] == 9
    assert post["settings"]["smoothing_alpha"] in ALPHAS
    alpha = str(post["settings"]["smoothing_alpha"])
    done = gfgnn("predict", "--model", str(out), "--out", str(file), *options[:-1], alpha)
    assert done.exit_code == 0, done.stderr
    arrays, graph = dict(np.load(file)), load(DATA)
    right = torch.from_numpy(arrays["prediction"]) == graph.y
    for name, mask in (("val", graph.val_mask), ("test", graph.test_mask)):
        assert float(right[mask].double().mean()) == pytest.approx(post[f"{name}_accuracy"])
    assert (arrays["probability"].argmax(1) == arrays["prediction"]).all()
    plain = gfgnn("predict", "--model", str(out), "--out", str(file))
    assert plain.exit_code == 0
    assert not np.array_equal(np.load(file)["probability"], arrays["probability"])


def test_commands_refuse(tmp_path: Path) -> None:
    done = gfgnn("train", *SMALL, "--corrections", "3")
    assert done.exit_code == 2
    assert "--post correct-and-smooth" in done.stderr
    assert gfgnn("train", *SMALL, "--post", "magic").exit_code == 2
    graph = load(DATA)
    values = graph.replace(y=torch.randn(120, 2), task="regression", num_classes=2)
    save_npz(tmp_path / "values.npz", values)
    done = gfgnn("train", "--data", str(tmp_path / "values.npz"), *SMALL[2:], *POST)
    assert done.exit_code == 2
    assert "regression" in done.stderr
