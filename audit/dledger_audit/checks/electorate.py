"""Whose copies of an entry count, and which indexes each member should hold."""

from collections.abc import Mapping
from dataclasses import dataclass

from dledger_formats.http.status import NodeStatus, StorageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The indexes that a member reports as committed; none if last < first."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """The group's voters, and the members that were read.

    Members that were read and do not count are compared and named, but are in no majority:
    learners, and voters that join or whose storage is not sound.
    """

    voters: frozenset[str]
    counted: frozenset[str]
    """The voters whose copies count: they were read, do not join, and their storage is sound."""
    held: Mapping[str, Held]
    """What each member that was read holds."""
    cuts: tuple[int, ...]
    """The indexes at which the logs are divided, sorted: where they began and ended at first."""

    @property
    def majority(self) -> int:
        """Smallest number of voters that is more than half."""
        return len(self.voters) // 2 + 1

    @property
    def highest_index(self) -> int:
        """Highest index that any member holds as committed; -1 if there is none."""
        return max((each.last for each in self.held.values()), default=-1)


def is_counted(status: NodeStatus) -> bool:
    """Return whether a voter's copies count."""
    return status.storage is StorageState.SOUND and not status.joining


def cuts_of(held: Mapping[str, Held]) -> tuple[int, ...]:
    """Return the indexes at which the set of members that hold an entry changes."""
    holding = [each for each in held.values() if each.first <= each.last]
    return tuple(sorted({edge for each in holding for edge in (each.first, each.last + 1)}))
