"""A client that sends again, and members that fail: every body is in the log exactly once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.members import Timing
from dledger_client.outcomes import Acknowledged, Outcome
from dledger_formats import disk
from dledger_group.group import NodeGroup
from dledger_group.waiting import wait_for

pytestmark = pytest.mark.group

BODIES = [b"body %d" % number for number in range(20_000)]
ROUNDS = 4
PATIENCE_S = 50.0


def kill_leader(group: NodeGroup) -> None:
    """End the leader as kill -9 does, and start it again."""
    leader = group.master()
    group.kill(leader)
    wait_for(lambda: group.master() != leader, "another member leads")
    group.start(leader)
    group.wait_until_up(leader)


def freeze_leader(group: NodeGroup) -> None:
    """Stop the leader until another leads; then it finds copies in its sockets."""
    leader = group.master()
    group.freeze(leader)
    others = [member for member in group.running() if member != leader]
    for member in others:
        group.wait_for_status(
            member, lambda view: view.leader_id in others, "follows another leader"
        )
    group.thaw(leader)
    group.wait_until_up(leader)


async def append_through(group: NodeGroup, fail: Callable[[NodeGroup], None]) -> list[Outcome]:
    """Append all bodies, while the leader fails each time that so many are acknowledged."""
    outcomes: list[Outcome] = []
    failure: asyncio.Task[None] | None = None
    timing = Timing(deadline_s=PATIENCE_S, request_timeout_s=2.0)
    async with DLedgerClient(group.servers, "g", idempotent=True, timing=timing) as client:
        async for outcome in client.append_all(BODIES, in_flight=512):
            outcomes.append(outcome)
            if len(outcomes) % (len(BODIES) // (ROUNDS + 1)) == 0 and len(outcomes) < len(BODIES):
                if failure is not None:
                    await failure
                failure = asyncio.create_task(asyncio.to_thread(fail, group))
        if failure is not None:
            await failure
    return outcomes


async def bodies_by_index(group: NodeGroup) -> dict[int, bytes]:
    """What the log holds, without no-ops and registrations."""
    async with DLedgerClient(group.servers, "g", timing=Timing(deadline_s=PATIENCE_S)) as client:
        end_index = (await client.bounds()).end_index
        return {
            entry.index: entry.body
            async for entry in client.get_range(0, end_index)
            if entry.magic == disk.NORMAL
        }


@pytest.mark.parametrize("fail", [kill_leader, freeze_leader])
async def test_through_failing_leaders_every_body_is_in_the_log_exactly_once(
    group: NodeGroup, fail: Callable[[NodeGroup], None]
) -> None:
    group.master()

    outcomes = await append_through(group, fail)

    assert Counter(type(outcome) for outcome in outcomes) == {Acknowledged: len(BODIES)}
    held = await bodies_by_index(group)
    assert len(held) == len(BODIES), "a body is there twice, or not at all"
    assert [held[outcome.index] for outcome in outcomes] == BODIES  # type: ignore[union-attr]


async def test_a_client_goes_on_through_a_restart_of_all_members(tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group:
        group.master()
        timing = Timing(deadline_s=PATIENCE_S)
        async with DLedgerClient(group.servers, "g", idempotent=True, timing=timing) as client:
            before = await client.append(b"before")
            for member in group.running():
                group.kill(member)
            for member in group.peers:
                group.start(member)
            after = await client.append_batch([b"after"] * 100)

        assert {type(outcome) for outcome in after} == {Acknowledged}
        held = await bodies_by_index(group)
        assert held[before.index] == b"before"
        assert sorted(held.values()) == [b"after"] * 100 + [b"before"]
        for member in group.peers:
            group.wait_until_up(member)
        wait_for(
            lambda: all(
                b"dledger_node_producers 1.0" in group.get(member, "/metrics")[1]
                for member in group.running()
            ),
            "every member remembers the one producer",
        )
