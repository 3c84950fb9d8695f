"""A member's disk: what a crash leaves of it.

    durable   what a completed flush covers
    cached    what the member reads: durable, with every write since
    pending   the writes since the last completed flush, in order

A power cut keeps any of the pending writes: pages reach the disk in any order, and the last may be
torn. Recovery then reads on as long as every entry fits to the one before, which is what the chain
checksum of the store tells; what lies behind the first that does not is cut away. Term and vote are
replaced as a whole (temporary file, flush, rename).

A flush that fails loses what it should have made durable (the kernel forgets such pages), and the
member that was told so stops; see `SimCluster`.
"""

import enum
import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dledger_formats.log.checksum import crc32
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.ready import HardState
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta
from dledger_sim.group.membership_bodies import HIGHEST, membership_of


class Entry(NamedTuple):
    """One entry; its index is its place in the log."""

    term: int
    body: int
    chain: int
    """Digest of this entry and of all before it: two logs with the same are the same."""


class Written(NamedTuple):
    """A pending write: this entry at this index."""

    at: int
    entry: Entry


def chained(log: list[Entry], term: int, body: int) -> Entry:
    """Make the entry that follows a log."""
    before = log[-1].chain if log else 0
    return Entry(term, body, hash((before, len(log), term, body)))


class Keep(enum.Enum):
    """How much a crash leaves of what was not flushed: kill -9 leaves all, a power cut any part."""

    EVERYTHING = "everything"
    NOTHING = "nothing"
    SOMETHING = "something"


@dataclass(slots=True)
class Flush:
    """A flush in flight."""

    write_count: int
    """How many of the pending writes it covers."""
    end_index: int
    """What it may report as durable; a truncation meanwhile lowers it."""


class KeptSnapshot(NamedTuple):
    """A snapshot of a state, as it lies on a disk."""

    meta: SnapshotMeta
    data: bytes

    @property
    def sound(self) -> bool:
        """Whether the bytes are what was written."""
        return (len(self.data), crc32(self.data)) == (self.meta.data_bytes, self.meta.data_crc32)


class Copy(NamedTuple):
    """What a disk held at some instant, as a backup keeps it."""

    hard_state: HardState
    begin_index: int
    checkpoint: int
    durable: list[Entry]
    snapshots: dict[int, KeptSnapshot]


BLANK = HardState(term=0, vote_for=None, joining=True)
"""What the store of a member without a memory says."""


@dataclass(slots=True)
class SimDisk:
    """One disk; it outlives its member's crashes."""

    hard_state: HardState = BLANK
    begin_index: int = 0
    """The first entry that the member can still read; those before are kept for the judge."""
    checkpoint: int = -1
    """A committed index that the member wrote down; it covers durable entries only."""
    durable: list[Entry] = field(default_factory=list)
    cached: list[Entry] = field(default_factory=list)
    pending: list[int | Written] = field(default_factory=list)
    """A number is the index that the log was truncated at."""
    flush: Flush | None = None
    lost: list[list[Entry]] = field(default_factory=list)
    """What was durable here whenever the volume was lost, until the member is a voter again."""
    forgotten: list[Entry] | None = None
    """On a disk that is older than it was: what its member had confirmed, until it joins, or shows
    by a promise that it believes its disk.
    """
    membership_indexes: list[int] = field(default_factory=list)
    """Which of the cached entries are memberships."""
    snapshots: dict[int, KeptSnapshot] = field(default_factory=dict)
    """Those of the state, by last included index; all of them durable."""
    rotted: bool = False
    """The newest of them has, and none was taken since."""
    rotten: dict[int, Entry] = field(default_factory=dict)
    """Entries that have rotted, by index, as they are read now; see `RottingDisk`."""
    damaged: bool = False
    """Its member has found one of these."""
    set_aside_count: int = 0
    """How often damaged entries were set aside since its member was whole."""
    full: bool = False
    """No room for another entry; the member's shell refuses what would need some."""

    def append(self, entry: Entry) -> None:
        """Write one entry to the page cache."""
        if entry.body <= HIGHEST:
            self.membership_indexes.append(len(self.cached))
        self.pending.append(Written(len(self.cached), entry))
        self.cached.append(entry)

    def truncate(self, first_index: int) -> None:
        """Cut the log in the page cache; a flush in flight says nothing of what comes after."""
        del self.cached[first_index:]
        while self.membership_indexes and self.membership_indexes[-1] >= first_index:
            self.membership_indexes.pop()
        self.pending.append(first_index)
        if self.flush is not None:
            self.flush.end_index = min(self.flush.end_index, first_index - 1)

    def replace(self, before: list[Entry]) -> None:
        """Remove the log, durably, and begin anew behind `before`, which is not there to be read.

        What a flush in flight reports is of the old log.
        """
        self.begin_index = len(before)
        self.checkpoint = -1
        self.durable = list(before)
        self._read()
        self.pending.clear()
        if self.flush is not None:
            self.flush.write_count, self.flush.end_index = 0, -1

    def save_checkpoint(self, index: int) -> None:
        """Write down what is committed and durable: nothing, of a log that has just begun anew."""
        if index >= self.begin_index:
            self.checkpoint = index

    def open(self) -> int:
        """Begin a life; returns up to where the last checkpoint says that the log is committed."""
        return self.checkpoint

    def read(self, first_index: int, end: int) -> list[Entry]:
        """The entries before `end`, as they are served."""
        return self.cached[first_index:end]

    def remove_before(self, first_index: int) -> None:
        """Remove entries from the front."""
        self.begin_index = first_index

    def begin_flush(self) -> None:
        """Flush what is written now."""
        self.flush = Flush(write_count=len(self.pending), end_index=len(self.cached) - 1)

    def finish_flush(self) -> tuple[int, int] | None:
        """Make the flush's writes durable; returns the index and term to report, if any."""
        assert self.flush is not None
        flush, self.flush = self.flush, None
        _replay(self.durable, self.pending[: flush.write_count])
        del self.pending[: flush.write_count]
        if flush.end_index < 0:
            return None
        return flush.end_index, self.cached[flush.end_index].term

    def fail_flush(self) -> None:
        """Forget what the flush should have made durable, and all that was built upon it."""
        assert self.flush is not None
        self.pending.clear()
        self.flush = None

    def crash(self, keep: Keep, chance_seed: int) -> None:
        """Lose what a crash may lose, and settle what is left as durable.

        `chance_seed` decides which part is kept; 0 keeps everything.
        """
        if keep is Keep.EVERYTHING or (keep is Keep.SOMETHING and not chance_seed):
            _replay(self.durable, self.pending)
        elif keep is Keep.SOMETHING:
            self.durable = _image(self.durable, self.pending, random.Random(chance_seed))
        self.pending.clear()
        self.flush = None
        if self.begin_index and len(self.durable) <= self.begin_index:
            self.durable, self.begin_index = [], 0  # nothing of a new log was durable yet
        self._read()

    def lose(self, kept_rate: float | None) -> None:
        """Become an empty disk; or, with a rate, a damaged one: the end of the log is set aside, or
        if all of it is kept, term and vote are lost.
        """
        self.lost.append(self.durable)
        kept = int((kept_rate or 0) * len(self.durable))
        if kept_rate is None:
            self.hard_state = BLANK
            self.snapshots, self.rotted = {}, False
        else:
            self.hard_state = replace(self.hard_state, joining=True, alone=False)
        if 0 < kept == len(self.durable):
            end_term = self.durable[-1].term
            self.hard_state = replace(self.hard_state, term=end_term, vote_for=None)
        self.durable = self.durable[:kept] if kept > self.begin_index else []
        self.begin_index = self.begin_index if self.durable else 0
        self.checkpoint = min(self.checkpoint, len(self.durable) - 1)
        self._read()

    def rot_newest_snapshot(self) -> None:
        """Let its bytes become others."""
        self.rotted = True
        index = max(self.snapshots)
        meta, data = self.snapshots[index]
        self.snapshots[index] = KeptSnapshot(meta, bytes(len(data)))

    @property
    def has_memory(self) -> bool:
        """Whether its member is no blank one, nor may become one for want of a snapshot."""
        return not (self.hard_state.joining or self.rotted or self.rotten or self.damaged)

    def copy(self) -> Copy:
        """What would be left if the power went now and took all that is not flushed."""
        durable, snapshots = list(self.durable), dict(self.snapshots)
        return Copy(self.hard_state, self.begin_index, self.checkpoint, durable, snapshots)

    def restore(self, copy: Copy, confirmed_count: int, *, log_alone: bool) -> None:
        """Go back to what it was; or only the log does."""
        self.forgotten = self.durable[:confirmed_count]
        hard_state, self.begin_index, self.checkpoint, durable, snapshots = copy
        self.hard_state = self.hard_state if log_alone else hard_state
        self.durable, self.snapshots = list(durable), dict(snapshots)
        self._read()

    def log_memberships(self, first: Membership) -> LogMemberships:
        """What recovery tells the core of them; `first` is what the settings say."""
        entries = [
            MembershipEntry(index, membership_of(self.durable[index].body))
            for index in self.membership_indexes
        ]
        memberships = LogMemberships(first, entries)
        memberships.remove_before(self.begin_index)
        return memberships

    def _read(self) -> None:
        """Have in the page cache what is durable, and nothing else."""
        self.cached = list(self.durable)
        self.membership_indexes = [
            index for index, entry in enumerate(self.cached) if entry.body <= HIGHEST
        ]

    def log_terms(self) -> LogTerms:
        """What recovery tells the core of the log."""
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
    """What recovery finds after a power cut: some writes are there, in whatever order they came.

    Half of the cuts stop in the middle of an orderly disk, half find a disk that reorders.
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
        # What is overwritten is gone, whether the new bytes are whole or torn.
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
