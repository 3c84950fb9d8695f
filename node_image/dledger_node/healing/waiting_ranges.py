"""Damaged ranges that could not be mended yet, each with the time of its next attempt; no IO.

A range waits while no peer gives its bytes, and keeps nothing else from being read and mended.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dledger_node.errors import BorderDamagedError, Damage, StoreDamagedError, StoreError
from dledger_node.healing.mending import CannotMendError
from dledger_node.shortages import is_passing
from dledger_node.store.log.damaged_ranges import DamagedRange

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 64
"""Ranges that may wait; more damage than that stops the pass that finds it."""
RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 30.0


def retry_delay_s(failures: int) -> float:
    """Return the time to the next attempt after this many failed ones, at least one."""
    return min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(10, failures - 1))


def failure_of(error: Exception) -> CannotMendError:
    """Return the failure that an error of an attempt means."""
    if isinstance(error, CannotMendError):
        return error
    return CannotMendError(str(error), may_succeed_later=is_passing(error))


@dataclass(slots=True)
class Obstacle:
    """Damage without a range, or one range too many: it stops the work that has met it."""

    problem: str = ""
    failures: int = 0
    refusals: int = 0
    """Failures after which no later attempt was expected to succeed."""
    due_s: float = 0.0
    """When the next attempt is due."""

    def forget(self) -> None:
        """Forget the damage, but not when the next attempt is due."""
        self.problem, self.failures, self.refusals = "", 0, 0

    def note(self, damage: StoreDamagedError, failure: CannotMendError, now_s: float) -> None:
        """Note a failed attempt, and when the next one is due."""
        if not self.problem:
            logger.error("%s. Not mended yet: %s", damage, failure)
        self.failures += 1
        self.refusals += not failure.may_succeed_later
        self.problem = f"{damage}. Not mended yet: {failure}"
        self.due_s = now_s + retry_delay_s(self.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A range that waits."""

    range: DamagedRange
    damage: StoreDamagedError
    """The damage as it was found, with which the member leaves if it can never be mended."""
    failure: CannotMendError
    """Why the last attempt failed."""
    failures: int
    refusals: int
    """Failures after which no later attempt was expected to succeed."""
    due_s: float


class WaitingRanges:
    """The ranges that wait, by the index of their first entry, in the order of discovery."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.failed = 0
        """How many attempts have failed."""
        self._now_s = now_s
        self._waiting: dict[int, Waiting] = {}
        self._tried: Waiting | None = None
        self._rest_until_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def problems(self) -> list[str]:
        """What waits, and why, in words."""
        return [
            f"{waiting.damage}. Not mended yet: {waiting.failure}"
            for waiting in list(self._waiting.values())
        ]

    @property
    def next_due_s(self) -> float:
        """When the next attempt is due; infinite if no range waits."""
        due_s = min((waiting.due_s for waiting in self._waiting.values()), default=math.inf)
        return max(due_s, self._rest_until_s)

    def due(self) -> Waiting | None:
        """Return a range whose next attempt is due."""
        if self.next_due_s > self._now_s():
            return None
        return min(self._waiting.values(), key=lambda waiting: waiting.due_s)

    def hopeless(self, tries_max: int) -> Waiting | None:
        """Return a range that no peer will give, after more refusals than this."""
        for waiting in self._waiting.values():
            if not waiting.failure.may_succeed_later and waiting.refusals > tries_max:
                return waiting
        return None

    def holds(self, damaged: DamagedRange) -> bool:
        """Return whether a range waits, so that it is not tried before its time."""
        tried = self._tried
        first = damaged.start.index
        return first in self._waiting and (tried is None or first != tried.range.start.index)

    def explains(self, damage: StoreDamagedError) -> bool:
        """Return whether damage lies in a range that waits.

        If it stands in the way of retention, the range counts as such from now on.
        """
        for first, waiting in self._waiting.items():
            if _lies_in(damage, waiting.range):
                if isinstance(damage, BorderDamagedError):
                    self._waiting[first] = replace(waiting, damage=damage)
                return True
        return False

    def note(
        self, damaged: DamagedRange, failure: CannotMendError, found: StoreDamagedError | None
    ) -> bool:
        """Note a failed attempt; return False if too many ranges wait.

        `found` is the damage that a read has found, if one led here.
        """
        tried, first = self._tried, damaged.start.index
        refusals = int(not failure.may_succeed_later)
        if tried is not None:
            damage, failures = tried.damage, tried.failures + 1
            refusals += tried.refusals
            if first != tried.range.start.index:
                self.forget(tried)
        else:
            if len(self._waiting) >= WAITING_MAX:
                return False
            failures = 1
            damage = StoreDamagedError("scrubbing has found damage", Damage.BAD_ENTRY, first)
            if found is not None and _lies_in(found, damaged):
                damage = found
            logger.error("%s. Not mended yet: %s", damage, failure)
        self.failed += 1
        self._waiting[first] = Waiting(
            range=damaged, damage=damage, failure=failure, failures=failures,
            refusals=refusals, due_s=self._now_s() + retry_delay_s(failures),
        )  # fmt: skip
        return True

    @contextlib.contextmanager
    def trying(self, waiting: Waiting) -> Iterator[None]:
        """Try a range again: it is forgotten, unless the attempt fails.

        Attempts that wait for silent peers leave at least half of the time to other work.
        """
        began_s = self._now_s()
        self._tried = waiting
        try:
            yield
        except (CannotMendError, StoreError, OSError, IndexError) as error:
            self.note(waiting.range, failure_of(error), None)
        finally:
            self._tried = None
            self._rest_until_s = 2 * self._now_s() - began_s
        if self._waiting.get(waiting.range.start.index) is waiting:
            self.forget(waiting)

    def forget(self, waiting: Waiting) -> None:
        """Forget a range: it is mended, removed or given up."""
        self._waiting.pop(waiting.range.start.index, None)


def _lies_in(damage: StoreDamagedError, damaged: DamagedRange) -> bool:
    return damage.index is not None and damaged.start.index <= damage.index < damaged.end_index
