"""READ_RANGE: what a real member answers, from memory and from the disk."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.connection import Connection
from dledger_formats.log import disk
from dledger_formats.log.runs import bodies_of
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.protocol.read_range import (
    NO_LAST_INDEX,
    READ_RANGE,
    ReadRangeRequest,
    ReadRangeResponse,
)
from dledger_group.alone import connection_to, member_alone
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.remoting.service import AppendCall
from dledger_node.services.disk_reads import DISK_READS_MAX
from dledger_node.services.ranges import RANGE_BYTES_MAX, READ_AHEAD_BYTES
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.stored_range import StoredRange
from dledger_wire.played import Client, become_master, confirmed, make_server

Code = DLedgerResponseCode
BODIES = [b"%d" % number * (number % 50) for number in range(3000)]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[DLedgerClient]:
    """A client of a single-member group, which has appended BODIES from entry 1 on."""
    async with member_alone(tmp_path) as address, DLedgerClient([address], "g") as client:
        await client.append_batch(BODIES)
        yield client


@pytest.fixture
async def connection(client: DLedgerClient) -> AsyncIterator[Connection]:
    """A connection to that member, without a client."""
    async with connection_to(client) as connection:
        yield connection


async def read(
    connection: Connection,
    begin_index: int,
    *,
    max_size: int = 1 << 30,
    last_index: int = NO_LAST_INDEX,
    group: str = "g",
    remote_id: str = "n0",
    wait_ms: int = 0,
) -> ReadRangeResponse:
    request = ReadRangeRequest(
        group=group, remote_id=remote_id, begin_index=begin_index, max_size=max_size,
        last_index=last_index, wait_ms=wait_ms,
    )  # fmt: skip
    command = await connection.ask(READ_RANGE, request.to_json(), 20)
    return ReadRangeResponse.from_bytes(command.body)


async def test_the_answer_has_the_bytes_of_the_files(
    client: DLedgerClient, connection: Connection, tmp_path: Path
) -> None:
    answer = await read(connection, 0)
    [path] = (tmp_path / "dledger-n0" / "data").iterdir()

    assert bytes(answer.stored) == path.read_bytes()[: len(answer.stored)]
    assert bodies_of(answer.stored, 0) == [b"", *BODIES]
    assert (answer.ledger_begin_index, answer.committed_index) == (0, len(BODIES))


@pytest.mark.parametrize("max_size", [-1, 0, 1, 100, 10_000])
async def test_an_answer_has_at_most_the_requested_bytes_but_one_entry(
    connection: Connection, max_size: int
) -> None:
    answer = await read(connection, 20, max_size=max_size)
    bodies = bodies_of(answer.stored, 20)

    assert bodies == BODIES[19 : 19 + len(bodies)]
    assert len(answer.stored) <= max_size or len(bodies) == 1


async def test_an_answer_ends_with_the_last_index(connection: Connection) -> None:
    answer = await read(connection, 10, last_index=12)

    assert bodies_of(answer.stored, 10) == BODIES[9:12]


async def test_an_answer_has_no_more_than_the_servers_limit(
    client: DLedgerClient, connection: Connection
) -> None:
    first = (await client.append_batch([bytes(1000)] * 3000))[0].index  # type: ignore[union-attr]
    answer = await read(connection, first)

    assert RANGE_BYTES_MAX // 4 < len(answer.stored) <= RANGE_BYTES_MAX


@pytest.mark.parametrize(
    ("begin_index", "fields", "code"),
    [
        (len(BODIES) + 1, {}, Code.INDEX_OUT_OF_RANGE),
        (-1, {}, Code.INDEX_OUT_OF_RANGE),
        (5, {"last_index": 4}, Code.UNEXPECTED_ARGUMENT),
        (0, {"group": "other"}, Code.UNKNOWN_GROUP),
        (0, {"remote_id": "n1"}, Code.UNKNOWN_MEMBER),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused(
    connection: Connection, begin_index: int, fields: dict[str, int | str], code: Code
) -> None:
    answer = await read(connection, begin_index, **fields)  # type: ignore[arg-type]

    assert (answer.code, bytes(answer.stored)) == (code, b"")


async def test_many_requests_of_one_connection_are_all_answered(connection: Connection) -> None:
    answers = await asyncio.gather(*(read(connection, index) for index in range(300)))

    for index, answer in enumerate(answers):
        assert bodies_of(answer.stored, index) == [b"", *BODIES][index:]


async def test_a_request_may_wait_for_the_next_entry(
    client: DLedgerClient, connection: Connection
) -> None:
    waiting = asyncio.create_task(read(connection, len(BODIES) + 1, wait_ms=20_000))
    await read(connection, 0)  # so the request above has arrived
    await client.append(b"next")

    assert bodies_of((await waiting).stored, len(BODIES) + 1) == [b"next"]


async def test_a_request_that_has_waited_in_vain_gets_no_entries(connection: Connection) -> None:
    answer = await read(connection, len(BODIES) + 1, wait_ms=30)

    assert (answer.code, bytes(answer.stored)) == (Code.SUCCESS, b"")
    assert answer.committed_index == len(BODIES)


# Played members.


class RangeClient(Client):
    """A client's connection that keeps the answers to READ_RANGE."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = FrameDecoder()
        self.ranges: list[ReadRangeResponse] = []
        self.answered = asyncio.Event()

    def send(self, data: bytes) -> None:
        for command in self.decoder.feed(data):
            self.ranges.append(ReadRangeResponse.from_bytes(command.body))
            self.answered.set()


def ask(server: DLedgerServer, client: RangeClient, begin_index: int) -> None:
    request = ReadRangeRequest(group="g", remote_id="n0", begin_index=begin_index, max_size=1 << 20)
    server.clients.read_range(client, 1, request)


async def test_an_uncommitted_entry_is_not_in_an_answer(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)
    client = RangeClient()
    ask(server, client, 0)
    await asyncio.sleep(0)
    assert bodies_of(client.ranges[0].stored, 0) == [b""]

    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 1))
    ask(server, client, 0)
    await asyncio.sleep(0)
    assert bodies_of(client.ranges[1].stored, 0) == [b"", b"mine"]
    await server.close()


class OnDisk:
    """Member n0 of a played group, whose files are not in memory and whose threads are held."""

    def __init__(self, server: DLedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.client = RangeClient()
        self.go = threading.Event()
        self.disk_reads = self.server.clients.disk_reads
        for _ in range(DISK_READS_MAX):
            self.disk_reads._threads.submit(self.go.wait)
        store = self.server._store
        locate = store.stored_range

        def not_in_memory(*arguments: int, wait: bool = True) -> object:
            return locate(*arguments) if wait else None

        monkeypatch.setattr(store, "stored_range", not_in_memory)

    async def answer(self) -> ReadRangeResponse:
        """Let the threads go on, and return the answer."""
        self.go.set()
        async with asyncio.timeout(20):
            await self.client.answered.wait()
        return self.client.ranges[0]


@pytest.fixture
async def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OnDisk]:
    """A played member."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    member = OnDisk(server, monkeypatch)
    yield member
    member.go.set()
    await member.server.close()


async def test_a_thread_reads_what_is_not_in_memory(on_disk: OnDisk) -> None:
    ask(on_disk.server, on_disk.client, 0)
    await asyncio.sleep(0)
    assert (on_disk.client.ranges, on_disk.client.reads_waiting) == ([], 1)

    assert bodies_of((await on_disk.answer()).stored, 0) == [b""]
    assert on_disk.client.reads_waiting == 0


async def test_after_a_read_from_the_disk_the_kernel_reads_what_follows(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of a long log would otherwise wait for the disk at each range."""
    advised = list[tuple[int, int, int]]()
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *advice: advised.append(advice))
    ask(on_disk.server, on_disk.client, 0)

    answer = await on_disk.answer()

    assert advised == [(len(answer.stored), READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)]


async def test_a_log_that_was_truncated_meanwhile_is_read_again(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    generations = []
    store = on_disk.server._store
    still_holds = store.still_holds

    def note(stored: object) -> bool:
        generations.append(store.generation)
        held = still_holds(stored)  # type: ignore[arg-type]
        if len(generations) == 1:
            store.generation += 1
            return False
        return held

    monkeypatch.setattr(store, "still_holds", note)
    ask(on_disk.server, on_disk.client, 0)

    assert (await on_disk.answer()).code is Code.SUCCESS
    assert generations == [0, 1]


async def test_entries_that_were_removed_meanwhile_are_refused(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(on_disk.server, on_disk.client, 0)
    await asyncio.sleep(0)
    log = on_disk.server._store._writer
    monkeypatch.setattr(log, "begin", log.begin._replace(first_index=1))
    monkeypatch.setattr(
        on_disk.server.clients.proofs, "refuse", lambda *_: Code.INDEX_LESS_THAN_LOCAL_BEGIN
    )

    assert (await on_disk.answer()).code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


async def test_what_waits_for_a_thread_is_bounded_and_refused_at_the_end(on_disk: OnDisk) -> None:
    for _ in range(DISK_READS_MAX + 3):
        ask(on_disk.server, on_disk.client, 0)
    await asyncio.sleep(0)
    assert len(on_disk.disk_reads._under_way) == DISK_READS_MAX
    on_disk.disk_reads.give_up()

    assert [answer.code for answer in on_disk.client.ranges] == [Code.NOT_LEADER] * 3


async def test_wrong_bytes_are_refused_and_reported_as_damage(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    [path] = (tmp_path / "n0" / "data").iterdir()
    with path.open("r+b") as file:
        file.seek(8)  # the index in the first header
        file.write(bytes([1] * 8))
    client = RangeClient()
    ask(server, client, 0)
    await asyncio.sleep(0)

    assert [answer.code for answer in client.ranges] == [Code.NOT_LEADER]
    assert server._store.damage is not None
    await server.close()


async def test_an_unreadable_sector_is_reported_with_the_entry_at_which_it_was_met(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> bytes:
        raise StoreDamagedError("an unreadable sector", Damage.UNREADABLE)

    monkeypatch.setattr(StoredRange, "read", unreadable)
    ask(on_disk.server, on_disk.client, 0)

    assert (await on_disk.answer()).code is Code.NOT_LEADER
    damage = on_disk.server._store.damage
    assert damage is not None
    assert damage.index == 0


async def test_one_entry_of_the_largest_size_is_read(client: DLedgerClient, tmp_path: Path) -> None:
    body = bytes((1 << 20) - disk.ENTRY_HEADER_SIZE - disk.BLANK_SIZE_MIN)
    index = (await client.append(body)).index

    assert [batch.bodies async for batch in client.read_batches(index)] == [[body]]


async def test_readers_that_wait_for_the_same_entry_share_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    clients = [RangeClient() for _ in range(5)]
    request = ReadRangeRequest(
        group="g", remote_id="n0", begin_index=1, max_size=1 << 20, wait_ms=20_000
    )
    for client in clients:
        server.clients.read_range(client, 1, request)
    store, located = server._store, []
    locate = store.stored_range

    def note(*arguments: int, wait: bool = True) -> object:
        located.append(arguments)
        return locate(*arguments, wait=wait)

    monkeypatch.setattr(store, "stored_range", note)
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 1))
    async with asyncio.timeout(20):
        for client in clients:
            await client.answered.wait()

    assert [bodies_of(client.ranges[0].stored, 1) for client in clients] == [[b"mine"]] * 5
    assert len(located) == 1
    await server.close()
