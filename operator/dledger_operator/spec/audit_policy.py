"""When the operator audits a group by itself: `spec.audit`. Pure: the time is passed in."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from dledger_operator.spec.audit_request import own_code_problem
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

DEFAULT_TIME_ZONE: Final = "UTC"
KEEP_DEFAULT: Final = 10
CRON_FIELDS: Final = 5
_SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Times in a time zone, as in cron. A time that a clock change skips is moved to the end of the
    gap; a time that a clock change repeats counts once.
    """

    cron: str
    time_zone: str

    def __str__(self) -> str:
        return f"{self.cron} ({self.time_zone})"

    def next_after(self, moment: datetime) -> datetime:
        """Return the first scheduled time after a moment, in UTC."""
        return _time(self.cron, self.time_zone, moment)

    def due(self, since: datetime, now: datetime) -> datetime | None:
        """Return the last scheduled time after `since` that is not in the future; None if none is.

        If several times were missed, only the last one is made up for.
        """
        first = self.next_after(since)
        if first > now:
            return None
        return max(first, _time(self.cron, self.time_zone, now, reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicy:
    """When a group is audited, and how many audits are kept."""

    schedule: Schedule | None
    problem: str
    """Why no audit is scheduled although the spec has a schedule; empty if nothing is wrong."""
    after_failover: bool
    before_scaling_down: bool
    keep: int
    """How many of the ended audits that the operator created are kept."""
    request: Mapping[str, Any]
    """The fields of each audit's spec that the policy sets: `resources`, `readRate`, `decoder`,
    `executors`, `history`.
    """

    @property
    def key(self) -> str:
        """What the policy asks for; a different key begins a new plan."""
        failover = ", after a failover" if self.after_failover else ""
        return f"{self.schedule or 'no schedule'}{failover}"


def read_audit_policy(section: SpecReader) -> AuditPolicy | None:
    """Read the policy; None if there is none. Raises InvalidSpecError for a wrong type.

    A schedule that cannot be followed does not make the spec invalid: the group runs anyway.
    """
    if not section.values:
        return None
    schedule, problem = _schedule(section)
    if refusal := own_code_problem(section):
        schedule, problem = None, refusal
    return AuditPolicy(
        schedule=schedule,
        problem=problem,
        after_failover=section.flag("afterFailover", default=False),
        before_scaling_down=section.flag("beforeScalingDown", default=False),
        keep=max(1, section.number("keep", KEEP_DEFAULT)),
        request={
            field: section.values[field]
            for field in ("resources", "readRate", "decoder", "executors", "history")
            if section.values.get(field) is not None
        },
    )


def _schedule(section: SpecReader) -> tuple[Schedule | None, str]:
    """Return the schedule, or why it cannot be followed. The API server knows neither the calendar
    nor time zones.
    """
    given = section.text("schedule").strip()
    if not given:
        return None, ""
    time_zone = section.text("timeZone") or DEFAULT_TIME_ZONE
    try:
        ZoneInfo(time_zone)
    except (KeyError, OSError, ValueError):
        return None, (
            f"{section.path}.timeZone is {time_zone!r}, which is no time zone; use a name such as "
            "Europe/Berlin"
        )
    cron = _SHORTHANDS.get(given.lower(), given)
    schedule = Schedule(cron=cron, time_zone=time_zone)
    try:
        if len(cron.split()) != CRON_FIELDS:
            raise CronSimError("Wrong number of fields")
        schedule.next_after(datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return None, f"{section.path}.schedule is {given!r}: {str(error).lower()}"
    except InvalidSpecError as error:
        return None, f"{section.path}.schedule is {given!r}: {error}"
    return schedule, ""


@functools.lru_cache(maxsize=4096)
def _time(cron: str, time_zone: str, moment: datetime, *, reverse: bool = False) -> datetime:
    """Return the first time after a moment; with `reverse`, the last one that is not after it.

    Raises InvalidSpecError if no time matches within 50 years.
    """
    local = moment.astimezone(ZoneInfo(time_zone))
    if reverse:  # the moment itself counts
        local = local.replace(microsecond=1)
    try:
        return next(CronSim(cron, local, reverse=reverse)).astimezone(UTC)
    except StopIteration:
        raise InvalidSpecError("no day of the calendar matches") from None
