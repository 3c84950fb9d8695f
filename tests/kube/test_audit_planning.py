"""Which audits a group gets by itself, and which of them are kept."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.audit import Verdict
from dledger_operator import names
from dledger_operator.behaviors.audits.planning import Situation, Step, decide, holds_back
from dledger_operator.behaviors.audits.records import (
    ended_audit,
    plan_to_json,
    recorded_plan,
    without_fractions,
)
from dledger_operator.observed_audits import AuditPlan, EndedAudit
from dledger_operator.spec.audit_policy import AuditPolicy, read_audit_policy
from dledger_operator.spec.spec_reader import SpecReader

NIGHTLY = {"schedule": "0 3 * * *"}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def policy(**section: Any) -> AuditPolicy:
    read = read_audit_policy(SpecReader(section, "spec.audit"))
    assert read is not None
    return read


def situation(now: datetime, **fields: Any) -> Situation:
    values: dict[str, Any] = {
        "group": "flights", "now": now, "may_audit": True, "removes": False, "replicas": 3,
        "failed_over_at": None, "is_whole": True, "last": None, "kept": "",
    }  # fmt: skip
    return Situation(**values | fields)


def audit(
    name: str, at: datetime, result: str | None = None, *, planned: bool = True
) -> dict[str, Any]:
    """A DLedgerAudit that was created at a time, and has ended if it has a result."""
    cause = {names.AUDIT_CAUSE_LABEL: "Schedule"} if planned else {}
    body: dict[str, Any] = {
        "metadata": {"name": name, "creationTimestamp": names.timestamp(at), "labels": cause}
    }
    if result:
        body["status"] = {
            "phase": "Finished", "verdict": result, "startedAt": names.timestamp(at),
            "finishedAt": names.timestamp(at + MINUTE), "conditions": [{"message": "told"}],
        }  # fmt: skip
    return body


def begun(asked: AuditPolicy, at: datetime = START) -> AuditPlan:
    return decide(asked, None, [], situation(at)).plan


def created(step: Step) -> str:
    return step.create.name if step.create else ""


def test_nothing_is_made_up_for_from_before_the_schedule_was_set() -> None:
    step = decide(policy(**NIGHTLY), None, [], situation(START))

    assert step.create is None
    assert step.plan.next_at == datetime(2026, 3, 2, 3, tzinfo=UTC)


def test_an_audit_is_created_at_its_time_and_not_again() -> None:
    asked = policy(**NIGHTLY)
    before, at = START + 15 * HOUR - MINUTE, START + 15 * HOUR

    early = decide(asked, begun(asked), [], situation(before))
    due = decide(asked, early.plan, [], situation(at))
    again = decide(asked, due.plan, [], situation(at + MINUTE))

    assert [created(each) for each in (early, due, again)] == ["", "flights-2603020300", ""]


def test_an_audit_that_cannot_be_created_stays_due_and_what_it_precedes_is_recorded() -> None:
    asked = policy(**NIGHTLY, beforeScalingDown=True)
    shrinks = situation(START, removes=True)

    refused = decide(asked, begun(asked), [], shrinks).plan_without
    again = decide(asked, refused, [], replace(shrinks, now=START + HOUR))

    assert refused.shrinking is not None
    assert refused.shrinking.since == START
    assert removal(refused, asked, None) == "AuditGoesFirst"
    assert created(again) == "flights-s2603011300"


def test_an_operator_that_was_away_makes_up_for_the_last_time_only() -> None:
    asked = policy(**NIGHTLY)

    step = decide(asked, begun(asked), [], situation(START + 5 * DAY))
    later = decide(asked, step.plan, [], situation(START + 5 * DAY + HOUR))

    assert created(step) == "flights-2603060300"
    assert created(later) == ""


def test_an_audit_that_is_due_waits_until_the_one_that_runs_has_ended() -> None:
    asked, at = policy(**NIGHTLY), START + 15 * HOUR
    running = audit("by-hand", at - MINUTE, planned=False)
    ended = audit("by-hand", at - MINUTE, "Sound", planned=False)

    waits = decide(asked, begun(asked), [running], situation(at))
    begins = decide(asked, waits.plan, [ended], situation(at + HOUR))

    assert created(waits) == ""
    assert created(begins) == "flights-2603020300"


def test_a_group_that_sleeps_or_is_paused_is_audited_afterwards() -> None:
    asked, at = policy(**NIGHTLY), START + 15 * HOUR

    asleep = decide(asked, begun(asked), [], situation(at, may_audit=False))
    awake = decide(asked, asleep.plan, [], situation(at + HOUR))

    assert [created(asleep), created(awake)] == ["", "flights-2603020300"]


def test_another_schedule_begins_anew() -> None:
    plan = begun(policy(**NIGHTLY))

    step = decide(policy(schedule="0 * * * *"), plan, [], situation(START + DAY))

    assert step.create is None
    assert step.plan.since == START + DAY


@given(st.booleans(), st.integers(0, 20))
def test_a_failover_is_audited_once_the_members_are_back_or_ten_minutes_later(
    whole: bool, minutes: int
) -> None:
    asked, lost_at = policy(afterFailover=True), START + HOUR
    now = situation(lost_at + minutes * MINUTE, failed_over_at=lost_at, is_whole=whole)

    step = decide(asked, begun(asked), [], now)
    again = decide(asked, step.plan, [], replace(now, now=now.now + HOUR))

    due = minutes >= (1 if whole else 10)
    assert created(step) == ("flights-f2603011300" if due else "")
    assert created(again) == ("" if due else "flights-f2603011300")


def test_a_failover_that_an_audit_began_after_is_not_audited_again() -> None:
    asked, lost_at = policy(afterFailover=True), START + HOUR
    by_hand = audit("by-hand", lost_at + MINUTE, "Sound", planned=False)

    step = decide(asked, begun(asked), [by_hand], situation(lost_at + HOUR, failed_over_at=lost_at))

    assert step.create is None


def test_a_failover_from_before_it_was_asked_for_is_not_audited() -> None:
    asked = policy(afterFailover=True)
    now = situation(START + HOUR, failed_over_at=START - HOUR)

    assert decide(asked, begun(asked), [], now).create is None


def removal(plan: AuditPlan, asked: AuditPolicy, last: EndedAudit | None) -> str:
    """Why no member may be removed; empty if one may."""
    problem = holds_back(asked, plan, last, 3)
    return problem.reason if problem else ""


def test_members_are_removed_only_after_an_audit_that_began_later_is_sound() -> None:
    asked = policy(beforeScalingDown=True)
    old = ended_audit(audit("old", START - DAY, "Sound"))
    shrinks = situation(START, removes=True, last=old)
    step = decide(asked, begun(asked), [], shrinks)
    assert created(step) == "flights-s2603011200"

    told = [
        removal(step.plan, asked, ended_audit(audit("flights-s2603011200", START, result)))
        for result in ("Sound", "Damaged", "Incomplete")
    ]

    assert removal(begun(asked), asked, old) == "AuditGoesFirst", "nobody has looked yet"
    assert removal(step.plan, asked, old) == "AuditGoesFirst"
    assert told == ["", "AuditNotSound", "AuditNotSound"]
    assert removal(step.plan, policy(**NIGHTLY), old) == "", "not asked for"


@pytest.mark.parametrize(
    ("later", "problem"),
    [
        ("Sound", ""), ("Incomplete", ""), ("Failed", ""), ("Damaged", "AuditNotSound"),
        ("Diverged", "AuditNotSound"),
    ],
)  # fmt: skip
def test_a_removal_that_a_sound_audit_permitted_is_stopped_by_damage_only(
    later: str, problem: str
) -> None:
    asked = policy(beforeScalingDown=True)
    sound = ended_audit(audit("by-hand", START + HOUR, "Sound"))
    plan = decide(asked, begun(asked), [], situation(START, removes=True)).plan
    plan = decide(asked, plan, [], situation(START + 2 * HOUR, removes=True, last=sound)).plan
    assert sound is not None
    told = replace(sound, audit="later", result=later, ended_at=START + DAY)
    told = replace(told, started_at=None if later == "Failed" else START + 23 * HOUR)

    step = decide(asked, plan, [], situation(START + DAY, removes=True, last=told))
    assert removal(plan, asked, told) == removal(step.plan, asked, told) == problem
    assert created(step) == ""

    unsure = replace(told, result="Incomplete", started_at=START + DAY, ended_at=START + DAY)
    assert removal(step.plan, asked, unsure) == problem, "damage is not forgotten"


@pytest.mark.parametrize("ahead", [DAY, 3650 * DAY])
def test_a_clock_that_was_ahead_keeps_no_audit_away(ahead: timedelta) -> None:
    asked = policy(**NIGHTLY, afterFailover=True, beforeScalingDown=True)
    plan = decide(asked, begun(asked, START + ahead), [], situation(START + ahead)).plan
    plan = replace(plan, scheduled_at=START + ahead, created_at=START + ahead)
    plan = decide(asked, plan, [], situation(START)).plan

    by_schedule = decide(asked, plan, [], situation(START + DAY))
    lost_at = START + HOUR
    failed_over = decide(asked, plan, [], situation(START + 2 * HOUR, failed_over_at=lost_at))

    assert created(by_schedule) == "flights-2603020300"
    assert created(failed_over) == "flights-f2603011300"


def test_an_audit_counts_for_a_removal_that_a_clock_ahead_has_recorded() -> None:
    asked = policy(beforeScalingDown=True)
    ahead = situation(START + DAY, removes=True)
    plan = decide(asked, begun(asked), [], ahead).plan
    plan = decide(asked, plan, [], situation(START, removes=True)).plan
    sound = ended_audit(audit("by-hand", START + HOUR, "Sound", planned=False))

    assert removal(plan, asked, sound) == ""


def test_a_sound_audit_by_hand_lets_a_removal_go_on() -> None:
    asked = policy(beforeScalingDown=True)
    plan = decide(asked, begun(asked), [], situation(START, removes=True)).plan
    by_hand = ended_audit(audit("by-hand", START + HOUR, "Sound", planned=False))

    assert removal(plan, asked, by_hand) == ""


def test_a_removal_of_other_members_is_audited_again() -> None:
    asked = policy(beforeScalingDown=True)
    first = decide(asked, begun(asked), [], situation(START, removes=True, replicas=5))
    sound = ended_audit(audit("flights-s2603011200", START, "Sound"))
    ended = audit("flights-s2603011200", START, "Sound")

    further = decide(asked, first.plan, [ended], situation(START + HOUR, removes=True, last=sound))
    over = decide(asked, further.plan, [ended], situation(START + DAY, last=sound))

    assert created(further) == "flights-s2603011300"
    assert removal(further.plan, asked, sound) == "AuditGoesFirst"
    assert over.plan.shrinking is None


@given(st.lists(st.sampled_from(["Sound", "Damaged", None]), max_size=12), st.integers(1, 5))
def test_the_last_audits_are_kept_and_nobody_elses_is_deleted(
    results: list[str | None], keep: int
) -> None:
    planned = [audit(f"p{k:02}", START + k * DAY, each) for k, each in enumerate(results)]
    by_hand = [audit("by-hand", START - DAY, "Sound", planned=False)]
    oldest_damaged = next((f"p{k:02}" for k, each in enumerate(results) if each == "Damaged"), "")

    step = decide(
        policy(**NIGHTLY, keep=keep),
        None,
        [*planned, *by_hand],
        situation(START + 20 * DAY, kept=oldest_damaged),
    )

    deleted = {each["metadata"]["name"] for each in step.delete}
    ended = [f"p{k:02}" for k, each in enumerate(results) if each]
    assert deleted == set(ended[:-keep]) - {oldest_damaged}


def passed(plan: AuditPlan) -> AuditPlan:
    return replace(plan, shrinking=plan.shrinking and replace(plan.shrinking, passed=True))


times = st.integers(0, 10**6).map(lambda seconds: START + timedelta(seconds=seconds))
plans = st.builds(
    lambda since, slot, next_at, replicas: replace(
        decide(
            policy(beforeScalingDown=True),
            None,
            [],
            situation(since, removes=replicas > 0, replicas=replicas),
        ).plan,
        scheduled_at=slot,
        next_at=next_at,
    ),
    times,
    st.none() | times,
    st.none() | times,
    st.integers(0, 3),
)


@given(plans | plans.map(passed))
def test_a_plan_survives_in_the_status(plan: AuditPlan) -> None:
    assert recorded_plan({"auditPlan": plan_to_json(plan)}) == plan == without_fractions(plan)


def test_a_plan_that_somebody_has_spoiled_is_begun_anew() -> None:
    assert recorded_plan({"auditPlan": {"policy": "x", "since": "yesterday"}}) is None
    assert recorded_plan({"auditPlan": {"since": 7}}) is None


def test_the_longest_name_of_an_audit_fits() -> None:
    asked = policy(beforeScalingDown=True)
    longest = "g" * names.GROUP_NAME_LENGTH_MAX

    step = decide(asked, None, [], situation(START, group=longest, removes=True))

    assert step.create is not None
    assert len(step.create.name) == names.AUDIT_NAME_LENGTH_MAX


def test_an_audit_that_ended_without_a_verdict_is_the_last_one_too() -> None:
    body = audit("lost", START)
    condition = {"message": "given up", "lastTransitionTime": names.timestamp(START + HOUR)}
    body["status"] = {"phase": "Failed", "conditions": [condition]}

    assert ended_audit(body) == EndedAudit(
        audit="lost", result="Failed", message="given up", started_at=None, ended_at=START + HOUR
    )
    assert {each.value for each in Verdict} >= {"Sound", "Incomplete"}
