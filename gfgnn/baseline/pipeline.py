"""Backprop through a pipeline of layer stages, scheduled by torch.distributed.pipelining: GPipe and 1F1B.

A pipeline cuts a batch into micro-batches, and nodes of a graph are no independent samples. Two modes say what is done:

- ``exact``: the graph is one micro-batch. Stages then work one after the other; nothing overlaps.
- ``clusters``: a micro-batch is a cluster of nodes without the edges that leave it, as in Cluster-GCN (Chiang et al.
  2019). The gradients of all clusters make one step, and the loss is the mean over all labelled nodes, so it is Adam on
  the graph without the edges between clusters. Evaluation is on the graph with all edges.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.baseline.adam import AdamSolver, known_targets, loss_targets, make_groups, mean_loss, step_groups
from gfgnn.baseline.costs import backprop_costs
from gfgnn.baseline.micro import micro_problems, without_cut_edges
from gfgnn.baseline.network import Network, Tensors
from gfgnn.baseline.optimizer import Group
from gfgnn.baseline.ranks import Job, make_job, own, run_job
from gfgnn.baseline.settings import resolve
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_choice, check_count
from gfgnn.comm.base import CommError
from gfgnn.comm.counting import CountingCommunicator
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.graph.graph import Graph
from gfgnn.launch.files import load_shard, save_shard
from gfgnn.launch.method import Method
from gfgnn.loop import DTYPES
from gfgnn.model.build import Model
from gfgnn.ordering import order_of
from gfgnn.partitioning import partition_of
from gfgnn.plan.layers import parse_bounds, split_layers
from gfgnn.plan.plan import Plan, sizes_of
from gfgnn.plan.stages import StagePlan
from gfgnn.plan.work import Rates, seconds
from gfgnn.planning import check_grid
from gfgnn.problem import Problem
from gfgnn.shards import iter_shards
from gfgnn.solver.base import StepInfo

MODES = ("exact", "clusters")
#: micro-batches for each stage: Huang et al. (2019) find the bubble negligible from 4 on
MICRO_BATCHES = 4
#: what gloo's errors say when another rank has gone
PEER = ("gloo", "connection", "peer", "timed out")


@dataclass(eq=False)
class PipelineState:
    """This stage's parameters and optimiser, and the pipeline that computes their gradients."""

    networks: list[Network]
    parameters: Tensors
    running: Tensors
    groups: list[Group]
    stage: Any
    schedule: Any
    chunks: Tensor


class StageModule(torch.nn.Module):
    """The blocks of a stage on one micro-batch after the other; the last stage gives the micro-batch's share of the
    loss, ``[1]``.

    Attributes:
        number: of the micro-batch to work on.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        parameters: Tensors,
        shares: Sequence[float],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.networks, self.parameters_by_name = list(networks), parameters
        self.shares, self.generator, self.number = list(shares), generator, 0
        self.targets = [loss_targets(network.problem) for network in networks]

    def forward(self, *received: Tensor) -> Tensor | tuple[Tensor, ...]:
        network = self.networks[self.number]
        problem = network.problem
        below = () if problem.is_first else received
        out = network.outputs(self.parameters_by_name, {}, self.generator, *below)
        if not problem.is_last:
            return out
        task, share = problem.model.task, self.shares[self.number]
        return mean_loss(task, out[0], self.targets[self.number], share).reshape(1)


class PipelineSolver(AdamSolver):
    """Adam whose gradients a pipeline computes. Every rank is a process and holds one stage of the whole graph.

    Args:
        schedule: ``gpipe`` (Huang et al. 2019) or ``1f1b`` (Narayanan et al. 2019, without their stale weights).
        files: where the micro-batches are, and where the ranks meet.
        timeout: seconds after which a silent rank has failed.
        clusters: whether the files hold clusters; else the graph is one micro-batch.
    """

    def __init__(self, config: TrainConfig, family: str, schedule: str, files: Path, clusters: bool) -> None:
        super().__init__(config.adam, family)
        self.name, self.schedule, self.files, self.clusters = schedule, schedule, files, clusters
        self.timeout = config.timeout
        import torch.distributed.pipelining  # noqa: F401  takes seconds, which are no part of the set-up

    def init(self, problem: Problem, generator: torch.Generator) -> PipelineState:  # type: ignore[override]
        """Called by every rank; they meet in a group of torch.distributed."""
        settings = self._settings(problem)
        problems = [problem]
        if self.clusters:
            shard = load_shard(self.files / "clusters", with_features=False)
            cluster = torch.from_numpy(np.load(self.files / "cluster.npy"))
            problems = micro_problems(problem, shard, cluster)
        with torch.enable_grad():
            networks = [Network(one, settings) for one in problems]
            parameters, running = networks[0].start(generator)
        every = known_targets(problem)
        shares = [float(known_targets(one) / every) for one in problems]
        seed = int(torch.randint(2**62, (1,), generator=generator)) + problem.grid.stage
        module = StageModule(networks, parameters, shares, torch.Generator().manual_seed(seed))
        stage, schedule = self._pipeline(problem, problems[0].propagation.num_nodes, module)
        groups = make_groups(parameters, settings)
        chunks = torch.zeros(len(problems), 1)
        return PipelineState(networks, parameters, running, groups, stage, schedule, chunks)

    def _pipeline(self, problem: Problem, rows: int, module: StageModule) -> tuple[Any, Any]:
        """The stage and its schedule; shapes are told beforehand, so that no forward pass is made to find them."""
        import torch.distributed as dist
        from torch.distributed import pipelining

        grid = problem.grid
        store = dist.FileStore(str(self.files / "meeting"), grid.world.size)
        dist.init_process_group(
            "gloo", store=store, rank=grid.world.rank, world_size=grid.world.size,
            timeout=timedelta(seconds=self.timeout),
        )  # fmt: skip
        blocks, span = problem.model.blocks, problem.span

        def message(stop: int) -> tuple[Tensor, ...]:
            """What goes from the block below ``stop`` upwards."""
            widths = [blocks[stop - 1].out_channels]
            if any(block.propagate == "initial" for block in blocks[stop:]):
                widths.append(blocks[0].out_channels)
            return tuple(torch.empty(rows, d, dtype=problem.dtype, requires_grad=True) for d in widths)

        stage = _timed_stage()(
            module, grid.stage, grid.num_stages, problem.device,
            input_args=torch.zeros(1, 1) if problem.is_first else message(span.start),
            output_args=torch.zeros(1, dtype=problem.dtype) if problem.is_last else message(span.stop),
        )  # fmt: skip
        kind = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[self.schedule]
        return stage, kind(stage, len(module.networks), loss_fn=_as_it_is, scale_grads=False)

    def step(self, problem: Problem, state: PipelineState) -> tuple[PipelineState, StepInfo]:  # type: ignore[override]
        """One epoch. Called by every rank; activations go up, their gradients down, and the loss to all."""
        world, stage = problem.grid.world, state.stage
        assert isinstance(world, CountingCommunicator)
        stage.busy, stage.bytes, stage.messages = 0.0, 0, 0
        for parameter in state.parameters.values():
            parameter.grad = None
        losses: list[Tensor] = []
        started = time.perf_counter()
        with torch.enable_grad():
            given = (state.chunks,) if problem.is_first else ()
            wanted = {"target": state.chunks, "losses": losses} if problem.is_last else {}
            try:
                state.schedule.step(*given, **wanted)
            except RuntimeError as error:
                if any(word in str(error).lower() for word in PEER):
                    raise CommError(
                        f"pipeline: failed, most likely because another rank has gone: {error}"
                    ) from error
                raise
        waited = time.perf_counter() - started - stage.busy
        world.add("stage", messages=stage.messages, bytes=stage.bytes, seconds=waited)
        gradients = [p.grad for group in state.groups for p in group.parameters if p.grad is not None]
        step_groups(state.groups, gradients, self._settings(problem).lr)
        loss = torch.stack(losses).detach().sum() if problem.is_last else torch.zeros((), dtype=problem.dtype)
        (loss,) = sum_over(world, loss, purpose="control")
        return state, StepInfo(float(loss))

    def weights(self, problem: Problem, state: PipelineState) -> Tensors:  # type: ignore[override]
        with torch.no_grad():
            return state.networks[0].effective_weights(state.parameters, state.running)

    def finish(self, problem: Problem, state: PipelineState) -> None:
        """Ends the group of torch.distributed. Called by every rank."""
        import torch.distributed as dist

        dist.destroy_process_group()


def _as_it_is(loss: Tensor, target: Tensor) -> Tensor:
    return loss.sum()


def _timed_stage() -> type:
    """PipelineStage that tells its module the micro-batch, and counts what it sends and how long it computes."""
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    class TimedStage(PipelineStage):
        busy, bytes, messages = 0.0, 0, 0

        def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
            self.submod.number = fwd_chunk_id  # type: ignore[assignment]
            started = time.perf_counter()
            try:
                return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
            finally:
                self.busy += time.perf_counter() - started

        def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return super().backward_one_chunk(*args, **kwargs)
            finally:
                self.busy += time.perf_counter() - started

        def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
            return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

        def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
            return self._counted(super().get_bwd_send_ops(bwd_chunk_id))

        def _counted(self, operations: list[dist.P2POp]) -> list[dist.P2POp]:
            self.messages += len(operations)
            self.bytes += sum(operation.tensor.nbytes for operation in operations)
            return operations

    return TimedStage


def solver(
    config: TrainConfig, model: Model, *, schedule: str, files: str, mode: str, **_: Any
) -> PipelineSolver:
    """What each rank trains with."""
    return PipelineSolver(config, model.config.family, schedule, Path(files), mode == "clusters")


def run_gpipe(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int = 2,
    **settings: Any,
) -> Outcome:
    """Adam on a pipeline of ``ranks`` stages: all micro-batches forward, then all backward.

    Args:
        ranks: processes of this machine, one for each stage.
        settings: of :class:`gfgnn.config.AdamConfig`, the published ones where left out; of the grid; ``mode``,
            clusters or exact (see :mod:`gfgnn.baseline.pipeline`); ``micro_batches``, 4 for each stage where left out.

    Raises:
        InputError: a setting that is none, or a grid that does not fit.
    """
    job, options = _asked("gpipe", graph, model, budget, seed, threads, ranks, settings)
    return _run(job, options)


def run_1f1b(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int = 2,
    **settings: Any,
) -> Outcome:
    """:func:`run_gpipe` with forward and backward of micro-batches in turns, which keeps fewer activations.

    Raises:
        InputError: also for ``mode="exact"`` on several stages: torch's 1F1B needs a micro-batch for each stage at
            least, and with one there is nothing to take turns; :func:`run_gpipe` is the same then.
    """
    job, options = _asked("1f1b", graph, model, budget, seed, threads, ranks, settings)
    if options["micro_batches"] < ranks:
        raise InputError(
            f"micro_batches must be at least {ranks}, one for each stage, for 1F1B; got {options['micro_batches']} "
            f"(mode {options['mode']}). A single one runs as in gpipe."
        )
    return _run(job, options)


def _asked(
    schedule: str,
    graph: Graph,
    model: ModelConfig,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int,
    settings: dict[str, Any],
) -> tuple[Job, dict[str, Any]]:
    """The job and the options of its method, looked at."""
    options = {"mode": "clusters", "micro_batches": MICRO_BATCHES * ranks} | own(
        settings, ("mode", "micro_batches")
    )
    check_choice("mode", options["mode"], MODES)
    if options["mode"] == "exact":
        options["micro_batches"] = 1
    check_count("micro_batches", options["micro_batches"], 1, graph.num_nodes)
    if settings.get("backend", "process") != "process":
        raise InputError(
            "backend must be 'process' for pipelines: torch.distributed has one default group in a process."
        )
    if settings.get("batch_norm"):
        raise InputError(
            "batch_norm is not for pipelines: statistics of a micro-batch are not those of the graph; leave it out."
        )
    contender = {"gpipe": "gpipe", "1f1b": "pipeline-1f1b"}[schedule]
    job = make_job(contender, graph, model, budget, seed, threads, settings, stages=ranks)
    return job, {"schedule": schedule, **options}


def _run(job: Job, options: dict[str, Any]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="gfgnn-pipeline-") as name:
        if options["mode"] == "clusters":
            _save_clusters(job, options["micro_batches"], Path(name))
        method = Method("gfgnn.baseline.pipeline:solver", options | {"files": name})
        return run_job(job, method, plan=_plan(job))


def _save_clusters(job: Job, count: int, files: Path) -> None:
    """The nodes' clusters, and the graph without the edges between them, for the ranks."""
    config = job.config
    cluster = partition_of(job.graph, count, method=config.partitioner, seed=job.seed % 2**31).assignment
    np.save(files / "cluster.npy", cluster.numpy())
    graph = without_cut_edges(job.graph, cluster)
    everywhere = torch.zeros(graph.num_nodes, dtype=torch.int64)
    (shard,) = iter_shards(
        job.model, graph, everywhere, 1, order=order_of(job.graph, config), dtype=DTYPES[config.dtype]
    )
    save_shard(files / "clusters", replace(shard, features=None))


def _plan(job: Job) -> Plan:
    """Stages of equal predicted work of backprop, whose layers do not cost what those of the block solver do."""
    config, count = job.config, len(job.model.blocks)
    settings = resolve(config.adam, job.model.config.family, count)
    sizes = sizes_of(job.model, job.graph, DTYPES[config.dtype].itemsize)
    spent = tuple(seconds(cost, Rates()) for cost in backprop_costs(job.model, sizes, settings))
    check_grid(job.model, job.graph, config)
    bounds = split_layers(spent, config.stages)
    if config.stage_bounds is not None:
        bounds = parse_bounds(config.stage_bounds, count, config.stages)
    return Plan(None, StagePlan(bounds, spent, ("",) * count, chosen=config.stage_bounds is None))


__all__ = ["PipelineSolver", "run_1f1b", "run_gpipe", "solver"]
