"""Decides when work that keeps failing is reported."""

from typing import Final

LASTS_S: Final = 5.0
"""How long work must have failed before the status says so. Conflicts and single faults of the API
server are over by then.
"""


class LastingFailure:
    """Records since when every attempt at some work has failed."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the last attempt has failed."""
        return self._since_s is not None

    def failed(self, now_s: float) -> bool:
        """Record a failed attempt; return whether all attempts have failed for `LASTS_S`."""
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= LASTS_S

    def end(self) -> None:
        """Record an attempt that has not failed, or that says nothing about the work."""
        self._since_s = None
