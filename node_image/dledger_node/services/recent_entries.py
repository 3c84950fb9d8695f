"""Which entries of the log are less than a minute old; no IO.

The log's end is sampled now and then. Without a sample that is old enough, all entries count as
recent, and an entry is never believed to be older than it is.
"""

from collections import deque
from typing import Final

RECENT_S: Final = 60.0
SAMPLED_S: Final = 5.0
"""Time between two samples."""


class RecentEntries:
    """Samples of the end of one log."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, end_index: int) -> None:
        """Note the log's end; called at least as often as it moves."""
        samples = self._samples
        if samples and now_s < samples[-1][0] + SAMPLED_S and end_index >= samples[-1][1]:
            return
        if samples and end_index < samples[-1][1]:  # the log was cut, and other entries follow
            samples = self._samples = deque((at_s, min(end_index, end)) for at_s, end in samples)
        samples.append((now_s, end_index))
        while len(samples) > 1 and samples[1][0] <= now_s - RECENT_S:
            samples.popleft()

    def first_index(self, now_s: float) -> int:
        """Return an index below which every entry is older than RECENT_S; 0 if none is known."""
        samples = self._samples
        return samples[0][1] + 1 if samples and samples[0][0] <= now_s - RECENT_S else 0
