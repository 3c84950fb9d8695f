"""The terms of a log, without its entries.

Terms never decrease along a log, so a log of any length is a few runs: pairs of (first index,
term).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from dledger_node.raft.invariants import InvariantError

BEFORE_FIRST = -1
"""Index and term of the empty prefix before entry 0, which every log holds."""


class LogEnd(NamedTuple):
    """Where a log ends. A later end is more up to date (Raft paper, section 5.4.1)."""

    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here


class Seed(NamedTuple):
    """The archive that a member's folder began with, for a new group."""

    end: LogEnd
    """Where the log of the archive ends."""
    sha256: str
    """The archive's `copySha256`: another archive may end in the same place."""


EMPTY = LogEnd(BEFORE_FIRST, BEFORE_FIRST)
"""The end of a log without entries."""


class LogTerms:
    """The term of each index of a log. Every lookup costs O(log runs)."""

    __slots__ = ("_begin_index", "_end_index", "_first_indexes", "_terms")

    # Invariant: both lists have the same length and are strictly increasing.
    # Invariant: an empty log has no runs, and end_index == begin_index - 1; otherwise
    # _first_indexes[0] == begin_index and _first_indexes[-1] <= end_index.

    def __init__(
        self, begin_index: int = 0, runs: Iterable[tuple[int, int]] = (), end_index: int = -1
    ) -> None:
        """Take over a recovered log. Raises InvariantError if the runs cannot form a log."""
        self._begin_index = begin_index
        self._end_index = begin_index - 1
        self._first_indexes: list[int] = []
        self._terms: list[int] = []
        pairs = list(runs)
        ends = [first_index - 1 for first_index, _ in pairs[1:]] + [end_index]
        for (first_index, term), run_end in zip(pairs, ends, strict=False):
            if first_index != self._end_index + 1 or term <= self.end_term:
                raise InvariantError(f"the runs {pairs} up to {end_index} do not form a log")
            self.append(run_end, term)
        if self._end_index != end_index:
            raise InvariantError(
                f"the runs {pairs} do not form a log from {begin_index} to {end_index}"
            )

    @property
    def begin_index(self) -> int:
        """Index of the first entry that has not been removed."""
        return self._begin_index

    @property
    def end_index(self) -> int:
        """Index of the last entry; begin_index - 1 if the log is empty."""
        return self._end_index

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 if the log is empty."""
        return self._terms[-1] if self._terms else BEFORE_FIRST

    @property
    def end(self) -> LogEnd:
        """Term and index of the last entry."""
        return LogEnd(self.end_term, self._end_index)

    def end_at(self, index: int) -> LogEnd:
        """Return where the log would end if `index` were its last entry, before the end or at it.

        The first entry that is left stands for the terms of removed ones. It was committed with
        them, so every log that can win an election ends no earlier.
        """
        if index <= BEFORE_FIRST:
            return EMPTY
        return LogEnd(self.term_at(max(index, self._begin_index)), index)

    def term_at(self, index: int) -> int:
        """Return the term of an entry of this log; -1 for index -1."""
        if index == BEFORE_FIRST and self._begin_index == 0:
            return BEFORE_FIRST
        return self._terms[self._run(index)]

    def holds(self, index: int, term: int) -> bool:
        """Return whether this log holds the entry (index, term); any numbers are allowed.

        If it does, it equals the entry's log of origin up to that index (Raft paper, 5.3).
        """
        if self._begin_index <= index <= self._end_index:
            return self._terms[self._run(index)] == term
        return index == term == BEFORE_FIRST and self._begin_index == 0

    def first_index_of_term_at(self, index: int) -> int:
        """Return the first index of the entries that share a term with entry `index`."""
        return self._first_indexes[self._run(index)]

    def last_index_of_term_at(self, index: int) -> int:
        """Return the last index of the entries that share a term with entry `index`."""
        return self._run_end(self._run(index))

    def last_index_of_term(self, term: int) -> int | None:
        """Return the last index of a term's entries; None if the log has none."""
        run = bisect_left(self._terms, term)
        if run == len(self._terms) or self._terms[run] != term:
            return None
        return self._run_end(run)

    def append(self, last_index: int, term: int) -> None:
        """Extend the log up to `last_index` with entries of one term."""
        if last_index <= self._end_index or term < self.end_term:
            raise InvariantError(
                f"entries up to {last_index} of term {term} cannot follow entry "
                f"{self._end_index} of term {self.end_term}"
            )
        if term != self.end_term:
            self._first_indexes.append(self._end_index + 1)
            self._terms.append(term)
        self._end_index = last_index

    def truncate(self, first_index: int) -> None:
        """Forget entry `first_index` and all entries after it."""
        if not self._begin_index <= first_index <= self._end_index:
            raise InvariantError(
                f"cannot truncate at {first_index}: "
                f"the log holds {self._begin_index}..{self._end_index}"
            )
        keep = bisect_left(self._first_indexes, first_index)
        del self._first_indexes[keep:]
        del self._terms[keep:]
        self._end_index = first_index - 1

    def remove_before(self, first_index: int) -> None:
        """Forget all entries before `first_index`, but not that entry."""
        keep = self._run(first_index)
        del self._first_indexes[:keep]
        del self._terms[:keep]
        self._first_indexes[0] = self._begin_index = first_index

    def reset(self, begin_index: int) -> None:
        """Forget all entries; the next entry is `begin_index`."""
        self._first_indexes.clear()
        self._terms.clear()
        self._begin_index = begin_index
        self._end_index = begin_index - 1

    def _run(self, index: int) -> int:
        if not self._begin_index <= index <= self._end_index:
            raise InvariantError(
                f"entry {index} is outside the log, which holds {self._begin_index}.."
                f"{self._end_index}"
            )
        return bisect_right(self._first_indexes, index) - 1

    def _run_end(self, run: int) -> int:
        following = run + 1
        if following == len(self._first_indexes):
            return self._end_index
        return self._first_indexes[following] - 1
