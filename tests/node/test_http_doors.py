"""HTTP connections without a request time out; those that wait for an answer do not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from dledger_node.http.doors import Doors
from dledger_wire.listener import HOST, until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server behind `Doors`, with a page that answers once `answer` is set."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.port = 0
        self.asked = 0
        self.answer = asyncio.Event()
        self.streams: list[Streams] = []

    async def page(self, _: web.Request) -> web.Response:
        """Wait like a long poll."""
        self.asked += 1
        await self.answer.wait()
        return web.Response(text="answered")

    async def connect(self) -> Streams:
        """Connect, and wait until the connection was accepted or refused."""
        before = self.doors.connections + self.doors.closed
        self.streams.append(await asyncio.open_connection(HOST, self.port))
        await until(lambda: self.doors.connections + self.doors.closed > before)
        return self.streams[-1]


@contextlib.asynccontextmanager
async def site(**limits: float) -> AsyncIterator[Site]:
    """Serve while the block runs."""
    opened = Site(Doors(**limits))  # type: ignore[arg-type]
    app = web.Application(middlewares=[opened.doors.middleware])
    app.add_routes([web.get("/", opened.page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    assert runner.server is not None
    factory = opened.doors.guard(runner.server)
    server = await asyncio.get_running_loop().create_server(factory, HOST, 0)
    opened.port = server.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        server.close()
        for _, writer in opened.streams:
            writer.transport.abort()
        await until(lambda: opened.doors.connections == 0)
        for _, writer in opened.streams:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await runner.cleanup()


async def is_cut(streams: Streams) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(streams[0].read(1), 20) == b""
    return True


async def test_a_request_head_that_never_ends_times_out() -> None:
    async with site(head_s=0.2) as opened:
        slow = await opened.connect()
        slow[1].write(REQUEST[:-2])

        assert await is_cut(slow)
        assert (opened.asked, opened.doors.closed) == (0, 1)


async def test_a_request_that_waits_for_its_answer_does_not_time_out() -> None:
    async with site(head_s=0.2, idle_s=0.2) as opened:
        patient, silent = await opened.connect(), await opened.connect()
        patient[1].write(REQUEST)

        assert await is_cut(silent)  # by now the patient connection would have timed out too
        opened.answer.set()
        assert b"200 OK" in await asyncio.wait_for(patient[0].readline(), 20)
        assert await asyncio.wait_for(patient[0].readuntil(b"answered"), 20)
        assert await is_cut(patient), "it sends no further request"
        assert opened.doors.closed == 2


async def test_connections_over_the_limit_are_refused_until_one_closes() -> None:
    async with site(connections_max=1) as opened:
        first, second = await opened.connect(), await opened.connect()
        assert await is_cut(second)

        first[1].close()
        await until(lambda: opened.doors.connections == 0)
        third = await opened.connect()
        opened.answer.set()
        third[1].write(REQUEST)

        assert b"200 OK" in await asyncio.wait_for(third[0].readline(), 20)
