"""RevGNN: the derivatives of its reversible layers, and that depth costs no memory."""

from __future__ import annotations

import gc

import pytest
import torch
from random_graphs import dense_propagation, random_graph
from torch.nn import functional as F

from gfgnn.baseline.chain import perceptron
from gfgnn.baseline.revgnn import RevNetwork, run
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.problem import prepare


def network(
    graph: Graph, layers: int, *, concat: bool = False, reversible: bool = True, hidden: int = 8
) -> RevNetwork:
    problem = prepare(perceptron(graph, hidden, 2), graph)
    s = build_operator(graph, Operator(), torch.float32)
    return RevNetwork(problem, s, layers, 2, concat, torch.Generator().manual_seed(0), reversible)


def dense_scores(graph: Graph, net: RevNetwork) -> torch.Tensor:
    """The definition, group by group, with a dense S and no dropout."""
    s = dense_propagation(graph).float()
    h = graph.x @ net.weight + net.bias
    for block in net.blocks:
        groups = h.chunk(2, 1)
        above, made = groups[1], []
        for f, x in zip(block.convs, groups, strict=True):
            t = F.layer_norm(above, (x.size(1),), f.norm.weight, f.norm.bias).relu()
            z = s @ t @ f.neighbours.weight.t() + f.neighbours.bias
            above = x + z + (0.0 if f.own is None else t @ f.own.weight.t() + f.own.bias)
            made.append(above)
        h = torch.cat(made, 1)
    h = F.layer_norm(h, (h.size(1),), net.norm.weight, net.norm.bias).relu()
    return h @ net.output.weight.t() + net.output.bias


@pytest.mark.parametrize("concat", [False, True])
def test_scores_and_derivatives_are_those_of_the_definition(concat: bool) -> None:
    graph = random_graph(1, nodes=20, labelled=9)
    net = network(graph, 5, concat=concat)
    scores = net(torch.Generator(), 0.0)
    expected = dense_scores(graph, net)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
    parameters = list(net.parameters())
    ours = torch.autograd.grad(F.cross_entropy(scores, graph.y), parameters)
    theirs = torch.autograd.grad(F.cross_entropy(expected, graph.y), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_dropout_is_the_same_on_the_way_back() -> None:
    graph = random_graph(1, nodes=20, labelled=9)
    found = []
    for reversible in (True, False):
        net = network(graph, 4, reversible=reversible)
        scores = net(torch.Generator().manual_seed(5), 0.5)
        found.append(torch.autograd.grad(F.cross_entropy(scores, graph.y), list(net.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def held(net: RevNetwork) -> int:
    """Bytes of the tensors that are made on the way forth and alive before the way back."""
    gc.collect()
    gc.freeze()  # what there is before, other tests' tensors among them, is not looked at
    try:
        kept = net(torch.Generator().manual_seed(0), 0.5)
        gc.collect()
        storages = {}
        for item in gc.get_objects():
            if isinstance(item, torch.Tensor) and item.layout == torch.strided:
                storages[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
    finally:
        gc.unfreeze()
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    total = sum(size for place, size in storages.items() if place not in weights)
    # what autograd has saved of operators is not seen by the collector
    saved = 0
    seen, todo = set(), [kept.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [below for below, _ in node.next_functions]
        for name in dir(node):
            value = getattr(node, name, None) if name.startswith("_saved") else None
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                saved += value.untyped_storage().nbytes()
    return total + saved


@pytest.mark.filterwarnings("ignore")
def test_memory_does_not_grow_with_depth() -> None:
    graph = random_graph(1, nodes=400, labelled=9)
    activations = 400 * 32 * 4
    few, many = held(network(graph, 8, hidden=32)), held(network(graph, 24, hidden=32))
    assert many - few < 2 * activations
    plain = held(network(graph, 24, hidden=32, reversible=False))
    assert plain - many > 22 * activations  # the measure sees what a network without it keeps


def test_groups_must_divide_the_columns() -> None:
    graph = random_graph()
    with pytest.raises(InputError, match="2 groups; got hidden 7"):
        run(graph, ModelConfig(family="gcn", layers=2, hidden=7), budget=Budget(), seed=0, threads=1)
