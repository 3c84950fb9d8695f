"""Connections to names: every address is tried, and a cancelled caller leaves no error behind."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from dledger_formats.net.dialing import dial

TOO_LONG_A_NAME = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 62])
"""One byte too long for DNS: its lookup fails in the thread, and no server is asked."""


async def listening() -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@contextlib.contextmanager
def silence(address: str, port: int) -> Iterator[str]:
    """Let an address of loopback answer nothing, as that of a pod whose host has vanished."""
    with contextlib.ExitStack() as opened:
        opened.enter_context(socket.create_server((address, port), backlog=0))
        for _ in range(2):  # the kernel drops what comes after these
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield address


def name(monkeypatch: pytest.MonkeyPatch, port: int, *hosts: str) -> None:
    """Let `a.name` have these addresses."""

    async def getaddrinfo(_: Any, looked_up: str, *__: Any, **___: Any) -> Any:
        found = hosts if looked_up == "a.name" else [looked_up]
        return [(0, 0, 0, "", (host, port)) for host in found]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)


# Nobody listens at the first address; it is loopback, as the last is.
@pytest.mark.parametrize("refusing", [["127.0.0.9"], ["127.0.0.9", "127.0.0.10"]])
async def test_dial_tries_the_next_address_after_one_that_refuses(
    monkeypatch: pytest.MonkeyPatch, refusing: list[str]
) -> None:
    server, port = await listening()
    name(monkeypatch, port, *refusing, "127.0.0.1")
    transport, _ = await dial(asyncio.Protocol, "a.name", port)

    assert transport.get_extra_info("peername")[0] == "127.0.0.1"
    transport.close()
    server.close()
    await server.wait_closed()


async def dial_past_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    server, port = await listening()
    with silence("127.0.0.8", port) as silent:
        name(monkeypatch, port, silent, "127.0.0.9", "127.0.0.1")
        async with asyncio.timeout(1.0):
            transport, _ = await dial(asyncio.Protocol, "a.name", port)

    assert transport.get_extra_info("peername")[0] == "127.0.0.1"
    opened = transport.get_extra_info("socket")
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    transport.close()
    server.close()
    await server.wait_closed()


async def give_up_on_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    server, port = await listening()
    with silence("127.0.0.7", port) as one, silence("127.0.0.8", port) as other:
        name(monkeypatch, port, one, other)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await dial(asyncio.Protocol, "a.name", port)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_dial_can_be_given_up(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    run(give_up_on_silence(monkeypatch))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_dial_does_not_wait_for_an_address_that_is_silent(
    monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    run(dial_past_silence(monkeypatch))


async def test_dial_raises_the_error_of_the_last_address(monkeypatch: pytest.MonkeyPatch) -> None:
    server, port = await listening()
    name(monkeypatch, port, "127.0.0.9", "127.0.0.10")

    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await dial(asyncio.Protocol, "a.name", port)
    server.close()
    await server.wait_closed()


async def test_dial_raises_an_error_for_a_port_without_a_listener() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await dial(asyncio.Protocol, "127.0.0.1", taken.getsockname()[1])


def test_a_cancelled_lookup_leaves_no_unhandled_error() -> None:
    complaints: list[dict[str, Any]] = []

    async def give_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        dialing = loop.create_task(dial(asyncio.Protocol, TOO_LONG_A_NAME, 1))
        await asyncio.sleep(0)  # the lookup has begun
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing
        del dialing
        for _ in range(4):  # lookups share the loop's threads: the one given up ends before these
            with pytest.raises(OSError, match=r"not known|resolution"):
                await loop.getaddrinfo(TOO_LONG_A_NAME, 1)
        gc.collect()

    uvloop.run(give_up())

    assert not complaints


@pytest.mark.parametrize("host", ["x..y", f"{'a' * 64}.example"])
async def test_dial_raises_an_error_for_a_text_that_is_no_name(host: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        await dial(asyncio.Protocol, host, 1)
