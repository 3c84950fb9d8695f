"""Whether a running member can rely on its volume.

A member whose disk does not finish a flush must not lead, nor stand: to save a term or a vote would
stop its only thread. So it takes no messages, which is what a member behind a broken network does,
hands its leadership over, and goes on by itself once the flush has returned.

A leader without room hands over too: the others may have some.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from dledger_formats.http.status import StorageState
from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.raft.core import Raft
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.group_commit import GroupCommit

logger = logging.getLogger(__name__)

VOLUME_FULL: Final = "the volume is full: no room for another segment"

VOLUME_NEARLY_FULL: Final = "the volume is fuller than disk_full_percent allows"

HAND_OVER_INTERVAL_S: Final = 10.0
HAND_OVER_INTERVAL_MAX_S: Final = 640.0
"""A leader without room hands over again after the first, then after twice as long each time, up to
the second: where nobody has room, the leadership would go round for ever.
"""


class StorageWatch:
    """What the server asks before it trusts its disk; asked at every tick, so it only looks."""

    def __init__(
        self,
        store: LogStore,
        group_commit: GroupCommit,
        *,
        stall_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._group_commit = group_commit
        self._stall_s = stall_s
        self._monotonic = monotonic
        self._hand_over_due_s = monotonic()
        self._hand_over_interval_s = HAND_OVER_INTERVAL_S
        self._hand_over_count = 0
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

    def look(self) -> int | None:
        """Look at the flush in flight, and at the room. A number, when a leader should hand over: 0
        when a stall begins; without room 0 at once, 1 when that has not helped, and so on.
        """
        was_stalled = self._stalled
        self._stalled = self._group_commit.in_flight_s > self._stall_s
        if self._stalled and not was_stalled:
            logger.error("%s", self.trouble)
            return 0
        now_s = self._monotonic()
        if not (self.full or self.nearly_full) or now_s < self._hand_over_due_s:
            return None
        self._hand_over_due_s = now_s + self._hand_over_interval_s
        self._hand_over_interval_s = min(2 * self._hand_over_interval_s, HAND_OVER_INTERVAL_MAX_S)
        self._hand_over_count += 1
        return self._hand_over_count - 1

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
        if not (self.full or self.nearly_full or self._store.room_is_short):
            self._hand_over_interval_s = HAND_OVER_INTERVAL_S
            self._hand_over_count = 0

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


def hand_over(core: Raft, turn: int = 0) -> None:
    """Let a peer lead, if this member leads: the one that can take over soonest; at each later turn
    another, since the first may have no room either.

    If none can, it leads on without room; while its disk hangs it steps down within an election
    timeout, since it takes no answers.
    """
    peer_ids = core.fit_peer_ids
    if not peer_ids:
        return
    successor = peer_ids[turn % len(peer_ids)]
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
