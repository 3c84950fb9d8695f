"""Counts of observed values by bucket, cheap enough for every turn of the event loop."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """A cumulative histogram, as Prometheus defines it."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start empty. `bounds` are the ascending upper bounds of the buckets, without infinity."""
        assert list(bounds) == sorted(set(bounds)), "ascending bounds"
        self.bounds = tuple(bounds)
        self.sum = 0.0
        """Sum of all observed values."""
        self.max = 0.0
        """The largest observed value; 0 before the first."""
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value, which is not negative, that was observed `count` times."""
        self._counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count
        if value > self.max:
            self.max = value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """Return how many values were at most each bound; the last number counts all values."""
        return list(accumulate(self._counts))
