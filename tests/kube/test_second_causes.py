"""Conditions of a group in which more than one thing is wrong: none hides the others."""

from dataclasses import replace
from typing import Any

from dledger_formats.audit import Verdict
from dledger_kube.objects import NOW, member, node_status, observed_group
from dledger_operator.conditions import of_group
from dledger_operator.conditions.condition import MESSAGE_LENGTH_MAX
from dledger_operator.observed_state import AuditFinding, ObservedGroup
from dledger_operator.problem import Problem

PENDING = Problem(reason="Unschedulable", message="0/3 nodes have room")
NO_TOKEN = Problem(reason="AdminTokenRefused", message="the Secret may not be read")
FAILS = Problem(reason="FollowFails", message="the group's pods cannot be listed")
FINDING = AuditFinding(
    audit="nightly", verdict=Verdict.DIVERGED, message="entry 4 differs", started_at=NOW
)


def condition(of: ObservedGroup, kind: str) -> dict[str, Any]:
    built = of_group.build(of, previous=[], now=NOW, generation=4)
    return next(dict(each) for each in built if each["type"] == kind)


def test_degraded_names_every_cause_behind_the_most_specific_one() -> None:
    damaged = replace(node_status("n0"), unmended="entry 7 is damaged")
    members = (
        member(0, status=damaged),
        member(1, ready=False, reason="no answer on port 40912", status=None),
        member(2, ready=False, reason="Unschedulable", status=None, problem=PENDING),
    )
    of = observed_group(members=members, audit=FINDING, warning=NO_TOKEN, follow_problem=FAILS)

    judged = condition(of, "Degraded")

    assert (judged["status"], judged["reason"]) == ("True", "Unschedulable")
    assert judged["message"].startswith("flights-2: Unschedulable: 0/3 nodes have room")
    named = [
        "AuditDiverged: audit nightly: entry 4 differs",
        "MemberNotReady: flights-1: no answer on port 40912",
        "DamageNotMended: flights-0: entry 7 is damaged",
        "FollowFails: the group's pods cannot be listed",
        "AdminTokenRefused: the Secret may not be read",
    ]
    places = [judged["message"].find(f"; {each}") for each in named]
    assert -1 not in places
    assert places == sorted(places)


def test_a_long_message_cuts_off_no_other_cause() -> None:
    long = Problem(reason="FailedCreate", message="x" * MESSAGE_LENGTH_MAX)
    lost = member(2, ready=False, reason="FailedCreate", status=None, problem=long)
    of = observed_group(members=(member(0), member(1), lost), warning=NO_TOKEN)

    message = condition(of, "Degraded")["message"]

    assert len(message) <= MESSAGE_LENGTH_MAX
    assert message.endswith("; AdminTokenRefused: the Secret may not be read")


def test_a_member_with_a_problem_is_named_once() -> None:
    lost = member(2, ready=False, reason="Unschedulable", status=None, problem=PENDING)

    judged = condition(observed_group(members=(member(0), member(1), lost)), "Degraded")

    assert judged["message"].count("flights-2") == 1


def test_a_roll_that_waits_hides_no_volume_that_cannot_grow() -> None:
    waits = Problem(reason="PodsNotReady", message="flights-2 is not ready")
    growth = Problem(reason="VolumeNotGrowing", message="data-flights-0 cannot grow")

    judged = condition(observed_group(roll_problem=waits, growth=growth), "Progressing")

    assert (judged["status"], judged["reason"]) == ("True", "PodsNotReady")
    assert judged["message"].endswith("flights-2 is not ready; data-flights-0 cannot grow")


def test_a_volume_that_cannot_grow_hides_no_claim_that_may_not_be_deleted() -> None:
    growth = Problem(reason="VolumeNotGrowing", message="data-flights-0 cannot grow")
    stays = Problem(reason="ClaimStays", message="data-flights-4 may not be deleted")

    judged = condition(observed_group(growth=growth, scaling_problem=stays), "Progressing")

    assert (judged["status"], judged["reason"]) == ("True", "VolumeNotGrowing")
    assert judged["message"] == f"{growth.message}; {stays.message}"
