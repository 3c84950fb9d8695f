"""A link to a peer: it reconnects, reports its loss, and takes bounded memory."""

import asyncio
import contextlib
import gc
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from dledger_formats.protocol import frames, requests
from dledger_node.raft.messages import AppendRequest, HeartBeatRequest
from dledger_node.remoting import native, peer_link
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.link_connection import (
    PUSH_BYTES_MAX,
    QUEUED_MESSAGES_MAX,
    SLICE_S,
    WRITE_BUFFER_BYTES_HIGH,
    LinkConnection,
)
from dledger_node.remoting.peer_link import PeerLink
from dledger_node.traffic import Traffic
from dledger_wire.listener import Listener, hello_to, listening, until

ENTRY = bytes(64 * 1024)


@dataclass
class Owner:
    """A member n1 with a log of equal entries."""

    restored: int = 0
    lost: int = 0
    read_bytes: int = 0

    def hello(self, peer_id: str) -> native.Hello:
        """Return the greeting of n1."""
        return hello_to(peer_id)

    def read_entries(
        self, push: AppendRequest, bytes_max: int
    ) -> tuple[Sequence[bytes | memoryview], int]:
        """Return entries of the log."""
        count = min(bytes_max // len(ENTRY), push.last_index - push.first_index + 1)
        self.read_bytes += count * len(ENTRY)
        return [ENTRY] * count, push.first_index + count - 1

    def link_restored(self, _: str) -> None:
        """Count the call."""
        self.restored += 1

    def link_lost(self, _: str) -> None:
        """Count the call."""
        self.lost += 1


@contextlib.asynccontextmanager
async def linked(
    owner: Owner, address: str, traffic: Traffic | None = None
) -> AsyncIterator[PeerLink]:
    """Keep a link up while the block runs."""
    link = PeerLink(
        owner, "n0", address, dead_after_ms=60_000, uniform=lambda _, high: high, traffic=traffic
    )
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def address_of(listener: Listener) -> str:
    return f"127.0.0.1:{listener.port}"


def heartbeat(round_: int) -> HeartBeatRequest:
    return HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=round_)


def push(first_index: int, last_index: int) -> AppendRequest:
    return AppendRequest(
        sender="n1", receiver="n0", term=1, previous_index=first_index - 1, previous_term=1,
        first_index=first_index, last_index=last_index, entries_term=1, committed_index=0,
        entries=None,
    )  # fmt: skip


async def test_messages_arrive_in_order_from_the_member_that_said_hello() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, address_of(listener)) as link:
        await until(lambda: link.up)
        for number in range(100):
            link.send(heartbeat(number))

        await until(lambda: len(listener.messages) == 100)
        assert listener.messages == [heartbeat(number) for number in range(100)]


async def test_the_bytes_of_a_link_are_counted_at_both_ends() -> None:
    owner, sent = Owner(), Traffic()
    async with listening() as listener, linked(owner, address_of(listener), sent) as link:
        await until(lambda: link.up)
        hello_bytes = sent.peers.sent_bytes
        link.send(push(0, 39))
        await until(lambda: owner.read_bytes == 40 * len(ENTRY))
        received = listener.gate.traffic
        await until(lambda: received.peers.received_bytes == sent.peers.sent_bytes - hello_bytes)

        assert received.clients.received_bytes == hello_bytes
        assert 0 < sent.peers.sent_bytes - hello_bytes - owner.read_bytes < 1000
        assert sent.peers.received_bytes == received.clients.sent_bytes > 0


async def test_a_refused_connection_is_logged_in_words(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with caplog.at_level(logging.INFO):
            async with linked(Owner(), address):
                await until(lambda: bool(caplog.messages))

    assert caplog.messages == [f"no link to n0 at {address}: Connection refused"]


async def test_every_refused_connection_is_reported_as_a_loss() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        owner = Owner()
        async with linked(owner, f"127.0.0.1:{unused.getsockname()[1]}") as link:
            await until(lambda: owner.lost >= 3)

            assert not link.up
            assert owner.restored == 0


async def test_a_reset_connection_is_reported_as_a_loss_and_made_again() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, address_of(listener)) as link:
        await until(lambda: link.up)

        for guest in listener.gate.everyone():
            guest.cut(Reason.IDLE, "by the test")

        await until(lambda: owner.restored == 2)
        assert owner.lost == 1


async def test_a_renewed_link_leads_to_the_new_address_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old address does not answer: its host has vanished, or its pod is gone."""
    monkeypatch.setattr(peer_link, "STEADY_S", 0.0)
    owner = Owner()
    async with listening() as old, listening() as new, linked(owner, address_of(old)) as link:
        await until(lambda: link.up)
        link.address = address_of(new)
        link.renew()
        await until(lambda: owner.restored == 2)
        link.send(heartbeat(1))
        await until(lambda: new.messages == [heartbeat(1)])
        assert owner.lost == 1


async def test_an_attempt_at_an_address_that_does_not_answer_ends_when_the_link_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_link, "HELLO_TIMEOUT_S", 3600)
    monkeypatch.setattr(peer_link, "RETRY_DELAY_MIN_S", 3600)
    monkeypatch.setattr(peer_link, "RETRY_DELAY_MAX_S", 3600)
    owner = Owner()
    async with listening() as new:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with linked(owner, f"127.0.0.1:{silent.getsockname()[1]}") as link:
                accepted, _ = await asyncio.to_thread(silent.accept)
                link.address = address_of(new)
                link.renew()
                await until(lambda: link.up)
                accepted.close()


async def test_a_link_that_is_younger_than_a_second_is_not_renewed() -> None:
    owner = Owner()
    async with listening() as listener, linked(owner, address_of(listener)) as link:
        await until(lambda: link.up)
        link.renew()
        link.send(heartbeat(1))
        await until(lambda: listener.messages == [heartbeat(1)])
        assert (owner.restored, owner.lost) == (1, 0)


async def test_a_link_is_not_up_if_the_peer_refuses_the_hello() -> None:
    owner = Owner()
    async with listening() as listener:
        listener.group = "another"
        async with linked(owner, address_of(listener)) as link:
            await until(lambda: owner.lost >= 2)

            assert not link.up
            link.send(heartbeat(1))
            assert link.dropped == 1


async def test_a_name_is_looked_up_for_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()
    async with listening() as first, listening() as second:
        ports = [first.port, second.port]
        found = socket.getaddrinfo
        asked: list[str] = []

        def look_up(host: object, port: object, *rest: object, **options: object) -> object:
            if host != "peer.example":
                return found(host, port, *rest, **options)  # type: ignore[arg-type]
            asked.append(str(host))
            port = ports[min(len(asked), 2) - 1]
            return found("127.0.0.1", port, *rest, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        async with linked(owner, "peer.example:1") as link:
            await until(lambda: link.up)
            assert first.gate.connections == 1

            for guest in first.gate.everyone():
                guest.cut(Reason.IDLE, "the pod moved")

            await until(lambda: owner.restored == 2)
            assert second.gate.connections == 1


class Deaf(asyncio.Protocol):
    """A peer that answers the HELLO and then stops reading."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Accept the HELLO; afterwards only count the bytes."""
        assert self.transport is not None
        if not self.received_bytes:
            response = requests.Response(group="g", local_id="n0").to_json()
            self.transport.write(frames.encode_responses([(0, response)]))
            self.transport.pause_reading()
        self.received_bytes += len(data)


async def test_a_peer_that_does_not_read_takes_bounded_memory() -> None:
    owner, deaf = Owner(), Deaf()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: deaf, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with linked(owner, f"127.0.0.1:{port}") as link:
        await until(lambda: link.up)
        for number in range(2 * QUEUED_MESSAGES_MAX):
            link.send(push(100 * number, 100 * number + 99))
            if number % 64 == 0:
                await asyncio.sleep(0)

        read_bytes = owner.read_bytes
        kernel_bytes = 32 << 20
        assert read_bytes <= WRITE_BUFFER_BYTES_HIGH + PUSH_BYTES_MAX + kernel_bytes
        written = read_bytes // (100 * len(ENTRY))
        assert QUEUED_MESSAGES_MAX - written <= link.dropped <= QUEUED_MESSAGES_MAX, (
            "every message was written, or waits in a full queue, or was dropped"
        )

        assert deaf.transport is not None
        deaf.transport.resume_reading()
        await until(lambda: deaf.received_bytes > read_bytes + PUSH_BYTES_MAX)
    server.close()
    deaf.transport.abort()
    await server.wait_closed()


@dataclass
class SlowOwner(Owner):
    """A member that reads an entry in a millisecond, and counts those of each turn of the loop."""

    of_turn: Counter[int] = field(default_factory=Counter)
    turn: int = 0

    def read_entries(
        self, push: AppendRequest, bytes_max: int
    ) -> tuple[Sequence[bytes | memoryview], int]:
        """Return one entry."""
        self.of_turn[self.turn] += 1
        end_s = time.perf_counter() + SLICE_S
        while time.perf_counter() < end_s:
            pass
        return [ENTRY[:100]], push.first_index

    def count_turns(self) -> None:
        """Count the turns of the loop until enough entries are read."""
        self.turn += 1
        if sum(self.of_turn.values()) < 60:
            asyncio.get_running_loop().call_soon(self.count_turns)


async def test_entries_for_a_member_that_lags_are_read_over_many_turns_in_order() -> None:
    owner = SlowOwner()
    async with listening() as listener, linked(owner, address_of(listener)) as link:
        await until(lambda: link.up)
        owner.count_turns()
        link.send(push(0, 29))
        link.send(heartbeat(1))
        link.send(push(30, 59))
        link.send(heartbeat(2))
        await until(lambda: len(listener.messages) == 62)

        firsts = [
            message.first_index if isinstance(message, AppendRequest) else message.round - 100
            for message in listener.messages
            if isinstance(message, AppendRequest | HeartBeatRequest)
        ]
        assert firsts == [*range(30), -99, *range(30, 60), -98]
        assert link.dropped == 0
    assert max(owner.of_turn.values()) == 1


async def test_a_connection_lost_before_hello_is_awaited_leaves_no_unhandled_error() -> None:
    """The link may be cancelled just when its connection is made."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    connection = LinkConnection(Owner(), "n0", Traffic().peers)

    connection.connection_lost(None)
    del connection
    gc.collect()

    assert not told
