"""Where data files lie."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Literal, overload

import gfgnn
from gfgnn.checks import InputError


def shipped_folders() -> list[Path]:
    """The folders of the data that come with gfgnn: of the source tree, and of an installed wheel."""
    source_tree = Path(gfgnn.__file__).resolve().parent.parent / "datasets"
    return [source_tree, Path(sysconfig.get_path("data")) / "share" / "gfgnn" / "datasets"]


def data_folders(root: Path | None = None) -> list[Path]:
    """Folders that are looked through for NAME.npz, in this order: ``root``, ``$GFGNN_DATA``, the shipped ones."""
    named = [root] if root is not None else []
    if variable := os.environ.get("GFGNN_DATA"):
        named.append(Path(variable).expanduser())
    return named + shipped_folders()


def available(root: Path | None = None) -> list[str]:
    """Names that :func:`gfgnn.data.load` finds as ``.npz`` now."""
    return sorted(
        {path.stem for folder in data_folders(root) if folder.is_dir() for path in folder.glob("*.npz")}
    )


@overload
def find_npz(name: str, root: Path | None = None, *, required: Literal[True] = True) -> Path: ...
@overload
def find_npz(name: str, root: Path | None = None, *, required: bool) -> Path | None: ...
def find_npz(name: str, root: Path | None = None, *, required: bool = True) -> Path | None:
    """The file for a path ending in ``.npz``, or for a bare name in :func:`data_folders`.

    Raises:
        InputError: there is none and it is ``required``; the message says where it was looked for and what there is.
    """
    if name.endswith(".npz") or os.sep in name:
        path = Path(name).expanduser()
        for candidate in [path] if root is None or path.is_absolute() else [path, root / path]:
            if candidate.is_file():
                return candidate
        raise InputError(
            f"{name} is not a file: {path.absolute()} was looked for. Give the path of an .npz in the format of "
            "datasets/README.md, or the name of a data set without .npz."
        )
    folders = data_folders(root)
    for folder in folders:
        if (path := folder / f"{name}.npz").is_file():
            return path
    if not required:
        return None
    raise InputError(
        f"no data set {name!r}. {name}.npz was looked for in {', '.join(map(str, folders))}; set GFGNN_DATA to your "
        f"own folder of .npz files. Available: {', '.join(available(root)) or 'none'}; also a path to an .npz, "
        "Planetoid:Cora and other PyG names, ogbn-arxiv, synthetic:nodes=10000."
    )
