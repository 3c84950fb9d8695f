"""A folder that does not say whose it is, and holds another group's log."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Appended
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import OutcomeUnknownError
from dledger_formats.log import disk
from dledger_formats.settings import FlushDiskType
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import FILE_NAME, load_owner
from tools.groups.node_group import NodeGroup

SIZES = {"segment_size_bytes": 4096, "index_segment_size_bytes": 320}


async def append(group: NodeGroup, count: int) -> int:
    """Append entries; one whose leader is deposed meanwhile may be there twice."""
    index = -1
    async with DLedgerClient(group.servers, "g") as client:
        for number in range(count):
            index = await append_once_known(client, b"%d" % number)
    return index


async def append_once_known(client: DLedgerClient, body: bytes) -> int:
    while True:
        with contextlib.suppress(OutcomeUnknownError):
            return (await client.append(body)).index


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
        assert kept.end_index >= end_index + 8, "nothing is truncated, also if it led for a moment"
        shutil.rmtree(group.store_folder(victim))
        group.start(victim)
        group.wait_for_status(
            victim, lambda view: view.ready and view.committed_index >= last, "serves again"
        )


@pytest.mark.group
async def test_a_foreign_log_that_is_elected_makes_nobody_renounce_a_sound_one(
    tmp_path: Path,
) -> None:
    """Its members answer its heartbeats and refuse its entries, so it commits none of its term."""
    with NodeGroup(tmp_path) as group:
        end_index = await append(group, 30)
        leader = group.master()
        victim, third = sorted(set(group.peers) - {leader})
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_end_index >= end_index, "has it all"
            )
        group.kill(victim)
        give_another_groups_log(group, victim, longer_by=8)
        group.kill(third)
        group.freeze(leader)
        group.start(victim)
        group.start(third)
        group.wait_for_status(third, lambda view: view.leader_id == victim, "follows the victim")
        group.thaw(leader)

        group.wait_for_status(
            third, lambda view: view.leader_id in (leader, third), "has a sound leader"
        )
        last = await append(group, 20)
        for member in (leader, third):
            group.wait_for_status(
                member, lambda view: view.ready and view.committed_index >= last, "serves"
            )
            owner = load_owner(group.store_folder(member))
            assert owner is not None
            assert owner.foreign_index == -1, "it is not taken for a stranger"
        group.wait_for_status(victim, lambda view: "empty folder" in view.reason, "says why")
        assert not group.status(victim).ready


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
