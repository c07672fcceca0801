"""``load``: every kind of name, every option, and what it says where nothing is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gfgnn import InputError, load
from gfgnn.data import available, save_npz


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "data_folder" not in request.fixturenames:
        monkeypatch.delenv("GFGNN_DATA", raising=False)


def test_citeseer_is_shipped_with_the_published_statistics() -> None:
    found = load("citeseer").statistics()
    expected = {
        "num_nodes": 3327,
        "num_edges": 9104,
        "num_features": 3703,
        "num_classes": 6,
        "train_nodes": 120,
        "val_nodes": 500,
        "test_nodes": 1000,
        "isolated_nodes": 48,
        "directed": False,
        "feature_storage": "sparse",
        "notes": [],
    }
    assert expected.items() <= found.items()
    assert "citeseer" in available()


def test_names_are_found_in_root_then_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, nodes in (("root", 11), ("env", 22)):
        save_npz(tmp_path / folder / "mine.npz", load(f"synthetic:nodes={nodes}"))
    monkeypatch.setenv("GFGNN_DATA", str(tmp_path / "env"))
    assert load("mine").num_nodes == 22
    assert load("mine", tmp_path / "root").num_nodes == 11
    assert load(tmp_path / "root" / "mine.npz").num_nodes == 11
    assert load("root/mine.npz", root=tmp_path).num_nodes == 11
    assert available() == ["citeseer", "mine"]


def test_missing_says_where_and_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load("corra", tmp_path)
    for part in (
        "'corra'",
        str(tmp_path),
        "datasets",
        "GFGNN_DATA",
        "citeseer",
        "Planetoid:Cora",
        "synthetic:",
    ):
        assert part in str(caught.value)
    with pytest.raises(InputError, match=r"nowhere/x\.npz is not a file: /.*/nowhere/x\.npz was looked for"):
        load("nowhere/x.npz")


def test_options_leave_notes_in_order() -> None:
    graph = load("citeseer", split="per_class=5,val=100", split_seed=7, normalise="rows")
    assert graph.notes == ("split per_class=5,val=100 drawn with seed 7", "features normalised by rows")
    assert int(graph.train_mask.sum()) == 30
    assert graph.x is not None
    sums = graph.x.to_dense().sum(1)
    assert set(sums.round(decimals=5).unique().tolist()) == {0.0, 1.0}


def test_structure_features_replace_or_provide() -> None:
    assert load("citeseer", features="structure:8").num_features == 9
    graph = load("synthetic:nodes=300,features=0", features="structure", normalise="columns")
    assert graph.num_features == 129
    assert load("synthetic:nodes=20,classes=2", features="structure").num_features == 20


@pytest.mark.parametrize("features", ["structures", "structure:", "structure:x", "degree"])
def test_unknown_features(features: str) -> None:
    with pytest.raises(InputError, match="must be structure or structure:K"):
        load("citeseer", features=features)


def test_normalising_nothing() -> None:
    with pytest.raises(InputError, match="normalise='rows' needs features, and synthetic has none"):
        load("synthetic:features=0,nodes=20", normalise="rows")


def test_max_year(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(
        path,
        edge_index=[[0, 1], [1, 2]],
        y=[0, 1, 0],
        x=np.ones((3, 1)),
        node_year=np.array([1999, 2001, 2000]),
    )
    graph = load(path, max_year=2000)
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [0, 2]
    assert graph.num_edges == 0
    with pytest.raises(InputError, match="max_year=1990 leaves no node; years are 1999 to 2001"):
        load(path, max_year=1990)
    with pytest.raises(InputError, match="citeseer has no node_year"):
        load("citeseer", max_year=2000)
    np.savez(path, edge_index=[[0, 1], [1, 2]], y=[0, 1, 0], node_year=[2000])
    with pytest.raises(InputError, match=r"node_year must have shape \[3\]; got \[1\]"):
        load(path)


def test_symmetrise(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=[[0, 1], [1, 2]], y=[0, 1, 0])
    assert load("g", tmp_path).directed
    assert load("g", tmp_path, symmetrise=True).num_edges == 4


@pytest.mark.parametrize("kind", ["Plantoid", "planetoid"])
def test_unknown_pyg_class(kind: str) -> None:
    with pytest.raises(InputError, match=rf"torch_geometric\.datasets has no '{kind}'"):
        load(f"{kind}:Cora")


@pytest.mark.parametrize("name", ["citeseer", "synthetic:nodes=20,classes=2", "KarateClub:"])
def test_one_split_only(name: str) -> None:
    with pytest.raises(InputError, match="split_index must be 0, there is one split only; got 3"):
        load(name, split_index=3)


def test_pyg_dataset_by_name() -> None:
    graph = load("KarateClub:")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 156, 4)


PUBLISHED = {
    "cora": (2708, 10556, 1433, 7),
    "pubmed": (19717, 88648, 500, 3),
    "actor": (7600, 53318, 932, 5),
    "amazon_photo": (7650, 238162, 745, 8),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_larger_data_sets(name: str, data_folder: Path) -> None:
    if not (data_folder / f"{name}.npz").is_file():
        pytest.skip(f"{name}.npz is not in {data_folder}")
    graph = load(name, data_folder)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == PUBLISHED[name]
    assert not graph.directed
    assert graph.notes == ()
