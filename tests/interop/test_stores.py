"""Store compatibility: this node opens Java's stores, and Java serves this node's stores."""

from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from dledger_group.damaged import wait_until_level
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from tools.groups.java_group import DATA_BYTES, INDEX_BYTES, JavaGroup
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="java_store")]

SIZES = {"segment_size_bytes": 8192, "index_segment_size_bytes": 3200}
# The defaults of JavaGroup; everything that these tests append fits into one segment.
ONE_SEGMENT = {"segment_size_bytes": DATA_BYTES, "index_segment_size_bytes": INDEX_BYTES}
JAVA_SIZES = {"mappedFileSizeForEntryData": 8192, "mappedFileSizeForEntryIndex": 3200}
TIMING = Timing(deadline_s=90.0, request_timeout_s=10.0)
# The first body is empty; the lengths leave blanks of many sizes at the ends of segments.
BODIES = [bytes([number % 256]) * (number * 37 % 1900) for number in range(150)]


def client_of(group: JavaGroup | NodeGroup, timing: Timing = TIMING) -> DLedgerClient:
    return DLedgerClient(servers=group.servers, group="g", timing=timing)


async def append_all(group: JavaGroup | NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append sequentially, since Java reorders appends in flight; return the bodies by index."""
    async with client_of(group) as client:
        return {(await client.append(body)).index: body for body in bodies}


async def served(group: JavaGroup) -> dict[int, tuple[int, int, bytes]]:
    """Return position, term and body of every entry that a group serves, by index."""
    async with client_of(group) as client:
        return {e.index: (e.pos, e.term, e.body) async for e in client.get_range(0)}


def held(store: LogStore) -> dict[int, tuple[int, int, bytes]]:
    """Return the same for an open store, with all checksums verified."""
    entries = [store.entry(index) for index in range(store.begin_index, store.end_index + 1)]
    return {header.index: (header.pos, header.term, body) for header, body in entries}


def bodies_in(entries: dict[int, tuple[int, int, bytes]]) -> dict[int, bytes]:
    return {index: body for index, (_, _, body) in entries.items()}


def open_store(folder: Path, sizes: dict[str, int] = SIZES) -> LogStore:
    return LogStore.open(folder, **sizes)


def data_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / disk.DATA_FOLDER).iterdir()))


# Java's stores in this node.


async def test_this_node_opens_stores_that_java_truncated(java_store: str, tmp_path: Path) -> None:
    """A killed leader has a tail that no other member has. The tail's bytes stay in its file after
    the new end, since Java truncates without zeroing.

    One segment holds everything: Java removes whole files after a truncation point, which depends
    on the time of its elections (0.4.0 goes back to the first entry of a whole term).
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
    assert b"tail" in data_of(tmp_path / f"dledger-{leader}"), (
        "the truncated bytes must still be in the file"
    )
    for member in group.peers:
        store = open_store(tmp_path / f"dledger-{member}", ONE_SEGMENT)
        assert bodies_in(held(store)) == stored
        store.close()


async def leave_a_tail_on(group: JavaGroup, leader: str) -> None:
    """Kill the leader while it has entries that no follower has."""
    followers = [member for member in group.running() if member != leader]
    async with client_of(group, Timing(deadline_s=1.0)) as client:
        await client.get(0)  # connect now: later the leader would step down first
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
        # Java's quorum is two of three: the third log may be empty, and then it has no vote yet.
        wait_until_level(group)
        group.kill(group.master())
        stored |= await append_all(group, [b"and on"])
        async with client_of(group) as client:
            entries = [entry async for entry in client.get_range(0)]

    assert {e.index: e.body for e in entries if e.magic == disk.NORMAL} == stored


async def test_this_node_reads_javas_term_and_vote(java_store: str, tmp_path: Path) -> None:
    with JavaGroup(tmp_path, java_store, members=1, **JAVA_SIZES) as group:
        await append_all(group, [b"one"])
        group.stop("n0")

    store = open_store(tmp_path / "dledger-n0")

    assert load_hard_state(tmp_path / "dledger-n0", store.end_term).vote_for == "n0"
    store.close()


# This node's stores in Java.


def write_store(folder: Path) -> dict[int, tuple[int, int, bytes]]:
    """Write a store of several segments and terms whose tail was truncated and rewritten."""
    store = open_store(folder)
    store.append_bodies(BODIES, term=1)
    store.append_bodies([b"lost" * 50] * 20, term=2)
    store.truncate(len(BODIES) + 5)
    store.append_bodies([b"", *BODIES[:40]], term=4)
    entries = held(store)
    store.close()
    save_hard_state(folder, HardState(term=4, vote_for=None))
    return entries


async def test_java_serves_and_extends_this_nodes_store(java_store: str, tmp_path: Path) -> None:
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
    """Write a store as a member does, with a no-op for each term; return the entries.

    The second no-op has index 149 and is in the last segment.
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


async def test_java_0_4_serves_a_members_store(class_path_0_4_0: str, tmp_path: Path) -> None:
    left = await write_as_a_member(tmp_path)

    with JavaGroup(tmp_path, class_path_0_4_0, members=1, **JAVA_SIZES) as group:
        assert bodies_in(await served(group)) == left


async def test_java_0_3_truncates_the_log_at_the_no_op_of_a_term(
    class_path_0_3_1_2: str, tmp_path: Path
) -> None:
    """Java 0.3 takes a no-op in the last three data files for the end of the log.

    It does so without a warning. The documentation warns instead; this test confirms it.
    """
    left = await write_as_a_member(tmp_path)

    with JavaGroup(tmp_path, class_path_0_3_1_2, members=1, **JAVA_SIZES) as group:
        added = await append_all(group, [b"over what was there"])

    assert sorted(left) == list(range(152))
    assert added == {149: b"over what was there"}
