"""OGB's archives, fetched when somebody says so: resumed, unpacked beside their place and moved there as a whole."""

from __future__ import annotations

import csv
import fcntl
import http.client
import importlib.util
import os
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gfgnn.checks import InputError
from gfgnn.data.ogb.sets import OgbSet
from gfgnn.data.progress import report

#: bytes read at once
PIECE = 1 << 20
#: seconds without an answer after which a network is taken to be absent
TIMEOUT = 30


def fetch(known: OgbSet, root: Path) -> None:
    """Downloads the data set to ``root/ogbn_arxiv`` (and so on) unless it is complete there.

    The archive comes from the address that the installed ``ogb`` knows. What has been received of it is kept under
    another name and continued next time where the server says that the file is still the same.

    Raises:
        InputError: the network, the server or the archive fails, or something incomplete is in the place already; the
            message says what failed and which files to put where instead.
    """
    if known.is_complete(root):
        return
    folder = known.folder(root)
    if folder.exists():
        raise InputError(
            f"{folder} is there but not complete; move it away, and {known.name} can be downloaded."
        )
    by_hand = (
        f"Or unpack OGB's {known.archive}.zip elsewhere and put its folder {known.archive} here as {folder}."
    )
    address = archive_address(known.name)
    archive = root / f".{known.archive}.zip.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root / f".{known.archive}.lock"):
            if not known.is_complete(root):  # another process may have done it
                _receive(address, archive)
                _unpack(archive, known.archive, folder)
                _forget(archive)
    except (EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        _forget(archive)
        raise InputError(
            f"what came from {address} could not be unpacked to {folder}: {error}. {by_hand}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{address} could not be downloaded to {root}: {error}. {by_hand}") from error


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keeps other processes from the same archive for the block."""
    with open(lock, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError("another process is at it") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def archive_address(name: str) -> str:
    """Where the archive of data set ``name`` is, by the list that the installed ``ogb`` has; it is not imported."""
    package = importlib.util.find_spec("ogb")
    for place in [] if package is None else package.submodule_search_locations or []:
        path = Path(place) / "nodeproppred" / "master.csv"
        if path.is_file():
            with open(path, encoding="utf-8", newline="") as file:
                rows = {row[0]: row[1:] for row in csv.reader(file) if row}
            addresses = dict(zip(rows.get("", []), rows.get("url", []), strict=False))
            if name in addresses:
                return addresses[name]
    raise InputError(f"the address of {name} is in the package ogb, which is not installed: pip install ogb.")


def _receive(address: str, path: Path) -> None:
    """Writes what is at ``address`` to ``path``, behind what is there already if that is still of the same file."""
    mark = path.with_suffix(".mark")
    begin = path.stat().st_size if path.is_file() and mark.is_file() else 0
    request = urllib.request.Request(address)
    if begin:
        request.add_header("Range", f"bytes={begin}-")
        request.add_header("If-Range", mark.read_text(encoding="utf-8"))
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if not error.headers.get("Content-Range", "").endswith(f"/{begin}"):  # else nothing is left to come
            _forget(path)
            _receive(address, path)
        return
    with answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            begin = 0
            _forget(path)
            if same := answer.headers.get("ETag") or answer.headers.get("Last-Modified"):
                mark.write_text(same, encoding="utf-8")
        length = answer.headers.get("Content-Length")
        total = None if length is None else begin + int(length)
        with open(path, "ab") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
                report(f"downloading {address.rpartition('/')[2]}", file.tell(), total or 0)
    if total is not None and path.stat().st_size != total:
        raise OSError(
            f"the connection ended after {path.stat().st_size:,} of {total:,} bytes; try again to go on"
        )


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".mark").unlink(missing_ok=True)


def _unpack(archive: Path, inside: str, folder: Path) -> None:
    """The folder ``inside`` of the archive as ``folder``, which appears when it is complete."""
    made = folder.parent / f".{folder.name}.tmp"
    shutil.rmtree(made, ignore_errors=True)  # of a process that was killed
    try:
        with zipfile.ZipFile(archive) as file:
            entries = [entry for entry in file.infolist() if not entry.is_dir()]
            total, done = sum(entry.file_size for entry in entries), 0
            for entry in entries:
                path = (made / entry.filename).resolve()
                if not path.is_relative_to(made.resolve()):
                    raise zipfile.BadZipFile(f"it holds {entry.filename}, which is outside its folder")
                path.parent.mkdir(parents=True, exist_ok=True)
                with file.open(entry) as source, open(path, "xb") as target:
                    while piece := source.read(PIECE):
                        target.write(piece)
                        done += len(piece)
                        report(f"unpacking {inside}.zip", done, total)
        if not (made / inside).is_dir():
            raise zipfile.BadZipFile(f"it has no folder {inside}")
        os.rename(made / inside, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
