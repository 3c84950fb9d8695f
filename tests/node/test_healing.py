"""A member whose log is damaged heals from its leader: real processes, real files, real damage."""

import asyncio
import contextlib
import http.client
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.http.status import NodeStatus, StorageState
from dledger_formats.log import disk
from dledger_group.group import NodeGroup
from dledger_group.waiting import wait_for
from dledger_store_files.damage import flip
from dledger_store_files.root import AS_ROOT

pytestmark = pytest.mark.storage

SEGMENT_BYTES = 64 << 10
SIZES = {"segment_size_bytes": SEGMENT_BYTES, "index_segment_size_bytes": 3200}
BODIES = [bytes([number % 251]) * 1000 for number in range(400)]
SEGMENT_FOR_TESTS = 2
"""One with others before and behind it."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with a log of some segments."""
    with NodeGroup(tmp_path, **SIZES) as running:
        yield running


async def append_all(group: NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append, every one to be acknowledged; returns the bodies by index."""
    timing = Timing(deadline_s=60.0)
    stored = {}
    async with DLedgerClient(
        servers=group.servers, group="g", at_least_once=True, timing=timing
    ) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


async def read_back(group: NodeGroup, indexes: dict[int, bytes]) -> dict[int, bytes]:
    async with DLedgerClient(servers=group.servers, group="g") as client:
        found = client.get_range(min(indexes), max(indexes))
        held = {entry.index: entry.body async for entry in found}
    return {index: body for index, body in held.items() if index in indexes}


def follower_of(group: NodeGroup) -> str:
    return min(set(group.running()) - {group.master()})


def asides(group: NodeGroup, member: str) -> list[Path]:
    return sorted(group.store_folder(member).glob("damaged-*"))


def counted(group: NodeGroup, member: str, name: str) -> float:
    found = re.search(
        rf"^dledger_node_{name} (\S+)$".encode(), metrics(group, member), re.MULTILINE
    )
    assert found is not None, name
    return float(found[1])


def metrics(group: NodeGroup, member: str) -> bytes:
    return group.get(member, "/metrics")[1]


def wait_until_level(group: NodeGroup) -> int:
    """Wait until all members hold and have committed the same; returns the last index."""

    def level() -> list[int]:
        with contextlib.suppress(OSError, http.client.HTTPException):
            views = [group.status(member) for member in group.running()]
            ends = {(v.ledger_end_index, v.committed_index, v.durable_index) for v in views}
            if len(ends) == 1 and all(view.ready and not view.joining for view in views):
                return [views[0].committed_index]
        return []

    return wait_for(level, "all members are ready and level")[0]


def log_bytes(group: NodeGroup, member: str) -> dict[str, bytes]:
    """What a stopped member's files hold."""
    data = group.store_folder(member) / disk.DATA_FOLDER
    return {path.name: path.read_bytes() for path in sorted(data.iterdir())}


async def check_that_nothing_is_lost(group: NodeGroup, stored: dict[int, bytes]) -> None:
    """Every acknowledged entry can be read, and all members hold the same bytes."""
    wait_until_level(group)
    for member in group.running():
        wait_for(lambda m=member: not asides(group, m), f"{member} keeps nothing aside")
    assert await read_back(group, stored) == stored
    members = list(group.running())
    for member in members:
        group.kill(member)  # one that stops in order lets another lead, which writes an entry
    logs = [log_bytes(group, member) for member in members]
    assert logs[0] == logs[1] == logs[2]


def break_data(group: NodeGroup, member: str, how: str) -> None:
    """Damage a sealed segment of a member that is stopped or does not look."""
    data = group.store_folder(member) / disk.DATA_FOLDER
    start = SEGMENT_FOR_TESTS * SEGMENT_BYTES
    match how:
        case "a flipped byte":
            flip(data, start + 5000, segment_bytes=SEGMENT_BYTES)
        case "a segment that is gone":
            (data / disk.file_name(start)).unlink()
        case "all segments are gone":
            for path in data.iterdir():
                path.unlink()
        case "the first segment is gone":
            (data / disk.file_name(0)).unlink()


@pytest.mark.parametrize(
    "how",
    [
        "a flipped byte",
        "a segment that is gone",
        "the first segment is gone",
        "all segments are gone",
    ],
)
async def test_a_follower_that_starts_on_a_damaged_log_heals(group: NodeGroup, how: str) -> None:
    stored = await append_all(group, BODIES)
    end_index = wait_until_level(group)
    hurt = follower_of(group)
    group.stop(hurt)
    break_data(group, hurt, how)

    group.start(hurt)
    stored |= await append_all(group, BODIES)
    group.wait_for_status(hurt, lambda view: view.ready, "is whole again")
    wait_for(lambda: not asides(group, hurt), "what was set aside is gone")

    assert group.status(hurt).storage is StorageState.SOUND
    assert counted(group, hurt, "healed_ranges_total") == 1
    healed = counted(group, hurt, "healed_entries_total")
    assert (healed < end_index) == (how in ("a flipped byte", "a segment that is gone"))
    assert healed > end_index // 2
    await check_that_nothing_is_lost(group, stored)


@pytest.mark.parametrize("how", ["cut short", "a gap"])
async def test_an_index_that_is_damaged_is_made_anew_without_the_others(
    group: NodeGroup, how: str
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt = follower_of(group)
    group.stop(hurt)
    index = group.store_folder(hurt) / disk.INDEX_FOLDER
    path = index / disk.file_name(3200)
    if how == "a gap":
        path.unlink()
    else:
        path.write_bytes(bytes(3200))

    group.start(hurt)

    group.wait_for_status(hurt, lambda view: view.ready, "serves again")
    assert "this member joins its group" not in group.log(hurt)
    await check_that_nothing_is_lost(group, stored)


async def test_a_leader_that_finds_damage_steps_down_and_heals_under_load(
    group: NodeGroup,
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    leader = group.master()
    break_data(group, leader, "a flipped byte")

    load = asyncio.ensure_future(append_all(group, BODIES * 2))
    async with DLedgerClient(
        servers=group.servers, group="g", timing=Timing(deadline_s=60.0)
    ) as client:
        per_segment = SEGMENT_BYTES // 1048
        first_index = SEGMENT_FOR_TESTS * per_segment
        for index in range(first_index, first_index + 10):  # one of them is the damaged one
            assert (await client.get(index)).body == stored[index]
    stored |= await load

    group.wait_for_status(
        leader, lambda view: view.ready and view.storage is StorageState.SOUND, "is whole again"
    )
    assert "kept the log up to entry" in group.log(leader)
    await check_that_nothing_is_lost(group, stored)


async def test_a_leader_finds_damage_in_what_a_member_that_comes_back_lacks_and_heals(
    group: NodeGroup,
) -> None:
    """It wrote the entry itself. It pushed the bytes as they were, for ever: the member hung up."""
    lagging = follower_of(group)
    group.stop(lagging)
    stored = await append_all(group, BODIES)
    leader = group.master()
    break_data(group, leader, "a flipped byte")

    group.start(lagging)
    group.wait_for_status(
        lagging, lambda view: view.ledger_end_index >= max(stored), "gets what it lacks"
    )
    group.wait_for_status(
        leader, lambda view: view.ready and view.storage is StorageState.SOUND, "is whole again"
    )

    wait_for(lambda: counted(group, leader, "healed_ranges_total") == 1, "it has healed")
    await check_that_nothing_is_lost(group, stored)


@pytest.mark.parametrize("content", [b"", b"currTerm=1\nvoteLeader=n0\n#crc32=00000000\n", None])
async def test_a_member_that_forgot_its_vote_joins_with_the_log_that_it_has(
    group: NodeGroup, content: bytes | None
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt = follower_of(group)
    group.stop(hurt)
    path = group.store_folder(hurt) / "currterm"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)

    group.start(hurt)

    group.wait_for_status(hurt, lambda view: view.ready, "is whole again")
    wait_for(lambda: counted(group, hurt, "healed_ranges_total") == 1, "has healed")
    assert counted(group, hurt, "healed_entries_total") == 0
    await check_that_nothing_is_lost(group, stored)


async def test_two_damaged_members_of_three_stay_out_until_one_of_them_is_mended(
    group: NodeGroup,
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt = group.running()[:2]
    for member in hurt:
        group.stop(member)
    before = {member: log_bytes(group, member) for member in hurt}
    for member in hurt:
        break_data(group, member, "a flipped byte")
        group.start(member)

    for member, other in (hurt, hurt[::-1]):
        group.wait_for_status(
            member,
            lambda view, other=other: (
                view.storage is StorageState.DAMAGED
                and f"{other} does not answer" in view.reason
                and "n2 knows no leader" in view.reason
            ),
            "says why it is not healed",
        )
    assert group.get(hurt[0], "/readyz")[0] == 503
    assert not any(asides(group, member) for member in hurt)
    data = group.store_folder(hurt[0]) / disk.DATA_FOLDER
    for name, content in before[hurt[0]].items():
        (data / name).write_bytes(content)

    # The first comes back with all that it had, and so the second can heal.
    await check_that_nothing_is_lost(group, stored)


async def test_the_only_member_of_a_group_keeps_its_damaged_log(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1, **SIZES) as alone:
        await append_all(alone, BODIES)
        alone.stop("n0")
        break_data(alone, "n0", "a flipped byte")
        before = log_bytes(alone, "n0")
        alone.start("n0")

        alone.wait_for_status("n0", lambda view: "only member" in view.reason, "says so")

        assert alone.status("n0").storage is StorageState.DAMAGED
        assert log_bytes(alone, "n0") == before


def heals(view: NodeStatus) -> bool:
    return view.storage is StorageState.HEALING


async def test_it_still_heals_when_it_is_killed_on_the_way(group: NodeGroup) -> None:
    stored = await append_all(group, BODIES)
    end_index = wait_until_level(group)
    leader = group.master()
    hurt, other = sorted(set(group.running()) - {leader})
    group.stop(hurt)
    break_data(group, hurt, "a flipped byte")
    group.start(hurt)
    # It may be sent nothing before all others have answered, so it can be seen on its way.
    wait_for(lambda: "this member joins its group" in group.log(hurt), "the damage is set aside")
    group.kill(other)
    for _ in range(3):
        group.kill(hurt)
        group.start(hurt)
        group.wait_for_status(hurt, heals, "goes on")
        view = group.status(hurt)
        assert re.search(rf"re-fetching entries \d+ to {end_index} from", view.reason), view.reason
        assert view.joining
        assert group.get(hurt, "/readyz")[0] == 503
        assert b'dledger_node_storage{state="Healing"} 1.0' in metrics(group, hurt)
        assert counted(group, hurt, "healing_missing_entries") > 0
        assert asides(group, hurt)
    group.start(other)

    group.master()
    await check_that_nothing_is_lost(group, stored)


@pytest.fixture
def group_with_a_small_volume(tmp_path: Path) -> Iterator[NodeGroup]:
    """The member n0 has a volume that cannot hold its log twice, and does not lead."""
    at = tmp_path / "dledger-n0"
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(at)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(mounted.stderr)
    try:
        with NodeGroup(tmp_path, **SIZES) as group:
            while group.master() == "n0":
                group.kill("n0")
                group.master()
                group.start("n0")
                group.wait_until_up("n0")
            yield group
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@AS_ROOT
async def test_what_was_set_aside_gives_way_where_there_is_no_room_for_both(
    group_with_a_small_volume: NodeGroup,
) -> None:
    group = group_with_a_small_volume
    stored = await append_all(group, BODIES * 3)
    wait_until_level(group)
    group.stop("n0")
    break_data(group, "n0", "a flipped byte")

    group.start("n0")

    group.wait_for_status("n0", lambda view: view.ready, "is whole again")
    assert "to make room for the new log" in group.log("n0")
    await check_that_nothing_is_lost(group, stored)
