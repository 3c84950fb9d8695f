"""Every choice that chance makes in a run, so that a run can be kept, shortened and told again.

A choice has a *site*, such as "loss n0>n1", and a number: how often that site was asked before. A
calm choice is what an undisturbed group would meet: no loss, the mean delay. A tape keeps only the
choices that were not calm; whatever it does not name is calm when it is replayed, so that a tape
from which lines are removed is a tape still.
"""

import random
from math import log
from typing import Protocol, TypeAlias

TapedChoices: TypeAlias = dict[str, dict[int, int]]
"""For each site, the choices by number."""


class Choices(Protocol):
    """Where chance comes from."""

    def chance(self, site: str, rate: float) -> bool:
        """True in a part of all cases; calm is False."""

    def delay_us(self, site: str, mean_us: int) -> int:
        """A time of this mean, mostly short and sometimes long; calm is the mean."""

    def number(self, site: str, low: int, high: int, calm: int) -> int:
        """A whole number between both, which are included."""

    def election_ticks(self, site: str, low: int, high: int) -> int:
        """A number between both; calm ones differ between sites, or nobody would win."""

    def seed(self, site: str) -> int:
        """Where a choice of many parts begins; calm is 0, which means no fault at all."""


class DrawnChoices:
    """Chance itself, from one random source."""

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
    """The same chance, choice for choice, with a tape running."""

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
    """The choices of a tape; calm ones where it has none."""

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
    """Some number between both that depends on the member and on how often it was asked."""
    mixed = sum(site.encode()) * 7 + number * 13
    return low + mixed % (high - low + 1)
