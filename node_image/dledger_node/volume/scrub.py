"""Scrub: read every committed byte of the log within an interval, and mend what has rotted.

Damage that another read has found is mended first. A thread of its own reads at a bounded rate, a
slice at a time. A range that no peer gives waits, and the pass goes on after it. The member keeps
its vote and its role; only damage that cannot be mended in place makes it leave the group.
Followers read first: a leader waits for a part of the interval, so that the disk that every append
needs is read when the others are known to be sound.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from dledger_formats.settings import NodeSettings, OnDamage
from dledger_node.config import store_folder
from dledger_node.errors import (
    BorderDamagedError,
    Damage,
    StoreDamagedError,
    StoreError,
    StoreFullError,
)
from dledger_node.healing.closed_log import shape_of
from dledger_node.healing.http_peer import HttpPeer
from dledger_node.healing.live_mending import LiveMender
from dledger_node.healing.mending import CannotMendError, MendedTotals
from dledger_node.healing.waiting_ranges import RETRY_S_MAX, Obstacle, failure_of
from dledger_node.raft.core import Raft
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files import scrub_file

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_BYTES: Final = 1 << 20
BYTES_PER_S_MIN: Final = 256 << 10
BYTES_PER_S_MAX: Final = 32 << 20
HEADROOM: Final = 1.5
"""A pass is planned to take the interval divided by this."""
LEADER_WAITS: Final = 0.25
"""The part of the interval for which a leader lets its followers read first. This and the planned
time of its own pass fit into the interval.
"""
SAVED_S: Final = 60.0
"""How often the place of a pass is saved, for the next start."""
WARNED_S: Final = 3600.0
"""Time between two warnings that the place cannot be saved."""
SIZES_CHECKED_S: Final = 5.0
SEARCHED_AGAIN_S: Final = 5.0
"""Time between two searches for damage that a read has found, if only damage that waits is there.
"""
SETTLING_TRIES_MAX: Final = 4
"""How often damage may turn out not to be mendable before the member leaves: the checkpoint that
shows it as committed is up to a second late, and the next entry shows what belongs there.
"""
MENDABLE: Final = frozenset({Damage.BAD_ENTRY, Damage.UNREADABLE, Damage.WRONG_INDEX})


class Scrub:
    """Reads and mends the log of one member in service; `leave` receives unmendable damage."""

    def __init__(
        self,
        settings: NodeSettings,
        store: LogStore,
        totals: MendedTotals,
        core: Raft,
        *,
        leave: Callable[[StoreDamagedError], None],
    ) -> None:
        self.totals = totals
        self.passes = 0
        """How often the whole log has been read; `problem` tells which damage it passed over."""
        self.read_bytes = 0
        self.let_go = 0
        """Damaged entries that were removed unmended, since retention no longer needs them."""
        self._interval_s = 0.0
        self.take_settings(settings)
        self._mends = settings.on_damage is OnDamage.HEAL
        self._store = store
        self._core = core
        self._folder = store_folder(settings)
        self._was_resumed = False
        self._save_due_s = 0.0
        self._warn_due_s = 0.0
        self._leave = leave
        self._peers = {
            peer_id: HttpPeer(settings.http_address_of(peer_id), settings.admin_token_file)
            for peer_id in settings.known_peers
            if peer_id != settings.self_id
        }
        self._mender = LiveMender(shape_of(settings), store, self._peers, totals)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._cursor: Cursor | None = None
        self._stopped_pass, self._failed_search = Obstacle(), Obstacle()
        self._failed = 0
        self._left = False
        self._wake = asyncio.Event()

    def take_settings(self, settings: NodeSettings) -> None:
        """Apply the interval from now on."""
        self._interval_s = float(settings.scrub_interval_s)

    @property
    def position(self) -> int:
        """The position up to which the current pass has read; 0 between two passes."""
        return self._cursor.pos if self._cursor is not None else 0

    @property
    def problem(self) -> str:
        """The damage that waits to be mended, in words; empty if there is none."""
        obstacles = self._failed_search.problem, self._stopped_pass.problem
        problems = [*self._mender.waits.problems, *filter(None, obstacles)]
        if len(problems) < 2:
            return "".join(problems)
        return f"{problems[0]} ({len(problems)} damaged ranges wait)"

    @property
    def failed(self) -> int:
        """How many attempts to mend damage have failed."""
        return self._failed + self._mender.waits.failed

    async def run(self) -> None:
        """Run until cancelled."""
        now_s = asyncio.get_running_loop().time
        pass_began_s = now_s()
        slice_due_s = sizes_due_s = pass_began_s
        while not self._left:
            # The interval may have become shorter since.
            slice_due_s = min(slice_due_s, now_s() + self._interval_s / HEADROOM)
            pass_began_s = min(pass_began_s, slice_due_s)
            pass_due_s = max(slice_due_s, self._stopped_pass.due_s)
            retry_due_s = self._mender.waits.next_due_s
            due_s = min(sizes_due_s, pass_due_s, retry_due_s) if self._mends else sizes_due_s
            await self._sleep(due_s - now_s())
            try:
                damage = self._store.damage
                if damage is None:
                    self._failed_search.forget()
                if damage is not None and now_s() >= self._failed_search.due_s:
                    await self._mend(damage)
                elif now_s() >= sizes_due_s:
                    sizes_due_s = now_s() + SIZES_CHECKED_S
                    found = await self._in_thread(self._store.segments.short_file)
                    self._store.damage = self._store.damage or found
                elif (waiting := self._mender.waits.due()) is not None:
                    await self._in_thread(partial(self._mender.mend_again, waiting))
                    self._give_up_hopeless()
                elif self._mends and now_s() >= pass_due_s:
                    if self._lets_followers_read(now_s() - pass_began_s):
                        slice_due_s = now_s() + SIZES_CHECKED_S
                        continue
                    read_bytes = await self._scrub_slice()
                    slice_due_s = now_s() + read_bytes / self._rate()
                    if self._cursor is None:
                        slice_due_s = max(slice_due_s, pass_began_s + self._interval_s / HEADROOM)
                        pass_began_s = slice_due_s
            except (StoreError, OSError, IndexError) as error:
                # Failed reads and writes of the member itself stop it; scrubbing can wait.
                logger.warning("scrubbing failed, and is tried again: %s", error)
                self._cursor = None
                await asyncio.sleep(RETRY_S_MAX)

    def _lets_followers_read(self, waited_s: float) -> bool:
        """Return whether this member leads others, and has not waited long enough for their pass.

        It does not wait if damage has stopped its pass: that may be mended by now, or removed.
        """
        if self._stopped_pass.problem:
            return False
        leads_others = self._core.leads and len(self._core.memberships.current.members) > 1
        return leads_others and waited_s < LEADER_WAITS * self._interval_s

    def wake(self) -> None:
        """Handle the store's damage at once."""
        self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        """Sleep until `wake` is called, and at most this long."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        self._wake.clear()

    def close(self) -> None:
        """Begin nothing further, and close the connections to the peers.

        A thread that waits for a peer writes nothing once the store is closed.
        """
        with contextlib.suppress(RuntimeError):  # it was closed before
            self._thread.submit(self._close_connections)
        self._thread.shutdown(wait=False)

    def _close_connections(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def _mend(self, damage: StoreDamagedError) -> None:
        """Mend the damage that a read has found, or leave, or wait."""
        if not self._mends or damage.damage not in MENDABLE:
            self._give_up(damage, "")
            return
        if self._mender.waits.explains(damage):
            self._store.damage = None
            return
        ranges, search = self.totals.ranges, self._failed_search
        try:
            if not await self._search(damage):
                return
        except (CannotMendError, StoreError, OSError, IndexError) as error:
            self._retry_or_leave(search, damage, failure_of(error))
        else:
            search.forget()
            self._store.damage = None
            if self.totals.ranges == ranges and self._mender.waits:
                pause_s = RETRY_S_MAX if damage.index is None else SEARCHED_AGAIN_S
                search.due_s = asyncio.get_running_loop().time() + pause_s

    async def _search(self, damage: StoreDamagedError) -> bool:
        """Mend the damage, after a search of the whole log at a bounded rate if it has no place.

        Returns False if a read has found damage with a place meanwhile, which is mended first.
        """
        parts = self._mender.search(damage)
        while (read_bytes := await self._in_thread(lambda: next(parts, None))) is not None:
            await asyncio.sleep(read_bytes / BYTES_PER_S_MAX)
            if damage.index is None and self._store.damage is not damage:
                return False
        return True

    async def _scrub_slice(self) -> int:
        """Verify the next entries of the pass; return how many bytes were read."""
        if self._cursor is None or self._cursor.index < self._store.begin_index:
            self._cursor = await self._in_thread(self._first_place)
        cursor = self._cursor
        if cursor is None:
            return 0
        try:
            scanned = await self._in_thread(lambda: self._mender.step(cursor, SLICE_BYTES))
        except CannotMendError as failure:
            damage = StoreDamagedError("scrubbing has found damage", Damage.BAD_ENTRY)
            self._retry_or_leave(self._stopped_pass, damage, failure)
            return 0
        self._stopped_pass.forget()
        self.read_bytes += scanned.read_bytes
        self._cursor = None if scanned.is_done else scanned.end
        if scanned.is_done:
            self.passes += 1
            if not self._mender.waits:
                self._mender.note_whole()
        await self._save_place()
        return scanned.read_bytes

    def _first_place(self) -> Cursor | None:
        """Return where the log begins, or where the pass was when this member last stopped."""
        place = None
        if not self._was_resumed:
            self._was_resumed = True
            place = self._mender.place_before(scrub_file.load(self._folder))
        return place or self._mender.first_place()

    async def _save_place(self) -> None:
        """Save the place of the pass from time to time, and 0 once it has ended.

        The place is only a hint for the next start, so the pass goes on if it cannot be saved.
        """
        cursor, now_s = self._cursor, asyncio.get_running_loop().time()
        if cursor is not None and now_s < self._save_due_s:
            return
        self._save_due_s = now_s + SAVED_S
        next_index = 0 if cursor is None else cursor.index
        try:
            await self._in_thread(lambda: scrub_file.save(self._folder, next_index))
        except StoreFullError:
            pass  # `VolumeHealth` reports it
        except StoreError as error:
            if now_s >= self._warn_due_s:
                self._warn_due_s = now_s + WARNED_S
                logger.warning("a restart may begin the pass of scrubbing again: %s", error)

    def _rate(self) -> float:
        """Return the bytes per second that read the whole log early enough in the interval."""
        needed = HEADROOM * self._store.segments.data_bytes / max(1.0, self._interval_s)
        return min(BYTES_PER_S_MAX, max(BYTES_PER_S_MIN, needed))

    def _retry_or_leave(
        self, obstacle: Obstacle, damage: StoreDamagedError, failure: CannotMendError
    ) -> None:
        """Note when the next attempt is due, or leave if none can succeed."""
        self._failed += 1
        if not failure.may_succeed_later and obstacle.refusals >= SETTLING_TRIES_MAX:
            obstacle.forget()
            self._give_up(damage, str(failure))
        else:
            obstacle.note(damage, failure, asyncio.get_running_loop().time())

    def _give_up_hopeless(self) -> None:
        hopeless = self._mender.waits.hopeless(SETTLING_TRIES_MAX)
        if hopeless is not None:
            self._mender.waits.forget(hopeless)
            self._give_up(hopeless.damage, str(hopeless.failure))

    def _give_up(self, damage: StoreDamagedError, reason: str) -> None:
        if isinstance(damage, BorderDamagedError):
            self._let_go(damage, reason)
            return
        if reason:
            logger.error("not mended in service: %s", reason)
        self._left = True
        self._leave(damage)

    def _let_go(self, damage: BorderDamagedError, reason: str) -> None:
        """Let retention remove a damaged entry unmended: this member no longer needs it."""
        logger.warning("%s. It is removed unmended: %s", damage, reason or "this member mends none")
        self.let_go += 1
        self._store.front.unmended_index = damage.index
        if self._store.damage is damage:
            self._store.damage = None

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
