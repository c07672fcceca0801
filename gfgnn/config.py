"""What to train and how: frozen, keyword-only settings that check themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

from gfgnn.checks import (
    InputError,
    check_at_least,
    check_between,
    check_bytes,
    check_choice,
    check_count,
    check_flag,
    check_positive,
)

FAMILIES = ("gcn", "gcnii", "resgcn", "sage", "sgc", "sign", "rgcn")
CUSTOM = "custom"  #: what a network from elsewhere calls its family; see gfgnn.from_pyg
ACTIVATIONS = ("relu", "leaky_relu", "identity")
NORMS = ("sym", "rw", "none")
SOLVERS = ("target", "admm", "pdadmm-g", "community-admm", "adam")
BACKENDS = ("process", "thread")
PARTITIONERS = ("auto", "pymetis", "metis", "ldg")
ORDERS = ("auto", "none", "metis", "rcm")
POSTS = ("none", "correct-and-smooth")

MAX_SEED = 2**64 - 1  #: what a torch.Generator takes
MAX_THREADS = 1024  #: far more of them end the process rather than the call

#: A setting the solver chooses itself from the data, by the rule in docs/solver.md.
Auto = Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A graph neural network, as a family and its sizes.

    ``layers`` counts graph propagations: GCN-2 has 2, GCNII-16 has 16 between its encoder and its output.
    """

    family: str = "gcnii"
    layers: int = 16
    hidden: int = 64
    activation: str = "relu"
    bias: bool = True
    norm: str = "sym"  #: sym: D^-1/2 (A+I) D^-1/2; rw: D^-1 (A+I); none: the weights as given
    self_loops: bool = True
    alpha: float = 0.1  #: share of the initial representation in each GCNII propagation
    theta: float = 0.5  #: GCNII's identity mapping, beta_l = log(theta / l + 1)
    mlp_layers: int = 3  #: linear layers of the MLP that SIGN puts on its hops
    label_inputs: bool = False  #: labels of training nodes as inputs beside the features (docs/post.md)
    label_reuse: bool = False  #: and predictions of a first such network for the other nodes

    def __post_init__(self) -> None:
        if self.family != CUSTOM:
            check_choice("model", self.family, FAMILIES)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("norm", self.norm, NORMS)
        check_count("layers", self.layers, 0 if self.family == CUSTOM else 2)
        check_count("hidden", self.hidden, 1)
        check_flag("bias", self.bias)
        check_flag("self_loops", self.self_loops)
        check_between("alpha", self.alpha, 0.0, 1.0)
        check_at_least("theta", self.theta, 0.0)
        check_count("mlp_layers", self.mlp_layers, 2)
        check_flag("label_inputs", self.label_inputs)
        check_flag("label_reuse", self.label_reuse)
        if self.label_inputs and self.family == CUSTOM:
            raise InputError(
                "label_inputs is for gfgnn's own families; a PyG module takes the features it was made for."
            )
        if self.label_reuse and not self.label_inputs:
            raise InputError("label_reuse is for networks with label_inputs; give that, too.")


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """Settings of the block solver. ``"auto"`` leaves a setting to the rule in docs/solver.md.

    The meaning of each number is given in docs/solver.md beside the formula it stands in.
    """

    step: str = "auto"  #: sweep | polar | auto
    ridge_encoder: float | Auto = "auto"  #: lambda_0, relative to the mean diagonal of the encoder's Gram
    ridge_hidden: float | Auto = "auto"  #: lambda_h (mu for the polar step)
    ridge_output: float | Auto = "auto"  #: lambda_o
    dropout_encoder: float | Auto = "auto"  #: p_0 of the closed-form (marginalised) dropout
    dropout_output: float | Auto = "auto"  #: p_o
    momentum: float | Auto = "auto"
    prox: float | Auto = "auto"
    rho: float | Auto = "auto"  #: damping of the inverse through which targets are passed down
    step_size: float | Auto = "auto"
    sampled_dropout: float = 0.0  #: probability of sampled dropout masks on the inputs of hidden layers
    node_weights: str = "auto"  #: mass | uniform | auto
    freeze_hidden: bool = False  #: leave hidden layers as initialised (for ablations)
    gram_every: int = 1  #: hidden layers' Gram matrices are taken every so many iterations
    storage: str | None = (
        None  #: bf16 | fp16 | float32: what hidden layers' inputs are kept in; None: as computed
    )
    recompute: bool = (
        False  #: keep the inputs of some layers only, and compute the others again when they are needed
    )

    def __post_init__(self) -> None:
        check_choice("step", self.step, ("auto", "sweep", "polar"))
        check_choice("node_weights", self.node_weights, ("auto", "mass", "uniform"))
        for name in ("ridge_encoder", "ridge_hidden", "ridge_output", "prox", "rho", "step_size"):
            if (value := getattr(self, name)) != "auto":
                check_at_least(name, value, 0.0)
        for name in ("dropout_encoder", "dropout_output", "momentum", "sampled_dropout"):
            if (value := getattr(self, name)) != "auto":
                check_between(name, value, 0.0, 0.99)
        check_flag("freeze_hidden", self.freeze_hidden)
        check_flag("recompute", self.recompute)
        check_count("gram_every", self.gram_every, 1)
        check_choice("storage", self.storage, (None, "bf16", "fp16", "float32"))


@dataclass(frozen=True, kw_only=True)
class AdmmConfig:
    """Settings of ADMM (docs/algorithms.md). Ridges and dropouts left at ``"auto"`` follow the block solver's rule."""

    nu: float = 1.0  #: penalty of what a layer does not fit, in units of the loss's curvature
    rho: float = 1.0  #: penalty of copies that differ, p from q
    penalties: str = (
        "fixed"  #: fixed | balanced, rho follows the residuals | convergent, rho within the proven bound
    )
    over_relaxation: float = 1.0  #: 1 none; up to 1.9 (Boyd et al. 2011, section 3.4.3)
    sweep: str = "backward"  #: backward, once from the output down | backward-forward, and up again (dlADMM)
    inside: str = "admm"  #: what works inside a stage: admm, between all layers | target, the block solver
    resync: int = 0  #: every so many iterations the embeddings are set to the network's own; 0 never
    prox: float = 0.001  #: proximal term of the weights, relative to the mean diagonal of their Gram matrix
    node_weights: str = "auto"  #: mass | uniform | auto
    ridge_encoder: float | Auto = "auto"
    ridge_hidden: float | Auto = "auto"
    ridge_output: float | Auto = "auto"
    dropout_encoder: float | Auto = "auto"
    dropout_output: float | Auto = "auto"

    def __post_init__(self) -> None:
        for name in ("nu", "rho"):
            check_positive(name, getattr(self, name))
        check_between("over_relaxation", self.over_relaxation, 0.1, 1.9)
        check_choice("penalties", self.penalties, ("fixed", "balanced", "convergent"))
        check_choice("sweep", self.sweep, ("backward", "backward-forward"))
        check_choice("inside", self.inside, ("admm", "target"))
        check_count("resync", self.resync, 0)
        check_at_least("prox", self.prox, 0.0)
        self._check_together()
        self.as_target()  # checks the others

    def _check_together(self) -> None:
        """Raises :class:`InputError` for settings that would be passed over."""
        plain = {
            "penalties": "fixed",
            "over_relaxation": 1.0,
            "sweep": "backward",
            "resync": 0,
            "prox": 0.001,
        }
        needs: dict[str, tuple[str, ...]] = {}
        if self.inside == "target":
            needs["inside target"] = tuple(plain)
        if self.penalties == "convergent":
            needs["penalties convergent"] = ("over_relaxation", "resync")
        if self.sweep == "backward-forward":
            needs["sweep backward-forward"] = ("over_relaxation",)
        for reason, names in needs.items():
            for name in names:
                if getattr(self, name) != plain[name]:
                    raise InputError(
                        f"{name} must be {plain[name]!r} with {reason}; got {getattr(self, name)!r}."
                    )

    def as_target(self) -> TargetConfig:
        """Ridges and dropouts as settings of the block solver, for its rule."""
        names = (
            "ridge_encoder",
            "ridge_hidden",
            "ridge_output",
            "dropout_encoder",
            "dropout_output",
            "node_weights",
        )
        return TargetConfig(step="sweep", **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class PdadmmConfig:
    """Settings of pdADMM-G (Wang et al. 2021, arXiv 2105.09837), see :mod:`gfgnn.solver.pdadmm`."""

    nu: float = 0.01  #: penalty of what a layer does not fit
    rho: float = 0.01  #: penalty of copies that differ, p from q
    ridge: float = 0.0  #: of all weights; only the authors' program has one
    nodes: str = "train"  #: whose embeddings are variables: all (the paper) | train (the authors' program)
    raise_penalties: bool = False  #: nu and rho tenfold, up to 1, when the loss stalls (the authors' program)
    init_std: float = 0.1  #: of the first and the last layer's normal starting weights
    first_curvature: float = 1e-6  #: tau and theta that line searches try first
    backtrack: float = 2.0  #: what they multiply it by
    scores_steps: int = 50  #: steps of the proximal map of the loss
    quantise: bool = False  #: pdADMM-G-Q: p takes the values of a grid only
    quantise_q: bool = False  #: q too
    grid_low: float = -1.0
    grid_high: float = 20.0
    grid_points: int = 22  #: evenly spaced from grid_low to grid_high
    grow: str | None = None  #: layers at first, and those from an iteration on: "2,5@200,10@210"; None: all

    def __post_init__(self) -> None:
        for name in ("nu", "rho", "first_curvature"):
            check_positive(name, getattr(self, name))
        for name in ("ridge", "init_std"):
            check_at_least(name, getattr(self, name), 0.0)
        check_choice("nodes", self.nodes, ("all", "train"))
        check_between("backtrack", self.backtrack, 1.1, 100.0)
        check_count("scores_steps", self.scores_steps, 1)
        check_count("grid_points", self.grid_points, 2)
        for name in ("quantise", "quantise_q", "raise_penalties"):
            check_flag(name, getattr(self, name))
        check_at_least("grid_high", self.grid_high, self.grid_low)
        if self.grid_high == self.grid_low:
            raise InputError(f"grid_high must be above grid_low; both are {self.grid_low!r}.")
        self.stages_of_growth()

    def stages_of_growth(self) -> list[tuple[int, int]]:
        """``(layers, iteration from which there are so many)``, both growing; empty where ``grow`` is None."""
        if self.grow is None:
            return []
        try:
            pairs = [part.partition("@")[::2] for part in self.grow.split(",")]
            found = [(int(layers), int(when) if when else 1) for layers, when in pairs]
        except (AttributeError, ValueError):
            found = []
        rising = all(a < c and b < d for (a, b), (c, d) in pairwise(found))
        if not found or found[0][0] < 2 or found[0][1] != 1 or not rising:
            raise InputError(
                f"grow must name numbers of layers, 2 or more and rising, and the iterations they begin at, as in "
                f"'2,5@200,10@210'; got {self.grow!r}."
            )
        return found


@dataclass(frozen=True, kw_only=True)
class CommunityConfig:
    """Settings of community-based layerwise ADMM (Li et al. 2021, arXiv 2112.09335), see
    :mod:`gfgnn.solver.community`."""

    nu: float = 0.001  #: penalty of what a hidden layer does not fit
    rho: float = 0.001  #: penalty of scores that the output layer does not give
    ridge: float = 0.0  #: of all weights; only the authors' program has one
    nodes: str = (
        "train"  #: whose scores are tied to the output layer: all (the paper) | train (the authors' program)
    )
    steps: str = "community"  #: of Z: community, each searches for its own (the paper) | joint, one for all
    layers: str = "parallel"  #: Z of all layers at once (the paper) | sweep, one after the other, up
    first_curvature: float = 1e-6  #: that line searches begin at
    backtrack: float = 2.0  #: what they multiply it by
    scores_steps: int = 50  #: steps of the proximal map of the loss

    def __post_init__(self) -> None:
        for name in ("nu", "rho", "first_curvature"):
            check_positive(name, getattr(self, name))
        check_at_least("ridge", self.ridge, 0.0)
        check_choice("nodes", self.nodes, ("all", "train"))
        check_choice("steps", self.steps, ("community", "joint"))
        check_choice("layers", self.layers, ("parallel", "sweep"))
        check_between("backtrack", self.backtrack, 1.1, 100.0)
        check_count("scores_steps", self.scores_steps, 1)


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """Settings of the backprop baseline. ``None`` takes the published setting of the model's family."""

    lr: float | None = None
    weight_decay: float | None = None  #: of the hidden layers (GCNII: of the propagation layers)
    weight_decay_ends: float | None = None  #: of encoder and output, where the family separates them
    dropout: float | None = None
    batch_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "weight_decay_ends"):
            if (value := getattr(self, name)) is not None:
                check_at_least(name, value, 0.0)
        if self.dropout is not None:
            check_between("dropout", self.dropout, 0.0, 0.99)
        check_flag("batch_norm", self.batch_norm)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    solver: str = "target"
    iters: int | None = None  #: None: the solver's own default
    seed: int = 0
    threads: int | None = None  #: None: torch's own choice
    device: str = "cpu"
    dtype: str = "float32"
    eval_every: int = 1
    patience: int | None = None  #: stop after so many iterations without a better validation score or loss
    max_seconds: float | None = None  #: stop after the iteration in which training has taken so long
    parts: int = 1  #: graph parts; parts x stages ranks work together
    stages: int = 1  #: layer stages
    stage_bounds: str | None = (
        None  #: first block of each stage after the first, "5,9"; None: balanced by cost
    )
    staleness: int = 0  #: 0: stages wait for each other; S: they work on messages S iterations old
    partitioner: str = "auto"  #: auto | pymetis | metis | ldg
    partition: str | None = None  #: file of ``gfgnn partition`` in place of a new partition
    backend: str = "process"  #: what a rank is: process | thread (of this process; for tests and notebooks)
    timeout: float = 60.0  #: seconds within which a run ends after a rank has failed
    port: int = 0  #: where local ranks meet; 0: any that is free
    order: str = "auto"  #: of nodes in memory: auto | none (as given) | metis | rcm
    lean: bool = False  #: give freed memory back at once: peaks as predicted, iterations a third slower
    memory_limit: str | None = (
        None  #: such as 16GB: settings that keep to it are chosen, or it is said beforehand what would
    )
    out_of_core: bool = False  #: parts train one after the other in this process, the others are on the disk
    timeline: bool = False  #: record when each rank waits for what
    profile: bool = False  #: record what every second iteration spends its time on; these take longer
    target: TargetConfig = field(default_factory=TargetConfig)
    admm: AdmmConfig = field(default_factory=AdmmConfig)
    pdadmm: PdadmmConfig = field(default_factory=PdadmmConfig)
    community: CommunityConfig = field(default_factory=CommunityConfig)
    adam: AdamConfig = field(default_factory=AdamConfig)

    def __post_init__(self) -> None:
        self._check_grid()
        check_choice("solver", self.solver, SOLVERS)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        check_choice("order", self.order, ORDERS)
        if self.iters is not None:
            check_count("iters", self.iters, 1)
        check_count("seed", self.seed, 0, MAX_SEED)
        check_count("eval_every", self.eval_every, 1)
        if self.threads is not None:
            check_count("threads", self.threads, 1, MAX_THREADS)
        if self.patience is not None:
            check_count("patience", self.patience, 1)
        if self.max_seconds is not None:
            check_at_least("max_seconds", self.max_seconds, 0)

    def _check_grid(self) -> None:
        for name in ("parts", "stages"):
            check_count(name, getattr(self, name), 1)
        check_count("staleness", self.staleness, 0, 64)
        check_choice("partitioner", self.partitioner, PARTITIONERS)
        check_choice("backend", self.backend, BACKENDS)
        check_at_least("timeout", self.timeout, 1)
        check_count("port", self.port, 0, 65535)
        check_flag("timeline", self.timeline)
        check_flag("profile", self.profile)
        check_flag("lean", self.lean)
        check_flag("out_of_core", self.out_of_core)
        if self.memory_limit is not None:
            check_bytes("memory_limit", self.memory_limit)
        self._check_out_of_core()
        if self.staleness and self.stages == 1:
            raise InputError(
                f"staleness is {self.staleness}, but there is one stage; it needs 2 stages or more."
            )
        if self.stage_bounds is not None and self.stages == 1:
            raise InputError(
                f"stage_bounds is {self.stage_bounds!r}, but there is one stage; give stages, too."
            )
        if self.partition is not None and self.parts == 1:
            raise InputError(f"partition is {self.partition!r}, but there is one part; give parts, too.")

    def _check_out_of_core(self) -> None:
        if self.out_of_core and (self.stages > 1 or self.device != "cpu"):
            raise InputError(
                f"out_of_core trains parts of the graph on the CPU; got {self.stages} stages on {self.device}. Use one "
                "stage and device cpu."
            )
        if self.out_of_core and self.parts == 1 and self.memory_limit is None:
            raise InputError("out_of_core needs parts, 2 or more, or a memory_limit that says how many.")
        if self.memory_limit is not None and not self.out_of_core and self.parts * self.stages > 1:
            raise InputError(
                f"memory_limit is for one process; {self.parts} parts x {self.stages} stages start as many. Use "
                "out_of_core, which trains parts one after the other, or leave it out."
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class CorrectAndSmoothConfig:
    """Settings of :func:`gfgnn.correct_and_smooth`.

    The numbers are those published for an MLP on ogbn-arxiv, where they were found on validation (Huang et al. 2021).
    """

    corrections: int = 50  #: propagations of the errors
    correction_alpha: float | Auto = 0.979  #: share of the neighbours; auto: chosen on validation labels
    smoothings: int = 50  #: propagations of labels and corrected probabilities
    smoothing_alpha: float | Auto = 0.756  #: share of the neighbours; auto: chosen on validation labels
    scale: float | Auto = (
        "auto"  #: of the correction; auto: each node's is as large as the mean training error
    )

    def __post_init__(self) -> None:
        check_count("corrections", self.corrections, 0)
        check_count("smoothings", self.smoothings, 0)
        for name in ("correction_alpha", "smoothing_alpha"):
            if getattr(self, name) != "auto":
                check_between(name, getattr(self, name), 0.0, 1.0)
        if self.scale != "auto":
            check_at_least("scale", self.scale, 0.0)
