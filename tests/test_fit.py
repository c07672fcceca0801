"""PyG modules trained in place: what the module does afterwards, and what it is left as where training fails."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gfgnn
from gfgnn.model.from_pyg import PygModel

FEATURES, CLASSES = 8, 3


@pytest.fixture(scope="module")
def graph() -> gfgnn.Graph:
    return gfgnn.load(f"synthetic:nodes=300,classes={CLASSES},features={FEATURES},noise=1.5,degree=8,seed=1")


def gcn(layers: int = 2, **options: Any) -> nn.Module:
    models = pytest.importorskip("torch_geometric.nn.models")
    torch.manual_seed(0)
    return models.GCN(FEATURES, 16, layers, CLASSES, **options)


class GCNII(nn.Module):
    """As PyG's example writes it."""

    def __init__(self, layers: int = 16) -> None:
        from torch_geometric.nn import GCN2Conv

        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)])
        self.convs = nn.ModuleList([GCN2Conv(16, 0.1, 0.5, layer + 1) for layer in range(layers)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(nn.functional.dropout(x, 0.6, training=self.training), x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)


def accuracy(module: nn.Module, graph: gfgnn.Graph) -> float:
    data = graph.to_pyg()
    module.eval()
    with torch.no_grad():
        right = module(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].double().mean())


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(before: dict[str, Tensor], module: nn.Module) -> bool:
    return all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    "make",
    [
        gcn,
        lambda: gcn(3, norm="batch_norm"),
        lambda: gcn(3, jk="cat", act_first=True, norm="batch_norm"),
        GCNII,
    ],
    ids=["gcn", "batch norm", "branches that normalise", "gcnii-16"],
)
def test_the_module_alone_predicts_as_trained(make: Any, graph: gfgnn.Graph) -> None:
    module = make()
    result = gfgnn.fit(module, graph.to_pyg(), iters=12)
    assert result.test_accuracy > 0.75
    assert accuracy(module, graph) == pytest.approx(result.test_accuracy, abs=0.006)
    # the very same scores as the blocks, softmax or not
    data = graph.to_pyg()
    with torch.no_grad():
        probability = torch.softmax(module(data.x, data.edge_index), dim=1)
    torch.testing.assert_close(probability, gfgnn.predict(result, graph).probability, rtol=1e-3, atol=1e-4)


def test_training_mode_stays(graph: gfgnn.Graph) -> None:
    module = gcn(dropout=0.5).train()
    gfgnn.fit(module, graph, iters=2)
    assert all(part.training for part in module.modules())


def test_settings_by_name_and_by_config(graph: gfgnn.Graph) -> None:
    seen: list[int] = []
    config = gfgnn.TrainConfig(iters=9, seed=3)
    result = gfgnn.fit(
        gcn(), graph, config, iters=4, on_iteration=lambda line: seen.append(line["iteration"])
    )
    assert (result.config.iters, result.config.seed, seen) == (4, 3, [1, 2, 3, 4])
    with pytest.raises(TypeError):
        gfgnn.fit(gcn(), graph, learning_rate=0.1)


def test_one_of_several_splits(graph: gfgnn.Graph) -> None:
    data = graph.to_pyg()
    none = torch.zeros_like(data.train_mask)
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.stack([none, data[name]], dim=1)
    with pytest.raises(gfgnn.InputError, match="no training nodes"):
        gfgnn.fit(gcn(), data)
    assert gfgnn.fit(gcn(), data, iters=6, split_index=1).test_accuracy > 0.6


def test_seeds_and_starts(graph: gfgnn.Graph) -> None:
    """The module's own weights do not count; the seed does."""
    first, second, other = gcn(), gcn(), gcn()
    nn.init.zeros_(second.convs[0].lin.weight)
    for module, seed in ((first, 0), (second, 0), (other, 1)):
        gfgnn.fit(module, graph, iters=3, seed=seed)
    assert same(tensors(first), second)
    assert not same(tensors(first), other)


def test_chains_are_trained_on_a_grid(graph: gfgnn.Graph) -> None:
    one, four = GCNII(3).double(), GCNII(3).double()
    options = {"iters": 5, "dtype": "float64"}
    gfgnn.fit(one, graph, **options)
    result = gfgnn.fit(four, graph, parts=2, stages=2, backend="thread", **options)
    assert len(result.ranks) == 4
    for a, b in zip(one.parameters(), four.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


class Attentive(nn.Module):
    def __init__(self) -> None:
        from torch_geometric.nn import GATConv, GCNConv

        super().__init__()
        self.first, self.second = GCNConv(FEATURES, 8), GATConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_what_cannot_be_trained_is_named_before_anything_happens(graph: gfgnn.Graph) -> None:
    module, calls = Attentive(), []
    before = tensors(module)
    with pytest.raises(gfgnn.InputError, match=r"second \(GATConv\).*could be trained: first"):
        gfgnn.fit(module, graph, on_iteration=calls.append)
    assert not calls
    assert same(before, module)


def test_a_run_that_fails_leaves_the_module(graph: gfgnn.Graph) -> None:
    module = gcn()
    before = tensors(module)

    def fail(line: dict[str, Any]) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        gfgnn.fit(module, graph, on_iteration=fail)
    assert same(before, module)


def test_interrupted_runs_leave_the_best_so_far(graph: gfgnn.Graph) -> None:
    module = gcn()
    before = tensors(module)

    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] > 3:
            raise KeyboardInterrupt

    result = gfgnn.fit(module, graph, on_iteration=stop)
    assert result.interrupted
    assert not same(before, module)
    assert accuracy(module, graph) == pytest.approx(result.test_accuracy, abs=0.006)


def test_the_module_is_written_as_a_whole(graph: gfgnn.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    module = gcn()
    write = PygModel.write

    def interrupted(self: PygModel, weights: dict[str, Tensor]) -> None:
        signal.raise_signal(signal.SIGINT)
        write(self, weights)

    monkeypatch.setattr(PygModel, "write", interrupted)
    result = gfgnn.fit(module, graph, iters=3)
    assert result.interrupted
    assert accuracy(module, graph) == pytest.approx(result.test_accuracy, abs=0.006)


def test_frozen_parameters_are_trained_with_a_warning(graph: gfgnn.Graph) -> None:
    module = gcn()
    module.convs[0].requires_grad_(False)
    with pytest.warns(
        UserWarning, match=r"GCN: trained although requires_grad is False: convs\.0\.bias, convs\.0\.lin"
    ):
        gfgnn.fit(module, graph, iters=2)
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]


def test_adam_is_refused(graph: gfgnn.Graph) -> None:
    with pytest.raises(gfgnn.InputError, match=r"trained with torch\.optim\.Adam as it is"):
        gfgnn.fit(gcn(), graph, solver="adam")


def test_regression_and_labels(graph: gfgnn.Graph) -> None:
    values = torch.stack([graph.y.float(), graph.x.sum(1), graph.x[:, 0]], dim=1)  # type: ignore[union-attr]
    data = graph.replace(y=values, num_classes=3, task="regression").to_pyg()
    assert gfgnn.fit(gcn(), data, iters=10).test_accuracy > 0.3  # R-squared
    labels = (values > values.mean(0)).float()
    assert gfgnn.fit(gcn(), graph.replace(y=labels, task="multilabel"), iters=10).test_accuracy > 0.7


def test_relations(graph: gfgnn.Graph) -> None:
    convs = pytest.importorskip("torch_geometric.nn")

    class RGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = convs.RGCNConv(FEATURES, 16, 2), convs.RGCNConv(16, CLASSES, 2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.conv2(self.conv1(x, edge_index, edge_type).relu(), edge_index, edge_type)

    data = graph.to_pyg()
    data.edge_type = torch.arange(data.num_edges) % 2
    module = RGCN()
    result = gfgnn.fit(module, data, iters=10)
    with torch.no_grad():
        right = module(data.x, data.edge_index, data.edge_type).argmax(1) == data.y
    assert float(right[data.test_mask].double().mean()) == pytest.approx(result.test_accuracy, abs=0.006)
    assert result.test_accuracy > 0.75


@pytest.mark.slow
def test_cora(data_folder: Any) -> None:
    """What is asked of unmodified modules; the benchmark has five seeds of each."""
    if not (data_folder / "cora.npz").exists():
        pytest.skip(f"{data_folder} has no cora.npz")
    models = pytest.importorskip("torch_geometric.nn.models")
    data = gfgnn.load(str(data_folder / "cora.npz")).to_pyg()
    found = []
    for seed in range(2):
        module = models.GCN(data.num_features, 64, 2, 7, dropout=0.5)
        result = gfgnn.fit(module, data, seed=seed, iters=40)
        found.append(result.test_accuracy)
    assert sum(found) / 2 > 0.815
