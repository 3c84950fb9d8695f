"""Finding the leader and following it when it changes; METADATA."""

import asyncio

import pytest

from dledger_client.client import DLedgerClient, GroupMetadata
from dledger_client.cluster.members import Timing
from dledger_client.errors import (
    GroupUnreachableError,
    NotLeaderError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.protocol.codes import DLedgerResponseCode

Code = DLedgerResponseCode
# Longer than any test may take: a test that waits for one of these timeouts fails.
HASTY = Timing(service_wait_s=0.01)
"""For a server that never leads."""
PATIENT = Timing(deadline_s=600, request_timeout_s=600, connect_timeout_s=600, stall_s=600)
TEST_S = 60.0


async def test_the_client_finds_the_leader_through_any_member(group: Group) -> None:
    group.elect("n2")
    async with DLedgerClient([group["n1"].address], "g0") as client:
        await client.append(b"x")

    assert (group.log, client.leader_id) == ([b"x"], "n2")


async def test_an_append_follows_the_leader_when_it_has_moved(group: Group) -> None:
    async with DLedgerClient([group["n0"].address], "g0", timing=PATIENT) as client:
        await client.append(b"to n0")
        group.elect("n1")
        await client.append(b"to n1")

    assert group.log == [b"to n0", b"to n1"]
    assert group["n1"].appends == [b"to n1"]
    assert client.statistics.leader_changes == 1


async def test_an_append_waits_until_a_leader_is_elected(group: Group) -> None:
    group.elect(None)
    async with DLedgerClient(group.servers, "g0") as client:
        waiting = asyncio.create_task(client.append(b"x"))
        await group["n1"].metadata_requested.wait()
        group.elect("n1")

        assert (await waiting).term == 3


async def test_an_append_waits_until_a_member_starts(group: Group) -> None:
    servers = group.servers
    for member in group.members.values():
        await member.stop()
    async with DLedgerClient(servers, "g0") as client:
        waiting = asyncio.create_task(client.append(b"x"))
        await asyncio.sleep(0)
        await group["n0"].start()

        assert (await waiting).index == 0


async def test_the_client_reconnects_to_a_restarted_leader(group: Group) -> None:
    """It may send an append before it notices that its connection is lost."""
    async with DLedgerClient(group.servers, "g0", at_least_once=True) as client:
        await client.append(b"before")
        await group["n0"].stop()
        await group["n0"].start()
        await client.append(b"after")

    assert group.log == [b"before", b"after"]


async def test_an_append_without_a_leader_reports_the_last_error(group: Group) -> None:
    group.elect(None)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(GroupUnreachableError, match="knows no leader"):
            await client.append(b"x", deadline_s=1)


async def test_an_append_to_a_stopped_group_reports_that_it_is_unreachable(group: Group) -> None:
    servers = group.servers
    for member in group.members.values():
        await member.stop()
    async with DLedgerClient(servers, "g0") as client:
        with pytest.raises(GroupUnreachableError, match="cannot be reached"):
            await client.append(b"x", deadline_s=1)


async def test_an_unresponsive_member_does_not_delay_the_search_for_the_leader(
    group: Group,
) -> None:
    group["n1"].is_frozen = True
    servers = [group["n1"].address, group["n2"].address]
    async with DLedgerClient(servers, "g0", timing=PATIENT) as client, asyncio.timeout(TEST_S):
        await client.append(b"x")

    assert group.log == [b"x"]


async def test_the_client_leaves_an_unresponsive_leader_for_its_successor(group: Group) -> None:
    timing = Timing(deadline_s=600, request_timeout_s=600, stall_s=0.1)
    async with (
        DLedgerClient(group.servers, "g0", timing=timing) as client,
        asyncio.timeout(TEST_S),
    ):
        await client.append(b"before")
        group["n0"].is_frozen = True
        group.elect("n1")
        with pytest.raises(OutcomeUnknownError, match="stopped responding; the leader is now n1"):
            await client.append(b"lost")
        await client.append(b"after")

    assert group.log == [b"before", b"after"]


async def test_the_client_stays_with_a_slow_leader_without_a_successor(group: Group) -> None:
    timing = Timing(deadline_s=60, request_timeout_s=1.0, stall_s=0.1)
    group["n0"].script.append(Fault.NO_ANSWER)
    async with DLedgerClient(group.servers, "g0", timing=timing) as client:
        with pytest.raises(OutcomeUnknownError, match="did not respond in time"):
            await client.append(b"x")

        assert client.leader_id == "n0"


async def test_a_leader_that_keeps_answering_not_leader_is_not_asked_in_a_tight_loop(
    group: Group,
) -> None:
    group["n0"].script.extend([Code.NOT_LEADER] * 10_000)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(GroupUnreachableError, match="404 NOT_LEADER"):
            await client.append(b"x", deadline_s=0.5)

    assert len(group["n0"].appends) < 100


async def test_the_client_reconnects_after_unknown_member(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        await client.append(b"x")
        group["n0"].script.append(Code.UNKNOWN_MEMBER)
        await client.append(b"y")

    assert group.log == [b"x", b"y"]


# Member ids and wrong groups


async def test_java_servers_receive_their_id_in_each_request(group: Group) -> None:
    for member in group.members.values():
        member.needs_remote_id = True
    async with DLedgerClient([f"n1-{group['n1'].address}"], "g0") as client:
        await client.append(b"x")

    assert group.log == [b"x"]


async def test_a_java_server_without_an_id_raises_an_error_that_explains_the_syntax(
    group: Group,
) -> None:
    for member in group.members.values():
        member.needs_remote_id = True
    async with DLedgerClient([group["n0"].address], "g0", timing=PATIENT) as client:
        with pytest.raises(RefusedError, match="specify it as ID="):
            await client.append(b"x")


async def test_a_wrong_group_name_is_refused_at_once(group: Group) -> None:
    async with DLedgerClient(group.servers, "other", timing=PATIENT) as client:
        with pytest.raises(RefusedError, match="does not belong to group other") as caught:
            await client.append(b"x")

    assert caught.value.code is Code.UNKNOWN_GROUP


async def test_the_client_ignores_an_address_that_another_group_took_over(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        await client.append(b"x")
        async with Group(size=1, name="stranger") as stranger:
            port = group["n0"].port
            await group["n0"].end()
            await stranger["n0"].end()
            stranger["n0"].port = port
            await stranger["n0"].start()
            group.elect("n1")
            await client.append(b"y")

    assert group.log == [b"x", b"y"]


# Clients that do not follow the leader


async def test_a_client_that_does_not_follow_reports_the_leader(group: Group) -> None:
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=HASTY
    ) as client:
        with pytest.raises(NotLeaderError) as caught:
            await client.append(b"x")

    assert caught.value.leader_id == "n0"


async def test_a_client_that_does_not_follow_asks_no_other_member(group: Group) -> None:
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=HASTY
    ) as client:
        for _ in range(3):
            with pytest.raises(NotLeaderError):
                await client.append(b"x")

        assert not group["n0"].metadata_requested.is_set()


async def test_a_client_that_does_not_follow_succeeds_once_its_server_leads(group: Group) -> None:
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=HASTY
    ) as client:
        with pytest.raises(NotLeaderError):
            await client.append(b"x")
        group.elect("n1")
        await client.append(b"y")

    assert group.log == [b"y"]


@pytest.mark.parametrize("known_leader", [None, "n0"])
async def test_a_client_of_a_service_waits_until_it_points_to_the_new_leader(
    group: Group, known_leader: str | None
) -> None:
    group.elect(known_leader)
    async with DLedgerClient([group["n1"].address], "g0", follow_leader=False) as client:
        sent = asyncio.create_task(client.append(b"x"))
        await group["n1"].append_received.wait()
        group.elect("n1")
        await sent

    assert group.log == [b"x"]


async def test_a_producer_of_a_service_waits_until_it_points_to_the_new_leader(
    group: Group,
) -> None:
    group.elect("n1")
    group["n1"].registrations.append(Code.NOT_LEADER)
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, idempotent=True
    ) as client:
        await client.append(b"x")

    assert group.log == [b"x"]


@pytest.mark.parametrize("deadline_s", [0.3, 0.7])
async def test_a_producer_says_what_its_registration_was_answered(
    group: Group, deadline_s: float
) -> None:
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, idempotent=True
    ) as client:
        with pytest.raises(GroupUnreachableError, match="NOT_LEADER, the leader is n0"):
            await client.append(b"x", deadline_s=deadline_s)


async def test_a_client_that_does_not_follow_says_that_no_leader_came_in_time(
    group: Group,
) -> None:
    group.elect(None)
    timing = Timing(deadline_s=0.3)
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=timing
    ) as client:
        with pytest.raises(GroupUnreachableError, match="the leader is unknown"):
            await client.append(b"x")

    assert not group.log


async def test_an_append_whose_deadline_is_before_the_service_moves_reached_no_leader(
    group: Group,
) -> None:
    """Its server names another leader all the time, but the Service may still move there."""
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=Timing(service_wait_s=60)
    ) as client:
        with pytest.raises(GroupUnreachableError, match="NOT_LEADER"):
            await client.append(b"x", deadline_s=0.3)

    assert not group.log


async def test_an_append_that_is_sent_again_may_follow_one_that_began_later(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0", timing=PATIENT) as client:
        await client.append(b"found the leader")
        group["n0"].script.append(Code.LEADER_NOT_READY)
        group["n0"].append_received.clear()
        first = asyncio.create_task(client.append(b"first"))
        await group["n0"].append_received.wait()
        await client.append(b"second")
        await first

    assert group.log == [b"found the leader", b"second", b"first"]


async def test_closing_the_client_ends_appends_sent_to_a_former_leader(group: Group) -> None:
    group["n1"].script.extend([Fault.NO_ANSWER, Code.NOT_LEADER])
    async with DLedgerClient(
        [group["n1"].address], "g0", follow_leader=False, timing=HASTY
    ) as client:
        sent = asyncio.create_task(client.append(b"x"))
        await group["n1"].append_received.wait()
        with pytest.raises(NotLeaderError):
            await client.append(b"y")

    with pytest.raises(OutcomeUnknownError, match="closed"):
        await sent


# metadata()


async def test_metadata_names_the_members_and_the_leader(group: Group) -> None:
    async with DLedgerClient([group["n2"].address], "g0") as client:
        metadata = await client.metadata()

    peers = {member.member_id: member.address for member in group.members.values()}
    assert metadata == GroupMetadata(group="g0", leader_id="n0", peers=peers, term=1)


async def test_metadata_has_no_leader_id_without_a_leader(group: Group) -> None:
    group.elect(None)
    async with DLedgerClient(group.servers, "g0") as client:
        assert (await client.metadata()).leader_id is None


async def test_metadata_prefers_a_member_that_knows_the_leader(group: Group) -> None:
    group["n0"].leader_hint = group["n1"].leader_hint = None
    async with DLedgerClient(group.servers, "g0") as client:
        assert (await client.metadata()).leader_id == "n0"


async def test_metadata_is_not_retried_after_a_refusal(group: Group) -> None:
    await group["n1"].stop()
    async with DLedgerClient(group.servers, "other", timing=PATIENT) as client:
        with pytest.raises(RefusedError, match="does not belong to group other"):
            await client.metadata()


async def test_metadata_of_a_stopped_group_fails_at_the_deadline(group: Group) -> None:
    servers = group.servers
    for member in group.members.values():
        await member.stop()
    async with DLedgerClient(servers, "g0", timing=Timing(deadline_s=0.1)) as client:
        with pytest.raises(GroupUnreachableError, match="no member"):
            await client.metadata()


async def test_the_error_of_a_group_without_a_leader_says_what_each_member_did(
    group: Group,
) -> None:
    group.elect(None)
    addresses = {member: group[member].address for member in ("n0", "n1", "n2")}
    for member in ("n0", "n2"):
        await group[member].stop()
    timing = Timing(deadline_s=2)
    async with DLedgerClient([addresses["n1"]], "g0", timing=timing) as client:
        with pytest.raises(GroupUnreachableError) as caught:
            await client.append(b"x")

    told = str(caught.value).partition("last errors: ")[2].split("; ")
    assert told == [
        f"{addresses['n0']} cannot be reached: Connection refused",
        f"n1 at {addresses['n1']} knows no leader",
        f"{addresses['n2']} cannot be reached: Connection refused",
    ]
