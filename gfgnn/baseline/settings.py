"""Published settings of the families under Adam, and how decay and dropout are placed.

| family | lr   | weight decay           | dropout         | epochs              |
|--------|------|------------------------|-----------------|---------------------|
| gcn    | .01  | 5e-4, first layer only | .5, input too   | 200                 |
| gcnii  | .01  | .01; 5e-4 at both ends | .6, input too   | 1500, patience 100  |
| resgcn | .01  | 5e-4                   | .5, input too   | 500, patience 100   |
| sage   | .01  | 5e-4                   | .5, hidden only | 200                 |
| sgc    | .2   | 5e-6                   | none            | 100                 |
| sign   | .001 | none                   | .5, hidden only | 500                 |

Sources: gcn Kipf and Welling 2017, section 5.2, and their code; gcnii Chen et al. 2020, their setting for Cora, and
their code; resgcn as gcn, with decay everywhere (Li et al. 2019 publish none for citation graphs); sage DGL's
full-batch example for Hamilton et al. 2017; sgc the code of Wu et al. 2019 (who tune the decay per data set); sign
Frasca et al. 2020 on ogbn-products.

Weights start as in the cited code: Glorot-uniform with zero biases; in GCNII uniform(-1/sqrt(d), 1/sqrt(d)) for W'
of W = (1 - beta) I + beta W' and the uniform start of ``torch.nn.Linear`` for encoder and output. With batch
normalisation (after every transform but the last, as in OGB's GCN) the input is not dropped and the normalised
layers lose their bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gfgnn.config import AdamConfig
from gfgnn.toml import from_mapping


@dataclass(frozen=True, kw_only=True)
class Published:
    """The setting of one family; ``decay`` says which blocks ``weight_decay`` acts on."""

    lr: float
    weight_decay: float
    dropout: float
    iters: int
    patience: int | None = None
    weight_decay_ends: float | None = None
    decay: str = "all"  #: all | first | middle (the ends get weight_decay_ends)
    drop_input: bool = True


PUBLISHED = {
    "gcn": Published(lr=0.01, weight_decay=5e-4, dropout=0.5, iters=200, decay="first"),
    "gcnii": Published(
        lr=0.01,
        weight_decay=0.01,
        weight_decay_ends=5e-4,
        decay="middle",
        dropout=0.6,
        iters=1500,
        patience=100,
    ),
    "resgcn": Published(lr=0.01, weight_decay=5e-4, dropout=0.5, iters=500, patience=100),
    "sage": Published(lr=0.01, weight_decay=5e-4, dropout=0.5, iters=200, drop_input=False),
    "sgc": Published(lr=0.2, weight_decay=5e-6, dropout=0.0, iters=100, drop_input=False),
    "sign": Published(lr=0.001, weight_decay=0.0, dropout=0.5, iters=500, drop_input=False),
}


@dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """What is really used for one model."""

    lr: float
    dropout: float
    dropout_input: float
    batch_norm: bool
    decays: tuple[float, ...]  #: one per block


def adam_config(settings: Mapping[str, Any]) -> AdamConfig:
    """Settings given by name.

    Raises:
        InputError: one that :class:`gfgnn.config.AdamConfig` does not have or take.
    """
    config: AdamConfig = from_mapping(AdamConfig, settings, "settings")
    return config


def resolve(config: AdamConfig, family: str, num_blocks: int) -> AdamSettings:
    """Fills what ``config`` leaves open from the published setting of ``family``."""
    published = PUBLISHED[family]
    decay = published.weight_decay if config.weight_decay is None else config.weight_decay
    ends = published.weight_decay_ends if config.weight_decay_ends is None else config.weight_decay_ends
    dropout = published.dropout if config.dropout is None else config.dropout
    decays = [decay] * num_blocks
    if published.decay == "first":
        decays[1:] = [0.0] * (num_blocks - 1)
    elif published.decay == "middle" and ends is not None:
        decays[0] = decays[-1] = ends
    return AdamSettings(
        lr=published.lr if config.lr is None else config.lr,
        dropout=dropout,
        dropout_input=dropout if published.drop_input and not config.batch_norm else 0.0,
        batch_norm=config.batch_norm,
        decays=tuple(decays),
    )
