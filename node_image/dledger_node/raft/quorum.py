"""Majority arithmetic; knows nothing of Raft."""

from collections.abc import Iterable


def is_majority(count: int, voter_count: int) -> bool:
    """Tell whether `count` of the voters are more than half of them."""
    return 2 * count > voter_count


def meets_every_majority(count: int, voter_count: int) -> bool:
    """Tell whether any majority has one of these `count` voters in it."""
    return not is_majority(voter_count - count, voter_count)


def reached_by_majority(values: Iterable[int]) -> int:
    """The highest value that a majority has reached, given every voter's own value."""
    ranked = sorted(values)
    return ranked[(len(ranked) - 1) // 2]
