"""That a group has lost its majority, and that it has one again, is told once each."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dledger_kube.objects import (
    IMAGES,
    NOW,
    group_body,
    member,
    membership,
    node_status,
    observed_group,
    pod,
)
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.report.quorum_events import quorum_events
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.observed_state import ObservedGroup

BEGAN = NOW + timedelta(milliseconds=950)
HEALTHY = observed_group()
LOST = observed_group(members=tuple(member(k, ready=k == 1, reason="gone") for k in range(3)))
LEAVING = [member(k, ready=False, leaving=True, reason="terminating") for k in range(3)]
SLEEPS = observed_group(hibernate=True, members=tuple(LEAVING))
NOT_LISTED = observed_group(
    pods_known=False, leader=None, members=tuple(member(k, ready=False) for k in range(3))
)
NOT_LISTED_ASLEEP = replace(NOT_LISTED, hibernate=True)


class Operators:
    """Operators that follow one another; each knows only the status that the last one wrote."""

    def __init__(self, began: datetime = BEGAN) -> None:
        self.began = began
        self.status: Mapping[str, Any] = {}
        self.told: list[str] = []

    def sees(self, group: ObservedGroup, after_s: float = 0.0) -> list[str]:
        """Return the reasons of the Events about a group that is seen then."""
        now = self.began + timedelta(seconds=after_s)
        after: Manifest = build_status(
            group, LeaderHistory([]), generation=1, previous=self.status, now=now
        )
        before, self.status = self.status, after
        return [note.reason for note in quorum_events(before, after)]


def of_a_healthy_group() -> Operators:
    made = Operators()
    made.sees(HEALTHY)
    return made


def test_a_lost_and_a_restored_majority_are_told_once_each() -> None:
    operators = of_a_healthy_group()
    seen = [(LOST, 0.0), (LOST, 6.0), (LOST, 7.0), (HEALTHY, 8.0), (HEALTHY, 9.0)]

    assert [operators.sees(*each) for each in seen] == [
        [], ["QuorumLost"], [], ["QuorumRestored"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(("after_s", "told"), [(1.06, []), (1.99, []), (2.0, ["QuorumLost"])])
def test_a_loss_counts_after_two_seconds_from_its_beginning_and_not_from_the_whole_second(
    after_s: float, told: list[str]
) -> None:
    operators = of_a_healthy_group()
    operators.sees(LOST)

    assert operators.sees(LOST, after_s) == told


def test_an_election_is_told_by_no_event() -> None:
    operators = of_a_healthy_group()

    assert operators.sees(LOST) == []
    assert operators.sees(HEALTHY, 1.9) == []


def test_a_second_loss_has_a_beginning_of_its_own() -> None:
    operators = of_a_healthy_group()
    for group, after_s in [(LOST, 0.0), (LOST, 3.0), (HEALTHY, 4.0), (LOST, 10.0)]:
        operators.sees(group, after_s)

    assert operators.sees(LOST, 11.0) == []
    assert operators.sees(LOST, 12.0) == ["QuorumLost"]


def test_a_group_that_never_had_a_majority_has_lost_none() -> None:
    operators = Operators()

    assert operators.sees(LOST) == operators.sees(LOST, 60.0) == operators.sees(HEALTHY, 61.0) == []


def test_a_group_that_sleeps_or_wakes_has_lost_nothing() -> None:
    operators = of_a_healthy_group()
    seen = [(SLEEPS, 0.0), (SLEEPS, 60.0), (LOST, 61.0), (LOST, 90.0), (HEALTHY, 91.0)]

    assert not any(operators.sees(*each) for each in seen)


def test_a_loss_that_was_told_before_a_sleep_is_over_once_the_group_has_woken() -> None:
    operators = of_a_healthy_group()
    for group, after_s in [(LOST, 0.0), (LOST, 3.0), (SLEEPS, 10.0), (LOST, 60.0)]:
        operators.sees(group, after_s)

    assert operators.sees(HEALTHY, 70.0) == ["QuorumRestored"]


def test_a_loss_is_told_although_the_pods_could_not_be_listed_when_it_began() -> None:
    """One outage may take both, and the operator's start as well."""
    operators = of_a_healthy_group()
    seen = [(NOT_LISTED, 0.0), (NOT_LISTED, 5.0), (LOST, 10.0), (LOST, 12.0), (HEALTHY, 13.0)]

    assert [operators.sees(*each) for each in seen] == [
        [], [], [], ["QuorumLost"], ["QuorumRestored"],
    ]  # fmt: skip


def test_a_group_that_wakes_has_lost_nothing_although_its_pods_could_not_be_listed() -> None:
    operators = of_a_healthy_group()
    seen = [(SLEEPS, 0.0), (NOT_LISTED_ASLEEP, 5.0), (NOT_LISTED, 6.0), (LOST, 60.0), (LOST, 90.0)]

    assert not any(operators.sees(*each) for each in seen)


def test_a_new_group_whose_pods_could_not_be_listed_has_lost_nothing() -> None:
    operators = Operators()

    assert not any(operators.sees(*each) for each in [(NOT_LISTED, 0.0), (LOST, 5.0), (LOST, 9.0)])


def ready(answers: int, **spec: Any) -> GroupSnapshot:
    """A group of three of which this many members answer that they are ready."""
    snapshot = GroupSnapshot.of(group_body(spec), IMAGES)
    snapshot.membership = membership(3)
    snapshot.followed = FollowResult(pods=[pod(k, "slave") for k in range(3)])
    snapshot.answers = {f"uid-{k}": node_status(f"n{k}") for k in range(answers)}
    return snapshot


@pytest.mark.parametrize(("answers", "lacks"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_group_lacks_a_majority_while_fewer_voters_are_ready(answers: int, lacks: bool) -> None:
    assert ready(answers).lacks_majority is lacks


def test_a_group_that_is_to_sleep_lacks_nothing() -> None:
    assert not ready(0, hibernate=True).lacks_majority


def test_a_loss_is_told_in_time_although_the_clock_of_the_last_operator_was_ahead() -> None:
    operators = of_a_healthy_group()
    operators.sees(LOST, after_s=3600.0)

    told = [operators.sees(LOST, after_s=each) for each in (0.0, 1.9, 2.0, 3.0)]

    assert told == [[], [], ["QuorumLost"], []]
    assert operators.status["quorumLoss"]["since"].startswith(f"{BEGAN:%Y-%m-%dT%H:%M:%S}")
