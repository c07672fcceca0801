"""The report: tables, pictures, and the page that needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from lines import benchmark, line, outcome

from gfgnn.bench.records import append_line
from gfgnn.bench.reference import published
from gfgnn.bench.report import write_report


def test_report(tmp_path: Path) -> None:
    lines = benchmark()
    deep = [{**record, "model": {"family": "gcn", "layers": 8}} for record in benchmark()[1:]]
    two = [
        line("ours on two", seed, outcome((0.5, 0.7, 0.8), peak_bytes=[9, 9], idle_share=[0.1, 0.3]),
             contender="ours", settings={"parts": 2})
        for seed in range(3)
    ]  # fmt: skip
    killed = outcome(status="out of memory", reason="killed <b>early</b>", peak_bytes=[])
    passed = {
        "kind": "skipped",
        "session": "s",
        "case": "made",
        "data": None,
        "label": "revgnn",
        "reason": "gone",
    }
    for record in [*lines, *deep, *two, line("heavy", 0, killed), passed]:
        append_line(tmp_path / "runs.jsonl", record)
    files = write_report(tmp_path)
    assert files == ["table.md", "made-seconds.png", "made-depth.png", "made-ranks.png", "report.html"]
    table = (tmp_path / "table.md").read_text()
    assert "| cora | 2 | ours | 3 | 84.0 ± 0.5 | 90.0 ± 0.0 | 2 | 2.00 |" in table
    assert "| cora | 2 | other | test 0.8 | 6 | 2/3 | ≥ 3.00 (3.00 to 3.00) |" in table
    assert "| cora | 2 | heavy | 0 of 1 (out of memory) | out of memory | - | - | - |" in table
    assert "| ours | 84.0 ± 0.5 | 84.0 ± 0.5 |" in table  # by depth
    assert "| cora | 2 | ours on two | 2 | ours | 2.00 (2.00 to 2.00) |" in table
    assert "| made | revgnn | gone |" in table
    measured, _, others = table.partition("## Published figures")
    assert "GCNII" in others
    assert "GCNII" not in measured
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "killed &lt;b&gt;early" in page
    assert "gfgnn bench made.toml" in page
    assert "20.0%" in page  # the mean idle share


def test_published_figures_have_sources() -> None:
    rows = published(["Planetoid:Cora", "some/pubmed.npz", "ogbn-arxiv", "coauthor_cs"])
    assert {row.data for row in rows} == {"cora", "pubmed", "ogbn_arxiv", "coauthor_cs"}
    assert all(
        row.url.startswith("https://") and row.source and row.setting and 0 < row.test < 1 for row in rows
    )
    assert all("not comparable" in row.setting for row in rows if row.data == "ogbn_arxiv")
    assert published(["synthetic:nodes=10"]) == []
