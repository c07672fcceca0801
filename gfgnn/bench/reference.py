"""Published figures, as files with their sources."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "reference"


@dataclass(frozen=True)
class Published:
    """A figure somebody else has published.

    Attributes:
        data: a name as ``.npz`` files have it.
        layers: None where the source does not say, or has another notion of it.
        test: accuracy.
        sd: None where the source has none.
        setting: under which conditions: split, features, repetitions.
    """

    data: str
    method: str
    layers: int | None
    test: float
    sd: float | None
    source: str
    url: str
    setting: str


def published(sources: Iterable[str]) -> list[Published]:
    """What is known of the data sets ``sources``, by data set."""
    wanted = dict.fromkeys(_plain(source) for source in sources)
    found = _all()
    return [row for name in wanted for row in found if row.data == name]


def _all() -> list[Published]:
    rows = []
    for path in sorted(FOLDER.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        rows += [
            Published(
                data,
                row["method"],
                row.get("layers"),
                test,
                row.get("sd"),
                table["source"],
                table["url"],
                table["setting"],
            )
            for row in table["row"]
            for data, test in row["test"].items()
        ]
    return rows


def _plain(source: str) -> str:
    """``Planetoid:Cora`` and ``some/cora.npz`` are cora, ``ogbn-arxiv`` is ogbn_arxiv."""
    name = source.removesuffix(".npz").replace("\\", "/").rpartition("/")[2]
    return name.rpartition(":")[2].lower().replace("-", "_")
