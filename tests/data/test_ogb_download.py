"""OGB's archives from a server on this machine: asked for, resumed, never half there, and errors that help."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ogb_raw import write_ogb

from gfgnn import InputError, load
from gfgnn.data.ogb import download
from gfgnn.data.ogb.sets import SETS


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; knows ranges, and may end early. What was asked for is kept in ``asked``."""

    asked: list[str | None]
    stop_after: int | None

    def do_GET(self) -> None:
        wanted, same = self.headers.get("Range"), self.headers.get("If-Range")
        self.asked.append(wanted)
        content = Path(self.translate_path(self.path)).read_bytes()
        tag = f'"{hash(content)}"'
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and same == tag else 0
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin : self.stop_after])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Handler]]:
    """The handler, whose settings may be changed; the archives are in ``tmp_path/served``."""
    monkeypatch.delenv("GFGNN_DATA", raising=False)
    (tmp_path / "served").mkdir()
    kind = type("Own", (Handler,), {"asked": [], "stop_after": None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=str(tmp_path / "served"))) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{httpd.server_address[1]}/arxiv.zip"
        monkeypatch.setattr(download, "archive_address", lambda name: address)
        yield kind
        httpd.shutdown()


def served(tmp_path: Path, *, seed: int = 0) -> None:
    """The archive of a generated data set, as OGB packs it."""
    write_ogb(tmp_path / "made", "ogbn-arxiv", seed=seed)
    folder = tmp_path / "made" / "ogbn_arxiv"
    with zipfile.ZipFile(tmp_path / "served" / "arxiv.zip", "w") as file:
        file.mkdir("arxiv")
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            file.write(path, Path("arxiv") / path.relative_to(folder))


def test_only_when_asked_and_only_once(tmp_path: Path, server: type[Handler]) -> None:
    served(tmp_path)
    root = tmp_path / "new" / "root"
    with pytest.raises(InputError, match="not complete"):
        load("ogbn-arxiv", root)
    assert server.asked == []
    told: dict[str, float] = {}
    graph = load("ogbn-arxiv", root, download=True, progress=told.__setitem__)
    assert graph.edge_index.equal(load("ogbn-arxiv", tmp_path / "made").edge_index)
    assert told["downloading arxiv.zip"] == told["unpacking arxiv.zip"] == 1
    assert [path.name for path in root.iterdir()] == ["ogbn_arxiv"]
    load("ogbn-arxiv", root, download=True)
    assert server.asked == [None]


@pytest.mark.parametrize("changed", [False, True])
def test_a_connection_that_ended_is_taken_up_again(
    changed: bool, tmp_path: Path, server: type[Handler]
) -> None:
    served(tmp_path)
    server.stop_after = 1000
    with pytest.raises(
        InputError, match=r"arxiv\.zip could not be downloaded to .*Or unpack OGB's arxiv\.zip"
    ):
        load("ogbn-arxiv", tmp_path, download=True)
    assert not (tmp_path / "ogbn_arxiv").exists()
    server.stop_after = None
    if changed:  # then it starts over
        served(tmp_path, seed=1)
    graph = load("ogbn-arxiv", tmp_path, download=True)
    assert server.asked == [None, "bytes=1000-"]
    assert graph.edge_index.equal(load("ogbn-arxiv", tmp_path / "made").edge_index)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "ogbn_arxiv", "served"]


@pytest.mark.parametrize("more", [b"", b"of another file"])
def test_an_archive_that_was_received_but_never_unpacked(
    more: bytes, tmp_path: Path, server: type[Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    served(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download, "_unpack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load("ogbn-arxiv", tmp_path, download=True)
    (left := tmp_path / ".ogbn_arxiv.tmp").mkdir()
    (left / "half").touch()
    part = tmp_path / ".arxiv.zip.part"
    size = part.write_bytes(part.read_bytes() + more)
    load("ogbn-arxiv", tmp_path, download=True)
    assert server.asked == [None, f"bytes={size}-", *([None] if more else [])]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "ogbn_arxiv", "served"]


def test_one_download_at_a_time(tmp_path: Path, server: type[Handler]) -> None:
    served(tmp_path)
    seen: list[str] = []

    def meanwhile(phase: str, share: float) -> None:
        if not seen:
            seen.append(phase)
            with pytest.raises(InputError, match="another process is at it"):
                load("ogbn-arxiv", tmp_path, download=True)

    load("ogbn-arxiv", tmp_path, download=True, progress=meanwhile)
    assert seen == ["downloading arxiv.zip"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../outside", r"\.\./outside, which is outside"),
        ("/outside", "outside"),
        ("other/file", "no folder arxiv"),
    ],
)
def test_archives_that_are_not_unpacked(
    name: str, message: str, tmp_path: Path, server: type[Handler]
) -> None:
    with zipfile.ZipFile(tmp_path / "served" / "arxiv.zip", "w") as file:
        file.writestr(name, "content")
    root = tmp_path / "root"
    with pytest.raises(InputError, match=rf"could not be unpacked to .*{message}.*Or unpack OGB's"):
        load("ogbn-arxiv", root, download=True)
    assert list(root.iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_no_archive_and_no_network(
    tmp_path: Path, server: type[Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served" / "arxiv.zip").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"could not be unpacked .*not a zip file"):
        load("ogbn-arxiv", tmp_path, download=True)
    monkeypatch.setattr(download, "archive_address", lambda name: "http://127.0.0.1:9/arxiv.zip")
    with pytest.raises(InputError, match=r"could not be downloaded .*refused.*put its folder arxiv here as"):
        load("ogbn-arxiv", tmp_path, download=True)
    assert [path.name for path in tmp_path.iterdir()] == ["served"]


def test_what_is_there_already_is_left_alone(tmp_path: Path, server: type[Handler]) -> None:
    write_ogb(tmp_path, "ogbn-arxiv")
    (tmp_path / "ogbn_arxiv/raw/edge.csv.gz").unlink()
    with pytest.raises(InputError, match="ogbn_arxiv is there but not complete; move it away"):
        load("ogbn-arxiv", tmp_path, download=True)
    assert server.asked == []
    with pytest.raises(InputError, match="download is for OGB's data sets, such as ogbn-arxiv; got citeseer"):
        load("citeseer", download=True)


@pytest.mark.parametrize("known", SETS.values(), ids=SETS)
def test_addresses_are_those_of_the_package(known: Any) -> None:
    address = download.archive_address(known.name)
    assert address.startswith("http")
    assert address.endswith(f"/{known.archive}.zip")
    with pytest.raises(InputError, match="pip install ogb"):
        download.archive_address("ogbn-nothing")
