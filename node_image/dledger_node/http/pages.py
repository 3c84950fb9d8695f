"""The node's pages.

GET /status                         this member's view of the group (NodeStatus)
GET /leader?since=TERM:LEADER&wait=30s
                                    the leader (LeaderView), once it is no longer TERM:LEADER
GET /healthz                        200 while the process answers
GET /readyz                         200 while this member serves its role, else 503 with the reason
GET /metrics                        Prometheus metrics
GET /manifest                       the files that an auditor may read, and how far (Manifest)
GET /segments/{data|index}/{name}   committed bytes of a segment, as stored on disk; takes Range;
                                    500 with the header DLedger-Damage if the disk cannot read them
GET /stored/{name}?at=BYTE&size=N&known=HEADERS
                                    committed bytes of a data segment, unverified, for a peer that
                                    mends its own; also while this member is out of service. HEADERS
                                    are those of entries that the peer knows to be committed, in hex
                                    (404 if this member cannot give the bytes, with Retry-After if
                                    it may give them later)
GET /files/{name}                   a small file or a snapshot's file (`http.served_files`), as it
                                    is on the disk, for an auditor; takes Range; 500 as above

503 if this member is short of descriptors or memory for a read.

A connection carries one request at a time, without a body (`connection_limits`). `/segments`,
`/stored` and `/files` demand the group's audit token if it has one, and answer 401 to a request
without it (`auditors`).
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import BinaryIO, Final, Literal, Protocol, TypeAlias, cast

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dledger_formats.http import served_files
from dledger_formats.http.status import LeaderView, Manifest, NodeStatus
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_node.errors import NotYetCommittedError, StoreError
from dledger_node.http import byte_ranges, file_answers
from dledger_node.http.auditors import Auditors
from dledger_node.http.places import LATER, Places
from dledger_node.http.request_turns import TURNS, RequestTurns
from dledger_node.shortages import is_passing

WAIT_S_MAX: Final = 60.0
WAITERS_MAX: Final = 256
WAITERS_PER_ADDRESS_MAX: Final = 64
"""An operator waits once, so that this is enough even for many behind one gateway."""
FILES_MAX: Final = 32
FILES_PER_ADDRESS_MAX: Final = 16
STORED_BYTES_MAX: Final = 1 << 20
KNOWN_HEADERS_MAX: Final = 16
"""Maximum number of headers in a request for stored bytes."""
HEAD_BYTES_MAX: Final = 8 * 1024
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")

SOURCE: Final[web.AppKey["Source"]] = web.AppKey("source")
METRICS: Final[web.AppKey["Metrics"]] = web.AppKey("metrics")
WAITERS: Final = web.AppKey("waiters", Places)
AUDITORS: Final[web.AppKey[Auditors | None]] = web.AppKey("auditors")
FILES: Final = web.AppKey("files", Places)


Folder: TypeAlias = Literal["data", "index"]


class Source(Protocol):
    """The data that the pages show."""

    def status(self) -> NodeStatus:
        """Return this member's view of the group."""

    def not_ready_reason(self) -> str:
        """Return why this member does not serve its role, as `status` says; empty if it does.

        Kubelets ask every second, so it costs little.
        """

    def leader_view(self) -> LeaderView:
        """Return the leader, as far as this member knows."""

    async def leader_changed(self, token: str) -> None:
        """Return once the token of `leader_view` differs from `token`.

        A change before the first turn of this coroutine counts too.
        """

    async def manifest(self) -> Manifest:
        """List the files that an auditor may read. Raises LookupError if they change meanwhile."""

    async def readable_bytes(self, folder: Folder, name: str) -> int | None:
        """Return how many bytes of a file may be read, as the manifest says; None if not listed.

        Every request for a part of a file calls this, so it must not look at all other files.
        Raises LookupError as `manifest` does.
        """

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """Read bytes of a file of the manifest; blocks."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Read committed bytes of a data file, sound or not; blocks. Raises LookupError.

        `known` are headers of entries that the asking member knows to be committed: where this log
        has one of them too, the bytes before it count as committed.
        """

    def open_file(self, name: str) -> BinaryIO:
        """Open a small file or a file of a snapshot; blocks. Raises OSError."""


class Metrics:
    """The page of metrics. The requests of one turn of the loop share it: it takes 0.7 ms."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._page = b""

    def page(self) -> bytes:
        """Render the registry, unless that was done in this turn."""
        if not self._page:
            self._page = generate_latest(self._registry)
            asyncio.get_running_loop().call_soon(self._forget)
        return self._page

    def _forget(self) -> None:
        self._page = b""


def application(
    source: Source,
    registry: CollectorRegistry,
    middlewares: Sequence[Middleware] = (),
    auditors: Auditors | None = None,
    turns: RequestTurns | None = None,
) -> web.Application:
    """Build the application. Without `auditors`, anyone may read everything.

    Long polls are answered in `turns`.
    """
    app = web.Application(client_max_size=HEAD_BYTES_MAX, middlewares=middlewares)
    app[SOURCE] = source
    app[METRICS] = Metrics(registry)
    app[TURNS] = turns or RequestTurns()
    app[WAITERS] = Places("requests wait for another leader", WAITERS_MAX, WAITERS_PER_ADDRESS_MAX)
    app[AUDITORS] = auditors
    app[FILES] = Places("requests for files are answered", FILES_MAX, FILES_PER_ADDRESS_MAX)
    pages: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
        "/status": status_page,
        "/leader": leader_page,
        "/healthz": healthz_page,
        "/readyz": readyz_page,
        "/metrics": metrics_page,
        "/manifest": manifest_page,
        "/segments/{folder:data|index}/{name:[0-9]{20}}": segment_page,
        "/stored/{name:[0-9]{20}}": stored_page,
        f"/files/{{name:{served_files.PATTERN}}}": file_page,
    }
    app.add_routes([web.get(path, page, allow_head=False) for path, page in pages.items()])
    return app


async def status_page(request: web.Request) -> web.Response:
    """Show this member's view of the group."""
    return _json(request.app[SOURCE].status().to_json())


async def leader_page(request: web.Request) -> web.Response:
    """Answer once the caller's view is out of date, or its wait time has passed."""
    source, waiters = request.app[SOURCE], request.app[WAITERS]
    try:
        wait_s = min(WAIT_S_MAX, _seconds(request.query.get("wait", "0s")))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    known = source.leader_view().token
    if request.query.get("since") == known and wait_s > 0:
        with waiters.take(request.remote or ""):
            with contextlib.suppress(TimeoutError):  # then answer with the unchanged view
                await asyncio.wait_for(source.leader_changed(known), wait_s)
            await request.app[TURNS].turn()  # one change ends all waits at the same time
    return _json(source.leader_view().to_json())


async def healthz_page(_: web.Request) -> web.Response:
    """Answer a liveness probe."""
    return web.Response(text="ok\n")


async def readyz_page(request: web.Request) -> web.Response:
    """Report whether this member serves its role, and if not, why."""
    reason = request.app[SOURCE].not_ready_reason()
    if not reason:
        return web.Response(text="ok\n")
    return web.Response(status=503, text=f"{reason}\n")


async def metrics_page(request: web.Request) -> web.Response:
    """Show the metrics."""
    body = request.app[METRICS].page()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def manifest_page(request: web.Request) -> web.Response:
    """List the files that an auditor may read."""
    manifest = await _manifest(request.app[SOURCE])
    await request.app[TURNS].turn()  # threads may have made many manifests by now
    return _json(manifest.to_json())


async def segment_page(request: web.Request) -> web.StreamResponse:
    """Send a range of one file, in chunks, so that a reader costs this member little memory."""
    await _check(request)
    source = request.app[SOURCE]
    folder = cast("Folder", request.match_info["folder"])  # the route admits no other value
    name = request.match_info["name"]
    readable_bytes = await _readable_bytes(source, folder, name)
    if readable_bytes is None:
        raise web.HTTPNotFound(text=f"this member has no {folder} file {name}\n")

    async def refuse(error: Exception) -> Exception:
        """Report damage if the unreadable file is still listed; a removed file is not damage."""
        if await _readable_bytes(source, folder, name) is None:
            return web.HTTPNotFound(text=f"this member has no {folder} file {name}\n")
        return file_answers.unreadable(error)

    def read(start: int, end: int) -> bytes:
        return source.read_file(folder, name, start, end)

    return await byte_ranges.send(request, name, readable_bytes, read, refuse)


async def file_page(request: web.Request) -> web.StreamResponse:
    """Send a range of a small file or of a snapshot's file, as it is on the disk."""
    await _check(request)
    source, name, places = request.app[SOURCE], request.match_info["name"], request.app[FILES]

    async def is_listed() -> bool:
        index = served_files.snapshot_index(name)
        retention = (await _manifest(source)).retention
        held = retention.snapshots if retention is not None else []
        return any(each.last_included_index == index for each in held)

    with places.take(request.remote or ""):
        return await file_answers.send_file(request, name, source.open_file, is_listed)


async def stored_page(request: web.Request) -> web.Response:
    """Send stored bytes to a peer, which verifies them."""
    await _check(request, or_a_member=True)
    query = request.query
    try:
        at, size = int(query.get("at", "")), int(query.get("size", ""))
        if at < 0 or not 0 < size <= STORED_BYTES_MAX:
            raise ValueError(f"size must be 1 to {STORED_BYTES_MAX}")
        known = bytes.fromhex(query.get("known", ""))
        if len(known) % ENTRY_HEADER_SIZE or len(known) > KNOWN_HEADERS_MAX * ENTRY_HEADER_SIZE:
            raise ValueError(
                f"known must be up to {KNOWN_HEADERS_MAX} headers of {ENTRY_HEADER_SIZE} bytes"
            )
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    name = request.match_info["name"]
    try:
        body = await asyncio.to_thread(request.app[SOURCE].stored, name, at, size, known)
        await request.app[TURNS].turn()
    except NotYetCommittedError as error:
        raise web.HTTPNotFound(text=f"{error}\n", headers=LATER) from error
    except LookupError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except (StoreError, OSError) as error:
        reason = f"{name} cannot be read: {error}\n"
        if is_passing(error):
            raise web.HTTPServiceUnavailable(text=reason, headers=LATER) from error
        raise web.HTTPNotFound(text=reason) from error
    return web.Response(body=body, content_type="application/octet-stream")


async def _check(request: web.Request, *, or_a_member: bool = False) -> None:
    auditors = request.app[AUDITORS]
    if auditors is not None:
        await auditors.check(request, or_a_member=or_a_member)


async def _manifest(source: Source) -> Manifest:
    with _unlisted_is_unavailable():
        return await source.manifest()


async def _readable_bytes(source: Source, folder: Folder, name: str) -> int | None:
    with _unlisted_is_unavailable():
        return await source.readable_bytes(folder, name)


@contextlib.contextmanager
def _unlisted_is_unavailable() -> Iterator[None]:
    """Raise HTTPServiceUnavailable if the block cannot list the files."""
    try:
        yield
    except (LookupError, StoreError, OSError) as error:
        raise web.HTTPServiceUnavailable(text=f"the files cannot be listed: {error}\n") from error


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _seconds(text: str) -> float:
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"wait is {text!r}; expected a duration such as 30s or 500ms")
    return float(match[1]) * (0.001 if match[2] == "ms" else 1.0)
