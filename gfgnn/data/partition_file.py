"""Partitions on disk: an ``.npz`` with the assignment, and what else there is to know as JSON inside it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gfgnn.checkpoint import atomic_write
from gfgnn.checks import InputError
from gfgnn.data.npz import read_arrays
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition.partition import Partition, check_assignment, check_fingerprint
from gfgnn.graph.partition.report import measure

FORMAT = "gfgnn partition 1"
ARRAYS = {"assignment", "about"}
ABOUT = {
    "num_parts": int,
    "method": str,
    "seed": int,
    "balance": list,
    "target_shares": list,
    "fingerprint": str,
    "notes": list,
}


def save_partition(path: str | os.PathLike[str], partition: Partition) -> None:
    """Writes ``assignment`` ``[N]`` and ``about``, a JSON text; the file appears whole or not at all.

    Raises:
        WriteError: the disk is full, or the folder cannot be written.
    """
    about = {"format": FORMAT, **{name: getattr(partition, name) for name in ABOUT}}
    assignment = partition.assignment.numpy().astype(np.int32)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, assignment=assignment, about=np.array(json.dumps(about)))
    atomic_write(path, buffer.getvalue())


def load_partition(path: str | os.PathLike[str], graph: Graph) -> Partition:
    """The partition in a file, which must be one of ``graph``; its report is measured anew.

    Raises:
        InputError: there is no such file, it is damaged, holds something else, or is of another graph.
    """
    path = Path(path)
    arrays = read_arrays(path)
    if set(arrays) != ARRAYS:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(
            f"{path} holds no partition: its arrays are {held}, not {', '.join(sorted(ARRAYS))}."
        )
    about = _about(path, arrays["about"])
    assignment = arrays["assignment"]
    if not np.issubdtype(assignment.dtype, np.integer):
        raise InputError(f"{path}: assignment must hold integers; got {assignment.dtype}.")
    tensor = torch.from_numpy(assignment.astype(np.int64))
    num_parts, shares = about["num_parts"], tuple(about["target_shares"])
    try:
        check_fingerprint(about["fingerprint"], graph)
        check_assignment(tensor, graph.num_nodes, num_parts)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Partition(
        assignment=tensor,
        num_parts=num_parts,
        method=about["method"],
        seed=about["seed"],
        balance=tuple(about["balance"]),
        target_shares=shares,
        fingerprint=about["fingerprint"],
        notes=tuple(about["notes"]),
        report=measure(graph, tensor, shares),
    )


def _about(path: Path, array: np.ndarray) -> dict[str, Any]:
    """The JSON object inside the file, with every entry of the type it must have."""
    try:
        about = json.loads(str(array))
    except ValueError as error:
        raise InputError(f"{path} is damaged: its about is not valid JSON: {error}.") from None
    found = about.get("format") if isinstance(about, dict) else about
    if found != FORMAT:
        raise InputError(f"{path} is no {FORMAT!r} file: its format is {found!r}.")
    for name, kind in ABOUT.items():
        if type(about.get(name)) is not kind:
            raise InputError(f"{path} is damaged: {name} must be {kind.__name__}; got {about.get(name)!r}.")
    shares = about["target_shares"]
    if len(shares) != about["num_parts"] or not all(isinstance(s, float) and s > 0 for s in shares):
        raise InputError(
            f"{path} is damaged: target_shares must be {about['num_parts']} positive numbers; got {shares}."
        )
    return about
