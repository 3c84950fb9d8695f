"""A large message that is repeated until it has an effect is on its way to a peer only once."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence

import pytest

from dledger_formats.protocol import frames, requests
from dledger_node.raft.messages import HeartBeatRequest, InstallSnapshotRequest
from dledger_node.remoting import native
from dledger_node.remoting.link_owner import Entries, Push
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.peer_link import PeerLink
from dledger_node.remoting.snapshot_messages import SnapshotChunk
from dledger_node.traffic import Traffic
from dledger_wire.listener import hello_to, until

BYTES = 1 << 20
CHUNK = SnapshotChunk(
    sender="n1", receiver="n0", last_included_index=9, last_included_term=1, data_bytes=BYTES,
    data_crc32=7, offset=0, data=bytes(BYTES),
)  # fmt: skip
INSTALL = InstallSnapshotRequest(
    sender="n1", receiver="n0", term=1, first_index=10, last_index=10, entries_term=1,
    committed_index=10,
)  # fmt: skip


class Owner:
    """Member n1, whose entry 10 is large."""

    def hello(self, peer_id: str) -> native.Hello:
        return hello_to(peer_id)

    def read_entries(self, push: Push, bytes_max: int) -> Entries | None:
        return [bytes(BYTES)], push.last_index

    def link_restored(self, _: str) -> None:
        pass

    def link_lost(self, _: str) -> None:
        pass


class Slow(asyncio.Protocol):
    """A peer that answers the HELLO, and reads nothing more until the test lets it."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if not self.received_bytes:
            response = requests.Response(group="g", local_id="n0").to_json()
            self.transport.write(frames.encode_responses([(0, response)]))
            self.transport.pause_reading()
        self.received_bytes += len(data)

    def read(self) -> None:
        assert self.transport is not None
        self.transport.resume_reading()


@contextlib.asynccontextmanager
async def linked(slow: Slow, traffic: Traffic) -> AsyncIterator[PeerLink]:
    """Keep a link to a slow peer up while the block runs."""
    server = await asyncio.get_running_loop().create_server(lambda: slow, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = PeerLink(
        Owner(), "n0", address, dead_after_ms=60_000, uniform=lambda _, high: high, traffic=traffic
    )
    task = asyncio.create_task(link.run())
    try:
        await until(lambda: link.up)
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
        assert slow.transport is not None
        slow.transport.abort()
        await server.wait_closed()


def heartbeat(round_: int) -> HeartBeatRequest:
    return HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=round_)


async def sent_of(copies: Sequence[PeerMessage]) -> tuple[int, int]:
    """Send messages to a slow peer; return how many the link takes before it reads, and after."""
    slow, traffic = Slow(), Traffic()
    async with linked(slow, traffic) as link:
        begin_bytes = traffic.peers.sent_bytes
        for number, copy in enumerate(copies):
            link.send(copy)
            link.send(heartbeat(number))
            await asyncio.sleep(0)
        before = (traffic.peers.sent_bytes - begin_bytes) // BYTES
        slow.read()
        await until(lambda: slow.received_bytes == traffic.peers.sent_bytes)
        await until(lambda: link_takes(link, copies[0]))
        await until(lambda: slow.received_bytes > (before + 1) * BYTES)
        return before, (traffic.peers.sent_bytes - begin_bytes) // BYTES


def link_takes(link: PeerLink, message: PeerMessage) -> bool:
    """Send a message; return whether the link took it."""
    dropped = link.dropped
    link.send(message)
    return link.dropped == dropped


@pytest.mark.parametrize("message", [CHUNK, INSTALL])
async def test_a_copy_is_sent_only_once_the_one_before_has_arrived(message: PeerMessage) -> None:
    """A peer on a slow link asked again each second; what it had no use for filled the link."""
    assert await sent_of([message] * 5) == (1, 2)


async def test_messages_with_other_bytes_do_not_wait_for_each_other() -> None:
    next_chunk = dataclasses.replace(CHUNK, data_bytes=2 * BYTES, offset=BYTES)
    assert await sent_of([CHUNK, INSTALL, next_chunk]) == (3, 4)
