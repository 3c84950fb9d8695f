"""Whether a running member can rely on its volume.

A member whose disk does not finish a flush must not lead, nor stand: to save a term or a vote would
stop its only thread. So it takes no messages, which is what a member behind a broken network does,
hands its leadership over, and goes on by itself once the flush has returned.
"""

import logging
from collections.abc import Callable
from typing import Final

from dledger_formats.status import StorageState
from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.group_commit import GroupCommit
from dledger_node.raft.core import Raft
from dledger_node.store.mmap_store import MmapStore

logger = logging.getLogger(__name__)

VOLUME_FULL: Final = "the volume is full: no room for another segment"

VOLUME_NEARLY_FULL: Final = "the volume is fuller than disk_full_percent allows"


class StorageWatch:
    """What the server asks before it trusts its disk; asked at every tick, so it only looks."""

    def __init__(self, store: MmapStore, group_commit: GroupCommit, *, stall_s: float) -> None:
        self._store = store
        self._group_commit = group_commit
        self._stall_s = stall_s
        self.full = False
        """Whether the last attempt to make room failed."""
        self.no_room_count = 0
        """How many attempts failed."""
        self.nearly_full = False
        """Whether more of the volume is used than the settings allow."""
        self._stalled = False

    @property
    def damage(self) -> StoreDamagedError | None:
        """What a read has found: reason enough to stop and verify everything."""
        return self._store.damage

    @property
    def stalled(self) -> bool:
        """Whether the flush in flight has taken too long."""
        return self._stalled

    def look(self) -> bool:
        """Look at the flush in flight; True when a stall begins."""
        was_stalled = self._stalled
        self._stalled = self._group_commit.in_flight_s > self._stall_s
        if self._stalled and not was_stalled:
            logger.error("%s", self.trouble)
            return True
        return False

    def try_reserve(self, reserve: Callable[[], object]) -> bool:
        """Make room; False when the volume is full, which the status then says."""
        try:
            reserve()
        except StoreFullError as error:
            if not self.full:
                logger.error("%s", error)  # noqa: TRY400 - the trace would tell nobody more
            self.full = True
            self.no_room_count += 1
            return False
        self.full = False
        return True

    def look_for_room(self) -> None:
        """Take note once segments could be made ahead again, though nobody appends meanwhile; and
        when there is no room even for a leader's first entry, before this member stands.
        """
        self.full = self.full and self._store.room_is_short
        if not self.full:
            self.try_reserve(lambda: self._store.reserve([0]))

    @property
    def may_stand(self) -> bool:
        """Whether this member could write what a new leader must."""
        return not (self.full or self._stalled)

    @property
    def state(self) -> StorageState:
        """For machines."""
        if self._stalled:
            return StorageState.STALLED
        return StorageState.FULL if self.full or self.nearly_full else StorageState.SOUND

    @property
    def trouble(self) -> str:
        """For people; empty when all is well."""
        if self._stalled:
            return (
                f"the disk has not finished a flush for {self._group_commit.in_flight_s:.0f} s; "
                "this member takes part again once it has"
            )
        if self.full:
            return VOLUME_FULL
        return VOLUME_NEARLY_FULL if self.nearly_full else ""


def hand_over(core: Raft) -> None:
    """Let the peer lead that can take over soonest, if this member leads.

    If none can, the leader steps down within an election timeout, since it takes no answers.
    """
    successor = core.fittest_peer_id
    if successor is None:
        return
    refusal = core.transfer_leadership(successor)
    if refusal is not None:
        logger.warning("%s does not take over: %s", successor, refusal.reason.value)


def state_of(error: Exception) -> StorageState:
    """What an error that stopped a member says of its volume."""
    match error:
        case StoreFullError():
            return StorageState.FULL
        case StoreDamagedError():
            return StorageState.DAMAGED
        case StoreError() | OSError():
            return StorageState.FAILED
        case _:
            return StorageState.SOUND
