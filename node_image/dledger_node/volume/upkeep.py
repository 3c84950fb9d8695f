"""Periodic work on a member's store, once a second; blocking work runs in a thread.

Retention needs the index up to which every member holds the log durably. The leader knows it and
sends it to its peers, which would otherwise have to keep everything. An old value is safe: members
do not lose what they hold, and a member added later begins where the leader's log begins. So does a
learner that comes back: while it does not answer, nothing is kept for it, since it may be lost.
"""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_formats.http.retention import RemovalRule, RetentionState
from dledger_formats.http.status import StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.common_times import next_common_time
from dledger_node.config import store_folder
from dledger_node.errors import BorderDamagedError, StoreDamagedError, StoreError, StoreFullError
from dledger_node.healing.progress import HealingProgress
from dledger_node.http.status import StoreView
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import HeldByAllNotice, Message
from dledger_node.state_machine.keeper import State
from dledger_node.store.derived.log_producers import LogProducers
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.retention import Decision, Policy, Situation, decide
from dledger_node.store.segments.segment import SegmentClosedError
from dledger_node.store.small_files import ballast
from dledger_node.volume.health import VolumeHealth
from dledger_node.volume.retention_state import grounds_of, retention_state
from dledger_node.volume.wall_clock import WallClock

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0


class Upkeep:
    """Saves checkpoints, preallocates segments, and removes those that retention no longer needs.

    `is_saving` returns whether a thread may be cutting or replacing the log: nothing else may then
    change it. `send` sends a message to a peer; `fail` receives an error that breaks the store.
    """

    def __init__(
        self,
        settings: NodeSettings,
        store: LogStore,
        core: Raft,
        health: VolumeHealth,
        state: State,
        *,
        clock: WallClock,
        is_saving: Callable[[], bool],
        send: Callable[[Message], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.held_by_all_index = -1
        """Last entry that every voter is known to hold durably; -1 if unknown."""
        self.segments_removed = 0
        self.volume = NO_USAGE
        """The volume's usage about a second ago; zeros before it was first measured."""
        self.segments_forced = 0
        """Removed segments whose entries a voter may have lacked."""
        self.healing = HealingProgress(store_folder(settings), core)
        self._is_saving = is_saving
        self._no_room_count = 0
        self._clock = clock
        self._folder, self._store_folder = Path(settings.store_base_dir), store_folder(settings)
        self.take_settings(settings)
        self._store = store
        self._core = core
        self._health = health
        self._state = state
        self._send = send
        self._fail = fail

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply the retention settings from now on."""
        self._policy = policy_of(settings)
        self._full_percent = settings.disk_full_percent

    async def run(self) -> None:
        """Run until cancelled; errors that break the store go to `fail`."""
        await self._do(self._health.check_room)
        while True:
            await next_common_time(INTERVAL_S)
            await self._do(self.once)

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (StoreError, OSError) as error:
            self._fail(error)

    async def once(self) -> None:
        """Do everything that is due. If nothing is, only one call runs in a thread."""
        saved, self.volume, has_ballast = await asyncio.to_thread(
            self._save_and_look, self._core.readable_index
        )
        if saved:
            with contextlib.suppress(StoreFullError):
                await self._save_producers()
        await self._state.save_if_due()
        self._announce_held_by_all()
        used_percent = self.volume.used_percent
        self._health.nearly_full = self._full_percent < 100 and used_percent > self._full_percent
        await self.healing.clean_up(short_of_room=self._is_short_of_room(used_percent))
        with contextlib.suppress(StoreFullError):
            await self._remove_due(used_percent)
        if self._is_saving():
            return  # the log that is being replaced must not take the new one's room
        if self._store.room_is_short or not has_ballast:
            with contextlib.suppress(StoreFullError):
                await asyncio.to_thread(self._store.preallocate)
        await self._health.check_room()

    def _save_and_look(self, readable_index: int) -> tuple[bool, "VolumeUsage", bool]:
        """Save the checkpoint and measure the volume; blocks.

        Returns whether there was room for the checkpoint, the volume's usage, and whether the
        ballast exists.
        """
        saved = True
        try:
            self._store.save_checkpoint(readable_index)
        except StoreFullError:  # the last one stays, and `reserve` fails once room is needed
            saved = False
        return saved, volume_usage(self._folder), ballast.exists(self._store_folder)

    def view(self) -> StoreView:
        """Return the view of the store that the status reports."""
        problems = [self._health.problem, self.healing.description, self._state.awaited]
        return StoreView(
            durable_index=self._store.durable_index,
            problem="; ".join(filter(None, problems)),
            state=self._storage,
            applied_index=self._state.applied_index,
            state_behind=self._state.is_behind,
        )

    @property
    def _storage(self) -> StorageState:
        if self._health.stalled:
            return StorageState.STALLED
        if self.healing.active:
            return StorageState.HEALING
        return StorageState.FULL if self._state.missing_room_bytes else self._health.state

    def retention_state(self) -> RetentionState:
        """Return the values that decide the next removal, and the removals so far."""
        front = self._store.front
        situation = self._situation(self.volume.used_percent, front.written_bytes)
        return retention_state(self._policy, situation, self._state, front.removals)

    def receive(self, notice: HeldByAllNotice) -> None:
        """Adopt the index that the leader announces."""
        self.held_by_all_index = max(self.held_by_all_index, notice.index)

    def _is_short_of_room(self, used_percent: int) -> bool:
        """Return whether the volume is short of room.

        That is so if it had no room for a segment or a snapshot since the last call, has none for
        the awaited snapshot, or is nearly full, or if retention would remove segments by force.
        """
        before = self._no_room_count
        self._no_room_count = self._health.no_room_count + self._state.no_room_count
        return (
            self._no_room_count > before
            or self._state.missing_room_bytes > self.volume.available_bytes
            or self._health.nearly_full
            or used_percent > self._policy.force_clean_percent
        )

    def _announce_held_by_all(self) -> None:
        if self._policy.keeps_everything or not self._core.leads:
            return
        index = held_by_all(self._core.retaining_indexes(), self._core.durable_index)
        self.held_by_all_index = max(self.held_by_all_index, index)
        for peer_id in self._core.match_indexes():
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
        generation = self._store.generation
        try:
            sealed = await asyncio.to_thread(self._store.front.sealed_segments)
        except (LookupError, FileNotFoundError, SegmentClosedError):
            return  # the leader's log is replacing this one
        except StoreDamagedError as error:
            if self._store.generation == generation:
                self._store.damage = self._store.damage or error  # it is mended first
            return
        if self._store.generation != generation:
            return
        total_bytes = sum(segment.size_bytes for segment in sealed) + self._store.front.tail_bytes
        situation = self._situation(used_percent, total_bytes)
        decision = decide(self._policy, situation, sealed)
        if not decision.segments:
            return
        first_index = sealed[decision.segments - 1].last_index + 1
        front = self._store.front
        assert decision.rule is not None
        grounds = grounds_of(decision.rule, situation, is_forced=decision.forced)
        mend_first = decision.rule is not RemovalRule.FORCE  # a full volume cannot wait for peers
        with contextlib.suppress(StoreFullError):  # removing segments makes room
            if not await self._save_producers(first_index) and mend_first:
                return
        try:
            begin = await asyncio.to_thread(
                front.save_begin, first_index, grounds, mend_first=mend_first
            )
            if self._is_saving() or first_index <= self._core.ledger_begin_index:
                return  # the leader's log may replace this one, or has replaced it in the meantime
            files = front.forget_before(begin, mend_first=mend_first)
        except StoreDamagedError as error:
            if self._store.generation == generation and self._store.damage is None:
                self._store.damage = error  # it is mended first
            return
        self._core.remove_before(first_index)
        if isinstance(self._store.damage, BorderDamagedError):
            self._store.damage = None  # its entry is gone
        await asyncio.to_thread(front.delete, files)
        self._report_removal(decision, first_index)

    async def _save_producers(self, before_index: int | None = None) -> bool:
        """Save the table of producers if it is due; it must cover entries before their removal.

        Return whether it covers the entries before `before_index`. It does not if the entry at
        which it would be saved is damaged, which is mended first, or if it cannot be copied now.
        """
        producers = self._store.producers
        await self._copy_producers(producers, before_index)
        return before_index is None or producers.covers(before_index)

    async def _copy_producers(self, producers: LogProducers, before_index: int | None) -> None:
        if self._is_saving():
            return  # a thread may change the table, which is then saved later
        try:
            copying = producers.copying_due(before_index)
        except StoreDamagedError as error:
            self._store.damage = self._store.damage or error
            return
        for _ in copying.parts() if copying is not None else ():
            await asyncio.sleep(0)
            if self._is_saving():
                return
        image = copying.image if copying is not None else None
        if image is not None:
            await asyncio.to_thread(producers.save, image)

    def _situation(self, used_percent: int, total_bytes: int) -> Situation:
        now_s = self._clock.now_s()  # compared with the files' modification times
        return Situation(
            now_s=now_s,
            local_hour=time.localtime(now_s).tm_hour,
            used_percent=used_percent,
            total_bytes=total_bytes,
            committed_index=self._store.committed_index,
            covered_index=self._state.covered_index,
            held_by_all_index=self.held_by_all_index,
        )

    def _report_removal(self, decision: Decision, first_index: int) -> None:
        self.segments_removed += decision.segments
        self.segments_forced += decision.segments if decision.forced else 0
        level = logging.WARNING if decision.forced else logging.INFO
        logger.log(
            level,
            "removed %d segments, since %s; the log now begins with entry %d%s",
            decision.segments,
            decision.reason,
            first_index,
            "; a voter may lack the removed entries" if decision.forced else "",
        )


def held_by_all(match_indexes: Mapping[str, int], durable_index: int) -> int:
    """Return the last entry that a leader and all these peers hold durably."""
    return min([durable_index, *match_indexes.values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUsage:
    """The usage of a volume, as `df` reports it."""

    size_bytes: int
    available_bytes: int
    used_percent: int
    """The used part of the volume in percent, rounded up."""


NO_USAGE: Final = VolumeUsage(size_bytes=0, available_bytes=0, used_percent=0)
"""The usage of a volume that was not measured yet."""


def volume_usage(folder: Path) -> VolumeUsage:
    """Return the usage of a folder's volume; blocks."""
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return VolumeUsage(
        size_bytes=found.f_blocks * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        used_percent=math.ceil(100 * used / usable) if usable else 0,
    )


def policy_of(settings: NodeSettings) -> Policy:
    """Return the retention policy of the settings."""
    hours = settings.file_reserved_hours
    return Policy(
        reserved_s=hours * 3600.0 if hours else None,
        delete_hours=tuple(int(hour) for hour in settings.delete_when.split(";")),
        check_expired_percent=settings.disk_check_expired_percent,
        force_clean_percent=settings.disk_force_clean_percent,
        bytes_max=settings.retention_bytes or None,
    )
