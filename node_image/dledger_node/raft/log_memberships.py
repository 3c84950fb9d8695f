"""The membership entries of a log, without its other entries.

All of them are kept, since a leader may have to push any of them to a member that lags. They are
few: a group's membership rarely changes.
"""

from bisect import bisect_right
from collections.abc import Iterable

from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.membership import Membership, MembershipEntry


class LogMemberships:
    """The membership in effect at each index of a log.

    The hot path reads only `current` and `last_index`.
    """

    __slots__ = ("_base", "_entries", "_initial", "current", "last_index")

    # Invariant: the indexes of _entries are strictly increasing.
    # Invariant: current and last_index belong to the last entry; without entries, current is the
    # base or the initial membership and last_index is -1.

    def __init__(
        self,
        first: Membership,
        entries: Iterable[MembershipEntry] = (),
        *,
        base: Membership | None = None,
    ) -> None:
        """Take over a recovered log's memberships.

        `first` is in effect before the group's first membership entry. `entries` are the membership
        entries in the log. `base` is the last one that was removed from its front, if any.
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
        """The membership in effect at the front of the log; None for the group's first one."""
        return self._base

    @property
    def changed(self) -> bool:
        """Whether the group's log has, or had, a membership entry."""
        return self._base is not None or bool(self._entries)

    def append(self, entry: MembershipEntry) -> None:
        """Add a membership entry. Raises InvariantError unless its index is the highest so far."""
        if entry.index <= self.last_index:
            raise InvariantError(
                f"membership entry {entry.index} cannot follow membership entry {self.last_index}"
            )
        self._entries.append(entry)
        self.last_index, self.current = entry

    def truncate(self, first_index: int) -> None:
        """Remove the entries from `first_index` on; the membership before them returns."""
        if self.last_index < first_index:
            return
        del self._entries[self._count_before(first_index) :]
        self._update_current()

    def remove_before(self, first_index: int) -> None:
        """Forget the entries before `first_index`; the last of them becomes the base."""
        count = self._count_before(first_index)
        if count:
            self._base = self._entries[count - 1].membership
            del self._entries[:count]
            self._update_current()

    def reset(self, base: Membership | None) -> None:
        """Forget all entries; `base` is in effect before the entries that follow."""
        self._entries.clear()
        self._base = base
        self._update_current()

    def before(self, first_index: int) -> Membership | None:
        """Return the membership in effect before `first_index`; None for the group's first."""
        count = self._count_before(first_index)
        return self._entries[count - 1].membership if count else self._base

    def between(self, first_index: int, last_index: int) -> tuple[MembershipEntry, ...]:
        """Return the membership entries in `first_index`..`last_index`; there rarely is one."""
        if self.last_index < first_index:
            return ()
        first, end = self._count_before(first_index), self._count_before(last_index + 1)
        return tuple(self._entries[first:end])

    def possible(self, committed_index: int) -> tuple[Membership, ...]:
        """Return the current membership, preceded by the one that a truncation would bring back.

        All earlier entries are committed: a leader accepts a change only once the one before it is
        committed (`changes`).
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
