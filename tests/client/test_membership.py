"""Membership changes: the meaning of each response, and how a change ends."""

import pytest

from dledger_client.calls.call import CHANGE_MEMBERSHIP, TRANSFER
from dledger_client.calls.verdicts import Verdict, judge
from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import OutcomeUnknownError, RefusedError
from dledger_fake_server.behavior import Behavior, Fault
from dledger_fake_server.group import Group
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipResponse

Code = DLedgerResponseCode


def answer(code: DLedgerResponseCode) -> RemotingCommand:
    body = ChangeMembershipResponse(code=code, group="g", voters=("n0",)).to_json()
    return RemotingCommand(code=SystemCode.SUCCESS, opaque=1, flag=frames.RESPONSE_FLAG, body=body)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (Code.SUCCESS, Verdict.DONE),
        (Code.NOT_LEADER, Verdict.RETRY_ELSEWHERE),
        (Code.UNKNOWN_MEMBER, Verdict.RETRY_ELSEWHERE),
        (Code.LEADER_NOT_READY, Verdict.RETRY_LATER),
        (Code.LEADER_TRANSFERRING, Verdict.RETRY_LATER),
        (Code.MEMBERSHIP_CHANGING, Verdict.RETRY_LATER),
        (Code.FALL_BEHIND_TOO_MUCH, Verdict.RETRY_LATER),
        (Code.DISK_FULL, Verdict.RETRY_LATER),
        (Code.WAIT_QUORUM_ACK_TIMEOUT, Verdict.UNKNOWN),
        (Code.NO_SUCH_MEMBER, Verdict.REFUSED),
        (Code.LAST_VOTER, Verdict.REFUSED),
        (Code.QUORUM_AT_RISK, Verdict.REFUSED),
        (Code.TOO_MANY_MEMBERS, Verdict.REFUSED),
    ],
)
def test_each_code_has_one_meaning(code: DLedgerResponseCode, verdict: Verdict) -> None:
    found = judge(CHANGE_MEMBERSHIP, answer(code))

    assert found.verdict is verdict
    assert verdict is Verdict.DONE or code.name in found.reason


def test_a_transfer_to_a_lagging_member_is_refused() -> None:
    assert judge(TRANSFER, answer(Code.FALL_BEHIND_TOO_MUCH)).verdict is Verdict.REFUSED


def test_a_server_without_membership_changes_refuses_them() -> None:
    command = RemotingCommand(
        code=SystemCode.REQUEST_CODE_NOT_SUPPORTED, opaque=1, flag=frames.RESPONSE_FLAG
    )

    assert judge(CHANGE_MEMBERSHIP, command).verdict is Verdict.REFUSED


@pytest.mark.parametrize("first", [Code.WAIT_QUORUM_ACK_TIMEOUT, Fault.DISCONNECT])
async def test_a_change_that_may_be_in_the_log_is_not_told_as_refused(
    group: Group, first: Behavior
) -> None:
    """The leader refuses the repeated request because of the change itself, not yet committed."""
    group["n0"].changes.extend([first, *[Code.MEMBERSHIP_CHANGING] * 1000])
    async with DLedgerClient(group.servers, "g0", timing=Timing(deadline_s=1.0)) as client:
        with pytest.raises(OutcomeUnknownError, match="MEMBERSHIP_CHANGING"):
            await client.change_membership(ChangeKind.REMOVE, "n2")


async def test_a_change_whose_leader_has_gone_is_not_told_as_without_effect(group: Group) -> None:
    group["n0"].changes.append(Code.WAIT_QUORUM_ACK_TIMEOUT)
    group["n0"].changes.extend([Code.NOT_LEADER] * 1000)
    async with DLedgerClient(group.servers, "g0", timing=Timing(deadline_s=1.0)) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.change_membership(ChangeKind.REMOVE, "n2")


async def test_a_change_that_only_waited_for_another_is_refused(group: Group) -> None:
    group["n0"].changes.extend([Code.MEMBERSHIP_CHANGING] * 1000)
    async with DLedgerClient(group.servers, "g0", timing=Timing(deadline_s=1.0)) as client:
        with pytest.raises(RefusedError) as caught:
            await client.change_membership(ChangeKind.REMOVE, "n2")

    assert caught.value.code is Code.MEMBERSHIP_CHANGING


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("add", "n7 is not in the leader's DLEDGER_ADDABLE_PEERS"),
        ("promote", "n7 does not belong to the group: add it first"),
        ("demote", "n7 does not belong to the group: see dledger member list"),
        ("remove", "n7 does not belong to the group: see dledger member list"),
    ],
)
@pytest.mark.usefixtures("group_in_environment")
def test_a_change_of_no_member_says_what_to_do(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str], verb: str, hint: str
) -> None:
    group_in_thread["n0"].changes.append(Code.NO_SUCH_MEMBER)

    assert main(["member", verb, "n7"]) == 4
    assert capsys.readouterr().err.endswith(f"612 NO_SUCH_MEMBER: {hint}\n")
