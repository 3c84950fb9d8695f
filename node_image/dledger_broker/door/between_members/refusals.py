"""What a member answers itself, in place of the leader, and for how long it does so. No IO."""

from collections.abc import Callable
from typing import Final

from dledger_broker.door.between_members.door_frames import REQUEST_BYTES_MAX
from dledger_broker.door.between_members.known_leader import LeaderTerm
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq.codes import ResponseCode

AVOIDED_S: Final = 3.0
"""How long a leader that takes no requests, or does not answer, is not asked again."""
INCAPABLE: Final = (
    ", and its release takes no requests from other members; send to it, or run one release on all "
    "members"
)
MUTE: Final = ", and does not answer this member; send to it"
NO_QUORUM: Final = "no quorum answered in time"
SILENT: Final = "the leader did not answer in time"
_UNAVAILABLE: Final = ResponseCode.SERVICE_NOT_AVAILABLE
LATE: Final = RefusedError(_UNAVAILABLE, "no leader took the request in time; send it again")
UNANSWERED: Final = RefusedError(_UNAVAILABLE, f"{SILENT}; send the request again")
OVERTAKEN: Final = RefusedError(
    _UNAVAILABLE,
    "a later request about the same thing was sent first; send this one again if it holds",
)
TOO_LONG: Final = RefusedError(
    ResponseCode.MESSAGE_ILLEGAL,
    f"a member passes requests of at most {REQUEST_BYTES_MAX} bytes on to the leader",
)
_FULL: Final = {
    DLedgerResponseCode.DISK_FULL: _UNAVAILABLE,
    DLedgerResponseCode.DISK_ERROR: _UNAVAILABLE,
    DLedgerResponseCode.LEADER_PENDING_FULL: ResponseCode.SYSTEM_BUSY,
}
"""Refusals of a registration that also refuse sends, and the codes that answer the sends."""


def unregistered(code: DLedgerResponseCode | None) -> RefusedError | None:
    """Return the answer to sends for which the leader gives no numbers; None if they may wait."""
    if code is None or code not in _FULL:
        return None
    return RefusedError(_FULL[code], f"the message is not stored: {code.name}")


class AvoidedLeader:
    """A leader that is not asked for a while, because it would not serve."""

    def __init__(self, now_s: Callable[[], float], reason: str) -> None:
        """`reason` follows "n0 leads" in the answers to clients."""
        self._now_s = now_s
        self._reason = reason
        self._leader: LeaderTerm | None = None
        self._until_s = 0.0

    def avoid(self, leader: LeaderTerm) -> None:
        """Do not ask a leader for a while."""
        self._leader, self._until_s = leader, self._now_s() + AVOIDED_S

    def forgive(self) -> None:
        """Let any leader be asked again."""
        self._leader = None

    def refusal(self, leader: LeaderTerm | None) -> RefusedError | None:
        """Return the answer to clients if the leader is avoided now; else None."""
        if leader is None or leader != self._leader or self._now_s() >= self._until_s:
            return None
        return RefusedError(_UNAVAILABLE, f"{leader[0]} leads{self._reason}")
