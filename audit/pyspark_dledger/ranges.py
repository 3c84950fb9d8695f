"""Ranges of indexes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

INDEX_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRange:
    """A range of indexes that includes both ends."""

    first: int = 0
    last: int = INDEX_MAX


NOTHING: Final = IndexRange(first=INDEX_MAX)
"""A range of which no log holds an entry."""


def cut(ranges: Iterable[IndexRange], hull: IndexRange) -> tuple[IndexRange, ...]:
    """Return the parts of the ranges in the hull, or NOTHING; no ranges stand for all indexes."""
    parts = [
        IndexRange(first=max(each.first, hull.first), last=min(each.last, hull.last))
        for each in tuple(ranges) or (IndexRange(),)
    ]
    return tuple(each for each in parts if each.first <= each.last) or (NOTHING,)
