"""A link whose peer has gone, at any moment, drops its messages and raises nothing.

These tests run on uvloop, as members do: its transports raise if they are written to when closed.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import uvloop

from dledger_formats.protocol.frames import FrameDecoder, encode_responses
from dledger_formats.protocol.requests import Response
from dledger_node.raft.messages import HeartBeatRequest
from dledger_node.remoting import native
from dledger_node.remoting.peer_link import RETRY_DELAY_MAX_S, RETRY_DELAY_MIN_S, PeerLink
from dledger_wire.listener import hello_to

ATTEMPTS = 200
TIMEOUT_S = 60.0


class Owner:
    """A member n1 that counts lost links, and sends a heartbeat over each."""

    def __init__(self) -> None:
        self.link: PeerLink | None = None
        self.lost = 0
        self.enough = asyncio.Event()

    def hello(self, peer_id: str) -> native.Hello:
        """Return the greeting of n1."""
        return hello_to(peer_id)

    def read_entries(self, *_: object) -> None:
        """Return None: there is no push."""

    def link_restored(self, _: str) -> None:
        """Do nothing: the peer never accepts a HELLO."""

    def link_lost(self, _: str) -> None:
        """Count, and send a heartbeat, as the core does."""
        self.lost += 1
        if self.lost == ATTEMPTS:
            self.enough.set()
        assert self.link is not None
        self.link.send(
            HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=1)
        )


@pytest.fixture
def resetting_port() -> Iterator[int]:
    """A port that accepts every connection and resets it at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset_all() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.close()

        thread = threading.Thread(target=reset_all)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_link_retries_a_peer_that_dies_during_hello(resetting_port: int) -> None:
    async def greet() -> int:
        owner = Owner()
        address = f"127.0.0.1:{resetting_port}"
        link = PeerLink(owner, "n0", address, dead_after_ms=1000, uniform=lambda _low, _high: 0.0)
        owner.link = link
        running = asyncio.create_task(link.run())
        enough = asyncio.create_task(owner.enough.wait())
        await asyncio.wait(
            {running, enough}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        if running.done():
            running.result()  # raises what ended it
        running.cancel()
        await asyncio.gather(running, enough, return_exceptions=True)
        return owner.lost

    assert uvloop.run(greet()) >= ATTEMPTS


def test_a_link_backs_off_from_a_peer_that_closes_every_connection() -> None:
    """Such a peer refuses a push, and will refuse it again."""
    delays_s: list[float] = []

    def uniform(_low: float, high: float) -> float:
        delays_s.append(high)
        return 0.0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(4096):
            if commands := decoder.feed(data):
                accepted = Response(group="g", local_id="n0").to_json()
                writer.write(encode_responses([(commands[0].opaque, accepted)]))
                break
        writer.close()

    async def call() -> None:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        owner = Owner()
        link = PeerLink(owner, "n0", f"{host}:{port}", dead_after_ms=1000, uniform=uniform)
        owner.link = link
        running = asyncio.create_task(link.run())
        await asyncio.wait_for(owner.enough.wait(), TIMEOUT_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()
        await server.wait_closed()

    uvloop.run(call())

    assert delays_s[:4] == [0.0, RETRY_DELAY_MIN_S, 2 * RETRY_DELAY_MIN_S, 4 * RETRY_DELAY_MIN_S]
    assert delays_s[-1] == RETRY_DELAY_MAX_S
