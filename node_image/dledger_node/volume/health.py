"""The health of a running member's volume: full, nearly full, or stalled.

A member whose disk does not finish a flush, a save of the term, the allocation of a segment or a
read must not lead or campaign: it could promise nothing. So it accepts no messages, like a member
behind a broken network, and transfers its leadership. It takes part again once the disk has
answered.

A leader without room transfers its leadership too: its peers may have room.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from dledger_formats.http.status import StorageState
from dledger_node.errors import (
    ForeignFolderError,
    LaterFormatError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
)
from dledger_node.raft.core import Raft
from dledger_node.shortages import is_passing
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)

VOLUME_FULL: Final = "the volume is full: no room for another segment"

VOLUME_NEARLY_FULL: Final = "the volume is fuller than disk_full_percent allows"

TRANSFER_INTERVAL_S: Final = 10.0
TRANSFER_INTERVAL_MAX_S: Final = 640.0
"""A leader without room retries the transfer after TRANSFER_INTERVAL_S, then after twice as long
each time, up to this: if no member has room, the leadership must not keep moving.
"""


class DiskWork(Protocol):
    """Work that waits for the disk in a thread."""

    @property
    def what(self) -> str:
        """Name of the work, such as "a flush"."""

    @property
    def in_flight_s(self) -> float:
        """How long the work under way has taken so far; 0 if there is none."""


class VolumeHealth:
    """Watches the work in flight and the room left; does no IO, since each tick checks it."""

    def __init__(
        self,
        store: LogStore,
        *works: DiskWork,
        stall_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._works = list(works)
        self._stall_s = stall_s
        self._monotonic = monotonic
        self._transfer_due_s = monotonic()
        self._transfer_count = 0
        self.full = False
        """Whether an attempt to make room failed, and would fail again."""
        self._refused: Callable[[], object] = lambda: None
        """The last attempt to make room that failed."""
        self.no_room_count = 0
        """Number of attempts to make room that failed."""
        self.nearly_full = False
        """Whether the volume is fuller than `disk_full_percent`; set by `Upkeep`."""
        self._stalled = False

    @property
    def damage(self) -> StoreDamagedError | None:
        """The damage that a read found; the member must stop and verify its whole log."""
        return self._store.damage

    @property
    def stalled(self) -> bool:
        """Whether work in flight takes longer than `stall_s`."""
        return self._stalled

    def check(self, *, leads: bool = True) -> int | None:
        """Check the work in flight and the room; called at every tick. `leads` says whether this
        member is a leader.

        Returns the number of the attempt if a leader should transfer its leadership now, else None.
        The number is 0 when a stall begins. For a leader without room it counts up from 0; a
        follower makes no attempt, so that it can transfer the leadership as soon as it gets it.
        """
        was_stalled = self._stalled
        self._stalled = self._in_flight_s > self._stall_s
        if self._stalled and not was_stalled:
            logger.error("%s", self.problem)
            return 0
        now_s = self._monotonic()
        lacks_room = self.full or self.nearly_full
        if not (leads and lacks_room) or now_s < self._transfer_due_s:
            return None
        interval_s = TRANSFER_INTERVAL_S * 2 ** min(16, self._transfer_count)
        self._transfer_due_s = now_s + min(interval_s, TRANSFER_INTERVAL_MAX_S)
        self._transfer_count += 1
        return self._transfer_count - 1

    def repeat_transfer(self, attempt: int, pause_s: float) -> None:
        """Make this attempt of a leader without room again after a pause.

        The declined try does not count, since no peer was willing to take over.
        """
        self._transfer_due_s = self._monotonic() + pause_s
        self._transfer_count = min(self._transfer_count, attempt)

    def watch(self, *works: DiskWork) -> None:
        """Watch these works too."""
        self._works.extend(works)

    @property
    def _in_flight_s(self) -> float:
        return self._longest.in_flight_s

    @property
    def _longest(self) -> DiskWork:
        return max(self._works, key=lambda work: work.in_flight_s)

    def found_full(self, error: StoreFullError, reserve: Callable[[], object]) -> None:
        """Report the volume as full: `reserve` raised the error.

        Only `check_room` reports room again: that something smaller fits proves nothing.
        """
        if not self.full:
            logger.error("%s", error)
        self.full = True
        self._refused = reserve
        self.no_room_count += 1

    async def check_room(self) -> None:
        """Check for room, even if no client appends.

        A full volume recovers here, once segments can be preallocated again or the refused write
        fits. A member without room for a leader's first entry learns it here, before it campaigns.
        """
        if self.full:
            full = self._store.room_is_short and not await self._fits(self._refused)
            self.full = full
        if not self.full and not self._store.room.fits([0]):

            def reserve() -> None:
                self._store.reserve([0])

            await self._fits(reserve)
        if not (self.full or self.nearly_full or self._store.room_is_short):
            self._transfer_count = 0

    async def _fits(self, reserve: Callable[[], object]) -> bool:
        """Make room in a thread. Return False, and report the volume as full, if there is none."""
        try:
            await asyncio.to_thread(self._store.room.make, reserve)
        except StoreFullError as error:
            self.found_full(error, reserve)
            return False
        return True

    @property
    def is_quiet(self) -> bool:
        """Whether the volume has room and no work in flight or due, so nothing needs watching."""
        busy = self._stalled or self._store.has_unflushed or self._in_flight_s > 0
        return not (busy or self.full or self.nearly_full)

    @property
    def may_campaign(self) -> bool:
        """Whether this member could write the first entry of a new leader."""
        return not (self.full or self._stalled)

    @property
    def state(self) -> StorageState:
        """The state that the status and the metrics report."""
        if self._stalled:
            return StorageState.STALLED
        return StorageState.FULL if self.full or self.nearly_full else StorageState.SOUND

    @property
    def problem(self) -> str:
        """Human-readable problem; empty when the volume is healthy."""
        if self._stalled:
            work = self._longest
            return (
                f"the disk has not finished {work.what} for {work.in_flight_s:.0f} s; "
                "this member takes part again once the disk has answered"
            )
        if self.full:
            return VOLUME_FULL
        return VOLUME_NEARLY_FULL if self.nearly_full else ""


def transfer_leadership(core: Raft, attempt: int = 0) -> None:
    """If this member leads, transfer leadership to the peer that can take over soonest.

    Each later attempt picks another peer, since the first may have no room either. If no peer can
    take over, a leader without room keeps leading. A stalled one steps down within an election
    timeout, since it accepts no responses.
    """
    peer_ids = core.fit_peer_ids
    if not peer_ids:
        return
    successor = peer_ids[attempt % len(peer_ids)]
    refusal = core.transfer_leadership(successor)
    if refusal is not None:
        logger.warning("cannot transfer leadership to %s: %s", successor, refusal.reason.value)


def state_of(error: Exception) -> StorageState:
    """Return the state of the volume of a member that an error has stopped."""
    match error:
        case StoreFullError():
            return StorageState.FULL
        case StoreDamagedError() if not is_passing(error):
            return StorageState.DAMAGED
        case ForeignFolderError() | LaterFormatError():
            return StorageState.SOUND
        case StoreError() | OSError():
            return StorageState.FAILED
        case _:
            return StorageState.SOUND
