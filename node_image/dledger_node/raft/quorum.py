"""Majority arithmetic, independent of Raft."""

from collections.abc import Iterable


def is_majority(count: int, voter_count: int) -> bool:
    """Return whether `count` is more than half of the voters."""
    return 2 * count > voter_count


def meets_every_majority(count: int, voter_count: int) -> bool:
    """Return whether every majority contains at least one of `count` given voters."""
    return not is_majority(voter_count - count, voter_count)


def reached_by_majority(values: Iterable[int]) -> int:
    """Return the highest value that a majority has reached, given one value per voter."""
    ranked = sorted(values)
    return ranked[(len(ranked) - 1) // 2]
