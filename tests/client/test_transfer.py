"""Leadership transfers that a client requests."""

import asyncio

import pytest

from dledger_client.admin import TRANSFERS_MAX
from dledger_client.client import DLedgerClient
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
from tools.groups.waiting import wait_for

Code = DLedgerResponseCode


async def test_a_transfer_makes_the_given_member_the_leader(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        after = await client.transfer("n2")

    assert (after.leader_id, after.term, group.leader_id) == ("n2", 2, "n2")


async def test_a_transfer_to_the_current_leader_changes_nothing(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        assert (await client.transfer("n0")).term == 1


async def test_a_transfer_to_an_unknown_member_is_refused(group: Group) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(RefusedError, match=r"n9 is not a member.*n0, n1, n2") as caught:
            await client.transfer("n9")

    assert caught.value.code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("code", "attempts"),
    [
        (Code.FALL_BEHIND_TOO_MUCH, 1),
        (Code.TAKE_LEADERSHIP_FAILED, TRANSFERS_MAX),
        (Code.INCONSISTENT_TERM, TRANSFERS_MAX),
    ],
)
async def test_a_refused_transfer_raises_an_error_with_its_code(
    group: Group, code: DLedgerResponseCode, attempts: int
) -> None:
    group["n0"].transfers.extend([code] * attempts)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(RefusedError, match=code.name):
            await client.transfer("n1")

    assert group.leader_id == "n0"
    assert not group["n0"].transfers


@pytest.mark.parametrize("code", [Code.TAKE_LEADERSHIP_FAILED, Code.INCONSISTENT_TERM])
async def test_a_transfer_that_failed_is_tried_again(
    group: Group, code: DLedgerResponseCode
) -> None:
    """On a loaded machine, the old leader may win the election, or the term may rise meanwhile."""
    group["n0"].transfers.extend([code] * (TRANSFERS_MAX - 1))
    async with DLedgerClient(group.servers, "g0") as client:
        assert (await client.transfer("n1")).leader_id == "n1"


async def test_a_client_says_which_attempt_of_a_transfer_it_waits_for(group: Group) -> None:
    group["n0"].transfers.append(Code.TAKE_LEADERSHIP_FAILED)
    told = "n1 has not taken over yet, attempt {} of 3"
    async with DLedgerClient(group.servers, "g0", random=lambda: 0.2) as client:
        seen = {client.trouble}
        transfer = asyncio.create_task(client.transfer("n1"))
        while not transfer.done():
            await asyncio.sleep(0)
            seen.add(client.trouble)
        after = client.trouble

    assert seen >= {None, told.format(1), told.format(2)}
    assert after is None


async def test_a_transfer_in_a_given_term_is_not_tried_again(group: Group) -> None:
    """A failed transfer usually ends that term."""
    group["n0"].transfers.append(Code.TAKE_LEADERSHIP_FAILED)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(RefusedError, match="TAKE_LEADERSHIP_FAILED"):
            await client.transfer("n1", term=1)


async def test_a_transfer_waits_for_another_one_in_progress(group: Group) -> None:
    group["n0"].transfers.extend([Code.LEADER_TRANSFERRING, Code.LEADER_TRANSFERRING])
    async with DLedgerClient(group.servers, "g0") as client:
        assert (await client.transfer("n1")).leader_id == "n1"


async def test_a_transfer_without_a_response_is_unknown_while_the_member_is_not_the_leader(
    group: Group,
) -> None:
    group["n0"].transfers.append(Fault.DISCONNECT)
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(OutcomeUnknownError):
            await client.transfer("n1")


async def test_a_transfer_needs_a_term_if_the_servers_do_not_report_it(group: Group) -> None:
    for member in group.members.values():
        member.needs_remote_id = True
    servers = [f"{name}={member.address}" for name, member in group.members.items()]
    async with DLedgerClient(servers, "g0") as client:
        with pytest.raises(RefusedError, match="specify the leader's term"):
            await client.transfer("n1")

        assert (await client.transfer("n1", term=1)).leader_id == "n1"


async def test_a_transfer_without_a_response_is_unknown_also_if_nobody_answers_afterwards(
    group: Group,
) -> None:
    group["n0"].transfers.append(Fault.NO_ANSWER)
    timing = Timing(deadline_s=0.5)
    async with DLedgerClient(group.servers, "g0", timing=timing) as client:
        asked = asyncio.create_task(client.transfer("n1", deadline_s=60))
        transfers = group["n0"].transfers
        await asyncio.to_thread(wait_for, lambda: not transfers, "the transfer is sent")
        for member in group.members.values():
            await member.stop()
        with pytest.raises(OutcomeUnknownError):
            await asked


async def test_the_deadline_of_a_transfer_covers_the_search_for_the_leader(group: Group) -> None:
    for member in group.members.values():
        member.is_frozen = True
    timing = Timing(deadline_s=600, connect_timeout_s=600)
    async with asyncio.timeout(60), DLedgerClient(group.servers, "g0", timing=timing) as client:
        with pytest.raises(GroupUnreachableError, match="no member of group g0 answered"):
            await client.transfer("n1", deadline_s=0.2)


async def test_a_transfer_believes_no_member_that_has_not_heard_of_the_new_term(
    group: Group,
) -> None:
    for behind in ("n0", "n2"):
        group[behind].leader_hint, group[behind].stale_term = "n0", 1
    async with DLedgerClient(group.servers, "g0") as client:
        after = await client.transfer("n1")

    assert (after.leader_id, after.term) == ("n1", 2)


async def test_a_transfer_is_unknown_until_a_member_names_the_new_leader(group: Group) -> None:
    for member in group.members.values():
        member.leader_hint, member.stale_term = "n0", 1
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(OutcomeUnknownError, match="handed over to n1"):
            await client.transfer("n1", deadline_s=0.3)


async def test_a_transfer_believes_no_former_leader_that_it_leads_already(group: Group) -> None:
    group.elect("n0")
    group["n1"].leader_hint, group["n1"].stale_term = "n1", 1
    async with DLedgerClient(group.servers, "g0") as client:
        await client.append(b"x")
        after = await client.transfer("n1")

    assert (after.leader_id, after.term, group.leader_id) == ("n1", 3, "n1")


async def test_a_transfer_through_its_transferee_says_who_leads(group: Group) -> None:
    """A member that is asked to take over itself does not say NOT_LEADER."""
    group["n1"].transfers.append(Code.UNKNOWN_MEMBER)
    async with DLedgerClient([group["n1"].address], "g0", follow_leader=False) as client:
        with pytest.raises(NotLeaderError, match="the leader is n0") as caught:
            await client.transfer("n1")

    assert str(caught.value).startswith("only the leader can transfer the leadership")
