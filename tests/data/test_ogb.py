"""OGB's raw files: every data set as drawn, trained on and predicted; missing and damaged files are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from ogb_raw import MAG_COUNTS, write_csv, write_ogb

import gfgnn
from gfgnn import InputError, load
from gfgnn.data.ogb.sets import SETS
from gfgnn.data.ogb.tables import pieces, read_table


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFGNN_DATA", raising=False)  # it may hold a file ogbn_arxiv.npz


@pytest.mark.parametrize("name", SETS)
def test_load_train_predict(name: str, tmp_path: Path) -> None:
    drawn = write_ogb(tmp_path, name)
    graph = load(name, tmp_path)
    papers = len(drawn["y"])
    assert graph.name == name
    for part, mask in (("train", graph.train_mask), ("valid", graph.val_mask), ("test", graph.test_mask)):
        assert mask.nonzero().ravel().tolist() == sorted(drawn["split"][part])
    result = gfgnn.train(
        gfgnn.ModelConfig(family="gcn", layers=2, hidden=16), graph, gfgnn.TrainConfig(iters=8, seed=0)
    )
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.6  # a guess: 1/3 of the classes, 1/2 as ROC-AUC
    predictions = gfgnn.predict(result, graph)
    assert predictions.probability is not None
    assert predictions.probability.shape == (graph.num_nodes, graph.num_classes)
    assert bool(torch.isfinite(predictions.probability[:papers]).all())


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "ogbn-papers100M"])
def test_arrays_are_those_on_disk(name: str, tmp_path: Path) -> None:
    drawn = write_ogb(tmp_path, name)
    graph = load(name, tmp_path)
    assert graph.x is not None
    np.testing.assert_allclose(graph.x.numpy(), drawn["x"], rtol=1e-5)
    known = ~np.isnan(drawn["labels"].ravel()) if "labels" in drawn else np.ones(90, bool)
    assert graph.y.tolist() == np.where(known, drawn["y"], -1).tolist()
    edges = {(int(s), int(t)) for s, t in drawn["edges"] if s != t}
    mirrored = name == "ogbn-products"
    expected = edges | {(t, s) for s, t in edges} if mirrored else edges
    assert set(map(tuple, graph.edge_index.T.tolist())) == expected
    assert graph.directed is not mirrored
    assert not load(name.replace("-", "_"), tmp_path, symmetrise=True).directed
    if name != "ogbn-products":
        kept = load(name, tmp_path, max_year=2014)
        assert kept.num_nodes == int((drawn["year"] <= 2014).sum())


def test_proteins_take_features_from_their_edges(tmp_path: Path) -> None:
    drawn = write_ogb(tmp_path, "ogbn-proteins")
    graph = load("ogbn-proteins", tmp_path)
    assert (graph.task, graph.num_classes, graph.directed) == ("multilabel", 4, False)
    assert graph.y.tolist() == drawn["labels"].tolist()
    assert graph.x is not None
    for node in range(graph.num_nodes):
        at = drawn["edges"]
        rows = np.concatenate([drawn["edge_x"][at[:, 0] == node], drawn["edge_x"][at[:, 1] == node]])
        np.testing.assert_allclose(graph.x[node].numpy(), rows.mean(0) if len(rows) else 0, rtol=1e-4)


def test_mag_is_one_graph_of_seven_relations(tmp_path: Path) -> None:
    drawn = write_ogb(tmp_path, "ogbn-mag")
    graph = load("ogbn-mag", tmp_path)
    assert graph.num_nodes == sum(MAG_COUNTS.values())
    assert (graph.num_relations, graph.directed) == (7, False)
    assert graph.y[:90].tolist() == drawn["y"].tolist()
    assert set(graph.y[90:].tolist()) == {-1}
    assert graph.raw is not None
    assert graph.raw.edge_type is not None
    affiliated, writes, cites, topic = drawn["relations"]
    author, field, institution = 90, 90 + 50, 90 + 50 + 9
    backward = graph.raw.edge_index[:, graph.raw.edge_type == 5]
    assert backward.T.tolist() == (writes[:, ::-1] + [0, author]).tolist()
    cited = set(map(tuple, graph.raw.edge_index[:, graph.raw.edge_type == 2].T.tolist()))
    assert cited == {(int(a), int(b)) for s, t in cites if s != t for a, b in ((s, t), (t, s))}

    assert graph.x is not None
    x = graph.x.to_dense().numpy()
    np.testing.assert_allclose(x[:90], drawn["x"], rtol=1e-5)
    for node in range(50):
        own = writes[writes[:, 0] == node, 1]
        np.testing.assert_allclose(x[author + node], x[own].mean(0) if own.size else 0, rtol=1e-4, atol=1e-6)
    for node in range(9):
        own = topic[topic[:, 1] == node, 0]
        np.testing.assert_allclose(x[field + node], x[own].mean(0) if own.size else 0, rtol=1e-4, atol=1e-6)
    for node in range(6):
        own = affiliated[affiliated[:, 1] == node, 0] + author
        expected = x[own].mean(0) if own.size else 0
        np.testing.assert_allclose(x[institution + node], expected, rtol=1e-4, atol=1e-6)

    stored = load("ogbn-mag", tmp_path, symmetrise=False)
    assert (stored.num_relations, stored.directed) == (4, True)
    kept = load("ogbn-mag", tmp_path, max_year=2014)
    assert kept.num_nodes == int((drawn["year"] <= 2014).sum()) + 65


def test_mag_trains_by_relations(tmp_path: Path) -> None:
    write_ogb(tmp_path, "ogbn-mag")
    graph = load("ogbn-mag", tmp_path)
    network = gfgnn.ModelConfig(family="rgcn", layers=2, hidden=8)
    result = gfgnn.train(network, graph, gfgnn.TrainConfig(iters=6))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.6


@pytest.mark.parametrize("name", SETS)
def test_missing_files_are_listed(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Unpack OGB's .*\.zip and rename its folder.*--download") as caught:
        load(name, tmp_path)
    known = SETS[name]
    assert all(f"raw/{part}" in str(caught.value) for part in known.raw)
    assert f"split/{known.split}/test.csv.gz" in str(caught.value)
    write_ogb(tmp_path, name)
    lost = known.folder(tmp_path) / "raw" / known.raw[-1]
    lost.unlink()
    with pytest.raises(InputError, match=rf"missing are raw/{known.raw[-1]}\. Unpack"):
        load(name, tmp_path)


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="ogbn-arxive is not supported; gfgnn reads ogbn-arxiv, ogbn-products"
    ):
        load("ogbn-arxive", tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "rows", "message"),
    [
        ("ogbn-arxiv", "raw/node-feat.csv.gz", np.ones((7, 5)), "must have 90 rows.* it has 7"),
        ("ogbn-arxiv", "raw/edge.csv.gz", np.zeros((360, 2), np.int64) + 95, "names node 95"),
        ("ogbn-products", "raw/num-edge-list.csv.gz", np.array([3]), "must have 3 rows.* it has more"),
        ("ogbn-proteins", "raw/edge-feat.csv.gz", np.ones((4, 8)), "8 numbers for each row"),
        ("ogbn-proteins", "raw/edge-feat.csv.gz", np.ones((360, 7)), "8 numbers for each row"),
        ("ogbn-proteins", "raw/edge.csv.gz", np.zeros((360, 2), np.int64) + 95, "names node 95"),
        (
            "ogbn-mag", "raw/relations/author___writes___paper/edge.csv.gz", np.array([[50, 0]]),
            "names author 50; they are numbered 0 to 49",
        ),
        ("ogbn-mag", "raw/num-node-dict.csv.gz", np.array([[1, 2]]), "names and their numbers"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(name: str, file: str, rows: np.ndarray, message: str, tmp_path: Path) -> None:
    write_ogb(tmp_path, name)
    write_csv(SETS[name].folder(tmp_path) / file, rows)
    with pytest.raises(InputError, match=message):
        load(name, tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_ogb(tmp_path, "ogbn-arxiv")
    path = tmp_path / "ogbn_arxiv/raw/edge.csv.gz"
    whole = path.read_bytes()
    for content in (
        whole[:-20],
        b"no gzip",
        whole[:60] + b"\xff" * 40 + whole[100:],
        gzip.compress(b"a,b\n"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"edge\.csv\.gz cannot be read as OGB's gzipped CSV"):
            load("ogbn-arxiv", tmp_path)
    write_ogb(tmp_path, "ogbn-papers100M")
    np.savez(tmp_path / "ogbn_papers100M/raw/data.npz", edge_index=[[0], [1]])
    with pytest.raises(InputError, match=r"data\.npz has no node_feat"):
        load("ogbn-papers100M", tmp_path)


def test_tables_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(-9, 9, (23, 4))
    path = tmp_path / "table.csv.gz"
    write_csv(path, rows)
    monkeypatch.setattr("gfgnn.data.ogb.tables.PIECE", 20)
    assert [len(piece) for piece in pieces(path, np.int64)] == [5, 5, 5, 5, 3]
    assert np.array_equal(read_table(path, np.int64), rows)
    assert np.array_equal(read_table(path, np.float32, 23), rows)


def test_short_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise pandas.errors.ParserError("Error tokenizing data. C error: out of memory")

    write_ogb(tmp_path, "ogbn-arxiv")
    monkeypatch.setattr("pandas.read_csv", short)
    with pytest.raises(MemoryError, match=r"node-label\.csv\.gz"):
        load("ogbn-arxiv", tmp_path)


def test_conversion_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    for name in SETS:
        write_ogb(tmp_path, name)
        first = load(name, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("gfgnn.data.ogb.load.read_raw", None)  # whoever converts again would call it
            second = load(name, tmp_path)
            with pytest.raises(TypeError):
                load(name, tmp_path, symmetrise=not SETS[name].mirrored)
        assert second.notes == first.notes
        assert torch.equal(second.edge_index, first.edge_index)
        assert torch.equal(second.y.nan_to_num(), first.y.nan_to_num())
    assert load("ogbn-arxiv", tmp_path, max_year=2014).num_nodes < 90


def test_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    write_ogb(tmp_path, "ogbn-arxiv")
    before = load("ogbn-arxiv", tmp_path)
    write_csv(tmp_path / "ogbn_arxiv/raw/node-label.csv.gz", (before.y.numpy() + 1) % 3)
    assert load("ogbn-arxiv", tmp_path).y.tolist() == ((before.y + 1) % 3).tolist()
    chosen = before.train_mask.nonzero().ravel()[:7].numpy()
    write_csv(tmp_path / "ogbn_arxiv/split/time/train.csv.gz", chosen)
    assert int(load("ogbn-arxiv", tmp_path).train_mask.sum()) == 7


def test_no_room_for_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    write_ogb(tmp_path, "ogbn-arxiv")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gfgnn.data.edge_stream._group", full)
    with pytest.raises(InputError, match=r"set GFGNN_CACHE to a folder with room for them: .*No space left"):
        load("ogbn-arxiv", tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "file" / "below"))
    drawn = write_ogb(tmp_path, "ogbn-products")
    graph = load("ogbn-products", tmp_path)  # its edges are mapped from a file that is gone
    edges = {(int(s), int(t)) for s, t in drawn["edges"] if s != t}
    assert set(map(tuple, graph.edge_index.T.tolist())) == edges | {(t, s) for s, t in edges}
