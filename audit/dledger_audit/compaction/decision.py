"""Which entries stay, and up to which index a log may be compacted. Pure.

Up to the clean point, an entry with a key stays if it is the last of its key up to there. If this
last entry is a tombstone, it stays until `tombstone_entries` entries lie between it and the clean
point: a reader that follows the log has this long to see it. When the tombstone goes, every older
entry of its key goes in the same run or went before, so no older value comes back. Everything else
stays: no-ops, memberships, entries without a key, and all entries after the clean point.

A *mark* is `2 * index + 1` for a tombstone and `2 * index` for any other entry. The greatest mark
of a key is that of its last entry.
"""

from collections.abc import Iterable
from typing import NamedTuple


class VoterReport(NamedTuple):
    """What one voter reports about its log."""

    committed_index: int
    last_segment_index: int
    """Index of the first entry of its last segment; 0 if it has no entry."""


class Rule(NamedTuple):
    """What a run of compaction is asked to do."""

    clean_index: int
    """The clean point: the last index whose entries may go; -1 for none."""
    tombstone_entries: int

    @property
    def first_tombstone_mark(self) -> int:
        """The lowest mark of a tombstone that stays."""
        return 2 * (self.clean_index - self.tombstone_entries + 1)

    def keeps(self, mark: int) -> bool:
        """Return whether the last entry of a key stays."""
        return mark % 2 == 0 or mark >= self.first_tombstone_mark


def mark_of(index: int, *, is_tombstone: bool) -> int:
    """Return the mark of an entry with a key."""
    return 2 * index + is_tombstone


def end_index(voters: Iterable[VoterReport]) -> int:
    """Return the last index that an archive may hold: the lowest commit of the voters."""
    return min((each.committed_index for each in voters), default=-1)


def clean_index(voters: Iterable[VoterReport]) -> int:
    """Return the clean point: at most the lowest commit, and in no voter's last segment."""
    return min(
        (min(each.committed_index, each.last_segment_index - 1) for each in voters), default=-1
    )
