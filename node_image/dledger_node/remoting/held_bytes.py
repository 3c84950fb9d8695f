"""The bytes of unfinished frames that connections of one kind hold together.

Above half of the limit, only the oldest of the connections that hold much is read, and those of
every address that holds less than its share of the other half. The others are paused, and wait for
room. So a flood from one address stops no large frame from another.
"""

from collections import Counter
from typing import Final, Protocol

SMALL_FRAME_BYTES: Final = 64 * 1024
"""A connection that holds at most this much of an unfinished frame is never paused."""
RESUME_SHARE: Final = 0.75
"""Paused connections resume below this share of what they may hold."""


class Holder(Protocol):
    """A connection."""

    address: str
    """The address of the other side's host."""

    def pause_for_room(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Resume reading."""


class HeldBytes:
    """Counts the bytes, and pauses and resumes connections."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        """Bytes that all connections hold."""
        self._large: dict[Holder, int] = {}
        """What each connection holds that holds much, the oldest first."""
        self._by_address: Counter[str] = Counter()
        """The sums of these bytes by address."""
        self._paused: dict[str, dict[Holder, None]] = {}
        """The paused ones of these connections, by address."""

    def count(self, holder: Holder, change_bytes: int, held_bytes: int) -> None:
        """Note how many bytes a connection holds now, and how many more or less than before."""
        self.held_bytes += change_bytes
        self._note_large(holder, held_bytes)
        is_first = holder is next(iter(self._large), None)
        if holder in self._large and not (is_first or self._has_room(holder.address)):
            paused = self._paused.setdefault(holder.address, {})
            if holder not in paused:
                paused[holder] = None
                holder.pause_for_room()
        if change_bytes < 0:
            self._resume()

    def _note_large(self, holder: Holder, held_bytes: int) -> None:
        """Note what a connection holds if that is much."""
        address, before_bytes = holder.address, self._large.get(holder, 0)
        if held_bytes > SMALL_FRAME_BYTES:
            self._large[holder] = held_bytes
            self._by_address[address] += held_bytes - before_bytes
        elif before_bytes:
            del self._large[holder]
            self._by_address[address] -= before_bytes
            if not self._by_address[address]:
                del self._by_address[address]
            self._go_on(holder)  # what had arrived when it was paused has made its frame whole

    def _has_room(self, address: str, part: float = 1.0) -> bool:
        """Return whether all connections, or those of this address, hold at most this part of what
        they may.
        """
        half_bytes = part * self.bytes_max / 2
        if self.held_bytes <= half_bytes:
            return True
        return self._by_address[address] <= half_bytes / len(self._by_address)

    def _resume(self) -> None:
        """Resume paused connections for which there is room, and always the oldest, so that at
        least one makes progress.
        """
        if not self._paused:
            return
        self._go_on(next(iter(self._large)))
        for address in list(self._paused):
            if self._has_room(address, RESUME_SHARE):
                for holder in list(self._paused[address]):
                    self._go_on(holder)

    def _go_on(self, holder: Holder) -> None:
        """Resume a connection if it is paused."""
        paused = self._paused.get(holder.address, {})
        if holder in paused:
            del paused[holder]
            if not paused:
                del self._paused[holder.address]
            holder.resume()
