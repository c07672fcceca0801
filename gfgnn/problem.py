"""A training problem: a model and a graph brought together, with everything computed that never changes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.grid import ProcessGrid, serial_grid
from gfgnn.graph.graph import Graph
from gfgnn.graph.homophily import label_homophily
from gfgnn.graph.operators import build_operator
from gfgnn.graph.order import Order, node_order, reordered
from gfgnn.graph.propagation import Propagator
from gfgnn.model.blocks import FEATURES
from gfgnn.model.build import Model
from gfgnn.model.inputs import Inputs
from gfgnn.model.term_inputs import inputs_of
from gfgnn.model.wiring import is_input, sources
from gfgnn.ops.memory import page_out


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Numbers about the whole problem that every rank knows.

    Attributes:
        num_nodes: N.
        num_train: k, labelled training nodes.
        num_val: labelled validation nodes.
        homophily: of the training labels, see :func:`gfgnn.graph.homophily.label_homophily`.
    """

    num_nodes: int
    num_train: int
    num_val: int
    homophily: float


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solver trains on: on a grid of ranks, the nodes of this rank's part and the blocks of its stage.

    Attributes:
        grid: the ranks; 1 x 1 where one device has everything.
        bounds: the first block of each stage, and the number of blocks: ``(0, ..., B)``.
        propagations: the model's propagation matrices, rows of this part's nodes.
        block_inputs: T of every block that takes the features alone, as a linear map ``[N, fan_in]``, by block number;
            in a chain block 0's, and none above stage 0.
        features: X ``[N, F]``, dense, where a block takes them beside other sources; else None.
        y: labels of this part's nodes.
        node_ids: numbers of this part's nodes in the whole graph, ``[N]``, in the order of all rows here; see
            :mod:`gfgnn.graph.order`.
        targets: ``[k, C]``: one-hot classes, 0/1 labels or values of the labelled training nodes.
        train_index, val_index, test_index: labelled nodes of each split, by this part's numbering.

    In shapes, here and in the solver, N and k count this part's nodes; sums over all nodes are sums over
    ``grid.parts``.
    """

    model: Model
    grid: ProcessGrid
    bounds: tuple[int, ...]
    facts: Facts
    propagations: tuple[Propagator, ...]
    block_inputs: dict[int, Inputs]
    features: Tensor | None
    y: Tensor
    node_ids: Tensor
    targets: Tensor
    train_index: Tensor
    val_index: Tensor
    test_index: Tensor
    dtype: torch.dtype
    device: torch.device

    @property
    def inputs(self) -> Inputs:
        """T of block 0; only stage 0 has it."""
        return self.block_inputs[0]

    @property
    def propagation(self) -> Propagator:
        """S of a chain; in any network the first matrix, which knows the number of nodes."""
        return self.propagations[0]

    def propagations_for(self, purpose: str) -> tuple[Propagator, ...]:
        """The propagation matrices, with what their products send booked under ``purpose``."""
        return tuple(s.for_purpose(purpose) for s in self.propagations)

    def by_node(self, rows: Tensor) -> Tensor:
        """Rows ``[N, ...]`` in the order of the graph that was given; only where one part has all nodes."""
        assert rows.size(0) == self.facts.num_nodes
        ordered = torch.empty_like(rows)
        ordered[self.node_ids.to(rows.device)] = rows
        return ordered

    @property
    def span(self) -> range:
        """Numbers of this rank's blocks."""
        return range(self.bounds[self.grid.stage], self.bounds[self.grid.stage + 1])

    @property
    def is_first(self) -> bool:
        """Whether this rank holds block 0."""
        return self.span.start == 0

    @property
    def is_last(self) -> bool:
        """Whether this rank holds the output block."""
        return self.span.stop == len(self.model.blocks)


def prepare(
    model: Model,
    graph: Graph,
    *,
    order: Order | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Problem:
    """Builds the propagation matrix and propagates the features, for one device.

    Args:
        order: in which rows are stored; None for the graph's own. :meth:`Problem.by_node` undoes it.

    Raises:
        InputError: features or classes of ``graph`` do not fit ``model``.
    """
    check_model_fits(model, graph)
    order = order or node_order(graph, "none")
    graph = reordered(graph, order)
    assert graph.x is not None
    propagations: tuple[Propagator, ...] = tuple(
        build_operator(graph, operator, dtype).to(dtype, device) for operator in model.operators
    )
    features = graph.x.to(device=device, dtype=dtype)
    train = graph.labelled(graph.train_mask)
    problem = Problem(
        model=model,
        grid=serial_grid(),
        bounds=(0, len(model.blocks)),
        facts=facts_of(graph),
        propagations=propagations,
        block_inputs={
            index: inputs_of(block, propagations, features)
            for index, block in enumerate(model.blocks)
            if is_input(model.blocks, index)
        },
        features=_dense_features(model, features),
        y=graph.y.to(device),
        node_ids=order.nodes.to(device),
        targets=training_targets(model, graph.y[train]).to(device=device, dtype=dtype),
        train_index=train.to(device),
        val_index=graph.labelled(graph.val_mask).to(device),
        test_index=graph.labelled(graph.test_mask).to(device),
        dtype=dtype,
        device=torch.device(device),
    )
    page_out(graph.mapped_parts())
    return problem


def _dense_features(model: Model, features: Tensor) -> Tensor | None:
    """X as a dense table, where a block takes it together with other sources."""
    blocks = model.blocks
    mixed = [
        index
        for index, block in enumerate(blocks)
        if FEATURES in (s for s, _ in block.adds)
        or (not is_input(blocks, index) and FEATURES in sources(block, index))
    ]
    if not mixed:
        return None
    return features.to_dense() if features.layout == torch.sparse_csr else features


def check_model_fits(model: Model, graph: Graph) -> None:
    """Raises :class:`InputError` unless ``graph`` has the features, classes and task that ``model`` was built for."""
    if graph.x is None or graph.num_features != model.num_features:
        raise InputError(
            f"The model takes {model.num_features} features a node; {graph.name} has {graph.num_features}."
        )
    if graph.num_classes != model.num_classes or graph.task != model.task:
        raise InputError(
            f"The model predicts {model.num_classes} {model.task} outputs; {graph.name} has {graph.num_classes} "
            f"({graph.task})."
        )


def facts_of(graph: Graph) -> Facts:
    """The :class:`Facts` of a graph."""
    train = graph.labelled(graph.train_mask)
    return Facts(
        num_nodes=graph.num_nodes,
        num_train=train.numel(),
        num_val=graph.labelled(graph.val_mask).numel(),
        homophily=label_homophily(graph, train),
    )


def training_targets(model: Model, y: Tensor) -> Tensor:
    """``[k, C]`` targets from the labels ``y`` of k nodes; classes become one-hot rows."""
    if model.task == "multiclass":
        return torch.nn.functional.one_hot(y, model.num_classes)
    return y
