"""Who may import whom, read off the source: the rules of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gfgnn"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [path.relative_to(PACKAGE).as_posix() for path in FILES]

#: parts of the package that know only torch, numpy and each other, and what they may import from outside
PURE = (
    "checks.py",
    "profiling/",
    "ops/",
    "graph/",
    "model/",
    "plan/",
    "solver/",
    "comm/base.py",
    "comm/serial.py",
    "exchange/halo.py",
    "exchange/stages.py",
)
PURE_MAY = {"torch", "numpy", "scipy", "gfgnn"}
#: the exceptions: the graph partitioner calls METIS, and whoever reads PyG's modules must know them
MAY_ALSO = {"graph/partition/": {"pymetis", "metis"}, "model/from_pyg/": {"torch_geometric"}}
DISK = {"pathlib", "tempfile", "shutil", "json", "csv", "pickle", "zipfile", "gzip", "tomllib"}

#: module: the only files that may import it
ONLY = {
    "torch_geometric": ("data/pyg.py", "model/from_pyg/", "nn/", "baseline/revgnn.py"),
    "ogb": ("data/ogb/",),
    "torch.distributed": ("comm/torch.py", "baseline/pipeline.py"),
    "pandas": ("data/ogb/",),
}
#: imported inside functions only, because they take seconds
LAZY = {"torch_geometric", "ogb", "pandas", "networkx", "matplotlib", "tensorboard", "pymetis", "metis"}

TOP = ("loop", "train", "tune", "launch", "bench", "cli")
#: part: the parts above it, which it must not import (methods that delegate import inside the function)
BELOW = {
    "checks.py": ("data", "graph", "ops", "model", "plan", "comm", "exchange", "solver", "baseline", *TOP),
    "profiling/": ("data", "ops", "graph", "model", "plan", "comm", "exchange", "solver", "baseline", *TOP),
    "ops/": ("data", "graph", "model", "plan", "comm", "exchange", "solver", "baseline", *TOP),
    "graph/": ("data", "model", "plan", "comm", "exchange", "problem", "solver", "baseline", *TOP),
    "model/": ("data", "plan", "comm", "exchange", "solver", "baseline", *TOP),
    "plan/": ("data", "comm", "exchange", "solver", "baseline", *TOP),
    "comm/": ("data", "graph", "model", "plan", "exchange", "solver", "baseline", *TOP),
    "exchange/": ("data", "plan", "solver", "baseline", *TOP),
    "solver/": ("data", "baseline", *TOP),
    "data/": ("model", "plan", "comm", "solver", "baseline", *TOP),
    "loop.py": ("data", "launch", "bench", "cli"),
    "train.py": ("bench", "cli"),
    "launch/": ("bench", "cli"),
    "bench/": ("cli",),
}


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every module a file imports, and whether at the top level (type-checking blocks do not count as such)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.extend((f"{node.module}.{alias.name}", top) for alias in node.names)
        inner = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, True)
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def pure(name: str) -> bool:
    return name.startswith(PURE)


@pytest.mark.parametrize(("path", "name"), list(zip(FILES, NAMES, strict=True)), ids=NAMES)
def test_imports_follow_the_rules(path: Path, name: str) -> None:
    for module, top in imports(path):
        root = module.split(".")[0]
        for restricted, allowed in ONLY.items():
            if within(module, restricted):
                assert name.startswith(allowed), f"{name} imports {module}; only {', '.join(allowed)} may"
        if top and not name.startswith("nn/"):
            assert root not in LAZY, (
                f"{name} imports {module} at the top; it takes seconds, import it where needed"
            )
        if pure(name):
            may = PURE_MAY | next((more for part, more in MAY_ALSO.items() if name.startswith(part)), set())
            known = root in may or (root in sys.stdlib_module_names and root not in DISK)
            assert known, (
                f"{name} imports {module}; it may know only {', '.join(sorted(PURE_MAY))}, and no disk"
            )
        for part, above in BELOW.items():
            if name.startswith(part) and top:
                bad = [other for other in above if within(module, f"gfgnn.{other}")]
                assert not bad, f"{name} imports {module}, which lies above it"


@pytest.mark.parametrize(("path", "name"), list(zip(FILES, NAMES, strict=True)), ids=NAMES)
def test_files_stay_small(path: Path, name: str) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, f"{name} has more than 450 lines"


def test_no_backpropagation_in_the_solver() -> None:
    """The promise of the package: neither solver nor training loop can have used a gradient from autograd."""
    pattern = re.compile(r"autograd|requires_grad|\.backward\(")
    files = [
        path
        for path, name in zip(FILES, NAMES, strict=True)
        if name.startswith(("solver/", "ops/", "loop.py", "train.py"))
    ]
    assert files
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_import_stays_quick() -> None:
    """None of the slow libraries is loaded by ``import gfgnn``; ``gfgnn.train`` is the function."""
    code = (
        f"import sys, gfgnn; print([m for m in {sorted(LAZY)!r} if m in sys.modules]);"
        "import gfgnn.train, gfgnn.predict;"
        "print(all(hasattr(gfgnn, name) for name in gfgnn.__all__), callable(gfgnn.train), callable(gfgnn.predict))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["[]", "True", "True", "True"]
