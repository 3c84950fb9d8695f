"""A member's answers to requests that administer its group."""

from typing import TYPE_CHECKING

from dledger_fake_server.behavior import Behavior, Fault
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.membership_change import (
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)

if TYPE_CHECKING:
    from dledger_fake_server.member import Member

Code = DLedgerResponseCode


def transfer(member: "Member", body: bytes) -> LeadershipTransferResponse | RemotingCommand | Fault:
    """Make the requested member the leader, unless the member's `transfers` say otherwise."""
    request = LeadershipTransferRequest.from_json(body)
    group = member.group
    behavior: Behavior = member.transfers.popleft() if member.transfers else Code.SUCCESS
    if behavior is Code.SUCCESS:
        behavior = member.refusal(request)
    if behavior is Code.SUCCESS and request.transfer_id != member.member_id:
        behavior = Code.UNEXPECTED_ARGUMENT
    if behavior is Code.SUCCESS and request.term != group.term:
        behavior = Code.INCONSISTENT_TERM
    if behavior is Code.SUCCESS:
        group.elect(request.transferee_id)
    if not isinstance(behavior, DLedgerResponseCode):
        return behavior
    return LeadershipTransferResponse(code=behavior, term=group.term)


def change(member: "Member", body: bytes) -> ChangeMembershipResponse | RemotingCommand | Fault:
    """Answer as the member's `changes` say; the membership does not change."""
    request = ChangeMembershipRequest.from_json(body)
    behavior: Behavior = member.changes.popleft() if member.changes else Code.SUCCESS
    if behavior is Code.SUCCESS:
        behavior = member.refusal(request)
    if not isinstance(behavior, DLedgerResponseCode):
        return behavior
    return ChangeMembershipResponse(
        code=behavior, group=member.group.name, voters=tuple(member.group.members)
    )
