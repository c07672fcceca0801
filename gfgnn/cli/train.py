"""``gfgnn train``."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgnn.checks import InputError
from gfgnn.cli import options as o
from gfgnn.cli.after import after
from gfgnn.cli.errors import INTERRUPTED, ends_in_order
from gfgnn.cli.outcome import official_of, report, summarise
from gfgnn.cli.solver_options import check_options
from gfgnn.interrupts import held

if TYPE_CHECKING:
    from gfgnn.config import TrainConfig
    from gfgnn.graph.graph import Graph
    from gfgnn.model.build import Model
    from gfgnn.output import RunFolder
    from gfgnn.plan.plan import Plan
    from gfgnn.planning import Fit
    from gfgnn.result import Result
    from gfgnn.toml import RunConfig

MODEL, TRAIN, TARGET, ADMM, ADAM, OUT = "Model", "Training", "Block solver", "ADMM", "Adam", "Output"
GRID = "Grid of ranks"
AUTO = "number or auto (auto)"


def _option(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def train_command(
    data: o.Data = None,
    root: o.Root = None,
    features: o.Features = None,
    split: o.Split = None,
    split_seed: o.SplitSeed = None,
    split_index: o.SplitIndex = None,
    normalise: o.Normalise = None,
    symmetrise: o.Symmetrise = None,
    max_year: o.MaxYear = None,
    feature_storage: o.FeatureStorage = None,
    download: o.Download = False,
    model: Annotated[
        str | None, _option(MODEL, "gcn, gcnii, resgcn, sage, sgc, sign or rgcn (gcnii).")
    ] = None,
    layers: Annotated[int | None, _option(MODEL, "Graph propagations (16).")] = None,
    hidden: Annotated[int | None, _option(MODEL, "Columns of the hidden layers (64).")] = None,
    activation: Annotated[str | None, _option(MODEL, "relu, leaky_relu or identity (relu).")] = None,
    label_inputs: Annotated[
        bool | None, _option(MODEL, "Labels of half the training nodes as inputs, too.", "--label-inputs")
    ] = None,
    label_reuse: Annotated[
        bool | None, _option(MODEL, "And predictions of a network trained before.", "--label-reuse")
    ] = None,
    solver: Annotated[
        str | None,
        _option(TRAIN, "target, admm, pdadmm-g or community-admm (without backprop), or adam (target)."),
    ] = None,
    iters: Annotated[
        int | None, _option(TRAIN, "Iterations, or epochs of Adam (the solver's own number).")
    ] = None,
    seed: Annotated[int | None, _option(TRAIN, "Seed of everything random (0).")] = None,
    threads: Annotated[int | None, _option(TRAIN, "Threads (all).")] = None,
    device: Annotated[str | None, _option(TRAIN, "cpu or cuda (cpu).")] = None,
    dtype: Annotated[str | None, _option(TRAIN, "float32 or float64 (float32).")] = None,
    patience: Annotated[int | None, _option(TRAIN, "Stop after so many iterations without progress.")] = None,
    max_seconds: Annotated[float | None, _option(TRAIN, "Stop after so many seconds of training.")] = None,
    eval_every: Annotated[int | None, _option(TRAIN, "Evaluate every so many iterations (1).")] = None,
    tune: Annotated[
        bool | None, _option(TRAIN, "Search settings by the validation score first.", "--tune")
    ] = None,
    parts: Annotated[int | None, _option(GRID, "Parts of the graph (1).")] = None,
    stages: Annotated[
        int | None, _option(GRID, "Stages of layers (1); parts x stages processes start.")
    ] = None,
    stage_bounds: Annotated[
        str | None, _option(GRID, "First block of each later stage, such as 5,9 (balanced by cost).")
    ] = None,
    staleness: Annotated[
        int | None, _option(GRID, "Age in iterations of messages between stages (0: stages wait).")
    ] = None,
    partition: Annotated[str | None, _option(GRID, "File of gfgnn partition (a new partition).")] = None,
    partitioner: Annotated[str | None, _option(GRID, "auto, pymetis, metis or ldg (auto).")] = None,
    backend: Annotated[str | None, _option(GRID, "process or thread (process).")] = None,
    timeout: Annotated[float | None, _option(GRID, "Seconds to end in when a rank fails (60).")] = None,
    port: Annotated[int | None, _option(GRID, "Where local ranks meet (any free one).")] = None,
    order: Annotated[
        str | None, _option(TRAIN, "Order of nodes in memory: auto, none, metis or rcm (auto).")
    ] = None,
    lean: Annotated[
        bool | None, _option(TRAIN, "Give freed memory back at once: less memory, a third slower.", "--lean")
    ] = None,
    memory_limit: Annotated[
        str | None,
        _option(TRAIN, "Such as 16GB: choose settings that keep to it, or say beforehand what would."),
    ] = None,
    out_of_core: Annotated[
        bool | None,
        _option(GRID, "Train parts one after the other, the others on the disk.", "--out-of-core"),
    ] = None,
    timeline: Annotated[
        bool | None, _option(GRID, "Draw when each rank waits; needs --out.", "--timeline")
    ] = None,
    profile: Annotated[
        bool | None,
        _option(TRAIN, "Say what iterations spend their time on; with --out, a trace, too.", "--profile"),
    ] = None,
    step: Annotated[str | None, _option(TARGET, "sweep, polar or auto (auto).")] = None,
    ridge_encoder: Annotated[str | None, _option(TARGET, AUTO)] = None,
    ridge_hidden: Annotated[str | None, _option(TARGET, AUTO)] = None,
    ridge_output: Annotated[str | None, _option(TARGET, AUTO)] = None,
    dropout_encoder: Annotated[str | None, _option(TARGET, AUTO)] = None,
    dropout_output: Annotated[str | None, _option(TARGET, AUTO)] = None,
    momentum: Annotated[str | None, _option(TARGET, AUTO)] = None,
    step_size: Annotated[str | None, _option(TARGET, AUTO)] = None,
    node_weights: Annotated[str | None, _option(TARGET, "mass, uniform or auto (auto).")] = None,
    storage: Annotated[
        str | None, _option(TARGET, "bf16, fp16 or float32, to keep activations in (as computed).")
    ] = None,
    recompute: Annotated[
        bool | None, _option(TARGET, "Keep activations of some layers only: less memory.", "--recompute")
    ] = None,
    gram_every: Annotated[int | None, _option(TARGET, "Iterations that a Gram matrix serves (1).")] = None,
    nu: Annotated[
        float | None,
        _option(ADMM, "Penalty of what a layer does not fit (1; pdadmm-g 0.01; community-admm 0.001)."),
    ] = None,
    rho: Annotated[
        float | None, _option(ADMM, "Penalty of copies that differ (1; pdadmm-g 0.01; community-admm 0.001).")
    ] = None,
    penalties: Annotated[
        str | None,
        _option(ADMM, "fixed; balanced: rho follows the residuals; convergent: rho is 4 nu or more."),
    ] = None,
    over_relaxation: Annotated[float | None, _option(ADMM, "1 for none, up to 1.9 (1).")] = None,
    sweep: Annotated[
        str | None,
        _option(ADMM, "backward, from the output down; backward-forward: and up again (backward)."),
    ] = None,
    inside: Annotated[str | None, _option(ADMM, "Within a stage: admm, or target (admm).")] = None,
    resync: Annotated[
        int | None, _option(ADMM, "Embeddings set to the network's own every so often (never).")
    ] = None,
    lr: Annotated[float | None, _option(ADAM, "Learning rate (as published).")] = None,
    weight_decay: Annotated[float | None, _option(ADAM, "Weight decay (as published).")] = None,
    dropout: Annotated[float | None, _option(ADAM, "Dropout (as published).")] = None,
    batch_norm: Annotated[bool | None, _option(ADAM, "Normalise every hidden layer.", "--batch-norm")] = None,
    compare_adam: Annotated[
        bool | None, _option(ADAM, "Then train the same with Adam.", "--compare-adam")
    ] = None,
    adam_seconds: Annotated[float | None, _option(ADAM, "Limit of that comparison.")] = None,
    post: o.Post = None,
    corrections: o.Corrections = None,
    correction_alpha: o.CorrectionAlpha = None,
    correction_scale: o.CorrectionScale = None,
    smoothings: o.Smoothings = None,
    smoothing_alpha: o.SmoothingAlpha = None,
    config: Annotated[Path | None, _option(OUT, "TOML file; options go before what it says.")] = None,
    out: Annotated[Path | None, _option(OUT, "Folder for the results.")] = None,
    overwrite: Annotated[bool, _option(OUT, "Replace another run in that folder.", "--overwrite")] = False,
    tensorboard: Annotated[
        bool, _option(OUT, "Also write TensorBoard events there.", "--tensorboard")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Train a network, without backpropagation or with Adam, and say how good it is."""
    data_options = o.given(
        name=data, root=root, features=features, split=split, split_seed=split_seed, split_index=split_index,
        normalise=normalise, symmetrise=symmetrise, max_year=max_year, feature_storage=feature_storage,
    )  # fmt: skip
    numbers = {
        name: o.number_or_auto(name, text)
        for name, text in {
            "ridge_encoder": ridge_encoder, "ridge_hidden": ridge_hidden, "ridge_output": ridge_output,
            "dropout_encoder": dropout_encoder, "dropout_output": dropout_output, "momentum": momentum,
            "step_size": step_size,
        }.items()
    }  # fmt: skip
    given = {
        "data": data_options,
        "model": o.given(
            family=model, layers=layers, hidden=hidden, activation=activation, label_inputs=label_inputs,
            label_reuse=label_reuse,
        ),
        "train": o.given(
            solver=solver, iters=iters, seed=seed, threads=threads, device=device, dtype=dtype, patience=patience,
            max_seconds=max_seconds, eval_every=eval_every, parts=parts, stages=stages, stage_bounds=stage_bounds,
            staleness=staleness, partition=partition, partitioner=partitioner, backend=backend, timeout=timeout,
            port=port, timeline=timeline, lean=lean, order=order, profile=profile, memory_limit=memory_limit,
            out_of_core=out_of_core,
        ),
        "target": o.given(
            step=step, node_weights=node_weights, storage=storage, recompute=recompute, gram_every=gram_every,
            **numbers,
        ),
        "admm": o.given(
            nu=nu, rho=rho, penalties=penalties, over_relaxation=over_relaxation, sweep=sweep, inside=inside,
            resync=resync, node_weights=node_weights,
            **{name: value for name, value in numbers.items() if name.startswith(("ridge", "dropout"))},
        ),
        "pdadmm": o.given(nu=nu, rho=rho),
        "community": o.given(nu=nu, rho=rho),
        "adam": o.given(lr=lr, weight_decay=weight_decay, dropout=dropout, batch_norm=batch_norm),
        "run": o.given(tune=tune, compare_adam=compare_adam, adam_seconds=adam_seconds, post=post),
        "correct_and_smooth": o.correct_and_smooth(
            corrections, correction_alpha, correction_scale, smoothings, smoothing_alpha
        ),
    }  # fmt: skip
    if timeline and out is None:
        raise InputError("--timeline draws into the folder of the run: add --out DIR.")
    if tensorboard and out is None:
        raise InputError("--tensorboard writes into the folder of the run: add --out DIR.")
    o.show_warnings_plainly()
    run = merge(config, given)
    check_options(run.train.solver, given, compare_adam=run.compare_adam)
    if timeline and run.train.parts * run.train.stages == 1 and not run.train.out_of_core:
        raise InputError("--timeline draws the ranks of a grid: add --parts or --stages.")
    if run.train.profile and run.compare_adam:
        raise InputError(
            "--profile makes iterations longer, so that --compare-adam would compare wrong seconds; use one of them."
        )
    if run.compare_adam and (run.train.memory_limit is not None or run.train.out_of_core):
        raise InputError(
            "--compare-adam trains on one device and knows no --memory-limit and no --out-of-core; use one of them."
        )
    from gfgnn.launch.environment import under_torchrun

    if under_torchrun():
        from gfgnn.launch.grid import check_world, serve

        check_world(run.train)
        if run.tune or run.model.label_reuse:
            option = "--tune" if run.tune else "--label-reuse"
            raise InputError(
                f"{option} trains more than once, and torchrun's processes once; use it without torchrun."
            )
        if os.environ["RANK"] != "0":
            return serve(run.train)
    from gfgnn.output import RunFolder

    folder = None if out is None else RunFolder(out, run, overwrite=overwrite, tensorboard=tensorboard)
    with ends_in_order():
        result, adam = execute(run, folder, download=download)
    written, official = None, {}
    try:
        with held() as interrupts:
            official = official_of(result)
            if folder is not None:
                folder.finish(result, summarise(result, adam) | official, adam)
                written = folder
    finally:  # a full disk must not cost the outcome as well
        report(result, adam, written, official, as_json=as_json)
    if interrupts or result.interrupted or (adam is not None and adam.interrupted):
        raise typer.Exit(INTERRUPTED)


def merge(file: Path | None, given: dict[str, dict[str, Any]]) -> RunConfig:
    """The settings of the file, with those given on the command line put over them."""
    from gfgnn.toml import RunConfig, loads_run

    base = RunConfig() if file is None else loads_run(o.read_text(file), str(file))
    train = replace(
        base.train,
        **given["train"],
        target=replace(base.train.target, **given["target"]),
        admm=replace(base.train.admm, **given["admm"]),
        pdadmm=replace(base.train.pdadmm, **given["pdadmm"]),
        community=replace(base.train.community, **given["community"]),
        adam=replace(base.train.adam, **given["adam"]),
    )
    model = replace(base.model, **given["model"])
    post = replace(base.correct_and_smooth, **given["correct_and_smooth"])
    data = {**base.data, **given["data"]}
    return replace(base, data=data, model=model, train=train, correct_and_smooth=post, **given["run"])


def execute(
    run: RunConfig, folder: RunFolder | None, *, download: bool = False
) -> tuple[Result, Result | None]:
    """Loads the data, trains, and compares and post-processes if asked."""
    from gfgnn.model.build import build_model
    from gfgnn.planning import fit_memory, make_plan
    from gfgnn.post import check_post
    from gfgnn.train import check_run

    graph = o.load_graph(run.data, download=download)
    model = build_model(run.model, graph)
    config = run.train
    check_run(model, graph, config)
    if run.post != "none":
        check_post(graph, run.correct_and_smooth)
    if run.tune:
        config = _tuned(model, graph, config)
    # Made before results of an earlier run go: a partition or a limit that does not fit must not cost them.
    if fit := fit_memory(model, graph, config):
        config = fit.config
        print(fit.describe(), file=sys.stderr)
    plan = make_plan(model, graph, config) if config.parts * config.stages > 1 else None
    with folder if folder is not None else nullcontext():
        result, adam = _train(model, graph, config, folder, plan, fit), None
        if run.compare_adam and config.solver != "adam" and not result.interrupted:
            # Patience and iterations are the solver's own: those of the block solver would cut Adam short.
            other = replace(
                one_device(config), solver="adam", iters=None, patience=None, max_seconds=run.adam_seconds
            )
            try:
                adam = _train(model, graph, other, None)
            except KeyboardInterrupt:
                result = replace(result, interrupted=True)
            except InputError as error:  # the comparison may fail, the outcome stays
                print(f"warning: Adam could not be trained for comparison: {error}", file=sys.stderr)
    if run.post != "none" or model.config.label_inputs:
        try:
            result, adam = after(result, run), None if adam is None else after(adam, run)
        except KeyboardInterrupt:
            result = replace(result, interrupted=True)
        except InputError as error:  # probabilities of a network that has diverged
            print(f"warning: without what follows training: {error}", file=sys.stderr)
    return result, adam


def _tuned(model: Model, graph: Graph, config: TrainConfig) -> TrainConfig:
    """``config`` with searched settings; the trials are told on standard error where that is a terminal."""
    from gfgnn.tune import describe, tune

    def on_trial(record: dict[str, Any]) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            print(describe(record), file=sys.stderr)

    return tune(model, graph, config, on_trial=on_trial)


def _train(
    model: Model,
    graph: Graph,
    config: TrainConfig,
    folder: RunFolder | None,
    plan: Plan | None = None,
    fit: Fit | None = None,
) -> Result:
    from gfgnn.cli.progress import TrainingProgress
    from gfgnn.output import LOGS_FOLDER
    from gfgnn.train import make_solver, train

    with TrainingProgress(
        config.solver, config.iters or make_solver(config, model).default_iters
    ) as progress:

        def on_iteration(line: dict[str, Any]) -> None:
            progress.on_iteration(line)
            if folder is not None:
                folder.on_iteration(line)

        def on_plan(plan: Plan) -> None:
            print(plan.describe(), file=sys.stderr)

        logs = None if folder is None else folder.path / LOGS_FOLDER
        return train(
            model, graph, config, on_iteration=on_iteration, on_plan=on_plan, plan=plan, folder=logs, fit=fit
        )


def one_device(config: TrainConfig) -> TrainConfig:
    """The same settings without a grid."""
    return replace(config, parts=1, stages=1, stage_bounds=None, staleness=0, partition=None, timeline=False)
