"""Hostile connections: `python -m bench.soak.strangers MEMBER=HOST:PORT:HTTP_PORT …`, until killed.

They come from an address of their own, so that the limits per address do not affect the clients.
On SIGTERM, they print how many connections that read nothing they opened, and how many of these
stayed open with an answer that was not read.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import socket
import struct
import sys
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_node.remoting import native

ADDRESS: Final = "127.0.0.66"
UNREAD, SLOW, SPEAKERS = 40, 40, 1
"""Connections of each kind that are open at a time."""
FRAME_BYTES: Final = 5 << 20
BURST: Final = 500
"""Refused requests that are sent at once."""
PAUSE_S: Final = 0.5
KEEP_S: Final = 20.0
ANSWER_S: Final = 5.0
CHUNK_BYTES: Final = 64 * 1024
PATHS: Final = ("/segments/data/00000000000000000000", "/manifest", "/metrics", "/status")
RECEIVED_BYTES_MAX: Final = 4096
"""The buffer of a connection that reads nothing, so that its answer does not fit."""
TCP_ESTABLISHED: Final = 1


class Target(NamedTuple):
    """A member, and where it listens."""

    member: str
    host: str
    port: int
    http_port: int

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Read MEMBER=HOST:PORT:HTTP_PORT."""
        member, _, address = text.partition("=")
        host, port, http_port = address.split(":")
        return cls(member, host, int(port), int(http_port))


@dataclass(slots=True)
class Unread:
    """The connections that read nothing, and whose time is over."""

    opened: int = 0
    kept: int = 0
    """How many were still open, with an answer that waited."""


def brackets(member: str) -> bytes:
    """Return a frame whose JSON has millions of values."""
    body = b'{"group":"g","remoteId":"%s","x":[' % member.encode()
    return frames.encode_requests(
        RequestCode.GET, [(1, body + b"[]," * (FRAME_BYTES // 3) + b"0]}")]
    )


def greetings(member: str) -> bytes:
    """Return many HELLOs from a member of another group; neither exists."""
    hello = native.Hello(
        group="x" * 200, sender_id="y" * 200, receiver_id=member, segment_size_bytes=1,
        incarnation=1, protocol=native.OLDEST_PROTOCOL,
    )  # fmt: skip
    return native.encode_hello(hello, opaque=1) * BURST


async def connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection from the strangers' address."""
    return await asyncio.open_connection(host, port, local_addr=(ADDRESS, 0))


async def unread(target: Target, counts: Unread) -> None:
    """Ask for a page and read nothing: one request, since a member closes at a second one."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
        connection.bind((ADDRESS, 0))
        await loop.sock_connect(connection, (target.host, target.http_port))
        request = f"GET {random.choice(PATHS)} HTTP/1.1\r\nHost: x\r\n\r\n"
        await loop.sock_sendall(connection, request.encode())
        await asyncio.sleep(KEEP_S * (1 + random.random()) / 2)
        counts.opened += 1
        counts.kept += _holds_an_answer(connection)


def _holds_an_answer(connection: socket.socket) -> bool:
    """Return whether a connection is open in both directions, and bytes wait to be read."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    waiting = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
    return state == TCP_ESTABLISHED and struct.unpack("i", waiting)[0] > 0


async def slow(target: Target) -> None:
    """Begin a long frame, and send a byte of it now and then."""
    _, writer = await connect(target.host, target.port)
    with contextlib.closing(writer):
        writer.write((1000).to_bytes(4, "big") + (100).to_bytes(4, "big"))
        for _ in range(int(KEEP_S * random.random() / PAUSE_S)):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(PAUSE_S)


async def _send(target: Target, port: int, data: bytes) -> None:
    reader, writer = await connect(target.host, port)
    with contextlib.closing(writer):
        for begin in range(0, len(data), CHUNK_BYTES):
            writer.write(data[begin : begin + CHUNK_BYTES])
            await writer.drain()
        async with asyncio.timeout(ANSWER_S):
            await reader.read(CHUNK_BYTES)
    await asyncio.sleep(PAUSE_S)


async def speak_brackets(target: Target) -> None:
    """Send JSON of brackets."""
    await _send(target, target.port, brackets(target.member))


async def greet(target: Target) -> None:
    """Send HELLOs that are refused."""
    await _send(target, target.port, greetings(target.member))


async def speak_nonsense(target: Target) -> None:
    """Send invalid HTTP, and random bytes."""
    await _send(target, target.http_port, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n")
    await _send(target, target.port, os.urandom(1000))


async def for_ever(targets: list[Target], act: Callable[[Target], Awaitable[None]]) -> None:
    """Run `act` against a random member, again and again."""
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            await act(random.choice(targets))
        await asyncio.sleep(PAUSE_S * random.random())


async def main(targets: list[Target]) -> None:
    """Run all strangers until SIGTERM."""
    os.nice(10)  # they stand for other machines, and must not take this one's processor
    counts, stopping = Unread(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    kinds: list[tuple[Callable[[Target], Awaitable[None]], int]]
    kinds = [(lambda target: unread(target, counts), UNREAD), (slow, SLOW)]
    kinds += [(kind, SPEAKERS) for kind in (speak_brackets, greet, speak_nonsense)]
    async with asyncio.TaskGroup() as tasks:
        all_of_them = [
            tasks.create_task(for_ever(targets, kind))
            for kind, count in kinds
            for _ in range(count)
        ]
        await stopping.wait()
        for one in all_of_them:
            one.cancel()
    print(counts.opened, counts.kept)


if __name__ == "__main__":
    asyncio.run(main([Target.parse(text) for text in sys.argv[1:]]))
