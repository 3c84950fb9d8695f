"""Connections to names: every address is tried, and a cancelled caller leaves no error behind."""

import asyncio
import gc
import socket
from typing import Any

import pytest
import uvloop

from dledger_formats.net.dialing import dial

TOO_LONG_A_NAME = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 62])
"""One byte too long for DNS: its lookup fails in the thread, and no server is asked."""


async def listening() -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_dial_tries_the_next_address_after_one_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, port = await listening()
    loop = asyncio.get_running_loop()
    # Nobody listens at the first; it is loopback, as the second is.
    found = [(0, 0, 0, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        return found

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    transport, _ = await dial(asyncio.Protocol, "a.name", port)

    assert transport.get_extra_info("peername")[0] == "127.0.0.1"
    transport.close()
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
