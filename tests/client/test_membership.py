"""The meaning of each response to a membership change: done, retry, refused or unknown."""

import pytest

from dledger_client.calls.call import CHANGE_MEMBERSHIP, TRANSFER
from dledger_client.calls.verdicts import Verdict, judge
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.membership_change import ChangeMembershipResponse

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
