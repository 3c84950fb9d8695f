"""Serve a log over HTTP as a node does: its manifest, its status, ranges of its readable bytes."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, TypeAlias

from dledger_formats.http.served_files import is_served
from dledger_formats.http.status import DAMAGE_HEADER, Manifest, SegmentFile

HEADERS: Final = (DAMAGE_HEADER, "Content-Range", "Retry-After")
RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
SEGMENT: Final = re.compile(r"/segments/(data|index)/(\d{20})")

Interrupt: TypeAlias = Callable[[str], int | None]
"""Maps a path to the status to refuse it with, 0 to close the connection, or None to serve it.

599 means the answer of a member whose disk cannot read the file.
"""


Sent: TypeAlias = Callable[[str, int], None]
"""Called with the path and the number of bytes of each answer."""


def never(_: str) -> None:
    """Serve everything."""


def unlogged(*_: object) -> None:
    """Log nothing."""


def unseen(_path: str, _count: int) -> None:
    """Count nothing."""


@contextmanager
def served(
    root: Path,
    manifest: Manifest | Callable[[], Manifest],
    interrupt: Interrupt = never,
    *,
    cut_after: Sequence[int] = (),
    sent: Sent = unseen,
    retry_after: str = "",
) -> Iterator[str]:
    """Serve a member's files on a free loopback port while the block runs; yield the URL.

    The manifest of a member whose files change is called for each request.
    The first answers break off after the numbers of bytes in `cut_after`. `retry_after` goes
    with each answer that refuses.
    """
    now = manifest if callable(manifest) else lambda: manifest
    handler = _handler(root, now, interrupt, list(cut_after), sent, retry_after)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listed(manifest: Manifest, folder: str, name: str) -> SegmentFile | None:
    files = manifest.data if folder == "data" else manifest.index
    return next((file for file in files if file.name == name), None)


def _said(now: Callable[[], Manifest], path: str) -> bytes:
    """Return the answer with what the member says of itself; empty for another path."""
    if path == "/manifest":
        return now().to_json()
    return now().status.to_json() if path == "/status" else b""


def _handler(  # noqa: C901 - one class with one short method per kind of answer
    root: Path,
    now: Callable[[], Manifest],
    interrupt: Interrupt,
    cuts: list[int],
    sent: Sent,
    retry_after: str,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            refused = interrupt(self.path)
            if refused == 0:
                self.close_connection = True
            elif refused == 599:
                self._answer(500, b"a sector is bad", damage="unreadable")
            elif refused is not None:
                self._answer(refused)
            elif said := _said(now, self.path):
                self._answer(200, said)
            elif self.path.startswith("/files/"):
                self._file(self.path.removeprefix("/files/"))
            else:
                self._segment()

        def _file(self, name: str) -> None:
            if is_served(name) and (root / name).exists():
                self._answer(*ranged(root / name, self.headers.get("Range", "")))
            else:
                self._answer(404)

        def _segment(self) -> None:
            asked = SEGMENT.fullmatch(self.path)
            file = _listed(now(), asked[1], asked[2]) if asked else None
            if asked is None or file is None:
                self._answer(404)
                return
            range_ = RANGE.fullmatch(self.headers.get("Range", ""))
            path = root / asked[1] / asked[2]
            if range_ is None or not path.exists():
                self._answer(400 if range_ is None else 404)
                return
            raw = read_range(path, file, int(range_[1]), int(range_[2]) + 1)
            if not raw:
                self._answer(416)
                return
            end = int(range_[1]) + len(raw) - 1
            self._answer(206, raw, f"bytes {range_[1]}-{end}/{file.readable_bytes}")

        def _answer(
            self, status: int, body: bytes = b"", content_range: str = "", damage: str = ""
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            later = retry_after if status >= 400 else ""
            for name, value in zip(HEADERS, (damage, content_range, later), strict=True):
                if value:
                    self.send_header(name, value)
            self.end_headers()
            if cuts:
                body = body[: cuts.pop(0)]
                self.close_connection = True
            sent(self.path, len(body))
            self.wfile.write(body)

        log_message = unlogged

    return Handler


def ranged(path: Path, header: str) -> tuple[int, bytes, str]:
    """Return the status, the body and the `Content-Range` of an answer with a part of a file."""
    whole, asked = path.read_bytes(), RANGE.fullmatch(header)
    if asked is None:
        return 200, whole, ""
    first, end = int(asked[1]), min(len(whole), int(asked[2]) + 1)
    if first >= end:
        return 416, b"", ""
    return 206, whole[first:end], f"bytes {first}-{end - 1}/{len(whole)}"


def read_range(path: Path, file: SegmentFile, start: int, end: int) -> bytes:
    """Read the requested bytes, up to the readable end."""
    with path.open("rb") as opened:
        opened.seek(start)
        return opened.read(max(0, min(end, file.readable_bytes) - start))


def without_segment(manifest: Manifest, segment: str) -> Manifest:
    """Return the manifest of a member that started after this data file was lost."""
    return replace(manifest, data=[file for file in manifest.data if file.name != segment])
