"""Training: on this device, or on a grid of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gfgnn.checks import InputError, check_device
from gfgnn.config import CUSTOM, ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.order import Order
from gfgnn.graph.validate import check_trainable
from gfgnn.interrupts import held
from gfgnn.launch.environment import under_torchrun
from gfgnn.loop import DTYPES, Callback, Outcome, Run, copies
from gfgnn.model.build import Model, build_model
from gfgnn.model.wiring import is_chain
from gfgnn.ops.memory import keep_freed_memory, return_freed_memory
from gfgnn.ordering import order_of
from gfgnn.plan.plan import Plan
from gfgnn.planning import Fit, check_grid, fit_memory, make_plan
from gfgnn.problem import prepare
from gfgnn.result import Result, peak_rss_bytes
from gfgnn.solver.base import Solver


def train(
    model: Model | ModelConfig,
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    on_iteration: Callback | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    plan: Plan | None = None,
    folder: Path | None = None,
    fit: Fit | None = None,
) -> Result:
    """Trains a network and returns the iterate that was best on the validation nodes.

    Every iteration is evaluated (or every ``config.eval_every``-th) with the weights after its step, in a
    plain forward pass; evaluation is not counted in the training seconds. Patience counts the iterations since
    the validation score or the validation loss was last better than before. Ctrl-C ends training early and
    the best iterate so far is returned, with ``interrupted`` set; before the first evaluation it is passed on.

    With ``config.parts`` or ``config.stages`` above 1 the work is split over as many ranks: local processes that
    this call starts and ends, or the processes that torchrun started, each of which must then make this call (all but
    rank 0 may use :func:`gfgnn.launch.grid.serve` instead, which needs no graph).

    With ``config.out_of_core`` the parts take turns in this process, and what the others hold is on the disk; the
    result is that of a grid of as many parts. ``config.memory_limit`` has settings chosen that keep to it.

    A network with ``label_inputs`` is trained with the labels of a half of the training nodes as inputs, on the other
    half (:mod:`gfgnn.label_reuse`); scores of the run are those with these inputs, and :func:`gfgnn.predict` puts in
    the labels of all training nodes. With ``label_reuse`` another network is trained before.

    Nodes may be stored in another order than that of ``graph`` (``config.order``), which is found once for a graph and
    counted as set-up; everything that comes back is in the graph's own order, and the same up to rounding. Only Adam's
    dropout masks, drawn row by row, then fall on other nodes.

    Args:
        model: the network, or its configuration.
        graph: features, labels and split.
        config: solver, iterations, seed, threads, device, precision, grid.
        on_iteration: receives the history line of each iteration; a KeyboardInterrupt from it ends training.
        on_plan: receives the plan of a grid before training begins.
        plan: who does what on a grid; None makes one.
        folder: where the ranks of a grid log; None for a temporary one that is kept only if a rank fails.
        fit: the settings that keep to the memory limit; None chooses them (:func:`gfgnn.planning.fit_memory`).

    Raises:
        InputError: nothing to train on (no features, no labelled training node, one class only), a device that
            is not there, a grid that does not fit graph, network or processes, or a run that does not fit the limit.
        gfgnn.launch.failure.RankFailure: a rank of the grid was killed, hung or raised.
    """
    config = config or TrainConfig()
    check_trainable(graph)
    if isinstance(model, ModelConfig):
        model = build_model(model, graph)
    check_run(model, graph, config)
    if model.config.label_inputs:
        from gfgnn.label_training import train_with_labels  # which trains without

        return train_with_labels(
            model, graph, config, on_iteration=on_iteration, on_plan=on_plan, plan=plan, folder=folder
        )
    if fit := fit or fit_memory(model, graph, config):
        config = fit.config
    if config.lean or config.out_of_core:
        return_freed_memory()
    else:
        keep_freed_memory()
    solver = make_solver(config, model)
    if config.parts * config.stages > 1:
        from gfgnn.launch.grid import train_on_grid

        plan = plan or make_plan(model, graph, config)
        if on_plan is not None:
            on_plan(plan)
        order, spent, notes = _order(graph, config)
        outcome, ranks = train_on_grid(
            model, graph, config, plan, on_iteration, folder, order=order, spent=spent
        )
        outcome.notes[:0] = notes
        profiles = [rank.pop("profile") for rank in ranks]
        return _result(model, graph, config, outcome, profiles, ranks, plan, fit)
    # mode=False leaves an inference mode that the caller may be in: a differentiating solver cannot use it.
    with _threads(config.threads), torch.inference_mode(not getattr(solver, "differentiates", False)):
        order, spent, notes = _order(graph, config)
        run = Run(
            lambda: prepare(model, graph, order=order, dtype=DTYPES[config.dtype], device=config.device),
            config,
            solver,
            on_iteration,
            spent=spent,
        )
        run.notes += notes
        run.train()
    # what has been trained is given back, whenever Ctrl-C comes
    with held() as interrupts, _threads(config.threads):
        result = _result(model, graph, config, run.outcome(), [run.profile()], fit=fit)
    return replace(result, interrupted=True) if interrupts else result


def _order(graph: Graph, config: TrainConfig) -> tuple[Order, float, list[str]]:
    """The order of nodes, the seconds that took, and a note on both where there is something to say."""
    started = time.perf_counter()
    order = order_of(graph, config)
    spent = time.perf_counter() - started
    return order, spent, [] if order.note is None else [f"{order.note}; {spent:.1f} s"]


def check_run(model: Model, graph: Graph, config: TrainConfig) -> None:
    """Raises :class:`InputError` for devices, solvers and grids that cannot be, before any work is done."""
    check_device(config.device)
    make_solver(config, model)
    if config.out_of_core and under_torchrun():
        raise InputError(
            "out_of_core trains parts one after the other in one process; start it without torchrun."
        )
    if config.parts * config.stages > 1:
        from gfgnn.launch.run import check_port

        check_grid(model, graph, config)
        if config.backend == "process" and not config.out_of_core and not under_torchrun():
            check_port(config.port)


def make_solver(config: TrainConfig, model: Model) -> Solver:
    """The solver named by ``config``."""
    if config.solver == "adam":
        if config.parts * config.stages > 1:
            raise InputError(
                f"solver adam runs on one device; got {config.parts} parts x {config.stages} stages."
            )
        if not is_chain(model.blocks):
            raise InputError(
                "solver adam trains chains of blocks only, and this network has branches, several propagation "
                "matrices or normalisations in between. Its like in PyG can be trained with torch.optim.Adam."
            )
        if model.config.family == CUSTOM:
            raise InputError(
                "solver adam has settings for gfgnn's own families only; a PyG module is trained with torch.optim.Adam "
                "as it is."
            )
        from gfgnn.baseline.adam import AdamSolver

        return AdamSolver(config.adam, model.config.family)
    if config.solver == "admm":
        if config.admm.inside == "target":
            if config.staleness:
                raise InputError(
                    "solver admm with the block solver inside its stages lets them wait for each other; got staleness "
                    f"{config.staleness}."
                )
            from gfgnn.solver.admm.coupled import CoupledSolver

            return CoupledSolver(config.admm, config.iters)
        from gfgnn.solver.admm import AdmmSolver
        from gfgnn.solver.admm.solver import check_admm

        check_admm(model, config.admm, config.staleness)
        return AdmmSolver(config.admm, config.iters, config.staleness)
    if config.solver == "pdadmm-g":
        from gfgnn.solver.pdadmm import PdadmmSolver
        from gfgnn.solver.pdadmm.solver import check_pdadmm

        if config.parts * config.stages > 1:
            raise InputError(
                f"solver pdadmm-g runs on one device; got {config.parts} parts x {config.stages} stages."
            )
        check_pdadmm(model, config.pdadmm)
        return PdadmmSolver(config.pdadmm)
    if config.solver == "community-admm":
        from gfgnn.solver.community import CommunitySolver
        from gfgnn.solver.community.solver import check_community

        if config.stages > 1:
            raise InputError(
                f"solver community-admm has communities, which are parts, and no stages; got {config.stages} stages."
            )
        check_community(model)
        return CommunitySolver(config.community)
    if config.target.recompute and not is_chain(model.blocks):
        raise InputError(
            "recompute is written for chains of blocks, and this network has branches, several propagation matrices "
            "or normalisations in between."
        )
    from gfgnn.solver.target import TargetSolver

    return TargetSolver(config.target, config.iters, config.staleness)


def _result(
    model: Model,
    graph: Graph,
    config: TrainConfig,
    outcome: Outcome,
    profiles: list[dict[str, Any] | None],
    ranks: list[dict] | None = None,
    plan: Plan | None = None,
    fit: Fit | None = None,
) -> Result:
    best, last = outcome.best, outcome.last
    found = [profile for profile in profiles if profile is not None]
    spans = tuple(profile.pop("spans") for profile in found)
    return Result(
        model=model,
        graph=graph,
        config=config,
        # Copies made outside the inference mode can take part in a derivative.
        weights=copies(outcome.weights),
        last_weights=copies(outcome.last_weights),
        history=outcome.history,
        best_iteration=best["iteration"],
        train_accuracy=best["train"],
        val_accuracy=best["val"],
        test_accuracy=best["test"],
        last_test_accuracy=last["test"],
        loss=best["loss"],
        seconds=outcome.seconds,
        seconds_to_best=best["seconds"],
        seconds_per_iteration=outcome.seconds_per_iteration,
        setup_seconds=outcome.setup_seconds,
        peak_rss_bytes=max([rank["peak_rss_bytes"] for rank in ranks or []], default=peak_rss_bytes()),
        settings=outcome.settings,
        interrupted=outcome.interrupted,
        diverged=outcome.diverged,
        notes=tuple(outcome.notes),
        ranks=tuple(ranks or ()),
        profile={"ranks": found} if found else None,
        profile_spans=spans,
        plan=plan,
        fit=fit,
        embedding_scores=None if outcome.embedding_scores is None else outcome.embedding_scores.clone(),
    )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Runs with ``count`` torch threads and restores the former number."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
