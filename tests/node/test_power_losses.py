"""Hosts of real members with AsyncFlush lose power at once; a survivor has what they lost.

A copy of a member's folder stands for its last flush. Term and vote are flushed before they count,
so `currterm` stays as it is.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.http.status import FlushDiskType
from dledger_formats.settings import NodeSettings
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
FLUSHED = [b"flushed %d" % number for number in range(100)]
UNFLUSHED = [b"in memory %d" % number for number in range(100)]


class SwitchingGroup(NodeGroup):
    """A group with AsyncFlush, except that some members start with SyncFlush."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.in_sync: set[str] = set()

    def settings(self, member: str) -> NodeSettings:
        in_sync = member in self.in_sync
        mode = FlushDiskType.SYNC_FLUSH if in_sync else FlushDiskType.ASYNC_FLUSH
        return replace(super().settings(member), flush_disk_type=mode)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[SwitchingGroup]:
    with SwitchingGroup(tmp_path) as group:
        yield group


async def append(group: NodeGroup, bodies: list[bytes]) -> None:
    async with DLedgerClient(servers=group.servers, group="g") as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome

    def equal() -> bool:
        views = [group.status(member) for member in group.running()]
        ends = {(one.committed_index, one.ledger_end_index, one.durable_index) for one in views}
        return len(ends) == 1

    wait_for(equal, "every member has committed and flushed the same entries")


async def bodies_of(group: NodeGroup) -> list[bytes]:
    async with DLedgerClient(servers=group.servers, group="g") as client:
        bounds = await client.bounds()
        log = client.get_range(bounds.begin_index, bounds.end_index)
        return [entry.body async for entry in log if entry.body]


def folder_of(group: NodeGroup, member: str) -> Path:
    return group.folder / f"dledger-{member}"


def lose_power(group: NodeGroup, member: str, last_flush: Path) -> None:
    """Leave on a killed member's disk what it had flushed, and its term and vote."""
    folder = folder_of(group, member)
    hard_state = (folder / "currterm").read_bytes()
    shutil.rmtree(folder)
    shutil.copytree(last_flush, folder)
    (folder / "currterm").write_bytes(hard_state)


async def after_power_losses(group: NodeGroup, victims: list[str], copies: Path) -> None:
    """Append, and let the victims lose the power that held the second half of the entries."""
    await append(group, FLUSHED)
    for member in victims:
        shutil.copytree(folder_of(group, member), copies / member)
    await append(group, UNFLUSHED)
    for member in victims:
        group.kill(member)
    for member in victims:
        lose_power(group, member, copies / member)


async def test_a_leader_that_has_it_all_is_elected_by_followers_that_lost_their_end(
    group: NodeGroup, tmp_path: Path
) -> None:
    leader = group.master()
    victims = [member for member in group.running() if member != leader]
    await after_power_losses(group, victims, tmp_path / "flushed")

    for member in victims:
        group.start(member)

    assert group.master() == leader
    assert await bodies_of(group) == FLUSHED + UNFLUSHED
    for member in victims:
        group.wait_for_status(member, lambda view: view.ready, "has what it lost")


async def test_one_follower_that_lost_its_end_elects_the_leader_while_the_other_is_down(
    group: NodeGroup, tmp_path: Path
) -> None:
    leader = group.master()
    victims = [member for member in group.running() if member != leader]
    await after_power_losses(group, victims, tmp_path / "flushed")

    group.start(victims[0])

    assert group.master() == leader
    assert await bodies_of(group) == FLUSHED + UNFLUSHED


async def test_a_leader_that_lost_its_end_comes_back_in_sync_flush_and_votes_for_who_has_it(
    group: SwitchingGroup, tmp_path: Path
) -> None:
    leader = group.master()
    await after_power_losses(group, [leader], tmp_path / "flushed")
    group.in_sync.add(leader)
    assert "flushed=true" not in (folder_of(group, leader) / "currterm").read_text()

    group.start(leader)
    group.wait_for_status(leader, lambda view: view.ready, "has what it lost")
    group.kill(group.master())

    assert await bodies_of(group) == FLUSHED + UNFLUSHED
    currterm = folder_of(group, leader) / "currterm"
    wait_for(lambda: "flushed=true" in currterm.read_text(), f"{leader} calls its disk flushed")
