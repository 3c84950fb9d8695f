"""Every random choice of a run, so that a run can be recorded, shrunk and replayed.

A choice has a *site*, such as "loss n0>n1", and a number that counts the choices at this site. A
calm choice is that of an undisturbed group: no loss, the mean delay. A tape records only the
choices that were not calm. All others are calm in a replay, so a tape without some of its lines is
still a tape.
"""

import random
from math import log
from typing import Protocol, TypeAlias

TapedChoices: TypeAlias = dict[str, dict[int, int]]
"""The choices of each site by number."""


class Choices(Protocol):
    """The source of random choices."""

    def chance(self, site: str, rate: float) -> bool:
        """Return True with probability `rate`; the calm choice is False."""

    def delay_us(self, site: str, mean_us: int) -> int:
        """Return an exponentially distributed time; the calm choice is the mean."""

    def number(self, site: str, low: int, high: int, calm: int) -> int:
        """Return an integer from `low` to `high` inclusive."""

    def election_ticks(self, site: str, low: int, high: int) -> int:
        """Return an integer from `low` to `high`; calm choices differ by site, to end elections."""

    def seed(self, site: str) -> int:
        """Return the seed of a compound choice; the calm choice is 0, without any fault."""


class DrawnChoices:
    """Choices drawn from one random source."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random
        self._getrandbits = rng.getrandbits

    def chance(self, site: str, rate: float) -> bool:
        """See `Choices`."""
        return rate > 0.0 and self._random() < rate

    def delay_us(self, site: str, mean_us: int) -> int:
        """See `Choices`."""
        return int(-log(1.0 - self._random()) * mean_us)

    def number(self, site: str, low: int, high: int, calm: int) -> int:
        """See `Choices`."""
        return low + int(self._random() * (high - low + 1))

    def election_ticks(self, site: str, low: int, high: int) -> int:
        """See `Choices`."""
        return low + int(self._random() * (high - low + 1))

    def seed(self, site: str) -> int:
        """See `Choices`."""
        return self._getrandbits(32)


class RecordedChoices(DrawnChoices):
    """Draws as `DrawnChoices` does, and records the draws for a tape."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.taped: TapedChoices = {}
        self._counts: dict[str, int] = {}

    def chance(self, site: str, rate: float) -> bool:
        """See `Choices`."""
        return bool(self._keep(site, int(super().chance(site, rate)), 0))

    def delay_us(self, site: str, mean_us: int) -> int:
        """See `Choices`."""
        return self._keep(site, super().delay_us(site, mean_us), mean_us)

    def number(self, site: str, low: int, high: int, calm: int) -> int:
        """See `Choices`."""
        return self._keep(site, super().number(site, low, high, calm), calm)

    def election_ticks(self, site: str, low: int, high: int) -> int:
        """See `Choices`."""
        calm = calm_election_ticks(site, self._counts.get(site, 0), low, high)
        return self._keep(site, super().election_ticks(site, low, high), calm)

    def seed(self, site: str) -> int:
        """See `Choices`."""
        return self._keep(site, super().seed(site), 0)

    def _keep(self, site: str, value: int, calm: int) -> int:
        number = self._counts.get(site, 0)
        self._counts[site] = number + 1
        if value != calm:
            self.taped.setdefault(site, {})[number] = value
        return value


class TapedReplay:
    """The choices of a tape, and calm choices where it has none."""

    def __init__(self, taped: TapedChoices) -> None:
        self._taped = taped
        self._counts: dict[str, int] = {}

    def chance(self, site: str, rate: float) -> bool:
        """See `Choices`."""
        return bool(self._next(site, 0))

    def delay_us(self, site: str, mean_us: int) -> int:
        """See `Choices`."""
        return self._next(site, mean_us)

    def number(self, site: str, low: int, high: int, calm: int) -> int:
        """See `Choices`."""
        return min(high, max(low, self._next(site, calm)))

    def election_ticks(self, site: str, low: int, high: int) -> int:
        """See `Choices`."""
        calm = calm_election_ticks(site, self._counts.get(site, 0), low, high)
        return min(high, max(low, self._next(site, calm)))

    def seed(self, site: str) -> int:
        """See `Choices`."""
        return self._next(site, 0)

    def _next(self, site: str, calm: int) -> int:
        number = self._counts.get(site, 0)
        self._counts[site] = number + 1
        taped = self._taped.get(site)
        return calm if taped is None else taped.get(number, calm)


def calm_election_ticks(site: str, number: int, low: int, high: int) -> int:
    """Return a number from `low` to `high` that depends on the site and the count."""
    mixed = sum(site.encode()) * 7 + number * 13
    return low + mixed % (high - low + 1)
