"""OGB's node data sets: which files each consists of, how it is split and scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gfgnn.checks import InputError

#: the relations of ogbn-mag, (type of the sources, relation, type of the targets), in the order of their numbers
MAG_RELATIONS = (
    ("author", "affiliated_with", "institution"),
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "has_topic", "field_of_study"),
)
#: the node types of ogbn-mag in the order of their nodes: papers first, so that they keep OGB's numbers
MAG_TYPES = ("paper", "author", "field_of_study", "institution")


@dataclass(frozen=True)
class OgbSet:
    """One data set as OGB lays it out.

    Attributes:
        name: OGB's name, with a hyphen.
        archive: OGB's archive without ``.zip``: also the folder in it.
        raw: required files in ``raw``.
        split: folder of the official split in ``split``; its files are ``train``, ``valid`` and ``test.csv.gz``.
        mirrored: whether OGB's own loader adds the reverse of every edge.
        metric: what OGB's evaluator reports, ``acc`` or ``rocauc``.
        num_tasks: columns of the labels.
    """

    name: str
    archive: str
    raw: tuple[str, ...]
    split: str
    mirrored: bool = False
    metric: str = "acc"
    num_tasks: int = 1

    def folder(self, root: Path) -> Path:
        """Where the data set lies, ``root/ogbn_arxiv``."""
        return root / self.name.replace("-", "_")

    def files(self, root: Path) -> list[Path]:
        """Every required file; raises :class:`InputError` that lists those that are missing."""
        paths = self._paths(root)
        folder = self.folder(root)
        if missing := [path for path in paths if not path.is_file()]:
            raise InputError(
                f"{self.name} is not complete under {folder}: missing are "
                + ", ".join(str(path.relative_to(folder)) for path in missing)
                + f". Unpack OGB's {self.archive}.zip and rename its folder {self.archive} to {folder}, or say with "
                f"root in which folder {folder.name} lies. gfgnn downloads nothing unless told to: --download, or "
                "load(..., download=True)."
            )
        return paths

    def is_complete(self, root: Path) -> bool:
        """Whether every required file is there."""
        return all(path.is_file() for path in self._paths(root))

    def _paths(self, root: Path) -> list[Path]:
        folder, split = self.folder(root), self.folder(root) / "split" / self.split
        parts = (f"{part}.csv.gz" for part in ("train", "valid", "test"))
        return [*(folder / "raw" / name for name in self.raw), *(split / part for part in parts)]


_CSV = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
_MAG = (
    "num-node-dict.csv.gz",
    "node-feat/paper/node-feat.csv.gz",
    "node-label/paper/node-label.csv.gz",
    *(f"relations/{'___'.join(relation)}/edge.csv.gz" for relation in MAG_RELATIONS),
)
SETS = {
    known.name: known
    for known in (
        OgbSet("ogbn-arxiv", "arxiv", _CSV, "time"),
        OgbSet("ogbn-products", "products", _CSV, "sales_ranking", mirrored=True),
        OgbSet(
            "ogbn-proteins", "proteins", ("edge.csv.gz", "edge-feat.csv.gz", "node-label.csv.gz"), "species",
            mirrored=True, metric="rocauc", num_tasks=112,
        ),
        OgbSet("ogbn-mag", "mag", _MAG, "time/paper", mirrored=True),
        OgbSet("ogbn-papers100M", "papers100M-bin", ("data.npz", "node-label.npz"), "time"),
    )
}  # fmt: skip


def is_ogb(name: str) -> bool:
    """Whether ``name`` is an OGB node data set, ``ogbn-arxiv`` or ``ogbn_arxiv``."""
    return name.startswith(("ogbn-", "ogbn_"))


def ogb_set(name: str) -> OgbSet:
    """The data set of that name; :class:`InputError` where gfgnn does not read it."""
    official = name.replace("_", "-")
    if official not in SETS:
        raise InputError(f"{name} is not supported; gfgnn reads {', '.join(SETS)} from OGB's raw files.")
    return SETS[official]
