"""A proxy in front of a real API server that can refuse requests and cut watches."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from api_server.client import ApiServer, certificate

# Headers that belong to one connection, not to the request or answer.
HOP_HEADERS = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}

CLOSED_S_MAX = 10.0
OVERLOADED = 429
# The API server sends no Status object in this case.
OVERLOADED_TEXT = "Too many requests, please try again later.\n"


class FaultyProxy:
    """Passes requests on over plain HTTP; `refuse_with` and `stop` inject faults."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._refusal = 0
        self._retry_after = ""
        self._watches: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        """The connections to the server since the start."""
        self._port = 0
        self._errors_left = 0
        """Number of next watches that begin with an error."""
        self.refused: list[str] = []
        """The paths of the requests that were refused."""
        self.is_mute = False
        """Whether watches stay open without events; events of this time are never sent."""

    async def start(self) -> None:
        """Listen, on the same port as before, unless the proxy listens already."""
        if self._runner is not None:
            return
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(application, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        trust = ssl.create_default_context(cafile=certificate(self._server.folder))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust, socket_factory=self._open),
            auto_decompress=False,
        )

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        self._sockets.append(made)
        return made

    async def stop(self) -> None:
        """Close the port and every connection, as if the server were down."""
        if self._runner is not None and self._session is not None:
            # The handlers end first: a request that begins in a closed session leaks its socket.
            await self._runner.cleanup()
            await self._session.close()
            self._runner = None
            # A session does not wait for its TLS connections, which end in later turns of the loop.
            async with asyncio.timeout(CLOSED_S_MAX):
                while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0)
            self._sockets.clear()

    async def refuse_with(self, status: int, retry_after: str = "") -> None:
        """Answer every request with this status, and cut the watches."""
        self._refusal, self._retry_after = status, retry_after
        await self.cut_watches()

    def refuse_new_requests_with(self, status: int) -> None:
        """Answer every new request with this status; the watches stay open."""
        self._refusal = status

    def pass_on(self) -> None:
        """Stop refusing."""
        self._refusal = 0

    async def cut_watches(self) -> None:
        """Close the connections of all watches."""
        for task in list(self._watches):
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def fail_a_watch(self) -> None:
        """Cut the watches, and let the next one send an error, as if the storage had failed."""
        self._errors_left = 1
        await self.cut_watches()

    def kubeconfig(self, direct: Path) -> Path:
        """Write a kubeconfig with this proxy in place of the server."""
        content = json.loads(direct.read_text())
        content["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        written = direct.with_name("kubeconfig-of-proxy")
        written.write_text(json.dumps(content))
        return written

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if self._refusal:
            self.refused.append(request.path)
            status = {
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "injected", "code": self._refusal,
            }  # fmt: skip
            headers = {"Retry-After": self._retry_after} if self._retry_after else {}
            if self._refusal == OVERLOADED:
                return web.Response(text=OVERLOADED_TEXT, status=OVERLOADED, headers=headers)
            return web.json_response(status, status=self._refusal, headers=headers)
        is_watch = "watch=true" in request.query_string
        if is_watch and self._errors_left:
            self._errors_left -= 1
            error = {"kind": "Status", "code": 500, "message": "injected"}
            return web.Response(
                body=json.dumps({"type": "ERROR", "object": error}).encode() + b"\n"
            )
        assert self._session is not None
        headers = {
            key: value for key, value in request.headers.items() if key.lower() not in HOP_HEADERS
        }
        url = f"https://127.0.0.1:{self._server.port}{request.raw_path}"
        body = await request.read()
        async with self._session.request(
            request.method, url, data=body or None, headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:  # fmt: skip
            shown = {
                key: value
                for key, value in answer.headers.items()
                if key.lower() not in HOP_HEADERS
            }
            response = web.StreamResponse(status=answer.status, headers=shown)
            await response.prepare(request)
            task = asyncio.current_task()
            if is_watch and task is not None:
                self._watches.add(task)  # type: ignore[arg-type]
            try:
                async for chunk in answer.content.iter_any():
                    if not (is_watch and self.is_mute):
                        await response.write(chunk)
            finally:
                if task is not None:
                    self._watches.discard(task)  # type: ignore[arg-type]
            await response.write_eof()
            return response


@contextlib.asynccontextmanager
async def faulty_proxy(server: ApiServer) -> AsyncIterator[FaultyProxy]:
    """Run a proxy until the block ends."""
    proxy = FaultyProxy(server)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
