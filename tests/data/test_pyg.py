"""PyG's objects with relations: multi-edges and self-loops kept, ``HeteroData`` as one graph."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import RGCNConv

from gfgnn import Graph, InputError
from gfgnn.graph.edges import EdgeList

EDGES = torch.tensor([[0, 1, 1, 0, 2], [0, 0, 0, 1, 1]])
TYPES = torch.tensor([0, 1, 1, 1, 0])


def raw_of(graph: Graph) -> EdgeList:
    assert graph.raw is not None
    return graph.raw


def assert_same(one: Graph, other: Graph) -> None:
    for a, b in ((one, other), (one.raw, other.raw)):
        for key in ("edge_index", "edge_weight", "edge_type", "num_relations"):
            left, right = getattr(a, key, None), getattr(b, key, None)
            equal = torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right
            assert equal, key


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("related", [False, True])
def test_round_trip_of_repeated_edges_self_loops_and_relations(weighted: bool, related: bool) -> None:
    weight = torch.arange(1.0, 6.0) if weighted else None
    kind = {"edge_type": TYPES, "num_relations": 3} if related else {}
    data = Data(x=torch.eye(3), edge_index=EDGES, edge_weight=weight, **kind)
    graph = Graph.from_pyg(data)
    assert graph.num_relations == (3 if related else 1)
    assert torch.equal(raw_of(graph).edge_index, EDGES)
    back = graph.to_pyg()
    assert torch.equal(back.edge_index, EDGES)
    assert ("edge_type" in back) is related
    assert_same(Graph.from_pyg(back), graph)


@pytest.mark.parametrize("other", [(torch.eye(3), EDGES), {"x": torch.eye(3)}, [], None])
def test_other_objects_are_refused(other: object) -> None:
    with pytest.raises(InputError, match=f"must be a Data or HeteroData .* got {type(other).__name__}"):
        Graph.from_pyg(other)


def test_clean_edges_need_no_raw() -> None:
    assert Graph.from_pyg(Data(x=torch.eye(3), edge_index=EDGES[:, 3:])).raw is None


@pytest.mark.parametrize(
    "edge_type", [TYPES.double(), TYPES[:, None], TYPES[:2], TYPES.bool(), ["a"] * 5], ids=str
)
def test_other_uses_of_the_name_edge_type_are_left_behind(edge_type: object) -> None:
    graph = Graph.from_pyg(Data(x=torch.eye(3), edge_index=EDGES, edge_type=edge_type, num_relations=9))
    assert graph.num_relations == 1
    assert raw_of(graph).edge_type is None


def test_too_few_relations() -> None:
    with pytest.raises(InputError, match="edge_type holds 1; relations are 0 to 0"):
        Graph.from_pyg(Data(x=torch.eye(3), edge_index=EDGES, edge_type=TYPES, num_relations=1))


def library() -> HeteroData:
    data = HeteroData()
    data["author"].x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    data["paper"].x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    data["paper"].y = torch.tensor([1, 0, 2])
    data["paper"].train_mask = torch.tensor([[True, False], [False, True], [False, False]])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 2, 2]])
    data["paper", "by", "author"].edge_index = torch.tensor([[0], [1]])
    return data


def test_hetero_data_is_one_graph() -> None:
    data = library()
    graph = Graph.from_pyg(data, split_index=1, name="library")
    whole = data.to_homogeneous()
    raw = raw_of(graph)
    assert torch.equal(raw.edge_index, whole.edge_index)
    assert raw.edge_type is not None
    assert torch.equal(raw.edge_type, whole.edge_type)
    assert graph.num_relations == 3
    assert graph.x is not None
    assert torch.equal(graph.x, whole.x)
    assert graph.y.tolist() == [-1, -1, 1, 0, 2]
    assert graph.train_mask.tolist() == [False, False, False, True, False]
    assert not graph.val_mask.any()
    assert graph.notes[:2] == (
        "relations: 0 = author writes paper, 1 = paper cites paper, 2 = paper by author",
        "nodes by type: author 0 to 1, paper 2 to 4; the type itself is left behind, models see it only where x tells",
    )
    assert_same(Graph.from_pyg(graph.to_pyg()), graph)
    with pytest.raises(InputError, match="split_index must lie between 0 and 1"):
        Graph.from_pyg(data, split_index=2)


def test_a_relational_convolution_of_pyg_sees_the_same() -> None:
    """Relation numbers, directions, repeated edges: RGCNConv gives the same on PyG's own homogeneous graph."""
    data = library()
    torch.manual_seed(0)
    layer = RGCNConv(4, 2, 3, aggr="add")
    whole, graph = data.to_homogeneous(), Graph.from_pyg(data)
    raw = raw_of(graph)
    one = layer(whole.x, whole.edge_index, whole.edge_type)
    other = layer(graph.x, raw.edge_index, raw.edge_type)
    assert torch.equal(one, other)


def test_weights_of_some_edge_types() -> None:
    data = library()
    assert raw_of(Graph.from_pyg(data)).edge_weight is None
    data["paper", "cites", "paper"].edge_weight = torch.tensor([2.0, 3.0, 4.0])
    weight = raw_of(Graph.from_pyg(data)).edge_weight
    assert weight is not None
    assert weight.tolist() == [1, 1, 1, 2, 3, 4, 1]
    data["paper", "by", "author"].edge_weight = torch.ones(2)
    with pytest.raises(
        InputError, match=r"edge_weight of \('paper', 'by', 'author'\) must have shape \[1\]; got \[2\]"
    ):
        Graph.from_pyg(data)


def test_transposed_adjacency_of_an_edge_type() -> None:
    data = library()
    relation = ("paper", "by", "author")
    del data[relation].edge_index
    data[relation].adj_t = torch.tensor([[0.0, 0, 0], [1, 0, 0]]).to_sparse_csr()  # row is the author
    assert_same(Graph.from_pyg(data), Graph.from_pyg(library()))


def test_labels_of_several_types_and_kinds() -> None:
    data = library()
    data["author"].y = torch.tensor([0.5, 2.0])
    graph = Graph.from_pyg(data)
    assert (graph.task, graph.y[:, 0].tolist()) == ("regression", [0.5, 2, 1, 0, 2])
    data["author"].y = torch.ones(2, 3)
    with pytest.raises(InputError, match="y of all labelled node types must have the same width; got"):
        Graph.from_pyg(data)
    del data["author"].y
    data["paper"].y = torch.tensor([[0, 1], [1, 1], [0, 0]])
    graph = Graph.from_pyg(data)
    assert graph.task == "multilabel"
    assert graph.labelled(torch.ones(5, dtype=torch.bool)).tolist() == [2, 3, 4]
    del data["paper"].y
    assert (Graph.from_pyg(data).y == -1).all()
    assert not Graph.from_pyg(data).train_mask.any()


def test_features_of_different_widths_are_named() -> None:
    data = library()
    data["author"].x = torch.ones(2, 3)
    with pytest.raises(
        InputError, match=r"same width; got author 3, paper 4\. Bring them to one width first: pad"
    ):
        Graph.from_pyg(data)
    del data["author"].x
    data["author"].num_nodes = 2
    with pytest.raises(InputError, match="got author none, paper 4"):
        Graph.from_pyg(data)
    del data["paper"].x
    data["paper"].num_nodes = 3
    assert Graph.from_pyg(data).x is None
    assert data.node_types == ["author", "paper"]


def test_damaged_hetero_data() -> None:
    data = library()
    data["author", "writes", "paper"].edge_index = torch.tensor([[2], [0]])
    with pytest.raises(InputError, match="name node 2 of type 'author', which has 2 nodes"):
        Graph.from_pyg(data)
    data["author", "writes", "paper"].edge_index = torch.tensor([0, 1])
    with pytest.raises(InputError, match=r"must have shape \[2, E\]; got \[2\]"):
        Graph.from_pyg(data)
    del data["author", "writes", "paper"].edge_index
    data["author", "writes", "paper"].edge_attr = torch.ones(3, 2)
    with pytest.raises(InputError, match="must have edge_index or adj_t; they have"):
        Graph.from_pyg(data)
    data = library()
    data["paper", "in", "venue"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(InputError, match="venue"):
        Graph.from_pyg(data)
    nothing = HeteroData()
    nothing["paper"].x = torch.ones(2, 1)
    with pytest.raises(InputError, match="data must have edges; it has the node types paper"):
        Graph.from_pyg(nothing)
