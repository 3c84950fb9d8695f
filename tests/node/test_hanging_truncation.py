"""A disk that hangs while the log is cut or replaced hangs nothing else, and nothing overtakes."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import (
    HeartBeatRequest,
    InstallSnapshotRequest,
    Message,
    PushResponse,
    PushResult,
)
from dledger_node.remoting.service import AppendCall
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.front import LogFront
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.writer import LogWriter
from dledger_wire.played import (
    SEGMENT_BYTES,
    Client,
    elect,
    make_server,
    open_store,
    push_of_another_leader,
    saved,
)


class Gate:
    """A call that hangs until the gate is open."""

    def __init__(self) -> None:
        self.met = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.met.set()
        assert self.open.wait(20)


class SentMessages:
    """The links of a member; keeps what would be sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def confirmed(self) -> list[int]:
        """Return the indexes up to which pushes were confirmed."""
        return [
            message.match_index
            for message in self.messages
            if isinstance(message, PushResponse) and message.result is PushResult.SUCCESS
        ]


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is open in the end in any case."""
    one = Gate()
    yield one
    one.open.set()


async def met(gate: Gate) -> None:
    """Wait until a thread hangs at the gate; the loop must run for that."""
    async with asyncio.timeout(10):
        while not gate.met.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)


async def leader_with_an_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[DLedgerServer, Raft, SentMessages]:
    """Return a leader of term 1 whose entry 1 is flushed and not committed."""
    server, core = make_server(folder)
    await elect(server, core)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    async with asyncio.timeout(10):
        while core.durable_index < 1:  # noqa: ASYNC110 - a thread flushes
            await asyncio.sleep(0.001)
    links = SentMessages()
    monkeypatch.setattr(server._core_loop, "_links", links)
    return server, core, links


def hang_in_truncation(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    cut = LogWriter.cut_files

    def slow(log: LogWriter) -> None:
        gate.pass_through()
        cut(log)

    monkeypatch.setattr(LogWriter, "cut_files", slow)


async def stall(server: DLedgerServer) -> None:
    """Let the disk calls under way look as if they had taken a minute."""
    server._disk.waits.changes._began_s -= 60
    server._disk.health.check()
    assert server._disk.health.state is StorageState.STALLED
    server._disk.waits.changes._began_s += 60
    server._disk.health.check()


async def test_a_truncation_that_hangs_stops_neither_the_loop_nor_lets_anything_overtake_it(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core, links = await leader_with_an_entry(tmp_path, monkeypatch)
    hang_in_truncation(monkeypatch, gate)
    push = push_of_another_leader(tmp_path, [b"another's", b"and more"])

    server.clients.peers.receive(push)
    await met(gate)
    await stall(server)
    for round_ in range(2, 5):
        server._core_loop.tick()
        server.clients.peers.receive(
            HeartBeatRequest(sender="n1", receiver="n0", term=2, committed_index=2, round=round_)
        )
        server.clients.peers.receive(push)
    server._disk.group_commit.start()
    assert server._disk.group_commit.in_flight_s == 0.0, (
        "no flush begins of a log that is being cut"
    )
    assert links.messages == []
    assert core.readable_index == -1
    gate.open.set()
    await saved(server)
    async with asyncio.timeout(10):
        while not links.confirmed():  # noqa: ASYNC110 - a thread flushes
            await asyncio.sleep(0.001)

    assert [server._store.entry(index)[1] for index in (1, 2)] == [b"another's", b"and more"]
    assert set(links.confirmed()) == {2}
    assert server._store.durable_index == core.durable_index == core.readable_index == 2
    assert not server.fatal.done()
    await server.close()
    reopened = open_store(tmp_path / "n0")
    assert [reopened.entry(index)[1] for index in (1, 2)] == [b"another's", b"and more"]
    reopened.close()


async def test_a_flush_that_ends_during_a_truncation_counts_for_nothing(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core, links = await leader_with_an_entry(tmp_path, monkeypatch)
    hang_in_truncation(monkeypatch, gate)
    push = push_of_another_leader(tmp_path, [b"a", b"b"])
    flushing = Gate()
    flush = LogStore.flush

    def slow(store: LogStore, target: object) -> None:
        flushing.pass_through()
        flush(store, target)  # type: ignore[arg-type]

    monkeypatch.setattr(LogStore, "flush", slow)
    server._disk.group_commit._thread._do = server._store.flush  # type: ignore[union-attr]
    server.clients.appends.append([AppendCall(Client(), 7, b"mine too")])
    await met(flushing)
    server.clients.peers.receive(push)
    await met(gate)
    flushing.open.set()
    async with asyncio.timeout(10):
        while server._disk.group_commit._unreported is None:  # noqa: ASYNC110 - a thread flushes
            await asyncio.sleep(0.001)
    assert links.confirmed() == []
    gate.open.set()
    await saved(server)
    async with asyncio.timeout(10):
        while core.durable_index < 2:  # noqa: ASYNC110 - a thread flushes
            await asyncio.sleep(0.001)

    assert [server._store.entry(index)[1] for index in (1, 2)] == [b"a", b"b"]
    await server.close()


async def test_the_loop_does_not_wait_for_the_lock_of_the_checkpoint(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, links = await leader_with_an_entry(tmp_path, monkeypatch)
    held = threading.Thread(target=_hold, args=(server._store, gate))
    held.start()
    await met(gate)

    server.clients.peers.receive(push_of_another_leader(tmp_path, [b"another's"]))
    async with asyncio.timeout(10):
        while server._core_loop.saving is None or not server._disk.waits.changes.in_flight_s:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert links.messages == []
    gate.open.set()
    await saved(server)
    held.join()

    assert server._store.entry(1)[1] == b"another's"
    await server.close()


def _hold(store: LogStore, gate: Gate) -> None:
    with store.checkpoints.lock:
        gate.pass_through()


async def test_a_replacement_of_the_log_that_hangs_does_not_stop_the_loop(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core, links = await leader_with_an_entry(tmp_path, monkeypatch)
    replace = LogFront.replace

    def slow(front: LogFront, block: object) -> None:
        gate.pass_through()
        replace(front, block)  # type: ignore[arg-type]

    monkeypatch.setattr(LogFront, "replace", slow)
    server.clients.peers.receive(install_of_another_leader(tmp_path))
    await met(gate)
    for _ in range(5):
        server._core_loop.tick()
    upkeep = asyncio.create_task(server._upkeep.once())
    await asyncio.sleep(0)
    assert links.messages == []
    gate.open.set()
    await saved(server)
    await upkeep
    async with asyncio.timeout(10):
        while not links.confirmed():  # noqa: ASYNC110 - a thread flushes
            await asyncio.sleep(0.001)

    assert server._store.begin_index == core.ledger_begin_index > 0
    assert server._store.end_index == core.durable_index
    assert not server.fatal.done()
    await server.close()


def install_of_another_leader(folder: Path) -> InstallSnapshotRequest:
    """Return the first entries of n1, the leader of term 2, whose log begins with segment 2."""
    other = open_store(folder / "n1")
    other.append_noop(2)
    while (end_index := other.append_bodies([bytes(SEGMENT_BYTES // 3)], 2)[1]) < 9:
        pass
    first_index = next(
        index for index in range(1, end_index) if other.position(index).pos >= SEGMENT_BYTES
    )
    views, last_index = other.read_range(first_index, first_index + 1, 1 << 20)
    entries = memoryview(b"".join(views))
    other.close()
    return InstallSnapshotRequest(
        sender="n1", receiver="n0", term=2, first_index=first_index, last_index=last_index,
        entries_term=2, committed_index=last_index, entries=entries,
    )  # fmt: skip
