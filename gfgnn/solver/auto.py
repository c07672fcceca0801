"""The ``auto`` rule: settings chosen from measurable quantities of the problem. docs/solver.md writes it down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gfgnn.config import TargetConfig
from gfgnn.model.build import Model
from gfgnn.model.wiring import is_input
from gfgnn.problem import Facts

#: Labelled nodes per input feature from which a problem counts as label-rich.
LABEL_RICH = 4.0


#: Adjusted homophily from which neighbours count as telling each other's label in full.
HOMOPHILOUS = 0.3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers a run uses; see docs/solver.md for each one's formula."""

    step: str
    node_weights: str
    ridge_encoder: float
    ridge_hidden: float
    ridge_output: float
    dropout_encoder: float
    dropout_output: float
    momentum: float
    prox: float
    rho: float
    step_size: float
    floor: float = 0.1
    head_gain: float = 1.0
    sampled_dropout: float = 0.0
    freeze_hidden: bool = False
    gram_every: int = 1
    storage: str | None = None
    recompute: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def adds_up(model: Model) -> bool:
    """Whether a block multiplies by a matrix without normalisation: activations then grow with a node's degree, which
    only the polar step, with its units of equal spread, can work on."""
    used = {term.operator for block in model.blocks for term in block.terms if term.hops}
    used |= {0} if any(not block.terms and block.propagate != "none" for block in model.blocks) else set()
    return any(model.operators[index].norm == "none" for index in used)


def resolve(config: TargetConfig, model: Model, facts: Facts, *, late: bool = False) -> Settings:
    """The settings of a run: what ``config`` states, and the rule's choice for everything left at ``auto``.

    Args:
        late: whether stages work on messages of earlier iterations.
    """
    ratio = facts.num_train / model.num_features
    hidden = max(
        1, sum(b.weighted and not is_input(model.blocks, i) for i, b in enumerate(model.blocks[:-1]))
    )
    # regression's residuals do not saturate, and steps of one fixed size swing around them
    polar = (ratio >= LABEL_RICH or adds_up(model)) and model.task != "regression"
    step = config.step if config.step != "auto" else ("polar" if polar else "sweep")
    signal = min(1.0, max(0.03, facts.homophily / HOMOPHILOUS))
    scarcity = max(1e-3, 0.3 / (ratio * signal))
    ridge, few = min(1.0, scarcity), scarcity >= 1.0
    if step == "sweep":
        chosen: dict[str, Any] = {
            "ridge_encoder": min(10.0, scarcity), "ridge_hidden": 30.0, "ridge_output": min(3.0, scarcity),
            "dropout_encoder": 0.1 if few else 0.0, "dropout_output": 0.5 if few else 0.0,
            "momentum": 0.0 if late else 0.5, "prox": 0.1, "rho": 0.1, "step_size": 1.0 / hidden,
        }  # fmt: skip
    else:
        chosen = {
            "ridge_encoder": ridge, "ridge_hidden": ridge, "ridge_output": 0.1 * ridge, "momentum": 0.5,
            "dropout_encoder": 0.0, "dropout_output": 0.0, "prox": 0.01, "rho": 3.0,
            "step_size": 0.3,
        }  # fmt: skip
    for name in chosen:
        if (stated := getattr(config, name)) != "auto":
            chosen[name] = stated
    return Settings(
        step=step,
        node_weights="mass" if config.node_weights == "auto" else config.node_weights,
        head_gain=2.0 if step == "polar" and model.task != "regression" else 1.0,
        sampled_dropout=config.sampled_dropout,
        freeze_hidden=config.freeze_hidden,
        gram_every=config.gram_every,
        storage=config.storage,
        recompute=config.recompute,
        **chosen,
    )
