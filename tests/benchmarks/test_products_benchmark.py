"""The benchmark of products' shape end to end, on a small graph."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import gfgnn

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_generate_cache_and_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    products = importlib.import_module("products")
    monkeypatch.setattr(products, "PIECE", 1000)
    monkeypatch.setattr(products, "COMMUNITY", 50)
    size = ["--nodes", "1000", "--edges", "4000", "--features", "7", "--classes", "5"]
    products.main(["generate", "--out", str(tmp_path), *size])
    results = ["--results", str(tmp_path / "lines.jsonl")]
    monkeypatch.delenv("GFGNN_DATA", raising=False)
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    fresh = products.in_fresh_process

    def first_here(root: Path, storage: str) -> dict[str, object]:
        if list((tmp_path / "cache").glob("ogbn-products-*")):
            return dict(fresh(root, storage))
        capsys.readouterr()
        products.load(root, storage)
        return dict(json.loads(capsys.readouterr().out))

    monkeypatch.setattr(products, "in_fresh_process", first_here)  # a process takes seconds to begin
    products.main(["cache", "--root", str(tmp_path), *results])
    first, second = (json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines())
    assert (first["case"], second["case"]) == ("first load", "second load")
    assert first["phases"].keys() >= {"reading raw/node-feat.csv.gz", "sorting edges"}
    assert second["phases"] == {}
    for line in (first, second):
        assert (line["nodes"], line["features"]) == (1000, 7)
        assert 6000 < line["edges"] <= 8000
        assert line["peak_memory"] >= line["memory_before"] > 1 << 26
    capsys.readouterr()
    products.main(["report", *results])
    assert len(capsys.readouterr().out.splitlines()) == 4

    graph = gfgnn.load("ogbn-products", tmp_path)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [int(mask.sum()) for mask in masks] == [80, 20, 900]
    homophily = graph.statistics()["edge_homophily"]
    assert 0.75 < homophily < 0.95  # communities: by chance a fifth
    degree = np.sort(np.bincount(graph.edge_index[1].numpy(), minlength=1000))
    assert degree[-100:].mean() > 3 * degree.mean() / 2
    assert graph.x is not None
    assert float((graph.x * 100 - (graph.x * 100).round()).abs().max()) < 1e-3  # two decimals


@pytest.mark.parametrize(
    "rows", [np.array([[0, 10], [305, 7]]), np.array([[0]]), np.array([[99], [100], [1]])]
)
def test_whole_numbers_as_text(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    products = importlib.import_module("products")
    assert products.whole(rows).decode() == "".join(f"{','.join(map(str, row))}\n" for row in rows.tolist())
    values = np.array([[0.0, -0.01, 12.0], [1.234, -9.996, 0.1]])
    assert products.decimal(values).decode() == "0.00,-0.01,9.99\n1.23,-9.99,0.10\n"
