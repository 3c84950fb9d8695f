"""What keeps a member of a local group out of service, each reason once."""

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
    """Reads the statuses of one member in turn."""

    def __init__(self) -> None:
        self.is_suspected = False
        """The last status showed no open store: the next one should be read soon."""
        self._reason = ""
        """That of the last status with trouble; empty if the last one had none."""
        self._is_told = False

    def learn(self, status: NodeStatus) -> StorageTrouble | OutOfService | None:
        """Return the trouble of a status, unless its reason has been returned already.

        A store that is not open counts from the second status in a row on, with the same reason.
        One that is being opened, however long that takes, is no trouble.
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
        if is_same and self._is_told:
            return None
        self._is_told = has_failed or is_same
        if has_failed:
            return StorageTrouble(member_id=status.self_id, state=status.storage, reason=reason)
        return OutOfService(member_id=status.self_id, reason=reason) if is_same else None
