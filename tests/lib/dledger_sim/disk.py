"""A member's disk: what a crash leaves of it.

    durable   what a completed flush covers
    cached    what the member reads: durable, with every write since
    pending   the writes since the last completed flush, in order

A crash keeps the effect of some first part of `pending`, and then any tail of the log that was not
durable may be missing: pages reach the disk in any order, and recovery cuts at the first that did
not. Term and vote are replaced as a whole (temporary file, flush, rename).
"""

import enum
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.ready import HardState


class Entry(NamedTuple):
    """One entry; its index is its place in the log."""

    term: int
    body: int
    chain: int
    """Digest of this entry and of all before it: two logs with the same are the same."""


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


@dataclass(slots=True)
class SimDisk:
    """One disk; it outlives its member's crashes."""

    hard_state: HardState = field(default_factory=lambda: HardState(term=0, vote_for=None))
    checkpoint: int = -1
    """A committed index that the member wrote down; it covers durable entries only."""
    durable: list[Entry] = field(default_factory=list)
    cached: list[Entry] = field(default_factory=list)
    pending: list[int | Entry] = field(default_factory=list)
    """An Entry was appended; a number is the index that the log was truncated at."""
    flush: Flush | None = None

    def append(self, entry: Entry) -> None:
        """Write one entry to the page cache."""
        self.cached.append(entry)
        self.pending.append(entry)

    def truncate(self, first_index: int) -> None:
        """Cut the log in the page cache; a flush in flight says nothing of what comes after."""
        del self.cached[first_index:]
        self.pending.append(first_index)
        if self.flush is not None:
            self.flush.end_index = min(self.flush.end_index, first_index - 1)

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

    def crash(self, rng: random.Random, keep: Keep) -> None:
        """Lose what a crash may lose, and settle what is left as durable."""
        safe_count = min(
            [len(self.durable), *(write for write in self.pending if isinstance(write, int))]
        )
        if keep is Keep.EVERYTHING:
            _replay(self.durable, self.pending)
        elif keep is Keep.SOMETHING:
            _replay(self.durable, self.pending[: rng.randint(0, len(self.pending))])
            if rng.random() < 0.5:
                del self.durable[rng.randint(safe_count, len(self.durable)) :]
        self.pending.clear()
        self.flush = None
        self.cached = list(self.durable)

    def log_terms(self) -> LogTerms:
        """What recovery tells the core of the log."""
        runs: list[tuple[int, int]] = []
        for index, entry in enumerate(self.durable):
            if not runs or runs[-1][1] != entry.term:
                runs.append((index, entry.term))
        return LogTerms(0, runs, len(self.durable) - 1)


def _replay(log: list[Entry], writes: list[int | Entry]) -> None:
    for write in writes:
        if isinstance(write, Entry):
            log.append(write)
        else:
            del log[write:]
