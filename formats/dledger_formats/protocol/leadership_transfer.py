"""Bodies of LEADERSHIP_TRANSFER: transfer the leadership to a given member.

A client sends it to the leader. In Java, the leader sends it on to the transferee, with its own id
as `leader_id` and `local_id`, and its last index in `take_leadership_ledger_index`.
"""

from typing import Final, Self

import msgspec

from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.decoding import Int64
from dledger_formats.protocol.requests import Response

TRANSFER_LAG_ENTRIES_MAX: Final = 1000
"""How many entries the transferee may lack; our leaders refuse one that lacks more (the default of
Java's `maxLeadershipTransferWaitIndex`).
"""


def _zero() -> int:
    return 0


class LeadershipTransferRequest(AdminRequest, kw_only=True, frozen=True):
    """Transfer the leadership. `term` must be the leader's. Java's request has no token."""

    transfer_id: str | None = None
    """The leader, which gives up the leadership."""
    transferee_id: str
    take_leadership_ledger_index: Int64 = msgspec.field(default_factory=_zero)

    def addressed_to(self, member_id: str | None) -> Self:
        """Return this request for one member, which is assumed to be the leader."""
        return msgspec.structs.replace(self, remote_id=member_id, transfer_id=member_id)


class LeadershipTransferResponse(Response, kw_only=True, frozen=True):
    """The code is SUCCESS once the transferee leads; `term` is then its term.

    Refusals: UNKNOWN_MEMBER if the transferee is not a member, INCONSISTENT_TERM, NOT_LEADER,
    FALL_BEHIND_TOO_MUCH (also if the transferee is down, its state behind its log, or its volume
    full), LEADER_TRANSFERRING during another transfer, and TAKE_LEADERSHIP_FAILED.
    """
