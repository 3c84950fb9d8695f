"""Ranges of the numbers of bodies, as messages name them."""

from typing import Final

from dledger_client.commands import printing

RANGES_MAX: Final = 100
"""Maximum number of ranges that a message names."""


class Ranges:
    """Ascending numbers in ranges, of which the first RANGES_MAX are shown."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int | None = None) -> None:
        """Add the numbers from `first` to `last`, or only the first; all must be new and higher."""
        ranges, last = self._ranges, first if last is None else last
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        elif len(ranges) <= RANGES_MAX:
            ranges.append((first, last))

    def up_to(self, end: int) -> "Ranges":
        """Return the ranges that begin at `end` or before."""
        found = Ranges()
        found._ranges = [one for one in self._ranges if one[0] <= end]
        return found

    def copy(self) -> "Ranges":
        """Return a copy, to which further numbers can be added."""
        found = Ranges()
        found._ranges = [*self._ranges]
        return found

    def __bool__(self) -> bool:
        """Return whether there is any number."""
        return bool(self._ranges)

    def text(self, noun: str) -> str:
        """Name the numbers; `noun` is the word for one of them, such as line."""
        texts = [
            str(first) if first == last else f"{first} to {last}" for first, last in self._ranges
        ]
        shown = texts[:RANGES_MAX]
        is_single = len(self._ranges) == 1 and self._ranges[0][0] == self._ranges[0][1]
        others = " and others" if len(texts) > len(shown) else ""
        return f"{noun if is_single else printing.plural(noun)} {', '.join(shown)}{others}"
