"""A folder that does not say whose it is, and holds another group's log."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from dledger_client.client import DLedgerClient
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
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


def replace_bodies(folder: Path, sizes: dict[str, int]) -> None:
    """Write a log with the same indexes and terms over a log, with other bodies."""
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
    other.close()


@pytest.mark.group
async def test_a_member_with_another_groups_log_stays_out_and_says_so(tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group:
        await append(group, 30)
        group.wait_for_status("n2", lambda view: view.ready, "is ready")
        victim = min(set(group.peers) - {group.master()})
        group.kill(victim)
        settings = group.settings(victim)
        folder = group.store_folder(victim)
        (folder / FILE_NAME).unlink()
        replace_bodies(
            folder,
            {
                "segment_size_bytes": settings.segment_size_bytes,
                "index_segment_size_bytes": settings.index_segment_size_bytes,
            },
        )
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
    answers: list[Any] = field(default_factory=list)

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
