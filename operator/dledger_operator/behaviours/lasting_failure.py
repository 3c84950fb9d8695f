"""Work that fails again and again: when people are told of it."""

from typing import Final

LASTS_S: Final = 5.0
"""How long work must have failed before the status says so. Conflicts and single faults of the API
server are over by then.
"""


class LastingFailure:
    """Knows since when every attempt at some work has failed."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the last attempt has failed."""
        return self._since_s is not None

    def failed(self, now_s: float) -> bool:
        """Take note of a failed attempt; return whether all have failed for `LASTS_S` by now."""
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= LASTS_S

    def end(self) -> None:
        """Take note of an attempt that has not failed, or tells nothing."""
        self._since_s = None
