"""The files through which local ranks get their shards, and hand back what they trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.shards import GraphShard, pack, unpack

ABOUT, FEATURES = "about.json", "features"


def save_shard(folder: Path, shard: GraphShard) -> None:
    """Writes a shard as one file for each array."""
    folder.mkdir(parents=True)
    tensors, about = pack(shard)
    for name, value in tensors.items():
        np.save(folder / f"{name}.npy", value.numpy())
    (folder / ABOUT).write_text(json.dumps(about))


def load_shard(folder: Path, *, with_features: bool, mapped: bool = False) -> GraphShard:
    """Reads a shard; without features for ranks that do not hold block 0.

    Args:
        mapped: map the files in place of reading them: pages come from the disk when they are used and may be dropped
            again, and what is written to them stays in this process. Mapped pages count as memory of the process
            while they are there, so ranks with memory enough read.
    """
    tensors = {
        file.stem: torch.from_numpy(np.load(file, mmap_mode="c" if mapped else None))
        for file in sorted(folder.glob("*.npy"))
        if with_features or file.stem.split(".")[0] != FEATURES
    }
    return unpack(tensors, json.loads((folder / ABOUT).read_text()))


def save_weights(folder: Path, name: str, weights: dict[str, Tensor]) -> None:
    """Writes weights for :func:`load_weights`."""
    import safetensors.torch

    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    safetensors.torch.save_file(tensors, folder / f"{name}.safetensors")


def load_weights(folder: Path, name: str, order: list[str]) -> dict[str, Tensor]:
    """Reads weights, in the given order of names."""
    import safetensors.torch

    tensors = safetensors.torch.load_file(folder / f"{name}.safetensors")
    return {key: tensors[key] for key in order}


def save_json(folder: Path, name: str, value: Any) -> None:
    """Writes a plain object; NaN and infinity stay what they are."""
    (folder / f"{name}.json").write_text(json.dumps(value))


def load_json(folder: Path, name: str) -> Any:
    """Reads what :func:`save_json` wrote."""
    return json.loads((folder / f"{name}.json").read_text())
