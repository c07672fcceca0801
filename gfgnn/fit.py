"""Trains a PyG module with the block solver, in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.interrupts import held
from gfgnn.loop import Callback
from gfgnn.model.from_pyg import from_pyg
from gfgnn.result import Result
from gfgnn.train import train

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data


def fit(
    module: torch.nn.Module,
    data: Data | Graph,
    config: TrainConfig | None = None,
    *,
    split_index: int = 0,
    on_iteration: Callback | None = None,
    **settings: Any,
) -> Result:
    """Trains an unmodified PyG module without backpropagation and writes the weights back into it.

    :func:`gfgnn.from_pyg` reads the module as blocks, :func:`gfgnn.train` trains them from a start of the solver's own
    (the module's present weights are not used), and the iterate with the best validation accuracy is written into the
    same module: ``module.eval()(data.x, data.edge_index)`` then predicts as the result says, up to the rounding of the
    module's dtype. Parameters whose ``requires_grad`` is False are trained too, with a warning. Until all is
    trained and checked the module is not touched. Ctrl-C ends training early and the best iterate so far is written.

    Args:
        module: what :func:`gfgnn.from_pyg` can read; dropout layers are left out in training, the solver has its own.
        data: ``x``, ``edge_index``, ``y`` and the masks, as PyG keeps them; or a :class:`gfgnn.Graph`.
        config: solver and iterations.
        split_index: which split to take where the masks are ``[N, S]``.
        on_iteration: receives the history line of each iteration.
        **settings: fields of :class:`gfgnn.TrainConfig` in place of those of ``config``, as in
            ``fit(module, data, seed=1)``.

    Raises:
        InputError: the module cannot be converted (the message names the layers), the data cannot be trained on, or a
            setting is wrong; the module is as it was.
    """
    config = replace(config or TrainConfig(), **settings)
    graph = data if isinstance(data, Graph) else Graph.from_pyg(data, split_index=split_index)
    model = from_pyg(module, graph)
    result = train(model, model.graph, config, on_iteration=on_iteration)
    with held() as interrupts:  # the module is written as a whole, whenever Ctrl-C comes
        model.write(result.weights)
    return replace(result, interrupted=True) if interrupts else result
