"""The terms of a log, without its entries.

Terms never fall along a log, so a log of any length is a few runs: pairs of (first index, term).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from dledger_node.raft.invariants import InvariantError

BEFORE_FIRST = -1
"""Index, and term, of what comes before entry 0: the prefix that every log holds."""


class LogTerms:
    """Which term each index of a log has. Every question costs O(log runs)."""

    __slots__ = ("_begin_index", "_end_index", "_first_indexes", "_terms")

    # Invariant: both lists are equally long and strictly rising.
    # Invariant: an empty log has no runs, and end_index == begin_index - 1; otherwise
    # _first_indexes[0] == begin_index and _first_indexes[-1] <= end_index.

    def __init__(
        self, begin_index: int = 0, runs: Iterable[tuple[int, int]] = (), end_index: int = -1
    ) -> None:
        """Take over a recovered log; InvariantError when the runs cannot be one."""
        self._begin_index = begin_index
        self._end_index = begin_index - 1
        self._first_indexes: list[int] = []
        self._terms: list[int] = []
        pairs = list(runs)
        ends = [first_index - 1 for first_index, _ in pairs[1:]] + [end_index]
        for (first_index, term), run_end in zip(pairs, ends, strict=False):
            if first_index != self._end_index + 1 or term <= self.end_term:
                raise InvariantError(f"{pairs} up to {end_index} are not the runs of a log")
            self.append(run_end, term)
        if self._end_index != end_index:
            raise InvariantError(
                f"a log from {begin_index} to {end_index} cannot consist of the runs {pairs}"
            )

    @property
    def begin_index(self) -> int:
        """Index of the first entry that is still there."""
        return self._begin_index

    @property
    def end_index(self) -> int:
        """Index of the last entry; begin_index - 1 when there is none."""
        return self._end_index

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 when there is none."""
        return self._terms[-1] if self._terms else BEFORE_FIRST

    def term_at(self, index: int) -> int:
        """Term of an entry that is here; -1 for the index -1."""
        if index == BEFORE_FIRST and self._begin_index == 0:
            return BEFORE_FIRST
        return self._terms[self._run(index)]

    def holds(self, index: int, term: int) -> bool:
        """Tell whether the entry (index, term) is here; any numbers may be asked about.

        If it is, all that precedes it in the log it came from is here too (Raft paper, 5.3).
        """
        if self._begin_index <= index <= self._end_index:
            return self._terms[self._run(index)] == term
        return index == term == BEFORE_FIRST and self._begin_index == 0

    def first_index_of_term_at(self, index: int) -> int:
        """First index of the entries that share a term with the entry `index`."""
        return self._first_indexes[self._run(index)]

    def last_index_of_term_at(self, index: int) -> int:
        """Last index of the entries that share a term with the entry `index`."""
        return self._run_end(self._run(index))

    def last_index_of_term(self, term: int) -> int | None:
        """Last index of a term's entries; None when there is none."""
        run = bisect_left(self._terms, term)
        if run == len(self._terms) or self._terms[run] != term:
            return None
        return self._run_end(run)

    def append(self, last_index: int, term: int) -> None:
        """Let the log grow up to `last_index` by entries of one term."""
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
        """Forget the entry `first_index` and all behind it."""
        if not self._begin_index <= first_index <= self._end_index:
            raise InvariantError(
                f"cannot truncate at {first_index}: "
                f"the log is {self._begin_index} to {self._end_index}"
            )
        keep = bisect_left(self._first_indexes, first_index)
        del self._first_indexes[keep:]
        del self._terms[keep:]
        self._end_index = first_index - 1

    def remove_before(self, first_index: int) -> None:
        """Forget all entries before `first_index`, which stays."""
        keep = self._run(first_index)
        del self._first_indexes[:keep]
        del self._terms[:keep]
        self._first_indexes[0] = self._begin_index = first_index

    def reset(self, begin_index: int) -> None:
        """Forget all entries; the next one is `begin_index`."""
        self._first_indexes.clear()
        self._terms.clear()
        self._begin_index = begin_index
        self._end_index = begin_index - 1

    def _run(self, index: int) -> int:
        if not self._begin_index <= index <= self._end_index:
            raise InvariantError(
                f"entry {index} is outside of the log, {self._begin_index} to {self._end_index}"
            )
        return bisect_right(self._first_indexes, index) - 1

    def _run_end(self, run: int) -> int:
        following = run + 1
        if following == len(self._first_indexes):
            return self._end_index
        return self._first_indexes[following] - 1
