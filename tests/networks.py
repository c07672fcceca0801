"""Networks rewritten with terms, and networks that are no chains."""

from __future__ import annotations

from dataclasses import replace

from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator
from gfgnn.model.blocks import FEATURES, Block, Term
from gfgnn.model.build import Model


def with_terms(model: Model) -> Model:
    """The same chain with every source named."""
    return replace(model, blocks=tuple(_named(block, index) for index, block in enumerate(model.blocks)))


def _named(block: Block, index: int) -> Block:
    below, width = (FEATURES if index == 0 else index - 1), block.in_channels

    def term(hops: int) -> Term:
        return Term(source=below, width=width, hops=hops)

    if block.propagate == "initial":
        terms = [
            Term(
                source=below, width=width, hops=1, scale=1 - block.alpha, initial=0, initial_scale=block.alpha
            )
        ]
    else:
        hops = {
            "none": [0],
            "graph": [1],
            "concat": [0, 1],
            "power": [block.hops],
            "hops": range(block.hops + 1),
        }
        terms = [term(count) for count in hops[block.propagate]]
    return replace(block, propagate="terms", terms=tuple(terms))


def branched(graph: Graph, hidden: int = 6) -> Model:
    """Two input blocks of different matrices, a narrowing block, a normalised residual, all of it concatenated."""
    f, c = graph.num_features, graph.num_classes

    def block(*terms: Term, out: int, **changes: object) -> Block:
        width = sum(t.width for t in terms)
        return Block(propagate="terms", terms=terms, in_channels=width, out_channels=out, **changes)  # type: ignore[arg-type]

    def of(source: int, width: int, hops: int = 0, operator: int = 0) -> Term:
        return Term(source=source, width=width, hops=hops, operator=operator)

    half = hidden // 2
    blocks = (
        block(of(FEATURES, f, 1), out=hidden),
        block(of(FEATURES, f), of(FEATURES, f, 2, 1), out=hidden, activation="leaky_relu", slope=0.2),
        block(of(0, hidden, 1), of(1, hidden, 1, 1), out=hidden, reference="identity", adds=((0, 0.5), (1, 1.0))),
        block(of(2, hidden), out=hidden, weighted=False, norm_eps=1e-5, bias=False),
        block(of(3, hidden, 1), out=half, reference="random"),
        Block(
            propagate="sum", terms=(of(2, hidden), replace(of(0, hidden), scale=2.0)), in_channels=hidden,
            out_channels=hidden, weighted=False, bias=False,
        ),
        block(
            of(4, half, 1), of(5, hidden), of(FEATURES, f), out=c, activation="identity",
        ),
    )  # fmt: skip
    operators = (Operator(), Operator(norm="rw", loops=0.0, weighted=False))
    config = ModelConfig(family="custom", layers=3, hidden=hidden)
    return Model(config, blocks, f, c, graph.task, operators)
