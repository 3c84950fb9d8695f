"""Mend the log of a member in service; blocks, in a thread of its own.

The member votes, leads and appends meanwhile. It serves none of the damaged entries, since each
read verifies what it reads; a leader drops the pushes that need them until they are mended.
Nothing else rewrites entries up to the checkpoint's committed index, so the only conflict is a log
that is truncated, replaced or closed: no byte is written then.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing.mending import CannotMendError, MendedTotals, Mender
from dledger_node.healing.peer_bytes import Peer
from dledger_node.healing.waiting_ranges import Waiting, WaitingRanges
from dledger_node.store.log.damaged_ranges import (
    DamagedRange,
    LogShape,
    Scanned,
    beginning,
    closing,
    place_before,
    scan,
)
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.log.files import Beginning
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.patched_segments import PatchedSegments
from dledger_node.store.small_files.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

NEARBY_BYTES: Final = 8 << 20
"""Bytes after damage that a read found in which more damage is searched for at once."""
UNEXPLAINED_MAX: Final = 3
"""How often reads may report damage that is not in the data, until some is mended or a pass has
read the whole log.
"""


class LiveMender:
    """Finds and mends damaged ranges of an open log. Only one thread at a time may use it."""

    def __init__(
        self, shape: LogShape, store: LogStore, peers: Mapping[str, Peer], totals: MendedTotals
    ) -> None:
        self._shape = shape
        self._store = store
        self._peers = peers
        self._totals = totals
        self._unexplained = 0
        self.waits = WaitingRanges()
        """The ranges that could not be mended so far."""

    def mend_near(self, damage: StoreDamagedError) -> None:
        """Mend the range that a read found, and others soon after it, or let them wait.

        Searches the whole log if the damage has no place. Raises CannotMendError, also if too many
        searches, or one for a wrong index, found no damage. Returns early once the log is cut,
        replaced or closed.
        """
        for _ in self.search(damage):
            pass

    def search(self, damage: StoreDamagedError) -> Iterator[int]:
        """Do what `mend_near` does; yield how many bytes each part read, if more is to be read."""
        if damage.index is not None and damage.index < self._store.begin_index:
            return  # retention has removed it
        generation, checkpoint = self._store.generation, self._checkpoint()
        cursor, is_near = self._place_of(damage, checkpoint)
        end_pos = cursor.pos + NEARBY_BYTES if is_near else sys.maxsize
        found = False
        while cursor.pos < end_pos and generation == self._store.generation:
            scanned = self.step(cursor, NEARBY_BYTES, damage)
            cursor = scanned.end
            if scanned.damaged is not None:
                found, end_pos = True, min(end_pos, cursor.pos + NEARBY_BYTES)
            if scanned.is_done:
                break
            if cursor.pos < end_pos:
                yield scanned.read_bytes
        if found:
            self._unexplained = 0
        elif generation == self._store.generation:
            self._note_unexplained(damage)

    def note_whole(self) -> None:
        """Note that a pass has read the whole log, so that all reported damage is gone."""
        self._unexplained = 0

    def step(
        self, cursor: Cursor, bytes_max: int, found: StoreDamagedError | None = None
    ) -> Scanned:
        """Verify the next entries, and mend the first damaged range, or let it wait.

        A range that waits already is passed over. Raises CannotMendError if no sound committed
        entry follows the damage, if the log has changed, or if too many ranges wait.
        """
        generation, checkpoint = self._store.generation, self._checkpoint()
        _, end = beginning(self._shape, checkpoint)
        first_pos = cursor.pos - cursor.pos % self._shape.segment_size_bytes
        with closing(self._shape.read(first_pos, end)) as files:
            if isinstance(files.data, PatchedSegments):
                files.data.forget_pages(cursor.pos, cursor.pos + bytes_max)
            scanned = scan(files, cursor, checkpoint.committed_index, bytes_max)
        damaged = scanned.damaged
        if damaged is None:
            if not scanned.is_whole and generation == self._store.generation:
                raise CannotMendError(
                    f"entry {scanned.end.index} is damaged, and no sound committed entry follows it"
                )
        elif not (self._was_removed(damaged, generation) or self.waits.holds(damaged)):
            try:
                self._mend(damaged, checkpoint, generation)
            except CannotMendError as failure:
                has_changed = generation != self._store.generation
                if has_changed or not self.waits.note(damaged, failure, found):
                    raise
        return scanned

    def mend_again(self, waiting: Waiting) -> None:
        """Try to mend a range that waits; forget it if it is sound or removed."""
        with self.waits.trying(waiting):
            start, end_pos = waiting.range.start, waiting.range.end_pos
            if start.index < self._store.begin_index < waiting.range.end_index:
                start = self.first_place() or start  # retention has removed a part of it
            if start.index >= self._store.begin_index:
                self.step(start, end_pos - start.pos)

    def first_place(self) -> Cursor | None:
        """Return the place before the log's first entry; None if nothing is committed."""
        checkpoint = self._store.checkpoints.last
        if checkpoint is None or checkpoint.committed_index < 0:
            return None
        return beginning(self._shape, checkpoint)[0]

    def place_before(self, index: int) -> Cursor | None:
        """Return the place before an entry, or a little earlier; None if it is not known."""
        checkpoint = self._store.checkpoints.last
        if checkpoint is None or not self._store.begin_index < index <= checkpoint.committed_index:
            return None
        first, end = beginning(self._shape, checkpoint)
        return None if first is None else self._sound_place(index, first, end)

    def _checkpoint(self) -> Checkpoint:
        checkpoint = self._store.checkpoints.last
        if checkpoint is None or checkpoint.committed_index < 0:
            raise CannotMendError("no entry is known to be committed")
        return checkpoint

    def _place_of(self, damage: StoreDamagedError, checkpoint: Checkpoint) -> tuple[Cursor, bool]:
        """Return a place before the damage, and whether the place is near the damage.

        The place is the log's beginning if it is not known where the damage is.
        """
        first, end = beginning(self._shape, checkpoint)
        if first is None:
            raise CannotMendError("it is not known where the log begins")
        if damage.index is None:
            return first, False
        if damage.index <= self._store.begin_index:
            return first, True
        place = self._sound_place(damage.index, first, end)
        return (first, False) if place is None else (place, True)

    def _sound_place(self, index: int, first: Cursor, end: int) -> Cursor | None:
        with closing(self._shape.read(first.pos, end)) as files:
            begin = Beginning(self._store.begin_index, first.chain_crc)
            return place_before(files, index, begin)

    def _mend(self, damaged: DamagedRange, checkpoint: Checkpoint, generation: int) -> None:
        mender = Mender(
            self._shape,
            self._peers,
            create_files=False,
            guard=lambda: self._unchanged_since(generation),
        )
        logger.warning("found damage: %s; mending it from the peers", damaged)
        mended = mender.mend(damaged, checkpoint)
        self._totals.add(mended)
        logger.warning("mended %s", mended)

    @contextlib.contextmanager
    def _unchanged_since(self, generation: int) -> Iterator[bool]:
        with self._store.checkpoints.lock:
            yield generation == self._store.generation

    def _was_removed(self, damaged: DamagedRange, generation: int) -> bool:
        """Return whether the log was replaced, or retention removed the range, during the read."""
        return generation != self._store.generation or damaged.start.index < self._store.begin_index

    def _note_unexplained(self, damage: StoreDamagedError) -> None:
        self._unexplained += 1
        if damage.damage is Damage.WRONG_INDEX or self._unexplained > UNEXPLAINED_MAX:
            raise CannotMendError("the data files are sound where the damage was found")
