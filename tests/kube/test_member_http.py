"""The members' HTTP API: invalid answers are rejected, and every request ends in time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from dledger_kube.objects import leader_view, node_status
from dledger_operator.clients import member_http
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.clients.member_http import MemberHttpClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[MemberHttpClient]:
    application = web.Application()
    application.router.add_get("/{page:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = MemberHttpClient.open(port=runner.addresses[0][1])
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def body(raw: bytes, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=raw, status=status)

    return answer


async def test_a_status_is_decoded() -> None:
    async with answering(body(node_status("n2").to_json())) as client:
        assert (await client.status("127.0.0.1")).self_id == "n2"


async def test_the_long_poll_sends_the_token_of_the_last_answer() -> None:
    queries = []

    async def answer(request: web.Request) -> web.Response:
        queries.append(dict(request.query))
        return web.Response(body=leader_view("n0", 7, "n1").to_json())

    async with answering(answer) as client:
        view = await client.leader("127.0.0.1", "")
        await client.leader("127.0.0.1", view.token)

    assert queries == [{}, {"since": "7:n1", "wait": "10s"}]


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(body(b"not json"), id="not JSON"),
        pytest.param(body(b'{"selfId": "n0"}'), id="missing keys"),
        pytest.param(body(b"[" * 100_000), id="deeply nested JSON"),
        pytest.param(body(node_status().to_json(), status=503), id="an error with a body"),
        pytest.param(body(b"x" * (member_http.BODY_BYTES_MAX + 1)), id="too many bytes"),
    ],
)
async def test_an_invalid_answer_counts_as_silence(handler: Handler) -> None:
    async with answering(handler) as client:
        with pytest.raises(MemberSilentError):
            await client.status("127.0.0.1")


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        if request.path == "/status":
            raise web.HTTPFound("/other")
        return web.Response(body=node_status().to_json())

    async with answering(elsewhere) as client:
        with pytest.raises(MemberSilentError):
            await client.status("127.0.0.1")


async def test_a_refused_connection_counts_as_silence() -> None:
    async with answering(body(b"")) as client:
        with pytest.raises(MemberSilentError):
            await client.status("127.0.0.9")


async def test_an_endless_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_http, "ANSWER_S_MAX", 0.2)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.02)
        return response

    async with answering(drip) as client:
        with pytest.raises(MemberSilentError):
            await client.status("127.0.0.1")
