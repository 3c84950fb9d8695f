"""A member that lacks what was removed confirms nothing, and keeps its log, until it has the state.

One member in this process, its leader played by the test.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.register import SET
from dledger_formats.settings import NodeSettings
from dledger_node import main
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import InstallSnapshotRequest, PushResponse, PushResult
from dledger_node.raft.ready import HardState
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.shell.server import DLedgerServer
from dledger_node.state_machine.keeper import StateKeeper
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_wire.listener import until

SEGMENT_BYTES = 4096
FIRST_INDEX = 100
SNAPSHOT_INDEX = 99


def settings_of(folder: Path) -> NodeSettings:
    return NodeSettings(
        group="g", self_id="n0", peers=dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1"),
        store_base_dir=str(folder), segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=320, state_machine="register",
    )  # fmt: skip


def offer() -> InstallSnapshotRequest:
    """Return a push of the leader n1, whose entries set 1 to 100 and 2 to 101."""
    packed = disk.pack_entries(
        [SET.pack(1, 100), SET.pack(2, 101)], magic=disk.NORMAL, first_index=FIRST_INDEX, term=2,
        pos=5 * SEGMENT_BYTES, previous_chain_crc=4711,
    )  # fmt: skip
    return InstallSnapshotRequest(
        sender="n1", receiver="n0", term=2, first_index=FIRST_INDEX, last_index=FIRST_INDEX + 1,
        entries_term=2, committed_index=FIRST_INDEX + 1, entries=memoryview(packed.data),
    )  # fmt: skip


def state() -> SnapshotChunk:
    """Return the snapshot of the state before them: 1 is 1, and 3 is 3."""
    register = Register()
    register.apply([CommittedEntry(8, SET.pack(1, 1)), CommittedEntry(9, SET.pack(3, 3))])
    data = b"".join(register.dump())
    return SnapshotChunk(
        sender="n1", receiver="n0", last_included_index=SNAPSHOT_INDEX, last_included_term=2,
        data_bytes=len(data), data_crc32=crc32(data), offset=0, data=data,
    )  # fmt: skip


class Member:
    """Member n0 with six entries of its own. `sent` holds its messages to n1."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_of(folder)
        self.server = main.build_server(self.settings, main.open_store(self.settings))
        self.core = self.server._core
        for _ in range(self.core.config.recall_ticks):
            self.core.tick()  # no peer answers the question for earlier promises
        assert self.core.role is Role.FOLLOWER
        self.server._core_loop.turn()
        self.sent: asyncio.Queue[PeerMessage] = asyncio.Queue()
        (to_n1,) = [link for link in self.server._links if link.peer_id == "n1"]
        to_n1.send = self.sent.put_nowait  # type: ignore[method-assign]

    async def says(self) -> PeerMessage:
        return await asyncio.wait_for(self.sent.get(), 30)

    async def takes(self, chunk: SnapshotChunk) -> None:
        """Give it a chunk, and wait until it has dealt with it."""
        self.server.clients.peers.receive(chunk)
        assert isinstance(self.server._state, StateKeeper)
        if tasks := self.server._state._installs._tasks:
            await asyncio.wait(tasks)

    async def value(self, key: int) -> int | None:
        """Return a value of its register once every committed entry is applied."""
        keeper = self.server._state
        assert isinstance(keeper, StateKeeper)
        await until(lambda: keeper.applied_index >= self.core.committed_index)
        assert isinstance(keeper.machine, Register)
        return keeper.machine.get(key)


def with_a_log(folder: Path) -> Path:
    store = LogStore.open(
        folder / "dledger-n0", segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=320
    )
    store.append_bodies([SET.pack(1, index) for index in range(6)], 1)
    store.close()
    save_hard_state(folder / "dledger-n0", HardState(term=1, vote_for=None))
    return folder


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    made = Member(with_a_log(tmp_path / "group"))
    yield made
    await made.server.close()


def keeps_its_log(server: DLedgerServer) -> bool:
    view = server.view.status()
    return (view.ledger_begin_index, view.ledger_end_index, view.term) == (0, 5, 1)


async def test_a_push_does_not_reach_the_core_until_the_snapshot_is_fetched(member: Member) -> None:
    member.server.clients.peers.receive(offer())

    asked = await member.says()
    assert asked == SnapshotChunkRequest(sender="n0", receiver="n1", index=-1, offset=0)
    assert keeps_its_log(member.server)
    assert "waits for a snapshot of the register from n1" in member.server.view.status().reason

    await member.takes(state())
    assert keeps_its_log(member.server), "the snapshot alone does not change the log"
    assert member.sent.empty(), "and the member confirms nothing"

    member.server.clients.peers.receive(offer())
    answer = await member.says()
    assert isinstance(answer, PushResponse)
    assert (answer.result, answer.match_index) == (PushResult.SUCCESS, FIRST_INDEX + 1)
    assert member.server.view.status().ledger_begin_index == FIRST_INDEX
    assert [await member.value(key) for key in (1, 2, 3, 4)] == [100, 101, 3, None]
    assert "waits" not in member.server.view.status().reason


@pytest.mark.parametrize(
    "wrong",
    [
        replace(state(), data=bytes(state().data_bytes)),
        replace(state(), last_included_index=SNAPSHOT_INDEX - 1),
        replace(state(), sender="n2"),
        replace(state(), data_bytes=5, data=b"other", data_crc32=crc32(b"other")),
    ],
    ids=["damaged", "too old", "from a peer that was not asked", "not a register"],
)
async def test_an_unsuitable_snapshot_does_not_let_the_push_through(
    member: Member, wrong: SnapshotChunk
) -> None:
    member.server.clients.peers.receive(offer())
    await member.says()
    await member.takes(wrong)

    member.server.clients.peers.receive(offer())

    assert keeps_its_log(member.server)
    assert member.sent.empty()


async def test_a_crash_before_the_log_is_replaced_costs_nothing(
    member: Member, tmp_path: Path
) -> None:
    member.server.clients.peers.receive(offer())
    await member.says()
    await member.takes(state())
    shutil.copytree(tmp_path / "group", tmp_path / "crashed")

    again = Member(tmp_path / "crashed")
    assert keeps_its_log(again.server)
    again.server.clients.peers.receive(offer())  # the state is not asked for again
    answer = await again.says()
    assert isinstance(answer, PushResponse)
    assert [await again.value(key) for key in (1, 2, 3)] == [100, 101, 3]
    await again.server.close()


async def test_a_crash_after_the_log_was_replaced_costs_nothing(
    member: Member, tmp_path: Path
) -> None:
    member.server.clients.peers.receive(offer())
    await member.says()
    await member.takes(state())
    member.server.clients.peers.receive(offer())
    await member.says()
    shutil.copytree(tmp_path / "group", tmp_path / "crashed")

    again = Member(tmp_path / "crashed")
    assert again.server.view.status().ledger_begin_index == FIRST_INDEX
    assert again.server.view.counters().applied_index == SNAPSHOT_INDEX
    assert await again.value(3) == 3
    await again.server.close()
