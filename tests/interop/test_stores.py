"""One store, two programs: what Java wrote opens here, and what was written here, Java serves."""

from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from tools.groups.java_group import DATA_BYTES, INDEX_BYTES, JavaGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import WAIT_S, wait_for

pytestmark = pytest.mark.interop

SIZES = {"segment_size_bytes": 8192, "index_segment_size_bytes": 3200}
# What a group of Java's has unless it is told otherwise: all that is appended here fits in it.
ONE_SEGMENT = {"segment_size_bytes": DATA_BYTES, "index_segment_size_bytes": INDEX_BYTES}
JAVA_SIZES = {"mappedFileSizeForEntryData": 8192, "mappedFileSizeForEntryIndex": 3200}
TIMING = Timing(deadline_s=90.0, request_timeout_s=10.0)
# A body of no bytes, and lengths that leave blanks of many sizes at the ends of segments.
BODIES = [bytes([number % 256]) * (number * 37 % 1900) for number in range(150)]


def client_of(group: JavaGroup | NodeGroup, timing: Timing = TIMING) -> DLedgerClient:
    return DLedgerClient(servers=group.servers, group="g", timing=timing)


async def append_all(group: JavaGroup | NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append one after the other, since Java mixes what is in flight; the bodies by index."""
    async with client_of(group) as client:
        return {(await client.append(body)).index: body for body in bodies}


async def served(group: JavaGroup) -> dict[int, tuple[int, int, bytes]]:
    """Position, term and body of all that a group serves, by index."""
    async with client_of(group) as client:
        return {e.index: (e.pos, e.term, e.body) async for e in client.get_range(0)}


def held(store: LogStore) -> dict[int, tuple[int, int, bytes]]:
    """The same of a store that is open here, with all checksums verified."""
    entries = [store.entry(index) for index in range(store.begin_index, store.end_index + 1)]
    return {header.index: (header.pos, header.term, body) for header, body in entries}


def bodies_in(entries: dict[int, tuple[int, int, bytes]]) -> dict[int, bytes]:
    return {index: body for index, (_, _, body) in entries.items()}


def open_store(folder: Path, sizes: dict[str, int] = SIZES) -> LogStore:
    return LogStore.open(folder, **sizes)


def data_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / disk.DATA_FOLDER).iterdir()))


# Java's stores, here.


async def test_the_stores_of_a_java_group_open_here_after_a_truncation(
    java_store: str, tmp_path: Path
) -> None:
    """The leader that is killed holds a tail that nobody else has; what it had there stays in its
    file behind the new end, since Java cuts without wiping.

    One segment holds all of it: Java removes whole files behind a cut, and how far back it cuts
    depends on when its leaders were elected (0.4.0 goes back to the first entry of a whole term).
    """
    with JavaGroup(tmp_path, java_store, heartBeatTimeIntervalMs=1000) as group:
        stored = await append_all(group, BODIES)
        leader = group.leader()
        await leave_a_tail_on(group, leader)
        successor = group.leader(other_than=leader)
        stored |= await append_all(group, [b"short"])
        group.start(leader)
        for member in group.peers:
            wait_for(
                lambda member=member: b"short" in data_of(group.store_folder(member)),
                f"{member} has caught up",
                timeout_s=WAIT_S,
            )
        for member in group.peers:
            group.stop(member)

    assert successor != leader
    assert b"tail" in data_of(tmp_path / f"dledger-{leader}"), "the remains that this is about"
    for member in group.peers:
        store = open_store(tmp_path / f"dledger-{member}", ONE_SEGMENT)
        assert bodies_in(held(store)) == stored
        store.close()


async def leave_a_tail_on(group: JavaGroup, leader: str) -> None:
    """Kill the leader with entries that no follower has."""
    followers = [member for member in group.running() if member != leader]
    async with client_of(group, Timing(deadline_s=1.0)) as client:
        await client.get(0)  # connects, so that the leader has no time to step down
        for member in followers:
            group.kill(member)
        async for outcome in client.append_all([b"tail" * 100] * 5):
            assert not isinstance(outcome, Acknowledged)
    assert data_of(group.store_folder(leader)).count(b"tail") == 500
    group.kill(leader)
    for member in followers:
        group.start(member)


async def test_python_members_take_over_the_stores_of_a_java_group(
    java_store: str, tmp_path: Path
) -> None:
    with JavaGroup(tmp_path, java_store, **JAVA_SIZES) as java:
        stored = await append_all(java, BODIES[:40])
        for member in java.peers:
            java.stop(member)

    with NodeGroup(tmp_path, **SIZES) as group:
        stored |= await append_all(group, BODIES[40:])
        group.kill(group.master())
        stored |= await append_all(group, [b"and on"])
        async with client_of(group) as client:
            entries = [entry async for entry in client.get_range(0)]

    assert {e.index: e.body for e in entries if e.magic == disk.NORMAL} == stored


async def test_term_and_vote_of_java_are_read_here(java_store: str, tmp_path: Path) -> None:
    with JavaGroup(tmp_path, java_store, members=1, **JAVA_SIZES) as group:
        await append_all(group, [b"one"])
        group.stop("n0")

    store = open_store(tmp_path / "dledger-n0")

    assert load_hard_state(tmp_path / "dledger-n0", store.end_term).vote_for == "n0"
    store.close()


# Our stores, in Java.


def write_store(folder: Path) -> dict[int, tuple[int, int, bytes]]:
    """A store of several segments and terms whose tail was truncated and written anew."""
    store = open_store(folder)
    store.append_bodies(BODIES, term=1)
    store.append_bodies([b"lost" * 50] * 20, term=2)
    store.truncate(len(BODIES) + 5)
    store.append_bodies([b"", *BODIES[:40]], term=4)
    entries = held(store)
    store.close()
    save_hard_state(folder, HardState(term=4, vote_for=None))
    return entries


async def test_a_store_that_was_written_here_is_served_by_java_and_comes_back(
    java_store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "dledger-n0"
    written = write_store(folder)

    with JavaGroup(tmp_path, java_store, members=1, **JAVA_SIZES) as group:
        assert await served(group) == written
        added = await append_all(group, [b"by Java", *BODIES[:30]])
        group.stop("n0")
        group.start("n0")
        group.leader()
        assert bodies_in(await served(group)) == bodies_in(written) | added
        group.stop("n0")

    store = open_store(folder)
    assert bodies_in(held(store)) == bodies_in(written) | added
    assert store.recovery.rebuilt_units == 0
    store.close()


async def write_as_a_member(folder: Path) -> dict[int, bytes]:
    """A store as a member leaves it, with the empty entry of each of its terms; its entries.

    The second of these is index 149, and lies in the last segment.
    """
    with NodeGroup(folder, members=1, **SIZES) as group:
        await append_all(group, BODIES[:148])
        group.stop("n0")
        group.start("n0")
        group.master()
        await append_all(group, BODIES[148:])
        group.stop("n0")
    store = open_store(folder / "dledger-n0")
    entries = held(store)
    assert [store.position(index).magic for index in entries].count(disk.NOOP) == 2
    store.close()
    return bodies_in(entries)


async def test_java_0_4_serves_what_a_member_left(class_path_0_4_0: str, tmp_path: Path) -> None:
    left = await write_as_a_member(tmp_path)

    with JavaGroup(tmp_path, class_path_0_4_0, members=1, **JAVA_SIZES) as group:
        assert bodies_in(await served(group)) == left


async def test_java_0_3_cuts_off_what_follows_the_empty_entry_of_a_term(
    class_path_0_3_1_2: str, tmp_path: Path
) -> None:
    """It takes that entry for the end of the log, where it looks: in the last three data files.
    Nothing warns of it, so the documentation does; this shows that it is still true.
    """
    left = await write_as_a_member(tmp_path)

    with JavaGroup(tmp_path, class_path_0_3_1_2, members=1, **JAVA_SIZES) as group:
        added = await append_all(group, [b"over what was there"])

    assert sorted(left) == list(range(152))
    assert added == {149: b"over what was there"}
