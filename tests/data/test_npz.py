"""The neutral file format: round trips, and files that are damaged or malicious."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gfgnn import Graph, InputError, load
from gfgnn.data import load_npz, npz, save_npz
from gfgnn.graph.features import is_sparse

ARRAYS: dict[str, np.ndarray] = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 3]], dtype=np.int32),
    "x": np.arange(8, dtype=np.uint8).reshape(4, 2),
    "y": np.array([0, 1, -1, 1], dtype=np.int16),
}


def save(path: Path, **changes: Any) -> Path:
    np.savez(path, **{key: value for key, value in {**ARRAYS, **changes}.items() if value is not None})
    return path


def assert_equal(one: Graph, other: Graph) -> None:
    for key in ("edge_index", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(one, key), getattr(other, key)), key
    for key in ("edge_weight", "node_ids"):
        a, b = getattr(one, key), getattr(other, key)
        assert (a is None) == (b is None), key
        assert a is None or torch.equal(a, b), key
    assert (one.num_nodes, one.num_classes, one.task, one.directed) == (
        other.num_nodes,
        other.num_classes,
        other.task,
        other.directed,
    )
    assert (one.x is None) == (other.x is None)
    if one.x is not None and other.x is not None:
        assert is_sparse(one.x) == is_sparse(other.x)
        assert torch.equal(one.x.to_dense(), other.x.to_dense())


@pytest.mark.parametrize(
    "text", ["citeseer", "synthetic:nodes=200,features=0", "synthetic:nodes=50,classes=2"]
)
def test_round_trip(text: str, tmp_path: Path) -> None:
    graph = load(text)
    save_npz(tmp_path / "g.npz", graph)
    assert_equal(load_npz(tmp_path / "g.npz"), graph)
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]


def test_round_trip_weights_ids_and_targets(tmp_path: Path) -> None:
    graph = Graph.from_edges(
        np.array([[0, 1, 2], [1, 2, 0]]),
        4,
        x=torch.eye(4)[:, :3] * 2,
        y=torch.tensor([[0.5, 1.0]] * 4),
        edge_weight=[1.0, 2.0, 0.5],
        train_mask=[0, 3],
    ).subgraph(torch.tensor([0, 2, 3]))
    save_npz(tmp_path / "g.npz", graph)
    assert_equal(load_npz(tmp_path / "g.npz"), graph)


def test_reads_integers_and_unlabelled(tmp_path: Path) -> None:
    graph = load_npz(save(tmp_path / "g.npz", train_idx=np.array([0, 1], dtype=np.uint16)))
    assert graph.x is not None
    assert graph.x.dtype == torch.float32
    assert graph.y.tolist() == [0, 1, -1, 1]
    assert graph.directed
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert (graph.name, graph.num_classes) == ("g", 2)


def test_split_index(tmp_path: Path) -> None:
    path = save(tmp_path / "g.npz", train_mask=np.eye(4, dtype=bool)[:3])
    assert load_npz(path, split_index=2).train_mask.nonzero().tolist() == [[2]]
    with pytest.raises(InputError, match="split_index must lie between 0 and 2; got 3"):
        load_npz(path, split_index=3)
    with pytest.raises(InputError, match="there is one split only; got 1"):
        load_npz(save(tmp_path / "g.npz", train_mask=np.ones(4, dtype=bool)), split_index=1)


@pytest.mark.parametrize(
    ("edges", "option", "directed"),
    [
        ("each undirected edge once (u<v); mirror it for training", None, False),
        ("each undirected edge once", False, True),
        ("directed as published", None, True),
        ("both directions stored", None, True),  # taken at its word about storing, and still checked
        ("directed as published", True, False),
    ],
)
def test_json_says_how_edges_are_stored(
    edges: str, option: bool | None, directed: bool, tmp_path: Path
) -> None:
    (tmp_path / "g.json").write_text(json.dumps({"sizes": {"edges": edges, "num_classes": 5}}))
    graph = load_npz(save(tmp_path / "g.npz"), symmetrise=option)
    assert graph.directed is directed
    assert graph.num_classes == 5


def test_truncated(tmp_path: Path) -> None:
    path = save(tmp_path / "g.npz")
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"g\.npz"):
            load_npz(path)


def test_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez_compressed(path, **{**ARRAYS, "x": np.random.default_rng(0).random((4, 500))})
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="truncated or damaged"):
        load_npz(path)


class Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("exploded",)


def test_pickles_are_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="pickled objects are refused"):
        load_npz(save(tmp_path / "g.npz", y=np.array([Bomb()], dtype=object)))
    assert not (tmp_path / "exploded").exists()
    np.array([Bomb()], dtype=object).dump(tmp_path / "h.npz")
    with pytest.raises(InputError, match="pickled objects are refused"):
        load_npz(tmp_path / "h.npz")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": None}, "g has no edge_index; its arrays are x, y"),
        ({"edge_index": np.array([[0], [4]])}, "names node 4, which does not exist"),
        ({"x": np.full((4, 1), np.nan)}, "4 NaN or infinite"),
        ({"y": np.array([0, 1, 2, 3]), "num_classes": np.array(3)}, "label 3; labels must be 0 to 2"),
        ({"x": None, "x_indptr": np.zeros(5, int)}, "no x_indices"),
        ({"x": None, "y": None}, "the number of nodes is unknown"),
        ({"train_mask": np.ones(3, bool)}, r"shape \[4\]; got \[3\]"),
        ({"train_idx": np.array([0]), "val_idx": np.array([0])}, "both train_mask and val_mask"),
        ({"train_mask": np.array([1, 1, 0, 0], np.uint8)}, "repeats 2 node numbers.*a mask of type bool"),
        ({"y": np.array(["a", "b", "a", "b"])}, "y must hold numbers; got <U1"),
        ({"x": np.array([["a"]] * 4)}, "x must hold numbers; got <U1"),
        ({"edge_weight": np.array(["a"] * 3)}, "edge_weight must hold one number per edge"),
        ({"num_nodes": np.array([4, 4])}, "num_nodes must be one whole number"),
        ({"num_nodes": np.array(4.5)}, "num_nodes must be one whole number"),
        ({"num_classes": np.array("many")}, "num_classes must be one whole number"),
        ({"node_ids": np.array(["a"] * 4)}, "node_ids must hold numbers"),
        (
            {"x": None, "x_indptr": np.zeros(5, int), "x_indices": np.zeros(0), "x_shape": np.array([4])},
            r"x_shape must be two numbers, nodes and features; got \[4\]",
        ),
    ],
)
def test_bad_arrays(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_npz(save(tmp_path / "g.npz", **changes))


def test_a_single_array_is_no_graph(tmp_path: Path) -> None:
    with (tmp_path / "g.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="holds a single array"):
        load_npz(tmp_path / "g.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, graph = tmp_path / "g.npz", load("synthetic:nodes=50")
    save_npz(path, graph)
    before = path.read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npz.np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        save_npz(path, graph)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["g.npz"]


RELATIONS: dict[str, Any] = {"edge_type": [0, 1, 1, 4, 0], "num_relations": 6}


@pytest.mark.parametrize("options", [RELATIONS, {"keep_raw": True}, {**RELATIONS, "symmetrise": True}])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
def test_round_trip_of_edges_as_given(
    options: dict[str, Any], dtype: torch.dtype | None, tmp_path: Path
) -> None:
    weight = None if dtype is None else torch.arange(5, dtype=dtype) / 3
    graph = Graph.from_edges([[0, 1, 1, 0, 2], [0, 0, 0, 1, 1]], 4, edge_weight=weight, **options)
    save_npz(tmp_path / "g.npz", graph)
    back = load_npz(tmp_path / "g.npz")
    assert_equal(back, graph)
    assert back.num_relations == graph.num_relations
    for key in ("edge_index", "edge_weight", "edge_type"):
        one, other = getattr(graph.raw, key), getattr(back.raw, key)
        assert (one is None) == (other is None), key
        assert one is None or (one.dtype == other.dtype and torch.equal(one, other)), key


def test_relations_beside_plain_edges(tmp_path: Path) -> None:
    """A file made by hand: ``edge_type`` is of ``edge_index``, and mirrored with it."""
    path = save(tmp_path / "g.npz", edge_type=np.array([2, 0, 1], dtype=np.uint16))
    graph = load_npz(path)
    assert graph.raw is not None
    assert graph.raw.edge_type is not None
    assert (graph.num_relations, graph.raw.edge_type.tolist()) == (3, [2, 0, 1])
    both = load_npz(path, symmetrise=True).raw
    assert both is not None
    assert both.edge_type is not None
    assert both.edge_type.tolist() == [2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_type": np.array([0, 1])}, r"edge_type must have shape \[3\]"),
        ({"edge_type": np.array([0, 1, 2]), "num_relations": np.array(2)}, "edge_type holds 2"),
        ({"num_relations": np.array(2)}, "num_relations=2 needs edge_type"),
        ({"raw_edge_weight": np.ones(3)}, "raw_edge_weight but no raw_edge_index"),
        ({"raw_edge_index": np.array([[9], [0]])}, "raw_edge_index and its edges: edge_index names node 9"),
        (
            {"raw_edge_index": np.array([[1], [0]]), "edge_type": np.array([0, 1])},
            r"raw_edge_index .* shape \[1\]",
        ),
    ],
)
def test_damaged_relations(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_npz(save(tmp_path / "g.npz", **changes))
