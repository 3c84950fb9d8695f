"""The weekly times at which a group may be rolled, in UTC. Pure: the time is passed in."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWindow:
    """A window that opens on each of the days and lasts less than a day."""

    days: frozenset[int]
    """The days on which it opens; 0 is Monday."""
    opens_minute: int
    """Minute of the day at which it opens."""
    closes_minute: int
    """Minute at which it closes; on the next day if it is less than `opens_minute`."""

    def closes_at(self, now: datetime) -> datetime | None:
        """Return when the currently open window closes; None if none is open."""
        for opens in self._openings(now, -1):
            closes = opens + self._length
            if opens <= now < closes:
                return closes
        return None

    def opens_at(self, now: datetime) -> datetime:
        """Return when the window opens next, after now."""
        return next(opens for opens in self._openings(now, 0) if opens > now)

    @property
    def _length(self) -> timedelta:
        minutes = (self.closes_minute - self.opens_minute) % (24 * 60)
        return timedelta(minutes=minutes)

    def _openings(self, now: datetime, first_day: int) -> list[datetime]:
        """Return the openings from `first_day`, counted from today, for more than a week."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        days = (midnight + _DAY * each for each in range(first_day, len(DAYS) + 1))
        opening = timedelta(minutes=self.opens_minute)
        return [day + opening for day in days if day.weekday() in self.days]


def read_window(window: SpecReader) -> UpdateWindow:
    """Parse `spec.updateWindow`. Raises InvalidSpecError, also for a window that never opens."""
    days = window.values.get("days", list(DAYS))
    if not isinstance(days, list) or not days or not set(map(str, days)) <= set(DAYS):
        allowed = ", ".join(DAYS)
        raise InvalidSpecError(f"{window.path}.days is {days!r}; it must be a list of {allowed}")
    opens, closes = (_minute(window, key) for key in ("from", "to"))
    if opens == closes:
        raise InvalidSpecError(f"{window.path}: from and to are equal, so it would never open")
    found = frozenset(DAYS.index(str(each)) for each in days)
    return UpdateWindow(days=found, opens_minute=opens, closes_minute=closes)


def _minute(window: SpecReader, key: str) -> int:
    text = window.required_text(key)
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidSpecError(f"{window.path}.{key} is {text!r}; it must be a time such as 02:30")
    return int(match[1]) * 60 + int(match[2])
