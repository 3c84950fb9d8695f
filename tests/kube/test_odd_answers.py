"""Answers that something else gives in place of the API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger_operator.clients.errors import UnavailableError
from dledger_operator.clients.kubernetes import KubeApi

EMPTY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
"""What Go's reverse proxy answers if it does not reach its server."""


def answer(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


ANSWERS = {
    "502 without a body": EMPTY,
    "503 with a page": answer("503 Service Unavailable", "text/html", b"<p>later</p>"),
    "500 with JSON of another form": answer("500 Oops", "application/json", b"[1]"),
    "500 with broken JSON": answer("500 Oops", "application/json", b"{"),
    "200 with a page": answer("200 OK", "text/html", b"<p>log in</p>"),
}
REQUESTS: dict[str, Callable[[KubeApi], Awaitable[object]]] = {
    "get": lambda api: api.group("air", "flights"),
    "list": lambda api: api.member_pods("air", "flights"),
    "versions": lambda api: api.versions("DLedgerGroup", "air"),
    "create": lambda api: api.create_custom_object(
        {"kind": "DLedgerAudit", "metadata": {"namespace": "air", "name": "a"}}
    ),
    "lease": lambda api: api.leases.get("air", "operator"),
    "delete": lambda api: api.delete_custom_object(
        "DLedgerAudit", {"metadata": {"namespace": "air", "name": "a", "uid": "u"}}
    ),
}


@asynccontextmanager
async def api_that_answers(
    content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeApi]:
    """Run a server that gives this answer to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    written = folder / "kubeconfig"
    written.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(written))
    api = KubeApi.open()
    try:
        yield api
    finally:
        await api.close()
        server.close()


CASES = [
    pytest.param(content, request_, id=f"{answer}-{name}")
    for answer, content in ANSWERS.items()
    for name, request_ in REQUESTS.items()
    if not (name == "delete" and content.startswith(b"HTTP/1.1 200"))  # nobody reads that answer
]


@pytest.mark.parametrize(("content", "request_"), CASES)
async def test_an_answer_that_is_not_the_api_servers_is_a_failure_of_the_server(
    content: bytes,
    request_: Callable[[KubeApi], Awaitable[object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behaviors repeat the request; any other exception would count as a bug of theirs."""
    async with api_that_answers(content, tmp_path, monkeypatch) as api:
        with pytest.raises(UnavailableError):
            await request_(api)
