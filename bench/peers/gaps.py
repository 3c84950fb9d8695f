"""The pause in acknowledgements that the end of a leader causes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

STEADY_NS: Final = 2 * 10**9

Acknowledgements: TypeAlias = Sequence[tuple[int, int]]
"""Begin and acknowledgement of each append in Unix ns, in any order."""


def is_over(acknowledgements: Acknowledgements, killed_ns: int) -> bool:
    """Return whether appends that began after the kill have been acknowledged for two seconds."""
    after = [end for begun, end in acknowledgements if begun >= killed_ns]
    return bool(after) and max(after) - min(after) >= STEADY_NS


def longest_gap_ms(acknowledgements: Acknowledgements, killed_ns: int) -> float:
    """Return the longest pause between two acknowledgements that ends after the kill."""
    ends = sorted(end for _, end in acknowledgements)
    return max((b - a for a, b in pairwise(ends) if b > killed_ns), default=0) / 1e6


def first_new_ms(acknowledgements: Acknowledgements, killed_ns: int) -> float:
    """Return the time from the kill to the first acknowledgement of an append begun after it."""
    return (min(end for begun, end in acknowledgements if begun >= killed_ns) - killed_ns) / 1e6
