"""How the compiled product is built and found, and that nothing breaks where it is not."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest
import torch

from gfgnn.ops import native

FOLDER = Path(native.__file__).parent
ROOT = FOLDER.parent.parent.parent


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.SWITCH, raising=False)


def setup_module_of_the_project() -> ModuleType:
    pytest.importorskip("setuptools")
    if not (ROOT / "setup.py").exists():
        pytest.skip("gfgnn is not installed from a source tree")
    spec = importlib.util.spec_from_file_location("gfgnn_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler"])
def test_installation_goes_on_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    build = setup_module_of_the_project()
    from setuptools import Distribution

    for variable in ("CC", "CXX", "LDSHARED", "LDCXXSHARED"):
        monkeypatch.setenv(variable, compiler)
    (tmp_path / "spmm.cpp").write_text("int one() { return 1; }\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["setup.py"])
    distribution = Distribution({"name": "x", "ext_modules": [build.kernel("spmm.cpp")]})
    distribution.get_command_obj("build_ext").inplace = True
    distribution.run_command("build_ext")
    assert not list(tmp_path.glob("*.so"))
    assert native.load(str(tmp_path)) == ({}, "none was built")


def test_library_that_is_none(tmp_path: Path) -> None:
    (tmp_path / f"spmm{EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library")
    kernels, why = native.load(str(tmp_path))
    assert not kernels
    assert why.startswith("it cannot be loaded")


def test_library_of_another_source(tmp_path: Path) -> None:
    built = next((path for suffix in EXTENSION_SUFFIXES for path in FOLDER.glob(f"spmm{suffix}")), None)
    if built is None:
        pytest.skip("no library was built here")
    shutil.copy(built, tmp_path)
    source = (FOLDER / "spmm.cpp").read_bytes()
    (tmp_path / "spmm.cpp").write_bytes(source + b"// changed\n")
    kernels, why = native.load(str(tmp_path))
    assert not kernels
    assert "another source" in why


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.load() == ({}, "GFGNN_NATIVE=0")


def test_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "loaded", lambda: ({}, "none was built"))
    assert native.describe() == "torch (no compiled kernel: none was built)"
    some = {(torch.float32, torch.int32): lambda *_: None}
    monkeypatch.setattr(native, "loaded", lambda: (some, "avx2"))
    assert native.describe() == "native (avx2), 1 thread"
