"""What partition_nodes is made of: the check before METIS, the repair, the report, the fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_graphs import nasty, planted, problem_of, undirected
from random_graphs import random_graph

from gfgnn.checks import InputError
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import COUNTED, check_partition, ldg, partition_nodes
from gfgnn.graph.partition.check import check_problem, degenerate, exceeded_limit
from gfgnn.graph.partition.repair import repair
from gfgnn.graph.partition.report import measure

NASTY = nasty()


def test_a_sound_problem_passes() -> None:
    for graph in NASTY.values():
        check_problem(problem_of(graph, [1, 1], COUNTED if graph.num_edges else ("nodes",)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([1, 0, 2, 1], dtype=np.int32)}, "indices must be int64; got int32"),
        ({"weights": np.ones((3, 1))}, "weights must be int64; got float64"),
        ({"indptr": np.array([0, 1, 3, 5])}, "indptr must rise from 0 to 4"),
        ({"indptr": np.array([0, 3, 1, 4])}, "indptr must rise"),
        ({"indptr": np.array([[0, 1, 3, 4]])}, "one-dimensional"),
        ({"indices": np.array([1, 0, 3, 1])}, "indices name node 3, which does not exist"),
        ({"indices": np.array([1, 0, 1, 1])}, "node 1 is its own neighbour"),
        ({"indices": np.array([1, 2, 0, 1])}, "neighbours of node 1 must be ascending"),
        ({"indices": np.array([1, 0, 2, 0])}, "node 1 has neighbour 2, but not back"),
        ({"weights": np.ones((4, 1), np.int64)}, r"a row for each of 3 nodes; got shape \[4, 1\]"),
        ({"weights": np.ones(3, np.int64)}, "a row for each of 3 nodes"),
        ({"weights": np.array([[1], [-1], [1]])}, "must not be negative; got -1"),
        ({"weights": np.array([[1, 0], [1, 0], [1, 0]])}, "all zero"),
        ({"shares": np.array([0.5, 0.6])}, "sum to 1"),
        ({"shares": np.array([1.5, -0.5])}, "shares must be positive"),
    ],
)
def test_what_metis_would_accept_silently(changes: dict[str, Any], message: str) -> None:
    sound = problem_of(undirected([(0, 1), (1, 2)], 3), [1, 1])
    with pytest.raises(InputError, match=message):
        check_problem(replace(sound, **changes))


def test_limits_of_integers() -> None:
    problem = problem_of(NASTY["complete"], [1, 1])
    assert exceeded_limit(problem, np.int32) is None
    assert "132 stored edges exceed the 127 of its int8 integers" in str(exceeded_limit(problem, np.int8))
    heavy = replace(problem, weights=np.full((12, 1), 2**30))
    assert "total node weight" in str(exceeded_limit(heavy, np.int32))
    assert exceeded_limit(heavy, np.int64) is None


def test_what_metis_must_not_see() -> None:
    assert degenerate(problem_of(NASTY["no edges"], [1, 1])) == "the graph has no edges"
    assert "fewer than 4 nodes" in str(degenerate(problem_of(NASTY["path"], [1] * 7)))
    assert "fewer than 4 nodes" in str(degenerate(problem_of(NASTY["path"], [1, 9])))
    assert "weighs more" in str(degenerate(problem_of(NASTY["star"], [1] * 3, ("edges",))))
    assert degenerate(problem_of(NASTY["path"], [1] * 6)) is None


@pytest.mark.parametrize("shares", [[1, 1], [1, 1, 1, 1], [1, 2, 5]])
@pytest.mark.parametrize("name", list(NASTY))
def test_everything_in_one_part_is_repaired(name: str, shares: list[int]) -> None:
    graph = NASTY[name]
    problem = problem_of(graph, shares)
    mended, note = repair(problem, np.full(graph.num_nodes, 1))
    assert note is not None
    assert "empty parts of the answer by moving" in note
    count = np.bincount(mended, minlength=len(shares))
    assert np.abs(count - problem.target[:, 0]).max() <= len(shares)


def test_an_empty_part_takes_whole_pieces_first() -> None:
    """Three rings of ten: parts 0 and 1 share two of them badly, the third ring is moved whole and cuts nothing."""
    problem = problem_of(NASTY["components"], [1, 1, 1])
    mended, _ = repair(problem, np.repeat([0, 1, 1], 10))
    assert np.bincount(mended).tolist() == [10, 10, 10]
    assert problem.count_cut(mended) == 0


@pytest.mark.parametrize("first", [0, 10])
def test_small_pieces_go_before_a_large_one(first: int) -> None:
    """A path of 20 nodes and two of 5, in either order of numbers: the short ones fill the empty part exactly."""
    lengths = [20, 5, 5] if first == 0 else [5, 5, 20]
    starts = np.cumsum([0, *lengths[:-1]])
    edges = [(s + i, s + i + 1) for s, length in zip(starts, lengths, strict=True) for i in range(length - 1)]
    problem = problem_of(undirected(edges, 30), [2, 1])
    mended, _ = repair(problem, np.zeros(30, dtype=np.int64))
    assert np.flatnonzero(mended == 0).tolist() == list(range(first, first + 20))


def test_what_an_empty_part_takes_is_connected() -> None:
    problem = problem_of(NASTY["path"], [1, 1, 1])
    mended, note = repair(problem, np.repeat([0, 2], [13, 12]))
    assert problem.count_cut(mended) <= 4
    assert (np.bincount(mended) >= 7).all()
    assert note == f"repaired 1 empty parts of the answer by moving {int((mended == 1).sum())} nodes"


def test_a_starved_part_is_filled_and_a_sound_answer_left_alone() -> None:
    graph = planted(2_000)
    problem = problem_of(graph, [1, 1, 1, 1])
    lopsided = np.zeros(2_000, dtype=np.int64)
    lopsided[:3] = [1, 2, 3]
    mended, note = repair(problem, lopsided)
    assert np.bincount(mended).tolist() == [500, 500, 500, 500]
    assert "3 starved parts" in str(note)
    assert problem.count_cut(mended) < 0.75 * graph.num_edges / 2  # better than random

    sound = ldg.assign(problem)
    same, note = repair(problem, sound)
    assert note is None
    assert np.array_equal(same, sound)


def test_a_part_gets_a_node_even_where_its_share_is_less_than_one() -> None:
    problem = problem_of(undirected([(0, 1), (1, 2), (2, 3)], 4), [8, 1, 1])
    mended, _ = repair(problem, np.zeros(4, dtype=np.int64))
    assert np.bincount(mended).tolist() == [2, 1, 1]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_repair_leaves_no_part_empty(data: st.DataObject) -> None:
    graph = NASTY[data.draw(st.sampled_from(sorted(NASTY)))]
    parts = data.draw(st.integers(1, graph.num_nodes))
    kinds = data.draw(st.sampled_from([("nodes",), ("labelled",), ("nodes", "labelled")]))
    used = data.draw(st.integers(1, parts))
    broken = np.array(
        data.draw(st.lists(st.integers(0, used - 1), min_size=graph.num_nodes, max_size=graph.num_nodes))
    )
    mended, _ = repair(problem_of(graph, [1] * parts, kinds), broken)
    assert (np.bincount(mended, minlength=parts) > 0).all()


def test_ldg_keeps_the_capacity_and_uses_the_structure() -> None:
    problem = problem_of(planted(3_000), [1, 2, 3], imbalance=0.0)
    assignment = ldg.assign(problem)
    assert (problem.load(assignment) <= problem.capacity).all()
    shuffled = np.random.default_rng(0).permutation(assignment)
    assert problem.count_cut(assignment) < 0.7 * problem.count_cut(shuffled)


def test_label_propagation_ends_where_no_move_helps() -> None:
    """Two cliques of six: a node in the wrong one goes home, and then nothing moves."""
    cliques = [(c + i, c + j) for c in (0, 6) for i in range(6) for j in range(i)]
    stream = ldg.Stream(problem_of(undirected(cliques, 12), [1, 1], imbalance=0.5))
    nodes, cut_well = np.arange(12), np.repeat([0, 1], 6)
    stream.move(nodes, np.where(nodes == 3, 1, cut_well))
    assert stream.refine(nodes) == 1
    assert np.array_equal(stream.assignment, cut_well)
    assert stream.load.ravel().tolist() == [6, 6]
    assert stream.refine(nodes) == 0


@pytest.mark.parametrize("directed", [False, True])
def test_report_against_its_definition(directed: bool) -> None:
    graph = random_graph(3, nodes=40, directed=directed, labelled=17)
    assert graph.directed is directed
    assignment = torch.randint(3, (40,), generator=torch.Generator().manual_seed(0))
    report = measure(graph, assignment, [0.5, 0.25, 0.25])
    part, edges = assignment.tolist(), list(zip(*graph.edge_index.tolist(), strict=True))
    pairs = {frozenset(edge) for edge in edges}
    cut = [pair for pair in pairs if len({part[i] for i in pair}) == 2]
    assert (report.num_edges, report.edge_cut) == (len(pairs), len(cut))
    assert report.cut_share == len(cut) / len(pairs)
    halo = [len({j for j, i in edges if part[i] == p and part[j] != p}) for p in range(3)]
    assert report.halo == tuple(halo)
    assert report.replication_factor == pytest.approx((40 + sum(halo)) / 40)
    assert report.nodes == tuple(part.count(p) for p in range(3))
    assert report.edges == tuple(sum(part[i] == p for _, i in edges) for p in range(3))
    assert report.labelled == tuple(part[:17].count(p) for p in range(3))
    relative = [count / (share * 17) for count, share in zip(report.labelled, (0.5, 0.25, 0.25), strict=True)]
    assert report.balance["labelled"] == pytest.approx(max(relative))


def test_describe() -> None:
    partition = partition_nodes(NASTY["components"], 3)
    assert partition.describe() == "\n".join(
        [
            "30 nodes in 3 parts by pymetis, balancing nodes, seed 0",
            "note: auto took pymetis, for one constraint",
            "edge cut 0 of 30 edges (0.0%), 0 halo rows, replication factor 1.000",
            "     part  share  nodes  edges  labelled  halo rows",
            *(
                f"        {p}  0.333     10     20         {partition.report.labelled[p]}          0"
                for p in range(3)
            ),
            "max/share         1.000  1.000     1.200",
        ]
    )
    assert repr(partition) == "Partition(30 nodes in 3 parts by pymetis, 0.0% of edges cut)"


def test_fingerprint_sees_nodes_edges_and_weights_only() -> None:
    graph = NASTY["path"]
    edges = graph.edge_index
    print_ = fingerprint(graph)
    assert len(print_) == 32
    assert print_ == fingerprint(graph.replace(y=1 - graph.y, name="other"))
    assert print_ == fingerprint(Graph.from_edges(edges.flip(1), 25))
    ones = Graph.from_edges(edges, 25, edge_weight=torch.ones(edges.size(1)))
    twos = Graph.from_edges(edges, 25, edge_weight=torch.full((edges.size(1),), 2.0))
    others = [Graph.from_edges(edges, 26), Graph.from_edges(edges[:, 1:], 25), ones, twos]
    assert len({print_, *map(fingerprint, others)}) == 5


def test_check_partition() -> None:
    graph, other = NASTY["path"], NASTY["components"]
    partition = partition_nodes(graph, 3)
    check_partition(partition, graph, 3)
    empty = torch.where(partition.assignment == 1, 0, partition.assignment)
    for changed, of, parts, message in [
        (partition, graph, 4, "has 3 parts; 4 are needed"),
        (partition, other, 3, "is of another graph: its fingerprint is"),
        (replace(partition, assignment=empty), graph, 3, "part 1 has no node"),
        (
            replace(partition, assignment=empty.int()),
            graph,
            3,
            r"int64 \[25\], a part for every node; got torch.int32",
        ),
        (replace(partition, assignment=empty[1:]), graph, 3, r"got torch.int64 \[24\]"),
        (replace(partition, assignment=empty + 1), graph, 3, "names part 3; parts are 0 to 2"),
    ]:
        with pytest.raises(InputError, match=message):
            check_partition(changed, of, parts)
