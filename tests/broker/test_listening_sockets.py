"""A broker listens at every address of its host that the machine can listen at."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from dledger_broker.door.connections import listening_sockets

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Addresses:
    """The addresses of a host, of which listening at some fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: dict[int, int]) -> None:
        """`failures` are error numbers, by family."""
        self.opened: list[socket.socket] = []
        self._failures = failures
        self._create: Callable[..., socket.socket] = socket.create_server
        monkeypatch.setattr(socket, "create_server", self._listen)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(type(loop), "getaddrinfo", self._found)

    async def _found(self, _: object, port: int, **__: object) -> list[Any]:
        return [
            (family, socket.SOCK_STREAM, 6, "", (HOSTS[family], port)) for family in self._failures
        ]

    def _listen(self, address: Any, *, family: int, **options: Any) -> socket.socket:
        if failure := self._failures[family]:
            raise OSError(failure, "cannot listen")
        opened = self._create((HOSTS[socket.AF_INET], 0), family=socket.AF_INET, **options)
        self.opened.append(opened)
        return opened


async def accept() -> list[asyncio.Server]:
    return await listening_sockets.accept_at(asyncio.Protocol, None, 0, is_shared=False)


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("lacks_first", [True, False])
async def test_an_address_that_the_machine_does_not_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch, number: int, lacks_first: bool
) -> None:
    failures = {socket.AF_INET6: number, socket.AF_INET: 0}
    if not lacks_first:
        failures = dict(reversed(failures.items()))
    Addresses(monkeypatch, failures)
    [server] = await accept()

    assert server.is_serving()
    server.close()


async def test_a_machine_that_has_none_of_the_addresses_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Addresses(
        monkeypatch,
        {socket.AF_INET6: errno.EAFNOSUPPORT, socket.AF_INET: errno.EADDRNOTAVAIL},
    )
    with pytest.raises(OSError, match="cannot listen"):
        await accept()


async def test_a_port_that_is_taken_is_refused_and_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Addresses(monkeypatch, {socket.AF_INET: 0, socket.AF_INET6: errno.EADDRINUSE})
    servers = made_servers(monkeypatch)
    with pytest.raises(OSError, match="cannot listen"):
        await accept()

    assert [server.is_serving() for server in servers] == [False]


async def test_nothing_stays_open_if_listening_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Addresses(monkeypatch, {socket.AF_INET: 0, socket.AF_INET6: 0})
    servers = made_servers(monkeypatch)
    given: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    create = type(loop).create_server

    async def cancelled(loop: Any, protocol: Any, *, sock: socket.socket, **options: Any) -> Any:
        given.append(sock)
        if len(given) > 1:
            raise asyncio.CancelledError
        return await create(loop, protocol, sock=sock, **options)

    monkeypatch.setattr(type(loop), "create_server", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await accept()

    assert [server.is_serving() for server in servers] == [False]
    assert given[1].fileno() == -1


def made_servers(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Server]:
    """Return a list that gets the servers that the event loop makes from now on."""
    servers: list[asyncio.Server] = []
    loop = asyncio.get_running_loop()
    create = type(loop).create_server

    async def made(*args: Any, **options: Any) -> asyncio.Server:
        servers.append(await create(*args, **options))
        return servers[-1]

    monkeypatch.setattr(type(loop), "create_server", made)
    return servers
