"""Room in the log for clients' entries."""

from collections.abc import Callable, Sequence

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.health import VolumeHealth


class LogRoom:
    """Reserves room before entries are proposed."""

    def __init__(
        self, store: LogStore, health: VolumeHealth, *, fail: Callable[[BaseException], None]
    ) -> None:
        """`fail` receives an error of the store, which stops this member."""
        self._store = store
        self._health = health
        self._fail = fail

    def reserve(self, body_sizes: Sequence[int]) -> DLedgerResponseCode | None:
        """Reserve room for bodies of these sizes in bytes. Return None, or the code of a refusal.

        DISK_FULL: the volume has no room, or had none for an earlier entry. Followers, which may
        have as little, may lack the room for what still fits here. NOT_LEADER: the store is
        broken, so this member has left the group. The code is not DISK_ERROR, which clients must
        treat as an unknown outcome: these entries were certainly not stored.
        """
        if self._health.full or self._health.nearly_full:
            return DLedgerResponseCode.DISK_FULL
        try:
            fits = self._health.try_reserve(lambda: self._store.reserve(body_sizes))
        except StoreError as error:
            self._fail(error)
            return DLedgerResponseCode.NOT_LEADER
        return None if fits else DLedgerResponseCode.DISK_FULL
