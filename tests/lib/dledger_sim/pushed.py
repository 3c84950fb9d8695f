"""What an AppendRequest carries between simulated members."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PushedEntries:
    """Terms and bodies of entries that follow one another."""

    first_index: int
    entries: list[tuple[int, int]]
