"""Members whose logs are damaged mend them in place and keep their votes; real processes."""

import contextlib
import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_group.damaged import (
    BODIES,
    SEGMENT_BYTES,
    SIZES,
    append_all,
    break_data,
    check_that_nothing_is_lost,
    counted,
    follower_of,
    forget_commits,
    log_bytes,
    read_back,
    set_aside_folders,
    wait_until_level,
)
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storage


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members with small segments, so that their log has several."""
    with NodeGroup(tmp_path, **SIZES) as running:
        yield running


@pytest.fixture
def calm_group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Such a group in which a busy machine changes no term."""
    calm = {"heartbeat_interval_ms": 500, "election_timeout_ms": 5000}
    with NodeGroup(tmp_path, **SIZES, **calm) as running:
        yield running


CHANNEL_AT = 32
"""Where the channel is in an entry."""


def flip_in(group: NodeGroup, member: str, segment: int, at: int = 5000) -> None:
    """Flip a byte in one of a member's segments."""
    data = group.store_folder(member) / disk.DATA_FOLDER
    flip(data, segment * SEGMENT_BYTES + at, segment_bytes=SEGMENT_BYTES)


def is_sound(group: NodeGroup, member: str) -> None:
    group.wait_for_status(
        member, lambda view: view.ready and view.storage is StorageState.SOUND, "is sound"
    )


def nobody_joined(group: NodeGroup) -> bool:
    return not any(
        "joins its group" in group.log(member) or set_aside_folders(group, member)
        for member in group.running()
    )


async def test_a_damaged_follower_and_a_damaged_leader_become_whole_by_themselves(
    group: NodeGroup,
) -> None:
    """The follower once set its log aside and gave up its vote; then the leader, which had to push
    all of it, found its own damage and left; and the third, complete member led nobody.
    """
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    leader, follower = group.master(), follower_of(group)
    group.stop(follower)
    flip_in(group, follower, 3)
    flip_in(group, leader, 5)

    group.start(follower)
    stored |= await append_all(group, BODIES)
    is_sound(group, follower)
    group.stop(leader)
    group.start(leader)

    stored |= await append_all(group, BODIES)
    for member in group.running():
        is_sound(group, member)
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)


async def test_three_members_that_all_start_damaged_mend_from_each_other(group: NodeGroup) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    members = group.running()
    for member in members:
        group.stop(member)
    sound = log_bytes(group, members[0])
    for number, member in enumerate(members):
        flip_in(group, member, number + 1)
    break_data(group, members[2], "the first segment is gone")

    for member in members:
        group.start(member)

    stored |= await append_all(group, BODIES[:50])
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)
    whole = log_bytes(group, members[0])
    assert all(whole[name] == content for name, content in list(sound.items())[:-1])


async def test_two_members_mend_from_a_third_one_that_knows_nothing_as_committed(
    group: NodeGroup,
) -> None:
    """It learns what is committed from a leader, and there is none while the two stay out."""
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    first, second, sound = group.running()
    for member in (first, second, sound):
        group.stop(member)
    forget_commits(group, sound)
    for member in (first, second):
        flip_in(group, member, 3)

    for member in (first, second, sound):
        group.start(member)

    stored |= await append_all(group, BODIES[:50])
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)


async def test_a_missing_segment_comes_from_two_peers_that_rotted_in_it_elsewhere(
    group: NodeGroup,
) -> None:
    """No peer has the whole segment, but each of its entries is sound on one of them."""
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt, first, second = group.running()
    for member in (hurt, first, second):
        group.stop(member)
    flip_in(group, first, 2, at=5000)
    flip_in(group, second, 2, at=9000)
    data = group.store_folder(hurt) / disk.DATA_FOLDER
    (data / disk.file_name(2 * SEGMENT_BYTES)).unlink()

    for member in (hurt, first, second):
        group.start(member)

    stored |= await append_all(group, BODIES[:50])
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "how",
    [
        "a flipped byte",
        "a segment that is cut short",
        "a segment that is gone",
        "the first segment is gone",
    ],
)
async def test_a_follower_that_starts_on_a_damaged_log_mends_it_and_keeps_its_vote(
    group: NodeGroup, how: str
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt = follower_of(group)
    group.stop(hurt)
    break_data(group, hurt, how)

    group.start(hurt)
    stored |= await append_all(group, BODIES)

    is_sound(group, hurt)
    assert "mended entr" in group.log(hurt)
    assert "Was the segment size changed?" not in group.log(hurt)
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)


async def test_two_damaged_members_mend_while_the_third_is_down(group: NodeGroup) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    first, second, third = group.running()
    for member in (first, second, third):
        group.stop(member)
    flip_in(group, first, 1)
    flip_in(group, second, 2)

    group.start(first)
    group.start(second)

    stored |= await append_all(group, BODIES[:50])
    group.start(third)
    assert nobody_joined(group)
    await check_that_nothing_is_lost(group, stored)


async def test_a_leader_that_finds_damage_while_it_pushes_mends_it_and_keeps_leading(
    group: NodeGroup,
) -> None:
    lagging = follower_of(group)
    group.stop(lagging)
    stored = await append_all(group, BODIES)
    leader = group.master()
    term = group.status(leader).term
    flip_in(group, leader, 3)

    group.start(lagging)
    group.wait_for_status(lagging, lambda view: view.ledger_end_index >= max(stored), "catches up")

    wait_for(lambda: counted(group, leader, "mended_ranges_total") == 1, "it is mended")
    is_sound(group, leader)
    assert group.status(leader).term == term
    assert group.status(leader).master
    assert "must stop" not in group.log(leader)
    await check_that_nothing_is_lost(group, stored)


async def test_a_push_verifies_the_chain_of_the_first_entry_of_a_segment(
    calm_group: NodeGroup,
) -> None:
    """Only the chain covers a channel, and a follower takes no entry that breaks the chain. So the
    leader must find the flipped byte itself, or it would push that entry forever.
    """
    group = calm_group
    lagging = follower_of(group)
    group.stop(lagging)
    stored = await append_all(group, BODIES)
    leader = group.master()
    term = group.status(leader).term
    flip_in(group, leader, 3, at=CHANNEL_AT)

    group.start(lagging)
    group.wait_for_status(lagging, lambda view: view.ledger_end_index >= max(stored), "catches up")

    wait_for(lambda: counted(group, leader, "mended_entries_total") == 1, "it is mended")
    is_sound(group, leader)
    assert re.search(r"mended entry \d+ in place: \d+ bytes from n\d", group.log(leader))
    assert group.status(leader).term == term
    assert "must stop" not in group.log(leader) + group.log(lagging)
    assert group.log(lagging).count("bad_chain_crc") <= 2, "it is not sent again and again"
    await check_that_nothing_is_lost(group, stored)


async def test_a_segment_that_is_cut_short_under_a_running_member_is_found_and_mended(
    group: NodeGroup,
) -> None:
    stored = await append_all(group, BODIES)
    wait_until_level(group)
    hurt = follower_of(group)
    name = disk.file_name(2 * SEGMENT_BYTES)
    break_data(group, hurt, "a segment that is cut short")

    with contextlib.suppress(http.client.HTTPException, ConnectionError):
        group.get(hurt, f"/segments/data/{name}")  # answers or fails, and does not hang

    wait_for(lambda: counted(group, hurt, "mended_ranges_total") >= 1, "it is mended")
    is_sound(group, hurt)
    assert f"{name} was cut short" in group.log(hurt)
    assert "must stop" not in group.log(hurt)
    assert len(group.get(hurt, f"/segments/data/{name}")[1]) == SEGMENT_BYTES
    await check_that_nothing_is_lost(group, stored)


async def test_scrubbing_finds_rot_that_nobody_reads_and_mends_it(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, scrub_interval_s=1, **SIZES) as group:
        stored = await append_all(group, BODIES)
        wait_until_level(group)
        terms = {member: group.status(member).term for member in group.running()}
        for number, member in enumerate(group.running()):
            flip_in(group, member, number + 1)

        for member in group.running():
            wait_for(
                lambda m=member: counted(group, m, "mended_ranges_total") == 1, "rot is mended"
            )

        assert counted(group, "n0", "mended_bytes_total") == 1048
        wait_for(lambda: counted(group, "n0", "scrub_passes_total") >= 1, "a pass has ended")
        assert {member: group.status(member).term for member in group.running()} == terms
        assert not any("must stop" in group.log(member) for member in group.running())
        await check_that_nothing_is_lost(group, stored)


async def test_a_leader_whose_damage_cannot_be_mended_in_service_hands_over_and_leaves(
    calm_group: NodeGroup,
) -> None:
    """Its last entry is damaged, which no sound entry follows."""
    group = calm_group
    stored = await append_all(group, BODIES)
    end_index = wait_until_level(group)
    leader = group.master()
    term = group.status(leader).term
    pos = int(group.manifest(leader).data[-1].name) + group.manifest(leader).data[-1].readable_bytes
    flip(group.store_folder(leader) / disk.DATA_FOLDER, pos - 10, segment_bytes=SEGMENT_BYTES)

    await read_back(group, {end_index: stored[end_index]})

    group.wait_for_status(leader, lambda view: view.term > term and view.ready, "is back")
    assert "transfers its leadership" in group.log(leader) or term + 1 == max(
        group.status(member).term for member in group.running()
    )
    await check_that_nothing_is_lost(group, stored)
