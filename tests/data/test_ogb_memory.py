"""First and second load in an address space several times smaller than the data, for text and for arrays."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from ogb_raw import write_csv, write_ogb

NAMES = ("ogbn-products", "ogbn-papers100M")
NODES, COLUMNS, EDGES = 60_000, 200, 600_000
#: bytes above what imports and a small data set took; of each graph features take 48 MB, edges 19 MB
BUDGET = 20 << 20

LOADS = """
import json, resource, sys
from pathlib import Path
import gfgnn
from gfgnn.data import cache, edge_stream
from gfgnn.data.ogb import mag, read, tables
from gfgnn.graph import validate

small, large, budget, names = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
edge_stream.BLOCK = validate.PIECE = 1 << 16
tables.PIECE = read.PIECE = 1 << 16
for name in names:
    gfgnn.load(name, small)

def allow(more):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, resource.RLIM_INFINITY))

class Converted(Exception):
    pass

def stop(folder):
    raise Converted

mapped, found = cache._mapped, []
for name in names:
    cache._mapped = stop
    allow(budget)
    try:
        gfgnn.load(name, large)
    except Converted:
        cache._mapped = mapped
    (folder,) = (p for p in cache.cache_folder().glob(f"{name}-*") if (p / "x.npy").stat().st_size > 1 << 20)
    files = sum(path.stat().st_size for path in folder.iterdir())
    allow(budget + files)  # for the maps themselves: a copy of either array would not fit
    graph = gfgnn.load(name, large)
    found.append([graph.num_nodes, graph.x.shape[1], graph.num_edges, files, float(graph.x[-1, -1])])
    del graph
print(json.dumps(found))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is set by what /proc says")
def test_memory_is_that_of_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in NAMES:
        for part in ("small", "large"):
            write_ogb(tmp_path / part, name)
    label, edges = rng.integers(0, 3, NODES), rng.integers(0, NODES, (EDGES, 2))
    block = np.round(rng.standard_normal((500, COLUMNS)), 3)
    _write_text(tmp_path / "large/ogbn_products/raw", label, edges, block)
    raw = tmp_path / "large/ogbn_papers100M/raw"
    # twice as many edges: they are kept as stored, and those of products are mirrored
    edge_index = np.ascontiguousarray(np.concatenate([edges, (edges + 7) % NODES]).T)
    x = np.tile(block.astype(np.float32), (NODES // len(block), 1))
    np.savez(raw / "data.npz", edge_index=edge_index, node_feat=x)
    np.savez(raw / "node-label.npz", node_label=label[:, None].astype(np.float32))
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(tmp_path / "small"), str(tmp_path / "large"), str(BUDGET), *NAMES],
        env={**os.environ, "GFGNN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for nodes, columns, kept, files, value in json.loads(done.stdout):
        assert (nodes, columns) == (NODES, COLUMNS)
        assert kept > 1.99 * EDGES
        assert files > 3 * BUDGET
        assert value == pytest.approx(block[-1, -1])


def _write_text(
    raw: Path, label: NDArray[np.int64], edges: NDArray[np.int64], block: NDArray[np.float64]
) -> None:
    write_csv(raw / "node-label.csv.gz", label)
    write_csv(raw / "num-edge-list.csv.gz", np.array([len(edges)]))
    text = "".join(f"{','.join(map(str, row))}\n" for row in block.tolist())
    (raw / "node-feat.csv.gz").write_bytes(gzip.compress(text.encode(), 1) * (NODES // len(block)))
    text = "".join([f"{source},{target}\n" for source, target in edges.tolist()])
    (raw / "edge.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
