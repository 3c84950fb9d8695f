"""A real member that starts with an empty disk costs no acknowledged append."""

import re
import shutil
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.protocol.membership_change import ChangeKind
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

BODIES = [f"message {number}".encode() for number in range(300)]


async def append_all(group: NodeGroup, bodies: list[bytes]) -> dict[int, bytes]:
    """Append bodies, all of which must be acknowledged. Return them by index."""
    stored = {}
    async with DLedgerClient(group.servers, group="g") as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


async def read_back(group: NodeGroup, indexes: dict[int, bytes]) -> dict[int, bytes]:
    async with DLedgerClient(group.servers, group="g") as client:
        found = client.get_range(min(indexes), max(indexes))
        held = {entry.index: entry.body async for entry in found}
    return {index: body for index, body in held.items() if index in indexes}


def lose_volume(group: NodeGroup, member: str) -> None:
    """Kill a member and remove its files."""
    group.kill(member)
    shutil.rmtree(group.store_folder(member))


def refused_votes(group: NodeGroup, member: str) -> float:
    """Return how many requests a member refused because it was joining."""
    found = re.search(rb'messages_refused_total\{cause="JOINING"\} (\S+)', metrics(group, member))
    return float(found[1]) if found else 0.0


def metrics(group: NodeGroup, member: str) -> bytes:
    return group.get(member, "/metrics")[1]


def wait_until_admitted(group: NodeGroup, member: str) -> None:
    group.wait_for_status(member, lambda view: not view.joining, "votes")


def is_level_with(group: NodeGroup, member: str, other: str) -> bool:
    one, two = group.status(member), group.status(other)
    return (one.durable_index, one.committed_index) == (two.durable_index, two.committed_index)


async def test_a_lost_volume_and_a_lost_leader_together_cost_nothing(group: NodeGroup) -> None:
    """Entries that only the leader and the emptied member had confirmed must survive both."""
    leader = group.master()
    emptied, behind = sorted(set(group.peers) - {leader})
    group.kill(behind)
    stored = await append_all(group, BODIES)
    lose_volume(group, emptied)
    group.kill(leader)
    for member in (emptied, behind):
        group.start(member)
        group.wait_until_up(member)
    wait_for(lambda: refused_votes(group, emptied) >= 5, "asked for its vote, it gives none")
    views = [group.status(member) for member in (emptied, behind)]
    refused = group.get(emptied, "/readyz")
    group.start(leader)
    wait_until_admitted(group, emptied)
    group.master()

    assert views[0].joining
    assert not any(view.master for view in views)
    assert refused[0] == 503
    assert refused[1].startswith(f"joining: waits for {leader}".encode())
    assert await read_back(group, stored) == stored


async def test_an_emptied_member_is_filled_and_votes_again(group: NodeGroup) -> None:
    leader = group.master()
    emptied = min(set(group.peers) - {leader})
    stored = await append_all(group, BODIES)
    lose_volume(group, emptied)
    group.start(emptied)
    group.wait_until_up(emptied)
    wait_until_admitted(group, emptied)
    wait_for(lambda: is_level_with(group, emptied, group.master()), "the emptied member is level")
    assert b"dledger_node_joining 0.0" in metrics(group, emptied)
    assert "joining: done" in group.log(emptied)
    assert group.status(emptied).joined_index >= len(stored) - 1

    group.kill(group.master())  # now the vote of the emptied member is needed
    group.master()

    assert await read_back(group, stored) == stored


async def test_a_joining_member_still_joins_after_a_restart(group: NodeGroup) -> None:
    leader = group.master()
    emptied, other = sorted(set(group.peers) - {leader})
    await append_all(group, BODIES)
    lose_volume(group, emptied)
    group.kill(other)
    for _ in range(2):
        group.start(emptied)
        group.wait_until_up(emptied)
        group.wait_for_status(
            emptied,
            lambda view: view.reason.startswith(f"joining: waits for {other}"),
            "waits for the member that is away",
        )
        assert b"dledger_node_joining 1.0" in metrics(group, emptied)
        group.kill(emptied)
    group.start(emptied)
    group.start(other)

    group.wait_until_up(emptied)
    wait_until_admitted(group, emptied)


def test_a_new_group_begins_once_all_of_its_members_run(tmp_path: Path) -> None:
    group = NodeGroup(tmp_path)
    try:
        for member in ("n0", "n1"):
            group.start(member)
        for member in ("n0", "n1"):
            group.wait_until_up(member)
            group.wait_for_status(
                member,
                lambda view: view.reason.startswith("joining: waits for n2"),
                "waits for the third",
            )
        group.start("n2")
        group.wait_until_up("n2")

        assert group.master()
    finally:
        group.__exit__(None, None, None)


@pytest.mark.parametrize("members", [3, 5])
async def test_a_group_that_grows_from_one_member_keeps_its_log(
    tmp_path: Path, members: int
) -> None:
    with NodeGroup(tmp_path, members=1) as alone:
        alone.master()
        stored = await append_all(alone, BODIES)
        alone.stop("n0")
    with NodeGroup(tmp_path, members=members) as group:
        group.master()
        for member in group.running():
            wait_until_admitted(group, member)
        assert await read_back(group, stored) == stored
        stored |= await append_all(group, [b"more"])

        group.kill("n0")
        group.master()
        assert await read_back(group, stored) == stored


async def test_an_emptied_member_begins_where_the_leader_s_log_does(tmp_path: Path) -> None:
    """Entries that retention has removed cannot be pushed to any member."""
    with NodeGroup(tmp_path, retention_bytes=2 << 20) as group:
        master = group.master()
        await append_all(group, [bytes(10_000)] * 600)
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_begin_index > 300, "has removed the oldest"
            )
        emptied = min(set(group.peers) - {master})
        lose_volume(group, emptied)
        group.start(emptied)
        group.wait_until_up(emptied)
        wait_until_admitted(group, emptied)
        stored = await append_all(group, BODIES)

        wait_for(lambda: is_level_with(group, emptied, group.master()), "it is level")
        view = group.status(emptied)
        assert view.ledger_begin_index > 300
        assert "now begins with the leader's entry" in group.log(emptied)
        group.kill(emptied)
        group.start(emptied)
        group.wait_for_status(emptied, lambda view: view.ready, "is back with such a log")
        assert group.status(emptied).ledger_begin_index >= view.ledger_begin_index
        wait_for(lambda: same_bytes(group, emptied, group.master()), "equal, byte by byte")
        assert await read_back(group, stored) == stored


def same_bytes(group: NodeGroup, one: str, other: str) -> bool:
    """Return whether two members hold the same bytes in every file that both have."""
    contents = []
    for member in (one, other):
        files = group.manifest(member).data
        contents.append(
            {
                file.name: group.get(
                    member,
                    f"/segments/data/{file.name}",
                    {"Range": f"bytes=0-{file.readable_bytes - 1}"},
                )[1]
                for file in files
            }
        )
    shared = contents[0].keys() & contents[1].keys()
    return bool(shared) and all(contents[0][name] == contents[1][name] for name in shared)


async def test_a_disk_that_was_rolled_back_is_detected_and_costs_nothing(
    group: NodeGroup, tmp_path: Path
) -> None:
    """Entries that only the leader and the rolled-back member had confirmed must survive."""
    leader = group.master()
    older, behind = sorted(set(group.peers) - {leader})
    early = await append_all(group, BODIES[:10])
    group.kill(older)
    shutil.copytree(group.store_folder(older), tmp_path / "backup")
    group.start(older)
    group.wait_until_up(older)
    wait_for(lambda: is_level_with(group, older, leader), "the member is level again")
    group.kill(behind)
    stored = await append_all(group, BODIES)
    lose_volume(group, older)
    shutil.copytree(tmp_path / "backup", group.store_folder(older))

    group.start(older)
    group.wait_until_up(older)
    found_out = f"joining: the disk is older than what {leader} remembers"
    group.wait_for_status(older, lambda view: view.reason.startswith(found_out), "is found out")
    group.start(behind)
    group.wait_until_up(behind)
    wait_until_admitted(group, older)
    group.master()

    assert await read_back(group, early | stored) == early | stored


async def test_the_only_first_voter_that_lost_its_volume_leads_no_second_group(
    tmp_path: Path,
) -> None:
    """Its settings still say that the group is new, and an added member has the log."""
    with NodeGroup(tmp_path, members=1, addable=1) as group:
        group.start("n1")
        async with DLedgerClient(group.servers, group="g") as client:
            await client.change_membership(ChangeKind.ADD_LEARNER, "n1")
            index = (await client.append(b"kept")).index
        group.wait_for_status("n1", lambda view: view.durable_index >= index, "has the entry")
        lose_volume(group, "n0")
        group.start("n0")

        group.wait_for_status("n0", lambda view: "the group is not new" in view.reason, "waits")

        view = group.status("n0")
        assert (view.joining, view.term, view.leader_id) == (True, group.status("n1").term, None)
        assert group.status("n1").ledger_end_index >= index
