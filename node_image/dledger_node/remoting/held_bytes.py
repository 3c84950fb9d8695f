"""The bytes of unfinished frames that connections of one kind hold together.

Above the limit, only the oldest of the connections that hold much is read. The others are paused,
and wait for room.
"""

from typing import Final, Protocol

SMALL_FRAME_BYTES: Final = 64 * 1024
"""A connection that holds at most this much of an unfinished frame is never paused."""
RESUME_SHARE: Final = 0.75
"""Paused connections resume below this share of the limit."""


class Holder(Protocol):
    """A connection."""

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
        # Connections that hold much, the oldest first, and whether they are paused.
        self._large: dict[Holder, bool] = {}

    def count(self, holder: Holder, change_bytes: int, held_bytes: int) -> None:
        """Note how many bytes a connection holds now, and how many more or less than before."""
        self.held_bytes += change_bytes
        if held_bytes > SMALL_FRAME_BYTES:
            self._large.setdefault(holder, False)
        elif self._large.pop(holder, False):
            holder.resume()  # it was paused, and what had arrived by then made its frame whole
        is_full = self.held_bytes > self.bytes_max
        if is_full and self._large.get(holder) is False and holder is not next(iter(self._large)):
            self._large[holder] = True
            holder.pause_for_room()
        if change_bytes < 0:
            self._resume()

    def _resume(self) -> None:
        """Resume paused connections while there is room, and always the oldest, so that at least
        one makes progress.
        """
        limit_bytes = self.bytes_max * RESUME_SHARE
        for number, (holder, paused) in enumerate(list(self._large.items())):
            if number and self.held_bytes >= limit_bytes:
                return
            if paused:
                self._large[holder] = False
                holder.resume()
