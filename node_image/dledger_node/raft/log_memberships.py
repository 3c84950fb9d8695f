"""The memberships of a log, without its entries.

All that the log holds are kept, since a leader may have to push any of them to a member that lags.
They are few: a group changes a few times in its life.
"""

from bisect import bisect_right
from collections.abc import Iterable

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.membership import Membership, MembershipEntry


class LogMemberships:
    """Which membership holds where in a log. The hot path asks only `current` and `last_index`."""

    __slots__ = ("_base", "_entries", "_initial", "current", "last_index")

    # Invariant: the indexes of _entries are strictly rising.
    # Invariant: current and last_index are those of the last entry, or of what holds before it.

    def __init__(
        self,
        first: Membership,
        entries: Iterable[MembershipEntry] = (),
        *,
        base: Membership | None = None,
    ) -> None:
        """`first` holds before the group's first membership entry; `entries` are those that the log
        holds; `base` is the last of those that were removed from its front, if there was one.
        """
        self._initial = first
        self._base = base
        self._entries: list[MembershipEntry] = []
        self.current = base or first
        self.last_index = BEFORE_FIRST
        for entry in entries:
            self.append(entry)

    @property
    def base(self) -> Membership | None:
        """What holds before the log's first membership entry; None if the group began with it."""
        return self._base

    @property
    def changed(self) -> bool:
        """Whether there ever was a membership entry."""
        return self._base is not None or bool(self._entries)

    def append(self, entry: MembershipEntry) -> None:
        """Let a membership hold from an index on; InvariantError unless that is a later one."""
        if entry.index <= self.last_index:
            raise InvariantError(
                f"the membership entry {entry.index} cannot follow that of {self.last_index}"
            )
        self._entries.append(entry)
        self.last_index, self.current = entry

    def truncate(self, first_index: int) -> None:
        """Go back to what held before the entry `first_index`."""
        if self.last_index < first_index:
            return
        del self._entries[self._count_before(first_index) :]
        self._update_current()

    def remove_before(self, first_index: int) -> None:
        """Forget the entries before `first_index`; what held there holds still."""
        count = self._count_before(first_index)
        if count:
            self._base = self._entries[count - 1].membership
            del self._entries[:count]
            self._update_current()

    def reset(self, base: Membership | None) -> None:
        """Forget all entries; `base` holds before those that follow."""
        self._entries.clear()
        self._base = base
        self._update_current()

    def before(self, first_index: int) -> Membership | None:
        """What holds before the entry `first_index`; None if no entry has said it."""
        count = self._count_before(first_index)
        return self._entries[count - 1].membership if count else self._base

    def between(self, first_index: int, last_index: int) -> tuple[MembershipEntry, ...]:
        """The entries from one index to another, both included; hardly ever there is one."""
        if self.last_index < first_index:
            return ()
        first, end = self._count_before(first_index), self._count_before(last_index + 1)
        return tuple(self._entries[first:end])

    def possible(self, committed_index: int) -> tuple[Membership, ...]:
        """The current membership; before it the one that comes back if its entry is truncated.

        All earlier entries are committed for sure: no leader changes what is not (`changes`).
        """
        if self.last_index <= committed_index:
            return (self.current,)
        return (self.before(self.last_index) or self._initial, self.current)

    def _count_before(self, index: int) -> int:
        return bisect_right(self._entries, index - 1, key=_index)

    def _update_current(self) -> None:
        if self._entries:
            self.last_index, self.current = self._entries[-1]
        else:
            self.last_index, self.current = BEFORE_FIRST, self._base or self._initial


def _index(entry: MembershipEntry) -> int:
    return entry.index
