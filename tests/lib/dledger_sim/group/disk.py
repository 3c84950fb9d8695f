"""A member's disk, and what a crash leaves of it.

    durable   the entries that a completed flush covers
    cached    the entries that the member reads: durable, with every write since
    pending   the writes since the last completed flush, in order

A power cut keeps any subset of the pending writes: pages reach the disk in any order, and the last
one may be torn. Recovery then keeps the entries up to the first one that does not follow its
predecessor, which a real store detects by the chain checksum, and truncates the rest. Term and vote
are replaced as a whole (temporary file, flush, rename).

A failed flush loses the pages that it should have made durable, as the kernel drops them, and the
member stops.
"""

import enum
import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dledger_formats.log.checksum import crc32
from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.ready import HardState
from dledger_sim.group.membership_bodies import HIGHEST, membership_of


class Entry(NamedTuple):
    """One entry; its index is its place in the log."""

    term: int
    body: int
    chain: int
    """Digest of this entry and all entries before it: equal digests mean equal logs."""


class Written(NamedTuple):
    """A pending write: this entry at this index."""

    at: int
    entry: Entry


def chained(log: list[Entry], term: int, body: int) -> Entry:
    """Make the entry that follows a log."""
    before = log[-1].chain if log else 0
    return Entry(term, body, hash((before, len(log), term, body)))


class Keep(enum.Enum):
    """Unflushed writes that survive a crash: all after `kill -9`, any part after a power cut."""

    EVERYTHING = "everything"
    NOTHING = "nothing"
    SOMETHING = "something"


@dataclass(slots=True)
class Flush:
    """A flush in flight."""

    write_count: int
    """The number of pending writes that the flush covers."""
    end_index: int
    """The last index that the flush may report as durable; a truncation lowers it."""


class KeptSnapshot(NamedTuple):
    """A snapshot on a disk."""

    meta: SnapshotMeta
    data: bytes

    @property
    def sound(self) -> bool:
        """Return whether the snapshot is undamaged."""
        return (len(self.data), crc32(self.data)) == (self.meta.data_bytes, self.meta.data_crc32)


class Copy(NamedTuple):
    """A backup of a disk's durable content."""

    hard_state: HardState
    begin_index: int
    checkpoint: int
    durable: list[Entry]
    snapshots: dict[int, KeptSnapshot]


BLANK = HardState(term=0, vote_for=None, joining=True)
"""The hard state of a joining member with an empty disk."""


@dataclass(slots=True)
class SimDisk:
    """One disk. It survives the crashes of its member."""

    hard_state: HardState = BLANK
    begin_index: int = 0
    """First entry that the member can read; earlier entries are kept for the judges only."""
    checkpoint: int = -1
    """The committed index that the member saved last; it covers durable entries only."""
    durable: list[Entry] = field(default_factory=list)
    cached: list[Entry] = field(default_factory=list)
    pending: list[int | Written] = field(default_factory=list)
    """An integer is a truncation at this index."""
    flush: Flush | None = None
    lost: list[list[Entry]] = field(default_factory=list)
    """The durable log at each loss of the volume, until the member is a voter again."""
    forgotten: list[Entry] | None = None
    """On a rolled-back disk: the log that the member had confirmed, until the member joins, or
    makes a promise, which treats the disk as intact.
    """
    membership_indexes: list[int] = field(default_factory=list)
    """Indexes of the cached entries that hold a membership."""
    snapshots: dict[int, KeptSnapshot] = field(default_factory=dict)
    """Durable snapshots by their last included index."""
    rotted: bool = False
    """Whether the newest snapshot has rotted and none was taken since."""
    rotten: dict[int, Entry] = field(default_factory=dict)
    """Rotten entries by index, as a read returns them; see `RottingDisk`."""
    damaged: bool = False
    """Whether the member has found a rotten entry."""
    set_aside_count: int = 0
    """How often the log was set aside since the member last finished joining."""
    full: bool = False
    """Whether the disk is full; the member's shell then refuses new entries."""

    def append(self, entry: Entry) -> None:
        """Write an entry to the page cache."""
        if entry.body <= HIGHEST:
            self.membership_indexes.append(len(self.cached))
        self.pending.append(Written(len(self.cached), entry))
        self.cached.append(entry)

    def truncate(self, first_index: int) -> None:
        """Truncate the log in the page cache; a flush in flight reports no later entry."""
        del self.cached[first_index:]
        while self.membership_indexes and self.membership_indexes[-1] >= first_index:
            self.membership_indexes.pop()
        self.pending.append(first_index)
        if self.flush is not None:
            self.flush.end_index = min(self.flush.end_index, first_index - 1)

    def replace(self, before: list[Entry]) -> None:
        """Remove the log durably and start over after the entries `before`, which are unreadable.

        A flush in flight reports nothing of the new log.
        """
        self.begin_index = len(before)
        self.checkpoint = -1
        self.durable = list(before)
        self._read()
        self.pending.clear()
        if self.flush is not None:
            self.flush.write_count, self.flush.end_index = 0, -1

    def save_checkpoint(self, index: int) -> None:
        """Save a committed and durable index, unless it lies before the log."""
        if index >= self.begin_index:
            self.checkpoint = index

    def open(self) -> int:
        """Open the disk at a start; return the committed index of the last checkpoint."""
        return self.checkpoint

    def starts(self, *, in_sync: bool) -> bool:
        """Return whether the member starts with AsyncFlush; on most disks, none does."""
        return False

    def read(self, first_index: int, end: int) -> list[Entry]:
        """Return the entries from `first_index` to before `end`, as the member serves them."""
        return self.cached[first_index:end]

    def remove_before(self, first_index: int) -> None:
        """Remove entries from the front."""
        self.begin_index = first_index

    @property
    def has_unflushed(self) -> bool:
        """Whether writes wait for a flush."""
        return bool(self.pending)

    def begin_flush(self) -> None:
        """Start a flush of all pending writes."""
        self.flush = Flush(write_count=len(self.pending), end_index=len(self.cached) - 1)

    def finish_flush(self) -> tuple[int, int] | None:
        """Make the flushed writes durable; return the index and term to report, or None."""
        assert self.flush is not None
        flush, self.flush = self.flush, None
        _replay(self.durable, self.pending[: flush.write_count])
        del self.pending[: flush.write_count]
        if flush.end_index < 0:
            return None
        return flush.end_index, self.cached[flush.end_index].term

    def fail_flush(self) -> None:
        """Drop all pending writes."""
        assert self.flush is not None
        self.pending.clear()
        self.flush = None

    def crash(self, keep: Keep, chance_seed: int) -> None:
        """Drop the writes that a crash may lose; the others become durable.

        `chance_seed` selects the part that survives; 0 keeps everything.
        """
        if keep is Keep.EVERYTHING or (keep is Keep.SOMETHING and not chance_seed):
            _replay(self.durable, self.pending)
        elif keep is Keep.SOMETHING:
            self.durable = _image(self.durable, self.pending, random.Random(chance_seed))
        self.pending.clear()
        self.flush = None
        if self.begin_index and len(self.durable) <= self.begin_index:
            self.durable, self.begin_index = [], 0  # no entry of the new log was durable
        self._read()

    def lose(self, kept_rate: float | None) -> None:
        """Empty the disk, or damage it if `kept_rate` is given.

        A damaged disk keeps this part of the log. If that is the whole log, it loses term and vote.
        """
        self.lost.append(self.durable)
        kept = int((kept_rate or 0) * len(self.durable))
        if kept_rate is None:
            self.hard_state = BLANK
            self.snapshots, self.rotted = {}, False
        else:
            self.hard_state = replace(self.hard_state, joining=True, alone=False, flushed=False)
        if 0 < kept == len(self.durable):
            end_term = self.durable[-1].term
            self.hard_state = replace(self.hard_state, term=end_term, vote_for=None)
        self.durable = self.durable[:kept] if kept > self.begin_index else []
        self.begin_index = self.begin_index if self.durable else 0
        self.checkpoint = min(self.checkpoint, len(self.durable) - 1)
        self._read()

    def rot_newest_snapshot(self) -> None:
        """Overwrite the newest snapshot with other bytes."""
        self.rotted = True
        index = max(self.snapshots)
        meta, data = self.snapshots[index]
        self.snapshots[index] = KeptSnapshot(meta, bytes(len(data)))

    @property
    def has_memory(self) -> bool:
        """Return whether the member is not joining, and has no damage that may make it join."""
        return not (self.hard_state.joining or self.rotted or self.rotten or self.damaged)

    def copy(self) -> Copy:
        """Return what a power cut would leave if it lost all unflushed writes."""
        durable, snapshots = list(self.durable), dict(self.snapshots)
        return Copy(self.hard_state, self.begin_index, self.checkpoint, durable, snapshots)

    def restore(self, copy: Copy, confirmed_count: int, *, log_alone: bool) -> None:
        """Roll the disk back to a copy; with `log_alone`, keep term and vote."""
        self.forgotten = self.durable[:confirmed_count]
        hard_state, self.begin_index, self.checkpoint, durable, snapshots = copy
        self.hard_state = self.hard_state if log_alone else hard_state
        self.durable, self.snapshots = list(durable), dict(snapshots)
        self._read()

    def log_memberships(self, first: Membership) -> LogMemberships:
        """Return the log's memberships for the core; `first` is the founding membership."""
        entries = [
            MembershipEntry(index, membership_of(self.durable[index].body))
            for index in self.membership_indexes
        ]
        memberships = LogMemberships(first, entries)
        memberships.remove_before(self.begin_index)
        return memberships

    def _read(self) -> None:
        """Fill the page cache with the durable log."""
        self.cached = list(self.durable)
        self.membership_indexes = [
            index for index, entry in enumerate(self.cached) if entry.body <= HIGHEST
        ]

    def log_terms(self) -> LogTerms:
        """Return the log's terms for the core."""
        runs: list[tuple[int, int]] = []
        last_term = -1
        for index in range(self.begin_index, len(self.durable)):
            if self.durable[index].term != last_term:
                last_term = self.durable[index].term
                runs.append((index, last_term))
        return LogTerms(self.begin_index, runs, len(self.durable) - 1)


def _replay(log: list[Entry], writes: list[int | Written]) -> None:
    for write in writes:
        if isinstance(write, Written):
            log.append(write.entry)
        else:
            del log[write:]


def _image(durable: list[Entry], writes: list[int | Written], rng: random.Random) -> list[Entry]:
    """Return the log that recovery finds after a power cut that kept some of the writes.

    Half of the disks keep a prefix of the writes; the other half reorder them.
    """
    log: list[Entry | None] = list(durable)
    reordered = rng.random() < 0.5
    kept_count = rng.randint(0, len(writes))
    kept_rate = rng.random()
    for number, write in enumerate(writes):
        kept = rng.random() < kept_rate if reordered else number < kept_count
        if isinstance(write, int):
            if kept:
                del log[write:]
            continue
        log += [None] * (write.at + 1 - len(log))
        # The overwritten entry is gone, even if the new bytes are torn.
        torn = not kept and number == kept_count
        if kept or torn:
            log[write.at] = None if torn else write.entry
    return _sound_part(log)


def _sound_part(log: list[Entry | None]) -> list[Entry]:
    sound: list[Entry] = []
    for entry in log:
        if entry is None or chained(sound, entry.term, entry.body) != entry:
            break
        sound.append(entry)
    return sound
