"""The members' HTTP API: invalid answers are rejected, and every request ends in time."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from dledger_formats.http.status import NodeStatus
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

    assert queries == [{}, {"since": "7:n1", "wait": "30s"}]


async def test_a_member_without_a_place_for_a_long_poll_is_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_http, "REFUSED_WAIT_S", 0.0)

    async def answer(request: web.Request) -> web.Response:
        if request.query:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.Response(body=leader_view("n0", 8, "n2").to_json())

    async with answering(answer) as client:
        assert (await client.leader("127.0.0.1", "7:n1")).token == "8:n2"


async def test_a_member_that_answers_probes_only_is_silent() -> None:
    async with answering(body(b"", status=503)) as client:
        with pytest.raises(MemberSilentError, match="status 503"):
            await client.leader("127.0.0.1", "7:n1")


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(body(b"not json"), id="not JSON"),
        pytest.param(body(b'{"selfId": "n0"}'), id="missing keys"),
        pytest.param(body(b"[" * 100_000), id="deeply nested JSON"),
        pytest.param(body(node_status(committed_index=10**400).to_json()), id="a huge number"),
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


async def test_an_answer_that_is_the_same_as_the_last_one_is_not_decoded_again() -> None:
    """An idle operator asks many members whose answers do not change."""
    answers = [node_status("n2"), node_status("n2"), node_status("n2", committed_index=99)]

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=answers.pop(0).to_json())

    async with answering(answer) as client:
        first, second, third = [await client.status("127.0.0.1") for _ in range(3)]

    assert second is first
    assert third.committed_index == 99


async def test_the_answers_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_http, "ANSWERS_KEPT_MAX", 2)
    raw = node_status("n2").to_json()

    async with answering(body(raw)) as client:
        for ip in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            client._keep((NodeStatus, ip), raw, node_status("n2"))
        kept = len(client._last)
        client._keep((NodeStatus, "127.0.0.4"), bytes(1 << 20), node_status("n2"))

    assert kept == len(client._last) == 2


async def test_the_kernel_asks_whether_a_members_host_is_still_there() -> None:
    """A long poll may last half a minute, and a host that vanishes closes no connection."""
    asked: list[socket.socket] = []

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=leader_view("n0", 7, "n1").to_json())

    def probing(address: aiohttp.AddrInfoType) -> socket.socket:
        asked.append(member_http._probing_socket(address))
        return asked[-1]

    async with answering(answer) as client:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=probing))
        async with session:
            await MemberHttpClient(session, client._port).leader("127.0.0.1", "")
            alive = asked[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            dead_ms = asked[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert alive == 1
    assert dead_ms == 1000 * member_http.DEAD_AFTER_S < 1000 * member_http.LEADER_WAIT_S
