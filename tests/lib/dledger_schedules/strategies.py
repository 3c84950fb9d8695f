"""Which thread runs next: a random walk, or priorities that change a few times.

Priorities (PCT: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding
Bugs", 2010): the runnable thread of the highest priority runs; at a few random points it falls
behind all others. A bug that needs d such changes is found with a probability that depends on d,
and not on how rare its interleaving is among all. A random walk finds bugs that need many.
"""

import random
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

POINTS: Final = 300
"""About as many points as a schedule has, without its lines."""
NO_LINES: Final = 1 << 30
PLACES_MAX: Final = 3
"""Maximum number of places that hold threads in a schedule."""
HOLDS_MAX: Final = 4
RELEASE: Final = 0.01
"""Probability that a held thread continues at a point although others could."""
LINES: Final = 5000
"""About as many lines of the store as a schedule runs."""


class Strategy(Protocol[T]):
    """Chooses threads."""

    def next(self, current: T | None, runnable: Sequence[T]) -> T:
        """Choose a runnable thread at a point; `current` is None if that thread cannot run."""

    def next_at_a_line(self, current: T, runnable: Sequence[T]) -> T:
        """Choose after a pause that `lines` announced."""

    def lines(self) -> int:
        """Return how many lines of the store run until the next choice."""


class Walk(Strategy[T]):
    """Changes to another thread with a fixed probability."""

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self._probability = choices.choice([0.05, 0.2, 0.6])
        self._lines_mean = choices.choice([20, 100, 500])

    def next(self, current: T | None, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        if current is not None and self._choices.random() >= self._probability:
            return current
        return self._choices.choice(runnable)

    def next_at_a_line(self, current: T, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        return self._choices.choice(runnable)

    def lines(self) -> int:
        """See `Strategy`."""
        return self._choices.randrange(1, 2 * self._lines_mean)


class Priorities(Strategy[T]):
    """Runs the thread of the highest priority, which sometimes falls behind all others."""

    def __init__(self, choices: random.Random, *, at_lines: bool) -> None:
        self._choices = choices
        self._order: list[T] = []
        """Highest priority first."""
        changes, points = choices.randrange(1, 5), LINES if at_lines else POINTS
        self._changes = sorted(choices.sample(range(points), changes), reverse=True)
        self._at_lines = at_lines
        self._point = 0

    def next(self, current: T | None, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        if not self._at_lines and current is not None:
            self._point += 1
            if self._changes and self._point >= self._changes[-1]:
                self._changes.pop()
                self._fall_behind(current)
        return self._first_of(runnable)

    def next_at_a_line(self, current: T, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        self._fall_behind(current)
        return self._first_of(runnable)

    def lines(self) -> int:
        """See `Strategy`."""
        if not self._changes:
            return NO_LINES
        before, self._point = self._point, self._changes.pop()
        return max(1, self._point - before)

    def _fall_behind(self, current: T) -> None:
        if current in self._order:
            self._order.remove(current)
        self._order.append(current)

    def _first_of(self, runnable: Sequence[T]) -> T:
        for one in runnable:
            if one not in self._order:
                self._order.insert(self._choices.randrange(len(self._order) + 1), one)
        return next(one for one in self._order if one in runnable)


class Holds(Strategy[T]):
    """A random walk that holds threads back where they have come to a place of the schedule.

    A held thread continues when no other can, or by chance, so that anything else may happen
    between two of its lines. Threads may pass a place many times, but it rarely holds them.
    """

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self._walk: Walk[T] = Walk(choices)
        self._held: list[T] = []
        self._left = choices.randrange(1, HOLDS_MAX + 1)
        self._probability = choices.choice([0.1, 0.5])

    def next(self, current: T | None, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        if self._held and self._choices.random() < RELEASE:
            self._held.pop(0)
        free = [one for one in runnable if one not in self._held]
        if not free:
            chosen = self._choices.choice(runnable)
            self._held.remove(chosen)
            return chosen
        return self._walk.next(current if current in free else None, free)

    def next_at_a_line(self, current: T, runnable: Sequence[T]) -> T:
        """See `Strategy`."""
        if self._left and self._choices.random() < self._probability:
            self._left -= 1
            self._held.append(current)
        return self.next(current, runnable)

    def lines(self) -> int:
        """See `Strategy`."""
        return NO_LINES


def strategy_of(choices: random.Random, *, at_lines: bool) -> "Strategy[T]":
    """Choose a strategy for one schedule."""
    if choices.randrange(2):
        return Walk(choices)
    return Priorities(choices, at_lines=at_lines)
