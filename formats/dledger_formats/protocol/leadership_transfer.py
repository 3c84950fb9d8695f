"""Bodies of LEADERSHIP_TRANSFER: hand the leadership to a member that is named.

A client asks the leader, and the leader asks the transferee the same with its own id as
`leader_id` and `local_id` and its last index in `take_leadership_ledger_index`.
"""

from typing import Self

import msgspec

from dledger_formats.protocol.requests import Int64, Message


def _zero() -> int:
    return 0


class LeadershipTransferRequest(Message, kw_only=True, frozen=True):
    """`term` must be the leader's."""

    transfer_id: str | None = None
    """The leader, which is to give the leadership away."""
    transferee_id: str
    take_leadership_ledger_index: Int64 = msgspec.field(default_factory=_zero)

    def addressed_to(self, member_id: str | None) -> Self:
        """The same for one member, which is taken for the leader."""
        return msgspec.structs.replace(self, remote_id=member_id, transfer_id=member_id)


class LeadershipTransferResponse(Message, kw_only=True, frozen=True):
    """SUCCESS once the transferee leads; `term` is its term then.

    UNKNOWN_MEMBER when the transferee is none, INCONSISTENT_TERM, NOT_LEADER,
    FALL_BEHIND_TOO_MUCH, LEADER_TRANSFERRING when another transfer is under way, and
    TAKE_LEADERSHIP_FAILED.
    """
