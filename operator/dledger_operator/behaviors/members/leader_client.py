"""The requests that behaviors send to a group's leader."""

from typing import Protocol

from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipResponse
from dledger_operator.observed_state import Leader


class TransferClient(Protocol):
    """The request to move the leadership. It raises MemberSilentError on a timeout."""

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Ask for a leadership transfer."""


class LeaderClient(TransferClient, Protocol):
    """All requests to the leader. They raise MemberSilentError on a timeout."""

    async def change(
        self,
        ip: str,
        group: str,
        leader: Leader,
        kind: ChangeKind,
        member_id: str,
        *,
        identity: str = "",
    ) -> ChangeMembershipResponse:
        """Ask for a membership change."""
