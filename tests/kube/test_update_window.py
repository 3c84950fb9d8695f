"""When an update window is open, and what waits for it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.api_objects import StatefulSetView
from dledger_operator.behaviors.rolls.permission import (
    Cause,
    applied_spec,
    closed_window,
    find_held,
)
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader
from dledger_operator.spec.update_window import DAYS, UpdateWindow, read_window

OLD, NEW = (Revision(parts={"image": f"node:{number}"}) for number in (1, 2))
NIGHT = {"days": ["Sat", "Sun"], "from": "22:00", "to": "04:00"}
FRIDAY = datetime(2026, 1, 2, 12, tzinfo=UTC)
SATURDAY_NIGHT = datetime(2026, 1, 3, 23, tzinfo=UTC)


def window(**fields: Any) -> UpdateWindow:
    return read_window(SpecReader({**NIGHT, **fields}, "spec.updateWindow"))


def windowed(**spec: Any) -> Group:
    return group(updatePolicy="Window", updateWindow=NIGHT, **spec)


@pytest.mark.parametrize(
    ("now", "closes", "opens"),
    [
        ("2026-01-02T12:00", None, "2026-01-03T22:00"),
        ("2026-01-03T21:59", None, "2026-01-03T22:00"),
        ("2026-01-03T22:00", "2026-01-04T04:00", "2026-01-04T22:00"),
        ("2026-01-04T03:59", "2026-01-04T04:00", "2026-01-04T22:00"),
        ("2026-01-04T04:00", None, "2026-01-04T22:00"),
        ("2026-01-05T03:59", "2026-01-05T04:00", "2026-01-10T22:00"),
        ("2026-01-05T04:00", None, "2026-01-10T22:00"),
    ],
)
def test_a_window_past_midnight_is_open_from_its_day_until_the_next(
    now: str, closes: str | None, opens: str
) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    at = window().closes_at(moment)

    assert (at and at.strftime("%Y-%m-%dT%H:%M")) == closes
    assert window().opens_at(moment).strftime("%Y-%m-%dT%H:%M") == opens


def test_the_operators_own_time_zone_moves_no_window() -> None:
    east = SATURDAY_NIGHT.astimezone(timezone(timedelta(hours=9)))

    assert window().closes_at(east) == window().closes_at(SATURDAY_NIGHT)
    assert window().opens_at(east) == window().opens_at(SATURDAY_NIGHT)


minutes = st.integers(0, 24 * 60 - 1).map(lambda each: f"{each // 60:02}:{each % 60:02}")


@given(
    st.sets(st.sampled_from(DAYS), min_size=1),
    st.tuples(minutes, minutes).filter(lambda both: both[0] != both[1]),
    st.timedeltas(timedelta(0), timedelta(days=3000)).map(lambda each: FRIDAY + each),
)
def test_every_window_opens_within_eight_days_and_closes_within_one(
    days: set[str], times: tuple[str, str], now: datetime
) -> None:
    of = window(days=sorted(days), **{"from": times[0], "to": times[1]})
    opens = of.opens_at(now)
    closes = of.closes_at(opens)

    assert now < opens <= now + timedelta(days=8)
    assert closes is not None
    assert opens < closes < opens + timedelta(days=1)
    assert of.closes_at(closes) is None or len(days) > 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"to": "22:00"}, "would never open"),
        ({"days": []}, "days is"),
        ({"days": ["Monday"]}, "days is"),
        ({"from": "24:00"}, "must be a time such as 02:30"),
        ({"to": "04:0"}, "must be a time such as 02:30"),
        ({"to": ""}, "to is missing"),
    ],
)
def test_a_window_that_never_opens_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        window(**fields)


def test_the_policy_needs_a_window_and_other_policies_ignore_it() -> None:
    with pytest.raises(InvalidSpecError, match=r"updateWindow\.from is missing"):
        group(updatePolicy="Window")
    assert group(updateWindow=NIGHT).update_window is None


def test_pods_are_replaced_while_the_window_is_open_or_with_an_approval() -> None:
    closed = closed_window(windowed(), NEW, approved="", now=FRIDAY)

    assert closed is not None
    assert closed.reason == "WaitingForWindow"
    assert "opens at 2026-01-03T22:00:00Z" in closed.message
    assert f"dledger.io/approved-revision={NEW.name}" in closed.message
    assert closed_window(windowed(), NEW, approved=NEW.name, now=FRIDAY) is None
    assert closed_window(windowed(), NEW, approved=OLD.name, now=FRIDAY) is not None
    assert closed_window(windowed(), NEW, approved="", now=SATURDAY_NIGHT) is None
    assert closed_window(group(), NEW, approved="", now=FRIDAY) is None


def test_the_template_changes_in_the_window_and_an_upgrade_needs_an_approval_even_then() -> None:
    asked = group_body({"updatePolicy": "Window", "updateWindow": NIGHT, "podLabels": {"a": "b"}})
    asked["metadata"]["generation"] = 5

    def cause(body: dict[str, Any], now: datetime) -> Cause | None:
        existing = StatefulSetView(
            namespace="air", name="flights", uid="uid", resource_version="1", replicas=3,
            first_voters=3, identity="", volume_claim_templates=[], revision=OLD,
            applied_spec=applied_spec(group_body()),
        )  # fmt: skip
        found = find_held(
            Group.from_body(body, IMAGES), NEW, applied_spec(body), existing,
            founding=False, approved="", now=now,
        )  # fmt: skip
        return found.cause if found else None

    assert cause(asked, FRIDAY) is Cause.SPEC
    assert cause(asked, SATURDAY_NIGHT) is None
    same = group_body({"updatePolicy": "Window", "updateWindow": NIGHT})
    assert cause(same, SATURDAY_NIGHT) is Cause.OPERATOR
