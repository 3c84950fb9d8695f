"""A member whose log is damaged heals from its leader; real processes and files."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.http.status import NodeStatus, StorageState
from dledger_formats.log import disk
from dledger_group.damaged import (
    BODIES,
    SEGMENT_BYTES,
    SEGMENT_FOR_TESTS,
    SIZES,
    append_all,
    break_data,
    check_that_nothing_is_lost,
    counted,
    follower_of,
    forget_commits,
    log_bytes,
    metrics,
    set_aside_folders,
    wait_until_level,
)
from dledger_store_files.root import AS_ROOT
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storage


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with small segments, so that their log has several."""
    with NodeGroup(tmp_path, **SIZES) as running:
        yield running


@pytest.mark.sampled(2)
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
    forget_commits(group, hurt)
    break_data(group, hurt, how)

    group.start(hurt)
    stored |= await append_all(group, BODIES)
    group.wait_for_status(hurt, lambda view: view.ready, "is healed")
    wait_for(lambda: not set_aside_folders(group, hurt), "the damaged files are deleted")

    assert group.status(hurt).storage is StorageState.SOUND
    assert counted(group, hurt, "healed_ranges_total") == 1
    healed = counted(group, hurt, "healed_entries_total")
    assert (healed < end_index) == (how in ("a flipped byte", "a segment that is gone"))
    assert healed > end_index // 2
    await check_that_nothing_is_lost(group, stored)


@pytest.mark.parametrize("how", ["cut short", "a gap"])
async def test_a_damaged_index_is_rebuilt_without_the_other_members(
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


async def test_a_leader_that_finds_damage_mends_it_under_load(
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
        for index in range(first_index, first_index + 10):  # one of them is damaged
            assert (await client.get(index)).body == stored[index]
    stored |= await load

    group.wait_for_status(
        leader, lambda view: view.ready and view.storage is StorageState.SOUND, "is healed"
    )
    wait_for(lambda: "mended entr" in group.log(leader), "it has mended its log")
    assert not set_aside_folders(group, leader)
    await check_that_nothing_is_lost(group, stored)


async def test_a_leader_mends_damage_that_it_finds_while_it_pushes(
    group: NodeGroup,
) -> None:
    """The leader wrote the entry itself. It used to push the damaged bytes forever, and the
    follower closed the link each time.
    """
    lagging = follower_of(group)
    group.stop(lagging)
    stored = await append_all(group, BODIES)
    leader = group.master()
    break_data(group, leader, "a flipped byte")

    group.start(lagging)
    group.wait_for_status(lagging, lambda view: view.ledger_end_index >= max(stored), "catches up")
    group.wait_for_status(
        leader, lambda view: view.ready and view.storage is StorageState.SOUND, "is healed"
    )

    wait_for(lambda: "mended entr" in group.log(leader), "it has mended its log")
    assert not set_aside_folders(group, leader)
    await check_that_nothing_is_lost(group, stored)


@pytest.mark.parametrize("content", [b"", b"currTerm=1\nvoteLeader=n0\n#crc32=00000000\n", None])
async def test_a_member_that_lost_its_vote_joins_with_its_log(
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

    group.wait_for_status(hurt, lambda view: view.ready, "is healed")
    wait_for(lambda: counted(group, hurt, "healed_ranges_total") == 1, "it has healed")
    assert counted(group, hurt, "healed_entries_total") == 0
    await check_that_nothing_is_lost(group, stored)


async def test_two_members_with_the_same_damage_wait_for_the_third(group: NodeGroup) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    *hurt, away = group.running()
    for member in (*hurt, away):
        group.stop(member)
    for member in hurt:
        break_data(group, member, "a flipped byte")
        group.start(member)

    for member, other in (hurt, hurt[::-1]):
        group.wait_for_status(
            member,
            lambda view, other=other: (
                view.storage is StorageState.DAMAGED
                and f"{other}: its bytes fail the checksums" in view.reason
            ),
            "reports why it is not mended",
        )
    assert group.get(hurt[0], "/readyz")[0] == 503
    group.start(away)

    await check_that_nothing_is_lost(group, stored)
    assert not any("joins its group" in group.log(member) for member in hurt)


async def test_the_only_member_of_a_group_keeps_its_damaged_log(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1, **SIZES) as alone:
        await append_all(alone, BODIES)
        alone.stop("n0")
        break_data(alone, "n0", "a flipped byte")
        before = log_bytes(alone, "n0")
        alone.start("n0")

        alone.wait_for_status("n0", lambda view: "only member" in view.reason, "reports it")

        assert alone.status("n0").storage is StorageState.DAMAGED
        assert log_bytes(alone, "n0") == before


def heals(view: NodeStatus) -> bool:
    return view.storage is StorageState.HEALING


async def test_a_member_that_is_killed_while_it_heals_continues_to_heal(group: NodeGroup) -> None:
    stored = await append_all(group, BODIES)
    end_index = wait_until_level(group)
    leader = group.master()
    hurt, other = sorted(set(group.running()) - {leader})
    group.stop(hurt)
    forget_commits(group, hurt)
    break_data(group, hurt, "a flipped byte")
    group.start(hurt)
    # It receives no entries before all other members have answered, so healing can be observed.
    wait_for(lambda: "this member joins its group" in group.log(hurt), "the damage is set aside")
    group.kill(other)
    for _ in range(3):
        group.kill(hurt)
        group.start(hurt)
        group.wait_for_status(hurt, heals, "continues to heal")
        view = group.status(hurt)
        assert re.search(rf"re-fetching entries \d+ to {end_index} from", view.reason), view.reason
        assert view.joining
        assert group.get(hurt, "/readyz")[0] == 503
        assert b'dledger_node_storage{state="Healing"} 1.0' in metrics(group, hurt)
        assert counted(group, hurt, "healing_missing_entries") > 0
        assert set_aside_folders(group, hurt)
    group.start(other)

    group.master()
    await check_that_nothing_is_lost(group, stored)


@pytest.fixture
def group_with_a_small_volume(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members; n0 has a volume that cannot hold its log twice, and does not lead."""
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
async def test_damaged_files_are_deleted_when_there_is_no_room_for_both(
    group_with_a_small_volume: NodeGroup,
) -> None:
    group = group_with_a_small_volume
    stored = await append_all(group, BODIES * 3)
    wait_until_level(group)
    group.stop("n0")
    forget_commits(group, "n0")
    break_data(group, "n0", "a flipped byte")

    group.start("n0")

    group.wait_for_status("n0", lambda view: view.ready, "is healed")
    assert "to make room for the new log" in group.log("n0")
    await check_that_nothing_is_lost(group, stored)


@AS_ROOT
async def test_on_a_volume_without_room_no_sound_segment_is_set_aside(
    group_with_a_small_volume: NodeGroup,
) -> None:
    group = group_with_a_small_volume
    stored = await append_all(group, BODIES * 3)
    wait_until_level(group)
    group.stop("n0")
    break_data(group, "n0", "a flipped byte")
    fill_up(group.store_folder("n0"))

    group.start("n0")

    wait_for(lambda: "mended entr" in group.log("n0"), "its log is mended")
    (group.store_folder("n0") / "filler").unlink(missing_ok=True)
    group.wait_for_status("n0", lambda view: view.ready, "is sound")
    assert "set aside" not in group.log("n0")
    assert "kept the log" not in group.log("n0")
    await check_that_nothing_is_lost(group, stored)


def fill_up(folder: Path) -> None:
    """Leave no free block on a volume."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb") as filler:
        while filler.write(bytes(4096)):
            filler.flush()
