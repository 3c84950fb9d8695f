"""A group of three real nodes keeps every acknowledged append, whichever member fails."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged, Refused, Unknown
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.http.status import FlushDiskType, Role
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

BODIES = [f"message {number}".encode() for number in range(500)]


def client_of(group: NodeGroup, **options: object) -> DLedgerClient:
    return DLedgerClient(servers=group.servers, group="g", **options)  # type: ignore[arg-type]


async def append_all(group: NodeGroup, bodies: list[bytes], **options: object) -> dict[int, bytes]:
    """Append bodies, all of which must be acknowledged. Return them by index."""
    stored = {}
    async with client_of(group, **options) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged), outcome
            stored[outcome.index] = bodies[outcome.number]
    return stored


async def read_back(group: NodeGroup, first: int, last: int) -> dict[int, bytes]:
    async with client_of(group) as client:
        return {entry.index: entry.body async for entry in client.get_range(first, last)}


def wait_for_equal_logs(group: NodeGroup) -> None:
    """Wait until every running member has committed its whole log, and all logs are equal."""

    def equal() -> bool:
        views = [group.status(member) for member in group.running()]
        return len({(v.committed_index, v.ledger_end_index, v.durable_index) for v in views}) == 1

    wait_for(equal, "every member has committed the same entries")


async def test_a_body_is_read_back_at_its_index(steady_group: NodeGroup) -> None:
    steady_group.master()

    stored = await append_all(steady_group, BODIES)

    assert len(stored) == len(BODIES)
    assert sorted(stored) == list(range(min(stored), min(stored) + len(BODIES)))
    assert await read_back(steady_group, min(stored), max(stored)) == stored


async def test_a_term_begins_with_an_empty_entry(group: NodeGroup) -> None:
    master = group.master()

    status = group.status(master)

    assert (status.ledger_begin_index, status.committed_index) == (0, 0)


async def test_one_member_is_master_and_the_others_follow_it(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    for member in steady_group.running():
        steady_group.wait_for_status(
            member, lambda view: view.leader_id == master, "follows the master"
        )

    views = {member: steady_group.status(member) for member in steady_group.running()}

    assert [member for member, view in views.items() if view.master] == [master]
    assert {view.role for member, view in views.items() if member != master} == {Role.FOLLOWER}
    assert views[master].broker_id == 0
    assert all(views[m].broker_id == int(m[1]) + 1 for m in views if m != master)
    assert all(view.ready for view in views.values())


async def test_followers_hold_the_leaders_bytes(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    await append_all(steady_group, BODIES)
    wait_for_equal_logs(steady_group)

    first = steady_group.manifest(master).data[0]
    headers = {"Range": f"bytes=0-{first.readable_bytes - 1}"}
    logs = {
        steady_group.get(m, f"/segments/data/{first.name}", headers) for m in steady_group.running()
    }

    assert len(logs) == 1
    assert {(status, len(body)) for status, body in logs} == {(206, first.readable_bytes)}


@pytest.fixture
def patient_group(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members that wait long for a leader which is silent."""
    with NodeGroup(tmp_path, heartbeat_interval_ms=250, election_timeout_ms=6_000) as running:
        yield running


async def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(
    patient_group: NodeGroup,
) -> None:
    group = patient_group
    leader = group.master()
    stored = await append_all(group, BODIES)

    group.kill(leader)
    began_s = time.monotonic()
    successor = group.master()
    gap_s = time.monotonic() - began_s
    stored |= await append_all(group, BODIES)

    assert successor != leader
    assert gap_s < 5.0, "a killed process is seen by its connections, not by a timeout"
    assert await read_back(group, min(stored), max(stored)) | stored == await read_back(
        group, min(stored), max(stored)
    )


async def test_a_frozen_leader_is_deposed_and_comes_back_as_a_follower(group: NodeGroup) -> None:
    leader = group.master()
    term = group.status(leader).term

    group.freeze(leader)
    others = [member for member in group.running() if member != leader]
    for member in others:
        group.wait_for_status(
            member, lambda view: view.leader_id not in (None, leader), "follows another leader"
        )
    why = f"{leader}, the leader of term {term}, sent nothing for"
    assert any(why in group.log(member) for member in others)
    group.thaw(leader)

    group.wait_for_status(leader, lambda view: view.role is Role.FOLLOWER, "follows too")
    assert not group.status(leader).master


async def test_a_member_that_was_away_catches_up(group: NodeGroup) -> None:
    master = group.master()
    away = next(member for member in group.running() if member != master)
    group.kill(away)
    # Several segments. A disk that is busy for 2 s makes an outcome unknown; it is sent again.
    await append_all(group, [bytes(10_000)] * 500, at_least_once=True)

    group.start(away)
    group.wait_until_up(away)

    wait_for_equal_logs(group)


async def test_members_that_are_all_killed_at_once_keep_every_acknowledged_append(
    group: NodeGroup,
) -> None:
    group.master()
    stored = await append_all(group, BODIES)

    for member in group.running():
        group.kill(member)
    for member in group.peers:
        group.start(member)
        group.wait_until_up(member)
    group.master()

    assert await read_back(group, min(stored), max(stored)) == stored


async def test_appends_go_on_through_a_killed_leader(group: NodeGroup) -> None:
    """Every append has an outcome, and each acknowledged one is at its index."""
    leader = group.master()
    acknowledged: dict[int, bytes] = {}
    unknown = 0
    bodies = [f"record {number}".encode() * 20 for number in range(20_000)]
    async with client_of(group) as client:
        async for outcome in client.append_all(bodies, in_flight=256):
            match outcome:
                case Acknowledged(number=number, index=index):
                    acknowledged[index] = bodies[number]
                case Unknown():
                    unknown += 1
                case Refused():
                    pytest.fail(f"refused: {outcome}")
            if len(acknowledged) == 5_000 and leader in group.running():
                group.kill(leader)

    held = await read_back(group, min(acknowledged), max(acknowledged))

    assert len(acknowledged) + unknown == len(bodies)
    assert unknown <= 256, "no more than what was in flight"
    assert {index: held.get(index) for index in acknowledged} == acknowledged


async def test_without_a_majority_nothing_is_acknowledged(group: NodeGroup) -> None:
    leader = group.master()
    for member in group.running():
        if member != leader:
            group.kill(member)

    async with client_of(group, timing=Timing(deadline_s=3.0)) as client:
        outcomes = [outcome async for outcome in client.append_all([b"lost?"])]

    assert not isinstance(outcomes[0], Acknowledged)


async def test_a_leader_without_a_majority_steps_down_and_logs_why(group: NodeGroup) -> None:
    leader = group.master()
    term = group.status(leader).term
    for member in group.running():
        if member != leader:
            group.kill(member)

    group.wait_for_status(leader, lambda view: not view.master, "is no master any more")
    assert not group.status(leader).ready
    assert f"this member no longer leads term {term}: no majority has answered for" in group.log(
        leader
    )


async def test_a_member_asked_to_stop_ends_in_order_and_is_replaced(group: NodeGroup) -> None:
    leader = group.master()
    await append_all(group, BODIES)

    assert group.stop(leader) == 0
    assert group.master() != leader


@pytest.mark.group
async def test_a_group_of_one_acknowledges_by_itself(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1) as group:
        group.master()

        stored = await append_all(group, BODIES)

        assert len(stored) == len(BODIES)


@pytest.mark.group
async def test_asynchronous_flush_is_named_and_flushes_all_the_same(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as group:
        master = group.master()
        await append_all(group, BODIES)

        assert group.status(master).flush_disk_type is FlushDiskType.ASYNC_FLUSH
        line = b'dledger_node_flush_disk_type{type="AsyncFlush"} 1.0'
        assert line in group.get(master, "/metrics")[1]
        for member in group.running():
            group.wait_for_status(
                member, lambda view: view.durable_index == view.ledger_end_index, "has flushed"
            )


async def test_two_clients_share_the_log(steady_group: NodeGroup) -> None:
    steady_group.master()

    halves = await asyncio.gather(
        append_all(steady_group, BODIES), append_all(steady_group, BODIES)
    )

    assert not halves[0].keys() & halves[1].keys()
