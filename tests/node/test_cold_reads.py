"""GET and FOLLOW of entries that the page cache lacks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from dledger_formats.protocol import follow, requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import FrameDecoder
from dledger_node.errors import StoreError
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.remoting.service import AppendCall
from dledger_node.services.disk_reads import DISK_READS_MAX, DiskReads
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.segments import page_cache
from dledger_node.store.segments.segment import Segment
from dledger_wire.played import Client, become_master, confirmed, make_server

Code = DLedgerResponseCode


class Reader(Client):
    """A client's connection that keeps the answers to GET and FOLLOW."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[Code, list[int]]] = []
        """For each answer its code and the indexes of its entries."""
        self.decoder = FrameDecoder()

    def send(self, data: bytes) -> None:
        for command in self.decoder.feed(data):
            self.keep(follow.FollowResponse.from_json(command.body))

    def keep(self, answer: follow.FollowResponse | requests.GetEntriesResponse) -> None:
        self.read.append((Code(answer.code), [entry.index for entry in answer.entries]))


class ColdMember:
    """Master n0 of a played group, whose disk answers only when it may."""

    def __init__(self, server: DLedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.is_cold = True
        self.may_answer = threading.Event()
        self.disk_reads = 0
        self._error: Exception | None = None
        read_cached, read = page_cache.read_cached, Segment.read

        def from_cache(fd: int, buffer: bytearray | memoryview, at: int) -> int:
            return 0 if self.is_cold else read_cached(fd, buffer, at)

        def from_disk(file: Segment, at: int, size: int) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            assert self.may_answer.wait(20)
            self.disk_reads += 1
            if self._error is not None:
                raise self._error
            return read(file, at, size)

        monkeypatch.setattr(page_cache, "read_cached", from_cache)
        monkeypatch.setattr(Segment, "read", from_disk)

    def fail(self, error: Exception) -> None:
        self._error = error

    def get(self, reader: Reader, index: int, max_size: int = 0) -> None:
        request = requests.GetEntriesRequest(
            group="g", remote_id="n0", begin_index=index, max_size=max_size
        )
        self.server.clients.get(reader, request, reader.keep)

    def follow(self, reader: Reader, index: int) -> None:
        request = follow.FollowRequest(
            group="g", remote_id="n0", begin_index=index, max_size=0, wait_ms=20_000
        )
        self.server.clients.follow(reader, 1, request)


Ask = Callable[[ColdMember, Reader, int], None]
EITHER = pytest.mark.parametrize("ask", [ColdMember.get, ColdMember.follow])


@pytest.fixture
async def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ColdMember]:
    """A member with two committed entries."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 1))
    assert core.readable_index == 1
    member = ColdMember(server, monkeypatch)
    yield member
    member.may_answer.set()
    await server.close()


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition that a thread brings about."""
    async with asyncio.timeout(20):
        while not met():  # noqa: ASYNC110 - it polls a thread
            await asyncio.sleep(0.001)


@EITHER
async def test_a_thread_reads_what_the_page_cache_lacks(member: ColdMember, ask: Ask) -> None:
    reader = Reader()
    ask(member, reader, 1)
    await asyncio.sleep(0)
    assert (reader.read, reader.reads_waiting) == ([], 1)

    member.may_answer.set()
    await until(lambda: bool(reader.read))
    assert (reader.read, reader.reads_waiting) == ([(Code.SUCCESS, [1])], 0)


@EITHER
async def test_what_the_page_cache_has_is_answered_at_once(member: ColdMember, ask: Ask) -> None:
    member.is_cold = False
    reader = Reader()
    ask(member, reader, 1)
    await asyncio.sleep(0)  # the turn in which the read is answered at the latest

    assert (reader.read, member.disk_reads) == ([(Code.SUCCESS, [1])], 0)


@EITHER
async def test_the_answers_of_a_connection_stay_in_order(member: ColdMember, ask: Ask) -> None:
    reader, other = Reader(), Reader()
    ask(member, reader, 0)
    member.is_cold = False
    ask(member, reader, 1)
    member.get(reader, 0)
    ask(member, other, 1)
    await until(lambda: bool(other.read))
    assert (reader.read, other.read) == ([], [(Code.SUCCESS, [1])])

    member.may_answer.set()
    await until(lambda: len(reader.read) == 3)
    assert [indexes for _, indexes in reader.read] == [[0], [1], [0]]
    assert reader.reads_waiting == 0


@EITHER
async def test_entries_that_were_removed_meanwhile_are_refused(
    member: ColdMember, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader()
    ask(member, reader, 0)
    store, core = member.server._store, type(member.server._core)
    monkeypatch.setattr(store._writer, "begin", store._writer.begin._replace(first_index=1))
    monkeypatch.setattr(core, "ledger_begin_index", property(lambda _: 1))
    member.may_answer.set()

    await until(lambda: bool(reader.read))
    assert reader.read == [(Code.INDEX_LESS_THAN_LOCAL_BEGIN, [])]
    assert store.damage is None


@EITHER
async def test_entries_that_no_client_takes_do_not_wait_in_memory(
    member: ColdMember, ask: Ask
) -> None:
    reader = Reader()
    ask(member, reader, 1)
    reader.unread_since_s = 1.0
    member.may_answer.set()
    disk_reads = member.server.clients.disk_reads
    await until(lambda: disk_reads.in_flight_s == 0)
    assert (reader.read, reader.reads_waiting) == ([], 1)

    reader.unread_since_s = None
    before = member.disk_reads
    member.server.clients.read_turns.resume(reader)
    await until(lambda: bool(reader.read))
    assert reader.read == [(Code.SUCCESS, [1])]
    assert member.disk_reads > before


@EITHER
async def test_a_read_that_fails_is_refused_and_the_next_is_answered(
    member: ColdMember, ask: Ask
) -> None:
    reader = Reader()
    member.fail(StoreError("unexpected"))
    ask(member, reader, 0)
    ask(member, reader, 1)
    member.is_cold = False
    member.may_answer.set()

    await until(lambda: len(reader.read) == 2)
    assert reader.read == [(Code.NOT_LEADER, []), (Code.SUCCESS, [1])]


@EITHER
async def test_what_waits_for_a_thread_is_bounded_and_refused_at_the_end(
    member: ColdMember, ask: Ask
) -> None:
    readers = [Reader() for _ in range(DISK_READS_MAX + 3)]
    for reader in readers:
        ask(member, reader, 0)
        ask(member, reader, 1)
    disk_reads = member.server.clients.disk_reads
    await until(lambda: len(disk_reads._waiting) == 3)
    assert (len(disk_reads._under_way), len(disk_reads._waiting)) == (DISK_READS_MAX, 3)

    disk_reads.give_up()
    assert [reader.read for reader in readers] == [[]] * DISK_READS_MAX + [
        [(Code.NOT_LEADER, [])]
    ] * 3


async def test_a_connection_that_is_closed_meanwhile_gets_nothing(member: ColdMember) -> None:
    reader = Reader()
    member.get(reader, 0)
    member.get(reader, 1)
    turns, disk_reads = member.server.clients.read_turns, member.server.clients.disk_reads
    turns.forget(reader)
    member.may_answer.set()

    await until(lambda: disk_reads.in_flight_s == 0)
    assert (reader.read, turns._waiting, turns._paused) == ([], {}, set())


@EITHER
async def test_reads_of_closed_connections_wait_for_no_thread(member: ColdMember, ask: Ask) -> None:
    disk_reads = member.server.clients.disk_reads
    for _ in range(DISK_READS_MAX + 20):
        gone = Reader()
        ask(member, gone, 0)
        await asyncio.sleep(0)
        member.server.clients.read_turns.forget(gone)
    last = Reader()
    ask(member, last, 1)
    await until(lambda: bool(disk_reads._waiting))
    assert [*disk_reads._waiting] == [last]

    member.may_answer.set()
    await until(lambda: bool(last.read))
    assert last.read == [(Code.SUCCESS, [1])]


async def test_readers_take_turns_however_many_reads_one_of_them_has() -> None:
    turns = ReadTurns(asyncio.get_running_loop().call_soon)
    disk_reads = DiskReads(turns)
    may_answer, begun, ended = threading.Semaphore(0), list[str](), list[object]()

    def read(name: str) -> None:
        begun.append(name)
        assert may_answer.acquire(timeout=20)

    many, one = Reader(), Reader()
    for reader, name in [(many, "many")] * 8 + [(one, "one")]:
        disk_reads.read(reader, partial(read, name), ended.append, print)
    for count in range(1, 10):  # one by one: threads overtake each other
        await until(lambda count=count: len(begun) == min(9, count - 1 + DISK_READS_MAX))  # type: ignore[misc]
        may_answer.release()
        await until(lambda count=count: len(ended) == count)  # type: ignore[misc]

    assert begun.index("one") <= DISK_READS_MAX + 1
    assert (many.reads_waiting, one.reads_waiting) == (0, 0)
    disk_reads.give_up()
