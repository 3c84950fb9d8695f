"""Appends that a client sends to a follower, which passes them on to its leader."""

from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import NotLeaderError, OutcomeUnknownError
from tools.groups.node_group import NodeGroup


def client_of(group: NodeGroup, member: str, *, service_wait_s: float = 10.0) -> DLedgerClient:
    """Return a client that knows one member only, like one behind a Service."""
    address = group.settings(member).address
    timing = Timing(deadline_s=10.0, service_wait_s=service_wait_s)
    return DLedgerClient([address], "g", follow_leader=False, timing=timing)


def followers(group: NodeGroup) -> list[str]:
    leader = group.master()
    return [member for member in ("n0", "n1", "n2") if member != leader]


async def test_appends_and_reads_of_a_client_that_knows_one_follower_succeed(
    steady_group: NodeGroup,
) -> None:
    for member in followers(steady_group):
        async with client_of(steady_group, member) as client:
            one = await client.append(b"one")
            many = await client.append_batch([b"%d" % number for number in range(3000)])
            assert all(isinstance(each, Acknowledged) for each in many)
            indexes = [each.index for each in many if isinstance(each, Acknowledged)]

            assert indexes == list(range(one.index + 1, one.index + 3001))
            assert (await client.get(one.index)).body == b"one"
            assert (await client.bounds()).end_index == indexes[-1]


async def test_a_member_counts_what_it_has_passed_on(steady_group: NodeGroup) -> None:
    member = followers(steady_group)[0]

    def passed_on() -> float:
        page = steady_group.get(member, "/metrics")[1].decode()
        name = "dledger_node_appends_passed_on_total "
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(name))

    before = passed_on()
    async with client_of(steady_group, member) as client:
        await client.append(b"x")

    assert passed_on() == before + 1


async def test_a_member_that_is_to_refuse_names_its_leader(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, appends_to_followers="refuse") as group:
        leader = group.master()
        async with client_of(group, followers(group)[0], service_wait_s=0.1) as client:
            with pytest.raises(NotLeaderError) as caught:
                await client.append(b"x")

    assert caught.value.leader_id == leader


async def test_an_append_to_a_frozen_leader_has_an_unknown_outcome(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, heartbeat_interval_ms=1000, election_timeout_ms=5000) as group:
        async with client_of(group, followers(group)[0]) as client:
            await client.append(b"x")
            group.freeze(group.master())
            with pytest.raises(OutcomeUnknownError):
                await client.append(b"y")
