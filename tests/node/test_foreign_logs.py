"""A folder that does not say whose it is, and holds another group's log."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from dledger_client.append.outcomes import Appended
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.settings import FlushDiskType
from dledger_node.errors import LogsDifferError, StoreDamagedError
from dledger_node.raft.messages import AppendRequest
from dledger_node.shell import pushes
from dledger_node.shell.divergence import PUSHES_MIN, Divergence
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import FILE_NAME, FolderOwner, load_owner, save_owner
from tools.groups.node_group import NodeGroup

SIZES = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}


async def append(group: NodeGroup, count: int) -> int:
    async with DLedgerClient(group.servers, "g") as client:
        return [await client.append(b"%d" % number) for number in range(count)][-1].index


def replace_bodies(folder: Path, sizes: dict[str, int], *, longer_by: int = 0) -> None:
    """Write a log with the same indexes and terms over a log, with other bodies.

    With `longer_by`, it has as many further entries, and its checkpoint says that all are
    committed.
    """
    with_bodies = LogStore.open(folder, **sizes)
    run, last = with_bodies.read_range(0, with_bodies.end_index, 1 << 20)
    data, at, entries = b"".join(run), 0, []
    assert last == with_bodies.end_index
    while at < len(data):
        header = disk.unpack_header(data, at)
        entries.append((header.magic, header.term, header.body_size))
        at += header.size
    with_bodies.close()
    for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
        shutil.rmtree(folder / name)
    (folder / "checkpoint").unlink()
    other = LogStore.open(folder, **sizes)
    for magic, term, size in entries:
        other.append_bodies([b"!" * size], term, magic=magic)
    if longer_by:
        commit_further(other, longer_by, term=entries[-1][1])
    other.close()


def commit_further(store: LogStore, count: int, term: int) -> None:
    """Append entries, and save a checkpoint which says that all are committed."""
    store.append_bodies([b"further"] * count, term)
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)
    store.save_checkpoint(store.end_index)


def give_another_groups_log(group: NodeGroup, member: str, *, longer_by: int = 0) -> None:
    """Replace the log of a stopped member, whose folder no longer says whose it is."""
    folder = group.store_folder(member)
    (folder / FILE_NAME).unlink()
    replace_bodies(folder, sizes_of(group, member), longer_by=longer_by)


def sizes_of(group: NodeGroup, member: str) -> dict[str, int]:
    settings = group.settings(member)
    return {
        "segment_size_bytes": settings.segment_size_bytes,
        "index_segment_size_bytes": settings.index_segment_size_bytes,
    }


@pytest.mark.group
async def test_a_member_with_another_groups_log_stays_out_and_says_so(tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group:
        await append(group, 30)
        group.wait_for_status("n2", lambda view: view.ready, "is ready")
        victim = min(set(group.peers) - {group.master()})
        group.kill(victim)
        folder = group.store_folder(victim)
        give_another_groups_log(group, victim)
        group.start(victim)
        await append(group, 3)

        group.wait_for_status(
            victim, lambda view: "log of another group" in view.reason, "says why it stays out"
        )
        assert not group.status(victim).ready

        group.kill(victim)
        group.start(victim)
        group.wait_for_status(
            victim, lambda view: "log of another group" in view.reason, "still stays out"
        )
        leader = group.master()
        follower = {view.peer_id: view for view in group.status(leader).followers}[victim]
        assert not follower.reachable
        assert "empty folder" in group.status(victim).reason

        group.kill(victim)
        shutil.rmtree(folder)
        last = await append(group, 3)
        group.start(victim)
        group.wait_for_status(
            victim, lambda view: view.ready and view.committed_index >= last, "serves again"
        )


@pytest.mark.group
@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
@pytest.mark.parametrize("same_term", [True, False], ids=["same-term", "later-term"])
async def test_a_longer_log_of_another_group_is_confirmed_to_nobody(
    tmp_path: Path, same_term: bool, flush: FlushDiskType
) -> None:
    """By its own checkpoint the log is committed up to entries that the leader has not reached."""
    with NodeGroup(tmp_path, flush_disk_type=flush) as group:
        end_index = await append(group, 30)
        leader = group.master()
        victim, third = sorted(set(group.peers) - {leader})
        group.wait_for_status(victim, lambda view: view.ledger_end_index >= end_index, "has it all")
        group.kill(victim)
        give_another_groups_log(group, victim, longer_by=8)
        if not same_term:
            group.kill(leader)
            group.start(leader)
            leader = group.master()
            third = next(iter(set(group.peers) - {leader, victim}))
        group.start(victim)
        group.wait_for_status(victim, lambda view: view.leader_id == leader, "has a leader")
        group.wait_for_status(
            victim, lambda view: "empty folder" in view.reason, "says why it stays out"
        )
        assert not group.status(victim).ready
        assert f"committed here, and this log ends at entry {end_index + 8}" in (
            group.status(victim).reason
        )

        group.kill(third)
        async with DLedgerClient(group.servers, "g", timing=Timing(deadline_s=3.0)) as client:
            outcomes = await asyncio.gather(
                *[client.append(b"lost?") for _ in range(20)], return_exceptions=True
            )
        assert not [one for one in outcomes if isinstance(one, Appended)]

        group.start(third)
        group.wait_for_status(third, lambda view: view.ready, "is ready")
        last = await append(group, 20)
        group.wait_for_status(
            victim,
            lambda view: "log of another group" in view.reason or "asked to replace" in view.reason,
            "says whose log it is, or what contradicts it",
        )
        group.kill(victim)
        kept = LogStore.open(group.store_folder(victim), **sizes_of(group, victim))
        kept.close()
        assert kept.end_index == end_index + 8, "nothing is truncated"
        shutil.rmtree(group.store_folder(victim))
        group.start(victim)
        group.wait_for_status(
            victim, lambda view: view.ready and view.committed_index >= last, "serves again"
        )


@pytest.mark.group
async def test_a_member_that_kept_what_the_others_lost_takes_no_group_down(tmp_path: Path) -> None:
    """Under AsyncFlush hosts lose power at once; one disk kept entries and their checkpoint."""
    with NodeGroup(tmp_path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as group:
        end_index = await append(group, 30)
        keeper = min(set(group.peers) - {group.master()})
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_end_index >= end_index, "has it all"
            )
        for member in group.peers:
            group.kill(member)
        kept = LogStore.open(group.store_folder(keeper), **sizes_of(group, keeper))
        commit_further(kept, 8, term=kept.end_term)
        kept.close()
        for member in sorted(set(group.peers) - {keeper}):
            group.start(member)
        await append(group, 3)
        group.start(keeper)
        group.wait_for_status(
            keeper, lambda view: "asked to replace entry" in view.reason, "says why it stays out"
        )

        await append(group, 20)
        status = group.status(keeper)
        assert not status.ready
        assert status.ledger_end_index == status.committed_index == end_index + 8
        assert "lost power with AsyncFlush" in status.reason
        owner = load_owner(group.store_folder(keeper))
        assert owner is not None
        assert owner.foreign_index == -1, "no member is taken for a stranger"

        group.kill(keeper)
        shutil.rmtree(group.store_folder(keeper))
        group.start(keeper)
        last = await append(group, 1)
        group.wait_for_status(
            keeper, lambda view: view.ready and view.committed_index >= last, "serves again"
        )


class Room:
    """A volume with room."""

    def reserve_block(self, block: Block) -> bool:
        """Find room."""
        return True


@dataclass
class Surroundings:
    """What a member knows of its leader; `answers` has the questions that the leader got."""

    leader_id: str | None = "n0"
    term: int = 1
    renounced: list[int] = field(default_factory=list)
    differing: list[tuple[str, int]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def note_difference(self, leader_id: str, term: int) -> None:
        self.differing.append((leader_id, term))

    def renounce(self, index: int) -> None:
        self.renounced.append(index)

    def prove_read(self, _: object, answer: Any) -> None:
        self.answers.append(answer)


def store_of(folder: Path, body: bytes) -> LogStore:
    store = LogStore.open(folder, **SIZES)
    for number in range(4):
        store.append_bodies([body, b"%d" % number], term=1)
    return store


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[LogStore]:
    store = store_of(tmp_path / "follower", b"mine")
    yield store
    store.close()


@pytest.fixture
def push(tmp_path: Path) -> Iterator[AppendRequest]:
    """The next entry of a leader whose log has the same indexes, terms and sizes."""
    store = store_of(tmp_path / "leader", b"hers")
    store.append_bodies([b"next"], term=1)
    data = b"".join(store.read_range(8, 8, 1 << 20)[0])
    yield AppendRequest(
        sender="n0", receiver="n1", term=1, previous_index=7, previous_term=1, first_index=8,
        last_index=8, entries_term=1, committed_index=7, entries=memoryview(data),
        memberships=(),
    )  # fmt: skip
    store.close()


def of(around: Surroundings, store: LogStore) -> Divergence:
    known = cast("Any", around)
    return Divergence(known, store, known, lambda: known)


def test_a_push_that_does_not_follow_this_log_is_told_from_a_damaged_one(
    follower: LogStore, push: AppendRequest
) -> None:
    with pytest.raises(LogsDifferError, match="bad_chain_crc"):
        pushes.checked(push, follower, Room())
    data = bytearray(cast("memoryview", push.entries))
    data[-1] ^= 1
    damaged = AppendRequest(
        sender="n0", receiver="n1", term=1, previous_index=7, previous_term=1, first_index=8,
        last_index=8, entries_term=1, committed_index=7, entries=memoryview(data), memberships=(),
    )  # fmt: skip
    with pytest.raises(Exception, match="bad_body_crc") as refused:
        pushes.checked(damaged, follower, Room())
    assert not isinstance(refused.value, LogsDifferError)


@pytest.mark.parametrize(
    "code", [DLedgerResponseCode.SUCCESS, DLedgerResponseCode.FALL_BEHIND_TOO_MUCH]
)
def test_the_log_is_foreign_once_the_leader_has_proved_itself(
    follower: LogStore, push: AppendRequest, code: DLedgerResponseCode
) -> None:
    around = Surroundings()
    divergence = of(around, follower)

    examined = [divergence.examines(push, "bad_chain_crc") for _ in range(PUSHES_MIN + 2)]

    assert examined == [False] * (PUSHES_MIN - 1) + [True] * 3
    assert around.differing == [("n0", 1)] * len(examined), "nothing is confirmed meanwhile"
    assert around.renounced == []
    [answer] = around.answers
    answer(code)
    assert around.renounced == [7]


@pytest.mark.parametrize(
    ("code", "leader_id", "term"),
    [
        (DLedgerResponseCode.NOT_LEADER, "n0", 1),
        (DLedgerResponseCode.LEADER_PENDING_FULL, "n0", 1),
        (DLedgerResponseCode.SUCCESS, "n2", 1),
        (DLedgerResponseCode.SUCCESS, "n0", 2),
        (DLedgerResponseCode.SUCCESS, None, 1),
    ],
)
def test_a_leader_without_a_proof_proves_nothing_against_this_log(
    follower: LogStore,
    push: AppendRequest,
    code: DLedgerResponseCode,
    leader_id: str | None,
    term: int,
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    for _ in range(PUSHES_MIN):
        divergence.examines(push, "bad_chain_crc")
    around.leader_id, around.term = leader_id, term

    around.answers.pop()(code)

    assert around.renounced == []
    divergence.examines(push, "bad_chain_crc")
    assert len(around.answers) == 1, "the leader is asked again"


def test_damage_of_this_members_own_entry_is_not_taken_for_another_groups_log(
    follower: LogStore, push: AppendRequest, tmp_path: Path
) -> None:
    around = Surroundings()
    divergence = of(around, follower)
    [path] = (tmp_path / "follower" / disk.DATA_FOLDER).iterdir()
    data = bytearray(path.read_bytes())
    at = data.index(b"3", 7 * disk.ENTRY_HEADER_SIZE)
    data[at] ^= 1
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[at : at + 1])

    for _ in range(PUSHES_MIN + 1):
        divergence.examines(push, "bad_chain_crc")

    assert around.answers == []
    assert isinstance(follower.damage, StoreDamagedError)


def test_a_folder_keeps_the_finding(tmp_path: Path) -> None:
    owner = FolderOwner(group="g", identity="i", foreign_index=0)

    save_owner(tmp_path, owner)

    assert load_owner(tmp_path) == owner
