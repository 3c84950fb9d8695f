"""What a member does for its store once a second; in a thread what blocks.

Retention needs to know what every member holds. The leader does, and tells the others, who would
otherwise have to keep everything. What all hold, all hold for ever, so it is no matter how old the
news is; who was added later begins where the leader's log does.
"""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dledger_formats.http.status import StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.config import store_folder
from dledger_node.errors import StoreError, StoreFullError
from dledger_node.healing.progress import Healing
from dledger_node.http.status import StoreView
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import HeldByAllNotice, Message
from dledger_node.state_machine.keeper import State
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.retention import Decision, Policy, SealedSegment, Situation, decide
from dledger_node.volume.health import StorageWatch

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0


class StorageUpkeep:
    """The checkpoint, the segments that a growing log will need, and those that it needs no more.

    `send` sends a message to a peer, `fail` is told what breaks the store.
    """

    def __init__(
        self,
        settings: NodeSettings,
        store: LogStore,
        core: Raft,
        watch: StorageWatch,
        state: State,
        *,
        send: Callable[[Message], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.held_by_all_index = -1
        """Every voter is known to hold the log up to here, durably."""
        self.segments_removed = 0
        self.segments_forced = 0
        """Those of them that a voter may have lacked."""
        self.healing = Healing(store_folder(settings), core)
        self._no_room_count = 0
        self._folder = Path(settings.store_base_dir)
        self._policy = policy_of(settings)
        self._full_percent = settings.disk_full_percent
        self._store = store
        self._core = core
        self._watch = watch
        self._state = state
        self._send = send
        self._fail = fail

    async def run(self) -> None:
        """Go on until cancelled; what breaks the store is told to `fail`."""
        self._watch.look_for_room()
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.once()
            except (StoreError, OSError) as error:
                self._fail(error)

    async def once(self) -> None:
        """Do everything that is due."""
        # On a full volume the last checkpoint stands, and `reserve` tells when room is needed.
        with contextlib.suppress(StoreFullError):
            await asyncio.to_thread(self._store.save_checkpoint, self._core.committed_index)
            await self._save_producers()
        with contextlib.suppress(StoreFullError):
            await self._state.save_if_due()
        self._tell_what_all_hold()
        used_percent = await asyncio.to_thread(volume_used_percent, self._folder)
        self._watch.nearly_full = self._full_percent < 100 and used_percent > self._full_percent
        await self.healing.tend(short_of_room=self._was_short_of_room(used_percent))
        with contextlib.suppress(StoreFullError):
            await self._remove_due(used_percent)
        with contextlib.suppress(StoreFullError):
            await asyncio.to_thread(self._store.preallocate)
        self._watch.look_for_room()

    def view(self) -> StoreView:
        """What the status says of the store."""
        healing = self.healing.under_way and not self._watch.stalled
        troubles = [self._watch.trouble, self.healing.progress, self._state.awaited]
        return StoreView(
            durable_index=self._store.durable_index,
            trouble="; ".join(filter(None, troubles)),
            state=StorageState.HEALING if healing else self._watch.state,
        )

    def heard(self, notice: HeldByAllNotice) -> None:
        """Take the leader's word for what all hold."""
        self.held_by_all_index = max(self.held_by_all_index, notice.index)

    def _was_short_of_room(self, used_percent: int) -> bool:
        """Whether something was refused for want of room since this was asked last, or will be; or
        committed segments would go by force.
        """
        no_room_count, self._no_room_count = self._no_room_count, self._watch.no_room_count
        return (
            self._watch.no_room_count > no_room_count
            or self._watch.nearly_full
            or used_percent > self._policy.force_clean_percent
        )

    def _tell_what_all_hold(self) -> None:
        if self._policy.keeps_everything or not self._core.leads:
            return
        match_indexes = self._core.match_indexes()
        index = held_by_all(match_indexes, self._core.durable_index)
        self.held_by_all_index = max(self.held_by_all_index, index)
        for peer_id in match_indexes:
            self._send(
                HeldByAllNotice(
                    sender=self._core.config.self_id,
                    receiver=peer_id,
                    term=self._core.term,
                    index=self.held_by_all_index,
                )
            )

    async def _remove_due(self, used_percent: int) -> None:
        if self._policy.keeps_everything:
            return
        sealed = self._store.front.sealed_segments()
        situation = self._situation(used_percent, sealed)
        decision = decide(self._policy, situation, sealed)
        if not decision.segments:
            return
        first_index = sealed[decision.segments - 1].last_index + 1
        front = self._store.front
        with contextlib.suppress(StoreFullError):  # the more must segments go
            await self._save_producers(first_index)
        await asyncio.to_thread(front.save_begin, first_index)
        if first_index <= self._core.ledger_begin_index:
            return  # the leader's log has replaced this one meanwhile
        self._core.remove_before(first_index)
        files = front.forget_before(first_index)
        await asyncio.to_thread(front.delete, files)
        self._account(decision, first_index)

    async def _save_producers(self, before_index: int | None = None) -> None:
        """Save who has appended what, if that is due; it must be before entries are removed."""
        image = self._store.producers.image_due(before_index)
        if image is not None:
            await asyncio.to_thread(self._store.producers.save, image)

    def _situation(self, used_percent: int, sealed: list[SealedSegment]) -> Situation:
        now_s = time.time()  # ages are the files', so this is the wall clock's business
        total_bytes = sum(segment.size_bytes for segment in sealed) + self._store.front.tail_bytes
        return Situation(
            now_s=now_s,
            local_hour=time.localtime(now_s).tm_hour,
            used_percent=used_percent,
            total_bytes=total_bytes,
            committed_index=self._store.committed_index,
            covered_index=self._state.covered_index,
            held_by_all_index=self.held_by_all_index,
        )

    def _account(self, decision: Decision, first_index: int) -> None:
        self.segments_removed += decision.segments
        self.segments_forced += decision.segments if decision.forced else 0
        level = logging.WARNING if decision.forced else logging.INFO
        logger.log(
            level,
            "removed %d segments; the log begins with entry %d now: %s%s",
            decision.segments,
            first_index,
            decision.reason,
            "; a voter may lack what was in them" if decision.forced else "",
        )


def held_by_all(match_indexes: Mapping[str, int], durable_index: int) -> int:
    """Up to where a leader and all of its peers hold the log, durably."""
    return min([durable_index, *match_indexes.values()])


def volume_used_percent(folder: Path) -> int:
    """How much of a volume is used, rounded up, as `df` says it; blocks."""
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return math.ceil(100 * used / usable) if usable else 0


def policy_of(settings: NodeSettings) -> Policy:
    """What the settings say of retention."""
    hours = settings.file_reserved_hours
    return Policy(
        reserved_s=hours * 3600.0 if hours else None,
        delete_hours=tuple(int(hour) for hour in settings.delete_when.split(";")),
        check_expired_percent=settings.disk_check_expired_percent,
        force_clean_percent=settings.disk_force_clean_percent,
        bytes_max=settings.retention_bytes or None,
    )
