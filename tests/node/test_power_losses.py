"""Hosts of real members with AsyncFlush lose power at once; a survivor has what they lost.

A copy of a member's folder stands for its last flush. Term and vote are flushed before they count,
so `currterm` stays as it is.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.http.status import FlushDiskType
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
FLUSHED = [b"flushed %d" % number for number in range(100)]
UNFLUSHED = [b"in memory %d" % number for number in range(100)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    with NodeGroup(tmp_path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as group:
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
