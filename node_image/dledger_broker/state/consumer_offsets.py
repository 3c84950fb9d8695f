"""Where consumer groups continue, by group and topic."""

from collections.abc import Callable
from typing import Final, Self

OFFSETS_MAX: Final = 1_000_000
UNSET: Final = -1


class ConsumerOffsets:
    """The offsets of all groups. A list ends with the last queue that is set."""

    def __init__(self) -> None:
        self.by_pair: dict[tuple[str, str], list[int]] = {}
        """By group and topic; `UNSET` for a queue in which the group never set an offset."""
        self.count = 0
        """The length of all lists together."""

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset; None if the group never set one."""
        offsets = self.by_pair.get((group, topic), ())
        if not 0 <= queue_id < len(offsets) or offsets[queue_id] == UNSET:
            return None
        return offsets[queue_id]

    def refusal(self, group: str, topic: str, queue_id: int) -> str | None:
        """Return why there is no room for an offset, in words; None if there is."""
        missing = queue_id + 1 - len(self.by_pair.get((group, topic), ()))
        if self.count + missing > OFFSETS_MAX:
            return f"the broker has {self.count} consumer offsets; {OFFSETS_MAX} is the limit"
        return None

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, which may be higher or lower than before."""
        offsets = self.by_pair.setdefault((group, topic), [])
        missing = queue_id + 1 - len(offsets)
        if missing > 0:
            offsets += [UNSET] * missing
            self.count += missing
        offsets[queue_id] = offset

    def delete(self, matches: Callable[[str, str], bool]) -> None:
        """Delete the offsets of every pair of group and topic that matches."""
        for pair in [pair for pair in self.by_pair if matches(*pair)]:
            self.count -= len(self.by_pair.pop(pair))

    def copy(self) -> Self:
        """Return a copy that does not change when these do."""
        other = type(self)()
        other.by_pair = {pair: offsets.copy() for pair, offsets in self.by_pair.items()}
        other.count = self.count
        return other

    def restore(self, group: str, topic: str, offsets: list[int]) -> str | None:
        """Take over the offsets of one pair of a snapshot. Returns what is wrong with them."""
        if (group, topic) in self.by_pair or not offsets or offsets[-1] == UNSET:
            return f"offsets of {group[:150]!r} in {topic[:150]!r}"
        self.by_pair[group, topic] = offsets
        self.count += len(offsets)
        return None if self.count <= OFFSETS_MAX else f"{self.count} consumer offsets"
