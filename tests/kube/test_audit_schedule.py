"""When an audit is due by its schedule, in its time zone."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.spec.audit_policy import AuditPolicy, Schedule, read_audit_policy
from dledger_operator.spec.spec_reader import SpecReader

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]

moments = st.integers(0, 2 * 365 * 24 * 60).map(
    lambda minutes: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes, seconds=7)
)
minutes_of_hour = st.sampled_from(["0", "30", "*/20", "5,50"])
hours_of_day = st.sampled_from(["*", "0", "2", "2,3", "*/6", "1-4"])
days_of_week = st.sampled_from(["*", "SUN", "1-5", "0,3"])
schedules = st.builds(
    lambda minute, hour, day, zone: Schedule(cron=f"{minute} {hour} * * {day}", time_zone=zone),
    minutes_of_hour,
    hours_of_day,
    days_of_week,
    st.sampled_from(ZONES),
)


def policy(**section: Any) -> AuditPolicy:
    read = read_audit_policy(SpecReader(section, "spec.audit"))
    assert read is not None
    return read


def times(schedule: Schedule, since: datetime, now: datetime) -> list[datetime]:
    """Every time of a schedule after `since` that is not in the future, one by one."""
    found = []
    moment = schedule.next_after(since)
    while moment <= now:
        found.append(moment)
        moment = schedule.next_after(moment)
    return found


@given(schedules, moments, st.integers(0, 4 * 24 * 60))
def test_the_last_time_that_was_missed_is_due_whatever_the_clocks_did(
    schedule: Schedule, since: datetime, minutes: int
) -> None:
    now = since + timedelta(minutes=minutes)

    assert schedule.due(since, now) == (times(schedule, since, now) or [None])[-1]


@given(schedules, moments)
def test_the_next_time_is_later_and_at_the_hour_that_the_clock_on_the_wall_shows(
    schedule: Schedule, moment: datetime
) -> None:
    following = schedule.next_after(moment)
    minute, hour = schedule.cron.split()[:2]

    assert moment < following <= moment + timedelta(days=8)
    local = following.astimezone(ZoneInfo(schedule.time_zone))
    if hour == "0":
        assert local.hour == 0
        assert minute.startswith("*") or str(local.minute) in minute.split(",")


def test_a_night_whose_hour_is_skipped_is_audited_behind_the_gap() -> None:
    nightly = Schedule(cron="30 2 * * *", time_zone="Europe/Berlin")
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)

    assert nightly.next_after(before) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "03:00 in summer"


def test_a_night_whose_hour_comes_twice_is_audited_once() -> None:
    nightly = Schedule(cron="30 2 * * *", time_zone="Europe/Berlin")
    since, now = datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC)

    assert times(nightly, since, now) == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [("@daily", "0 0 * * *"), ("@Weekly", "0 0 * * 0"), (" 5 4 * * * ", "5 4 * * *")],
)
def test_a_schedule_is_understood_as_cron_has_it(given: str, meant: str) -> None:
    assert policy(schedule=given).schedule == Schedule(cron=meant, time_zone="UTC")


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"schedule": "61 3 * * *"}, "spec.audit.schedule is '61 3 * * *': bad minute"),
        ({"schedule": "0 0 30 2 *"}, "bad day-of-month"),
        ({"schedule": "0 0 * * SAN"}, "bad day-of-week"),
        ({"schedule": "0 0 0 * * *"}, "wrong number of fields"),
        ({"schedule": "0 0 31 2 1", "timeZone": "Mars/Olympus"}, "no time zone"),
        ({"schedule": "0 0 * * *", "timeZone": "Europe"}, "no time zone"),
        ({"schedule": "0 0 * * *", "timeZone": "../../etc/passwd"}, "no time zone"),
    ],
)
def test_a_schedule_that_no_calendar_has_is_named_and_harms_nothing_else(
    section: dict[str, Any], problem: str
) -> None:
    read = policy(**section, afterFailover=True)

    assert problem in read.problem
    assert read.schedule is None
    assert read.after_failover


def test_a_group_without_the_section_is_not_audited() -> None:
    assert read_audit_policy(SpecReader({}, "spec.audit")) is None
