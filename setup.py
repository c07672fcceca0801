"""Builds the compiled kernels beside their sources; everything else stands in pyproject.toml.

They are optional: without a working compiler the installation succeeds, and torch's own products serve.
"""

import sys
import zlib
from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-std=gnu++17", "-O2", "-ffp-contract=fast", "-pthread", "-Wno-psabi", "-g0"]


def kernel(source: str) -> Extension:
    """A library for ctypes, named like a module; it knows its source by checksum (gfgnn/ops/native/__init__.py)."""
    headers = sorted(Path(source).parent.glob("*.h"))
    checksum = zlib.crc32(b"".join(path.read_bytes() for path in (Path(source), *headers)))
    return Extension(
        source.removesuffix(".cpp").replace("/", "."),
        sources=[source],
        depends=[str(path) for path in headers],
        define_macros=[("GFGNN_SOURCE", f"{checksum}u")],
        extra_compile_args=FLAGS,
        extra_link_args=["-pthread"] + ["-ldl"] * sys.platform.startswith("linux"),
        language="c++",
        optional=True,
    )


if __name__ == "__main__":
    # always compiled anew: a file's date says nothing about its checksum
    sources = ("gfgnn/ops/native/spmm.cpp", "gfgnn/ops/native/gate.cpp")
    setup(ext_modules=[kernel(source) for source in sources], options={"build_ext": {"force": True}})
