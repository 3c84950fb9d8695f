"""A disk that hangs in a save of the term or in the allocation of a segment hangs nothing else."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import Message, VoteRequest, VoteResponse
from dledger_node.remoting.service import AppendCall
from dledger_node.services.waiting import ANSWER_WAIT_S
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.files import LogFiles
from dledger_wire.played import (
    SEGMENT_BYTES,
    Client,
    confirmed,
    elect,
    make_server,
    push_of_another_leader,
    saved,
)

VOTE_REQUEST = VoteRequest(
    sender="n2", receiver="n0", term=2, ledger_end_index=9, ledger_end_term=2, take_leadership=True
)


class Gate:
    """A place in a call of a thread, where it hangs while the gate is shut."""

    def __init__(self) -> None:
        self.met = threading.Event()
        """Set once a thread hangs here."""
        self._open = threading.Event()
        self._open.set()

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.met.set()
            assert self._open.wait(20)


class SentMessages:
    """The links of a member; keeps what would be sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Sequence[Message]) -> None:
        self.messages += messages


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate, open at first, and open in the end in any case."""
    one = Gate()
    yield one
    one.open()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a thread makes it true
            await asyncio.sleep(0.001)


async def leader_with(folder: Path, gate: Gate) -> tuple[DLedgerServer, Raft]:
    """Return a leader whose saves of the term hang from now on."""
    server, core = make_server(folder, lambda _: gate.pass_through())
    await elect(server, core)
    gate.shut()
    return server, core


async def test_a_vote_leaves_once_it_is_saved_and_the_loop_runs_meanwhile(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = await leader_with(tmp_path, gate)
    links = SentMessages()
    monkeypatch.setattr(server._core_loop, "_links", links)

    server.clients.peers.receive(VOTE_REQUEST)
    await until(gate.met.is_set)
    for _ in range(5):
        server._core_loop.tick()
    assert core.vote_for == "n2"
    assert links.messages == [], "the vote is not on the disk"
    gate.open()
    await saved(server)

    votes = [message for message in links.messages if isinstance(message, VoteResponse)]
    assert [vote.receiver for vote in votes] == ["n2"]
    await server.close()


async def test_nothing_is_read_that_the_log_does_not_hold_yet(tmp_path: Path, gate: Gate) -> None:
    """The core already knows another leader's entry as committed; the disk has this member's."""
    server, core = await leader_with(tmp_path, gate)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)
    assert server._store.entry(1)[1] == b"mine"

    server.clients.peers.receive(push_of_another_leader(tmp_path, [b"another's"]))
    await until(gate.met.is_set)
    assert core.committed_index == 1
    assert core.readable_index == -1
    assert server.view.status().committed_index == -1
    manifest = await server.view.manifest()
    assert sum(file.readable_bytes for file in (*manifest.data, *manifest.index)) == 0
    gate.open()
    await saved(server)

    assert core.readable_index == 1
    assert server._store.entry(1)[1] == b"another's"
    await server.close()


async def test_a_flush_from_before_a_truncation_that_waits_counts_for_nothing(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = await leader_with(tmp_path, gate)
    flushing = Gate()
    sync = os.fdatasync

    def slow(fd: int) -> None:
        flushing.pass_through()
        sync(fd)

    push = push_of_another_leader(tmp_path, [b"another's"])
    await until(lambda: core.durable_index == 0)
    monkeypatch.setattr(os, "fdatasync", slow)
    flushing.shut()
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await until(flushing.met.is_set)
    server.clients.peers.receive(push)
    await until(gate.met.is_set)
    flushing.open()
    await until(lambda: server._disk.group_commit._unreported is not None)

    assert server._store.durable_index == 0
    assert core.durable_index <= 0
    gate.open()
    await saved(server)
    await until(lambda: core.durable_index == 1)
    assert server._store.durable_index == 1
    await server.close()


async def leader_without_spares(
    folder: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> tuple[DLedgerServer, Raft]:
    """Return a leader whose next segments are not allocated ahead; allocations hang from now on."""
    allocate = os.posix_fallocate

    def slow(fd: int, at: int, size: int) -> None:
        gate.pass_through()
        allocate(fd, at, size)

    server, core = make_server(folder)
    monkeypatch.setattr(server._disk.group_commit, "_look_ahead", lambda _: None)
    await elect(server, core)
    monkeypatch.setattr(os, "posix_fallocate", slow)
    gate.shut()
    return server, core


async def append_beyond_the_segment(server: DLedgerServer, gate: Gate) -> Client:
    """Append bodies that need another segment; return once its allocation hangs."""
    client = Client()
    calls = [AppendCall(client, number, bytes(SEGMENT_BYTES // 2)) for number in range(3)]
    server.clients.appends.append(calls)
    await until(gate.met.is_set)
    return client


async def test_appends_wait_in_order_until_a_segment_is_allocated(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)
    client = await append_beyond_the_segment(server, gate)
    server.clients.appends.append([AppendCall(client, 3, b"later")])
    await asyncio.sleep(0)
    assert core.ledger_end_index == 0, "they are not proposed yet"

    gate.open()
    await until(lambda: core.ledger_end_index == 4)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 4))

    assert [(answer.code, answer.index) for answer in client.answers] == [
        (Code.SUCCESS, index) for index in range(1, 5)
    ]
    await server.close()


async def test_appends_that_wait_for_a_segment_are_refused_by_a_leader_that_is_deposed(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)
    client = await append_beyond_the_segment(server, gate)

    server.clients.peers.receive(VOTE_REQUEST)
    await saved(server)
    server.clients.expire(0.0)

    assert [answer.code for answer in client.answers] == [Code.NOT_LEADER] * 3
    gate.open()
    await server.close()
    assert core.ledger_end_index == 0, "what is refused is never proposed"


async def test_appends_that_wait_too_long_for_a_segment_are_refused(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)
    client = await append_beyond_the_segment(server, gate)

    server.clients.expire(asyncio.get_running_loop().time() + ANSWER_WAIT_S)

    assert [answer.code for answer in client.answers] == [Code.LEADER_PENDING_FULL] * 3
    gate.open()
    await server.close()
    assert core.ledger_end_index == 0, "what is refused is never proposed"


async def test_pushes_wait_in_order_until_a_segment_is_allocated(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = push_of_another_leader(tmp_path, [bytes(SEGMENT_BYTES // 2)] * 3)
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)

    server.clients.peers.receive(push)
    server.clients.peers.receive(push)
    await until(gate.met.is_set)
    server._core_loop.tick()
    assert core.leader_id == "n0", "the push waits"
    gate.open()
    await until(lambda: server._store.end_index == push.last_index)

    assert core.leader_id == "n1"
    await server.close()


async def test_a_push_that_waits_is_dropped_when_its_sender_opens_another_link(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender may have started again since, with an older disk: `raft.recalling`."""
    push = push_of_another_leader(tmp_path, [bytes(SEGMENT_BYTES // 2)] * 3)
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)
    peers = server.clients.peers
    peers.receive(push)
    await until(gate.met.is_set)

    hello = replace(peers._owner.hello("n1"), sender_id="n1", receiver_id="n0", incarnation=2)
    assert peers.refuse_hello(hello) is None
    gate.open()
    await until(lambda: not server._disk.room.is_busy)

    assert core.leader_id == "n0"
    assert server._store.end_index == 0
    await server.close()


async def test_a_push_for_which_there_is_no_room_is_dropped_and_the_volume_is_full(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = push_of_another_leader(tmp_path, [bytes(SEGMENT_BYTES // 2)] * 3)
    server, core = await leader_without_spares(tmp_path, gate, monkeypatch)
    attempts: list[int] = []

    def no_room(fd: int, at: int, size: int) -> None:
        attempts.append(size)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    server.clients.peers.receive(push)
    await until(lambda: server._disk.health.full)
    await asyncio.sleep(0)

    assert len(attempts) == 1, "the leader tries again, not this member"
    assert core.leader_id == "n0"
    await server.close()


async def test_the_files_are_listed_while_the_loop_runs(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 0))
    unit = LogFiles.unit

    def slow(files: LogFiles, index: int) -> object:
        gate.pass_through()
        return unit(files, index)

    monkeypatch.setattr(LogFiles, "unit", slow)
    gate.shut()
    listing = asyncio.create_task(server.view.manifest())
    await until(gate.met.is_set)
    server._core_loop.tick()
    assert not listing.done()
    gate.open()

    assert [file.readable_bytes for file in (await listing).data] == [disk.ENTRY_HEADER_SIZE]
    await server.close()
