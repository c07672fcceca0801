"""Files that are either complete or not there: atomic writes, and trained networks as safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from gfgnn._version import __version__
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.label_reuse import EARLIER
from gfgnn.model.build import Model, model_from_dict
from gfgnn.toml import from_mapping

MODEL_FILE, EMBEDDINGS_FILE = "model.safetensors", "embeddings.safetensors"
METADATA_KEY = "gfgnn"


class WriteError(OSError):
    """A file could not be written; what stood there before is untouched."""


def atomic_write(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file as a whole, see :func:`atomic_file`."""
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to that gets its name when it is complete: a neighbouring temporary file, synced and renamed.

    Raises:
        WriteError: the disk is full, or the folder cannot be written; nothing is left behind.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}.") from error


def save_model(path: str | os.PathLike[str], model: Model, weights: dict[str, Tensor]) -> None:
    """Stores weights, and in the metadata what is needed to build the network again."""
    import safetensors.torch

    about = model.to_dict() | {"version": __version__}
    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    metadata = {"format": "pt", METADATA_KEY: json.dumps(about, sort_keys=True)}
    atomic_write(path, safetensors.torch.save(tensors, metadata=metadata))


def load_model(path: str | os.PathLike[str]) -> tuple[Model, dict[str, Tensor]]:
    """A network and its weights, from a file or from the folder of a run.

    Raises:
        InputError: nothing there, damaged, or not written by :func:`save_model`.
    """
    import safetensors

    path = Path(path)
    file = path / MODEL_FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file} does not exist; --model takes the folder that gfgnn train --out wrote.")
    try:
        with safetensors.safe_open(file, framework="pt") as content:
            metadata = content.metadata() or {}
            weights = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        about = json.loads(metadata[METADATA_KEY])
        from_mapping(ModelConfig, about["model"], str(file))  # names what another version wrote there
        model = model_from_dict(about)
    except (KeyError, TypeError, AttributeError):
        raise InputError(
            f"{file} was not written by gfgnn: its metadata do not describe a network."
        ) from None
    except (safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise InputError(f"{file} is damaged or not a safetensors file: {error}.") from None
    _check_shapes(model, weights, file)
    return model, weights


def save_embedding_scores(path: str | os.PathLike[str], scores: Tensor, graph: Graph) -> None:
    """Stores what embeddings say of the nodes of one graph, and which graph that is."""
    import safetensors.torch

    metadata = {
        "format": "pt",
        METADATA_KEY: json.dumps({"fingerprint": fingerprint(graph), "graph": graph.name}),
    }
    atomic_write(path, safetensors.torch.save({"scores": scores.contiguous()}, metadata=metadata))


def load_embedding_scores(path: str | os.PathLike[str], graph: Graph) -> Tensor:
    """The scores ``[N, C]`` that a run's folder holds for ``graph``.

    Raises:
        InputError: the folder has none, or they are another graph's.
    """
    import safetensors

    path = Path(path)
    file = (path if path.is_dir() else path.parent) / EMBEDDINGS_FILE
    if not file.is_file():
        raise InputError(
            f"{file} does not exist: only --solver admm and community-admm leave embeddings, on one device and with "
            "--out DIR."
        )
    try:
        with safetensors.safe_open(file, framework="pt") as content:
            about, scores = json.loads(content.metadata()[METADATA_KEY]), content.get_tensor("scores")
    except (KeyError, TypeError, safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise InputError(f"{file} is damaged or was not written by gfgnn: {error}.") from None
    check_same_graph(about["fingerprint"], about["graph"], graph)
    return scores


def check_same_graph(found: str, name: str, graph: Graph) -> None:
    """Raises :class:`InputError` unless embeddings of the graph ``name`` belong to ``graph``."""
    if found != fingerprint(graph):
        raise InputError(
            f"The embeddings are those of the nodes of {name}; {graph.name} has other nodes or edges. Predict it with "
            "the network, without transductive."
        )


def _check_shapes(model: Model, weights: dict[str, Tensor], file: Path) -> None:
    expected: dict[str, tuple[int, ...]] = {}
    for before in ("", EARLIER) if model.config.label_reuse else ("",):
        for index, block in enumerate(model.blocks):
            name = f"{before}block{index}"
            if block.norm_eps is not None:
                expected |= {f"{name}.{kind}": (block.out_channels,) for kind in ("scale", "shift")}
            if not block.weighted:
                continue
            expected[f"{name}.weight"] = (block.fan_in, block.out_channels)
            if block.bias or f"{name}.bias" in weights:  # batch normalisation leaves a bias in any block
                expected[f"{name}.bias"] = (block.out_channels,)
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found != expected:
        wrong = sorted(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )
        raise InputError(
            f"{file} does not hold the network its metadata describe; see {', '.join(wrong[:3])}."
        )


def jsonable(value: Any) -> Any:
    """``value`` with tensors and other numbers made plain, and what JSON lacks (NaN, infinity) as None."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, torch.Tensor):
        return jsonable(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return jsonable(value.item()) if hasattr(value, "item") else str(value)
