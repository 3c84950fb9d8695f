"""Every HTTP connection is bounded, and probes are always answered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from dledger_node.http import pages
from dledger_node.http.connection_limits import (
    PROBE_PLACES,
    PROBES,
    LimitedConnection,
    LimitedConnections,
)
from dledger_node.traffic import Traffic
from dledger_wire.listener import HOST, until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LONG_REQUEST = REQUEST.replace(b"/ ", b"/long ")
LIVENESS = REQUEST.replace(b"/ ", b"/healthz ")
LONG_BYTES = 16 << 20
"""More than the kernel takes."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CountedConnections(LimitedConnections):
    """Counts the connections that came. A connection that has to go is counted for a while yet."""

    entered = 0

    def enter(self, connection: LimitedConnection, transport: asyncio.BaseTransport) -> None:
        super().enter(connection, transport)
        self.entered += 1


class Site:
    """A server behind `LimitedConnections`, with a page that answers once `answer` is set."""

    def __init__(self, limited: CountedConnections) -> None:
        self.limited = limited
        self.port = 0
        self.asked = 0
        self.answer = asyncio.Event()
        self.streams: list[Streams] = []

    async def page(self, _: web.Request) -> web.Response:
        """Wait like a long poll."""
        self.asked += 1
        await self.answer.wait()
        return web.Response(text="answered")

    async def long_page(self, _: web.Request) -> web.Response:
        """Answer with LONG_BYTES."""
        self.asked += 1
        return web.Response(body=bytes(LONG_BYTES))

    async def connect(self) -> Streams:
        """Connect, and wait until the connection was accepted or refused."""
        before = self.limited.entered
        self.streams.append(await asyncio.open_connection(HOST, self.port))
        await until(lambda: self.limited.entered > before)
        return self.streams[-1]


@contextlib.asynccontextmanager
async def site(**limits: float | Traffic) -> AsyncIterator[Site]:
    """Serve while the block runs."""
    opened = Site(CountedConnections(**limits))  # type: ignore[arg-type]
    app = web.Application(middlewares=[opened.limited.middleware])
    app.add_routes([web.get("/", opened.page), web.get("/long", opened.long_page)])
    app.add_routes([web.get(path, pages.healthz_page) for path in PROBES])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    assert runner.server is not None
    factory = opened.limited.guard(runner.server)
    server = await asyncio.get_running_loop().create_server(factory, HOST, 0)
    opened.port = server.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        server.close()
        for _, writer in opened.streams:
            writer.transport.abort()
        await until(lambda: opened.limited.connections == 0)
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
        assert (opened.asked, opened.limited.closed) == (0, 1)


async def test_a_request_that_waits_for_its_answer_does_not_time_out() -> None:
    async with site(head_s=0.2, idle_s=0.2) as opened:
        patient, silent = await opened.connect(), await opened.connect()
        patient[1].write(REQUEST)

        assert await is_cut(silent)  # by now the patient connection would have timed out too
        opened.answer.set()
        assert b"200 OK" in await asyncio.wait_for(patient[0].readline(), 20)
        assert await asyncio.wait_for(patient[0].readuntil(b"answered"), 20)
        assert await is_cut(patient), "it sends no further request"
        assert opened.limited.closed == 2


async def test_a_connection_that_is_lost_before_its_answer_is_not_timed_afterwards() -> None:
    async with site(idle_s=0.2) as opened:
        hasty = await opened.connect()
        hasty[1].write(REQUEST)
        await until(lambda: opened.asked == 1)
        hasty[1].transport.abort()
        await until(lambda: opened.limited.connections == 0)
        patient = await opened.connect()
        patient[1].write(REQUEST)
        await until(lambda: opened.asked == 2)

        opened.answer.set()

        assert await asyncio.wait_for(patient[0].readuntil(b"answered"), 20)
        assert await is_cut(patient), "a timer of the lost connection would fire before this one"
        assert opened.limited.closed == 1


# Places.


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_address_max"])
async def test_beyond_the_limits_only_probes_are_answered(limit: str) -> None:
    async with site(**{limit: 1}) as opened:
        await opened.connect()
        second, probe = await opened.connect(), await opened.connect()
        second[1].write(REQUEST)
        probe[1].write(LIVENESS)

        assert b"503" in await asyncio.wait_for(second[0].readline(), 20)
        assert b"200 OK" in await asyncio.wait_for(probe[0].readline(), 20)
        assert b"ok\n" in await asyncio.wait_for(probe[0].read(), 20), "its place is free again"
        assert opened.asked == 0


async def test_a_place_that_is_free_again_may_ask_for_any_page() -> None:
    async with site(connections_max=1) as opened:
        first = await opened.connect()
        await opened.connect()
        for _, writer in (first, opened.streams[1]):
            writer.close()
        await until(lambda: opened.limited.connections == 0)
        third = await opened.connect()
        opened.answer.set()
        third[1].write(REQUEST)

        assert b"200 OK" in await asyncio.wait_for(third[0].readline(), 20)


async def test_a_crowd_of_silent_connections_takes_no_place_from_a_probe() -> None:
    async with site(connections_per_address_max=1) as opened:
        silent = [await opened.connect() for _ in range(3 * PROBE_PLACES)]
        probe = await opened.connect()
        probe[1].write(LIVENESS)

        assert b"200 OK" in await asyncio.wait_for(probe[0].readline(), 20)
        assert await is_cut(silent[1])
        await until(lambda: opened.limited.connections <= 1 + PROBE_PLACES)


async def test_a_probe_does_not_wait_for_the_requests_before_it() -> None:
    async with site() as opened:
        crowd = [await opened.connect() for _ in range(60)]
        probe = await opened.connect()
        opened.answer.set()
        for _, writer in crowd:
            writer.write(REQUEST)
        probe[1].write(LIVENESS)

        assert b"200 OK" in await asyncio.wait_for(probe[0].readline(), 20)
        assert opened.asked < len(crowd)
        await until(lambda: opened.asked == len(crowd))


async def test_a_connection_that_is_closed_before_its_turn_is_not_answered() -> None:
    async with site() as opened:
        crowd = [await opened.connect() for _ in range(60)]
        for _, writer in crowd:
            writer.write(REQUEST)
            writer.transport.abort()
        opened.answer.set()
        await until(lambda: opened.limited.connections == 0)
        after = await opened.connect()
        after[1].write(REQUEST)

        assert b"200 OK" in await asyncio.wait_for(after[0].readline(), 20)
        assert opened.asked < len(crowd)


# Answers that are not read.


async def test_who_does_not_read_its_answer_is_cut() -> None:
    async with site(unread_s=0.2) as opened:
        reader, writer = await opened.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(LONG_REQUEST)

        await until(lambda: opened.limited.connections == 0)

        assert (opened.asked, opened.limited.closed) == (1, 1)
        assert not reader.at_eof()


async def test_who_reads_slowly_but_in_time_gets_its_answer() -> None:
    async with site(unread_s=20) as opened:
        reader, writer = await opened.connect()
        writer.write(LONG_REQUEST)
        got = len(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)) * 0
        while got < LONG_BYTES:
            got += len(await asyncio.wait_for(reader.read(64 * 1024), 20))

        assert (got, opened.limited.closed) == (LONG_BYTES, 0)


async def test_all_together_may_leave_a_bounded_number_of_bytes_unread() -> None:
    async with site(unsent_bytes_max=LONG_BYTES * 3 // 2) as opened:
        streams = [await opened.connect() for _ in range(5)]
        for number, (_, writer) in enumerate(streams, 1):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(LONG_REQUEST)
            await until(lambda number=number: opened.asked == number)  # type: ignore[misc]

        await until(lambda: opened.limited.connections < len(streams))

        streams[0][1].transport.resume_reading()  # type: ignore[attr-defined]
        streams[4][1].transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises(asyncio.IncompleteReadError):
            await asyncio.wait_for(streams[0][0].readexactly(LONG_BYTES), 20)
        assert await asyncio.wait_for(streams[4][0].readexactly(LONG_BYTES), 20)


# One request at a time.


@pytest.mark.parametrize(
    "pieces",
    [
        [REQUEST + REQUEST],
        [REQUEST, REQUEST],
        [REQUEST[:-1], REQUEST[-1:] + b"x"],
        [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"],
        [b"GET / HTTP/1.1\nHost: x\n\nGET / HTTP/1.1\nHost: x\n\n"],
    ],
    ids=["together", "before the answer", "cut in its end", "a body", "bare line feeds"],
)
async def test_a_second_request_before_the_answer_closes_the_connection(
    pieces: list[bytes],
) -> None:
    async with site() as opened:
        hasty = await opened.connect()
        for piece in pieces:
            hasty[1].write(piece)
            await asyncio.sleep(0.05)

        assert await is_cut(hasty)
        assert opened.limited.closed == 1


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with site() as opened:
        reader, writer = await opened.connect()
        for _ in range(3):
            writer.write(LIVENESS[:20])
            writer.write(LIVENESS[20:])
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            assert b"200 OK" in head
            assert await asyncio.wait_for(reader.readexactly(3), 20) == b"ok\n"


async def test_the_bytes_of_requests_and_answers_are_counted() -> None:
    traffic = Traffic()
    async with site(traffic=traffic) as opened:
        reader, writer = await opened.connect()
        writer.write(LIVENESS)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        body = await asyncio.wait_for(reader.readexactly(3), 20)

        assert traffic.http.received_bytes == len(LIVENESS)
        assert traffic.http.sent_bytes == len(head + body)
