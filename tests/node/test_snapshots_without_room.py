"""A member saves or fetches a snapshot for which its volume has no room."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_formats.protocol.register import SET
from dledger_formats.settings import NodeSettings
from dledger_node.errors import StoreFullError
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine import install
from dledger_node.state_machine.fetch import PAUSE_DOUBLINGS_MAX, Fetching
from dledger_node.state_machine.install import Installs
from dledger_node.state_machine.keeper import OpenedState, StateKeeper
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots
from dledger_sim.stage.driver import CoreDriver
from dledger_store_files.contents import flush
from dledger_wire.listener import until

FIRST_INDEX = 100
CHUNK = bytes(1000)
TOO_LARGE_BYTES = 1 << 60


def offer() -> InstallSnapshotRequest:
    return InstallSnapshotRequest(
        sender="n0", receiver="n1", term=5, first_index=FIRST_INDEX, last_index=FIRST_INDEX,
        entries_term=2, committed_index=FIRST_INDEX,
    )  # fmt: skip


def chunk(offset: int, data_bytes: int) -> SnapshotChunk:
    return SnapshotChunk(
        sender="n0", receiver="n1", last_included_index=150, last_included_term=2,
        data_bytes=data_bytes, data_crc32=7, offset=offset, data=CHUNK,
    )  # fmt: skip


class Member:
    """A member that lacks the snapshot of its leader, which a test plays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LogStore.open(folder, segment_size_bytes=4096, index_segment_size_bytes=320)
        self.snapshots = Snapshots(folder, reserved=2)
        self.asked: list[PeerMessage] = []
        self.failures: list[BaseException] = []
        self.installs = Installs(
            "register", self.snapshots, self.store, self_id="n1", send=self.asked.append,
            fail=self.failures.append, ask_again_s=0.0,
        )  # fmt: skip

    async def fetch(self, data_bytes: int) -> None:
        """Answer this member's requests until it sends no further one."""
        assert self.installs.lacks(offer())
        while self.asked:
            request = self.asked.pop()
            assert isinstance(request, SnapshotChunkRequest)
            self.installs.receive(chunk(request.offset, data_bytes))
            while tasks := self.installs._tasks:
                await asyncio.wait(tasks)
        assert self.failures == []

    @property
    def fetched_files(self) -> list[Path]:
        return list((self.folder / "snapshot").glob("install_tmp/*"))


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    made = Member(tmp_path)
    yield made
    await made.installs.close()
    made.store.close()


async def test_a_snapshot_larger_than_the_free_room_is_refused_before_it_is_written(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    await member.fetch(TOO_LARGE_BYTES)

    assert member.fetched_files == []
    assert f"no room for a snapshot of {TOO_LARGE_BYTES} bytes" in caplog.text
    assert f"no room for its {TOO_LARGE_BYTES} bytes" in member.installs.awaited
    assert member.installs.missing_room_bytes == TOO_LARGE_BYTES
    assert member.installs.no_room_count == 1


async def test_what_only_root_may_use_is_no_room_for_a_snapshot(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(member.folder)
    reserved = os.statvfs_result((*found[:4], 1, *found[5:]))  # one available block, more free ones
    monkeypatch.setattr(os, "statvfs", lambda _: reserved)

    await member.fetch(found.f_frsize + 1)

    assert member.installs.no_room_count == 1


async def test_a_snapshot_that_fills_the_volume_leaves_no_part_of_itself(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = install._write_at

    def write_two_chunks(path: Path, data: bytes, offset: int) -> None:
        write(path, data, offset)
        if offset > len(CHUNK):
            raise StoreFullError("no room")

    monkeypatch.setattr(install, "_write_at", write_two_chunks)
    await member.fetch(5 * len(CHUNK))

    assert member.fetched_files == []
    assert member.installs.missing_room_bytes == 5 * len(CHUNK)


async def test_no_room_is_missing_while_a_snapshot_is_fetched_again(member: Member) -> None:
    await member.fetch(TOO_LARGE_BYTES)
    assert member.installs.lacks(offer())
    member.installs.receive(chunk(0, 5 * len(CHUNK)))

    assert member.installs.missing_room_bytes == 0


async def test_a_snapshot_without_room_is_asked_for_less_and_less_often(member: Member) -> None:
    now_s, asked_at_s, longest_s = 0.0, list[float](), 2**PAUSE_DOUBLINGS_MAX
    fetching = Fetching(
        "n1", member.snapshots, member.store, ask_again_s=1.0, now_s=lambda: now_s,
        send=lambda _: asked_at_s.append(now_s),
    )  # fmt: skip
    while now_s < 5 * longest_s:
        count = len(asked_at_s)
        fetching.lacks(offer())
        if len(asked_at_s) > count:
            part = fetching.take(chunk(0, 5 * len(CHUNK)))
            assert part is not None
            fetching.found_no_room(part)
            fetching.leave(part)
        now_s += 1

    assert asked_at_s[:5] == [0, 2, 6, 14, 30]
    assert asked_at_s[-1] - asked_at_s[-2] == longest_s


async def test_a_snapshot_without_room_for_days_is_still_asked_for(member: Member) -> None:
    asked: list[PeerMessage] = []
    fetching = Fetching(
        "n1", member.snapshots, member.store, ask_again_s=0.0, now_s=lambda: 0.0, send=asked.append
    )
    for _ in range(2000):
        assert fetching.lacks(offer())
        part = fetching.take(chunk(0, 5 * len(CHUNK)))
        assert part is not None
        fetching.found_no_room(part)
        fetching.leave(part)

    assert len(asked) == 2000


async def test_a_lost_chunk_is_asked_for_soon_although_there_was_no_room_before(
    member: Member,
) -> None:
    now_s, asked = 0.0, list[SnapshotChunkRequest]()
    fetching = Fetching(
        "n1", member.snapshots, member.store, ask_again_s=1.0, now_s=lambda: now_s,
        send=asked.append,
    )  # fmt: skip
    fetching.lacks(offer())
    refused = fetching.take(chunk(0, 5 * len(CHUNK)))
    assert refused is not None
    fetching.found_no_room(refused)
    fetching.leave(refused)
    now_s = 2.0
    fetching.lacks(offer())
    part = fetching.take(chunk(0, 5 * len(CHUNK)))
    assert part is not None
    assert not fetching.written(part)
    fetching.leave(part)

    now_s = 3.0
    fetching.lacks(offer())

    assert [request.offset for request in asked] == [0, 0, len(CHUNK), len(CHUNK)]


async def test_an_own_snapshot_that_finds_no_room_is_not_saved_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(tmp_path),
        state_machine="register", snapshot_threshold=1,
    )  # fmt: skip
    store = LogStore.open(tmp_path, segment_size_bytes=4096, index_segment_size_bytes=320)
    store.append_bodies([SET.pack(1, 1)] * 5, 1)
    flush(store)
    opened = OpenedState.of(settings, tmp_path, store)
    assert opened is not None
    keeper = StateKeeper(
        opened, settings, store, CoreDriver().raft, send=lambda _: None, fail=lambda _: None
    )
    keeper.on_turn(4)
    await until(lambda: keeper.applied_index == 4)

    now_s = 0.0
    monkeypatch.setattr(keeper, "_now_s", lambda: now_s)

    def full(*_: object) -> None:
        nonlocal now_s
        now_s += 20  # until the volume is full
        raise StoreFullError("no room for a snapshot")

    monkeypatch.setattr(opened.snapshots, "save", full)
    for _ in range(3):
        await keeper.save_if_due()
    await keeper.close()
    store.close()

    assert keeper.no_room_count == 1
    assert caplog.text.count("no room for a snapshot") == 1
