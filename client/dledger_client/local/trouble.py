"""Reports why a member of a local group is out of service, each reason once."""

from dataclasses import dataclass

from dledger_formats.http.status import STORE_IS_OPENING, NodeStatus, StorageState


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTrouble:
    """A member cannot use its store; the reason says what to do."""

    member_id: str
    state: StorageState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfService:
    """A member does not open its store, which is sound; the reason says what to do."""

    member_id: str
    reason: str


class TroubleWatch:
    """Evaluates the successive statuses of one member."""

    def __init__(self) -> None:
        self.is_suspected = False
        """The last status showed no open store: the next one should be read soon."""
        self._reason = ""
        """The reason of the last status; empty if that showed no trouble."""
        self._is_reported = False

    def learn(self, status: NodeStatus) -> StorageTrouble | OutOfService | None:
        """Return the trouble of a status, unless its reason has been returned already.

        A store that is not open is trouble once two statuses in a row give the same reason. A store
        that is being opened is not trouble, however long that takes.
        """
        is_closed = not status.ready and not status.voters
        has_failed = status.storage is not StorageState.SOUND
        self.is_suspected = is_closed and not has_failed
        is_opening = is_closed and status.reason == STORE_IS_OPENING
        if is_opening or not (is_closed or has_failed):
            self._reason = ""
            return None
        reason = status.reason or status.unmended  # a member in service gives no other reason
        is_same, self._reason = reason == self._reason, reason
        if is_same and self._is_reported:
            return None
        self._is_reported = has_failed or is_same
        if has_failed:
            return StorageTrouble(member_id=status.self_id, state=status.storage, reason=reason)
        return OutOfService(member_id=status.self_id, reason=reason) if is_same else None
