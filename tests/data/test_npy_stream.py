"""Arrays written and read in pieces: the same as whole, whatever their order in the file; damage is named."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgnn import InputError
from gfgnn.data.npy_stream import members, write_features


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 9),
    columns=st.integers(1, 5),
    size=st.integers(1, 10),
    by_columns=st.booleans(),
    transposed=st.booleans(),
    compressed=st.booleans(),
    kind=st.sampled_from(["<f4", ">f8", "<i8", "<f2"]),
)
def test_members_come_in_pieces(
    rows: int, columns: int, size: int, by_columns: bool, transposed: bool, compressed: bool, kind: str
) -> None:
    array = np.arange(rows * columns).reshape(rows, columns).astype(kind)
    stored = np.asfortranarray(array) if by_columns else array
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        (np.savez_compressed if compressed else np.savez)(
            path, before=np.ones(3), x=stored, y=np.ones((2, 2))
        )
        found = members(path)
        assert list(found) == ["before", "x", "y"]
        assert (found["before"].shape, found["x"].shape) == ((3, 1), (rows, columns))
        pieces = list(found["x"].pieces(size, transposed=transposed))
    expected = array.T if transposed else array
    assert all(len(piece) <= size for piece in pieces)
    together = np.concatenate(pieces) if pieces else np.zeros((0, expected.shape[1]))
    assert together.tolist() == expected.tolist()


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(20_000))
    whole = path.read_bytes()
    for content in (b"", whole[:-30], whole[:40_000] + b"\0" * 8 + whole[40_008:]):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"data\.npz cannot be read as an \.npz, it is truncated or damaged"
        ):
            list(members(path)["x"].pieces(1000))
    np.savez(path, x=np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match=r"x in .*data\.npz is no matrix of numbers"):
        members(path)
    np.savez(path, x=np.ones((2, 2, 2)))
    with pytest.raises(InputError, match=r"no matrix of numbers; it has shape \[2, 2, 2\]"):
        members(path)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_features_are_written_as_they_come(kind: str, tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    write_features(tmp_path / "x.npy", (array[at : at + 4] for at in range(0, 10, 4)), 10, kind)
    found = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert found.dtype == kind
    assert np.array_equal(found, array.astype(kind))


@pytest.mark.parametrize(
    ("pieces", "kind", "message"),
    [
        ([np.ones((2, 3))], "float32", "a row of numbers for each of 3 nodes"),
        ([np.ones((2, 3)), np.ones((2, 3))], "float32", "a row of numbers for each of 3 nodes"),
        ([np.ones((2, 3)), np.ones((1, 2))], "float32", "a row of numbers for each of 3 nodes"),
        ([], "float32", "a row of numbers for each of 3 nodes"),
        ([np.array([[1.0], [np.nan], [np.inf]])], "float32", "x holds 2 NaN or infinite"),
        ([np.array([[1.0], [-70_000.0], [2.0]])], "float16", "x holds 7e.04, and float16 ends at 6.55e.04"),
    ],
)
def test_features_that_do_not_fit(pieces: list[np.ndarray], kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        write_features(tmp_path / "x.npy", iter(pieces), 3, kind)
