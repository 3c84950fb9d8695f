"""What a member answers itself, in place of the leader, and for how long it does so. No IO."""

from collections.abc import Callable
from typing import Final, TypeAlias

from dledger_broker.door.door_frames import REQUEST_BYTES_MAX
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq.codes import ResponseCode

Leader: TypeAlias = tuple[str, int]
"""The leader and its term."""

INCAPABLE_S: Final = 3.0
"""How long a leader counts as one that takes no requests from other members."""
NO_QUORUM: Final = "no quorum answered in time"
SILENT: Final = "the leader did not answer in time"
_UNAVAILABLE: Final = ResponseCode.SERVICE_NOT_AVAILABLE
LATE: Final = RefusedError(_UNAVAILABLE, "no leader took the request in time; send it again")
UNANSWERED: Final = RefusedError(_UNAVAILABLE, f"{SILENT}; send the request again")
TOO_LONG: Final = RefusedError(
    ResponseCode.MESSAGE_ILLEGAL,
    f"a member passes requests of at most {REQUEST_BYTES_MAX} bytes on to the leader",
)
_FULL: Final = {
    DLedgerResponseCode.DISK_FULL: _UNAVAILABLE,
    DLedgerResponseCode.DISK_ERROR: _UNAVAILABLE,
    DLedgerResponseCode.LEADER_PENDING_FULL: ResponseCode.SYSTEM_BUSY,
}
"""Refusals of a registration that are refusals of sends, too, and the codes of these."""


def unregistered(code: DLedgerResponseCode | None) -> RefusedError | None:
    """Return the answer to sends for which the leader gives no numbers; None if they may wait."""
    if code is None or code not in _FULL:
        return None
    return RefusedError(_FULL[code], f"the message is not stored: {code.name}")


class IncapableLeader:
    """A leader whose release takes no requests from other members."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._leader: Leader | None = None
        self._until_s = 0.0

    def note(self, leader: Leader) -> None:
        """Take note that a leader has refused what was passed on to it."""
        self._leader, self._until_s = leader, self._now_s() + INCAPABLE_S

    def is_it(self, leader: Leader | None) -> bool:
        """Tell whether a leader refused lately."""
        return self._leader == leader and self._now_s() < self._until_s

    @staticmethod
    def refusal(leader_id: str) -> RefusedError:
        """Return the answer to a client whose request such a leader cannot get."""
        return RefusedError(
            _UNAVAILABLE,
            f"{leader_id} leads, and its release takes no requests from other members; "
            "send to it, or run one release on all members",
        )
