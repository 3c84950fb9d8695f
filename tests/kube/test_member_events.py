"""That a voter has lost its log, and that it votes again, is told once each."""

import itertools
from typing import Any

import pytest

from dledger_formats.http.status import MembershipRole, StorageState
from dledger_kube.objects import NOW, member, node_status, observed_group
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.member_events import member_events
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.observed_state import ObservedMember

SILENT = member(2, status=None, ready=False, reason="no answer on port 40912")


def says(**fields: Any) -> ObservedMember:
    """Return n2 with its answer."""
    return member(2, status=node_status("n2", **fields))


JOINING = says(joining=True, ready=False, reason="waits for n0")
BACK, FRESH = says(joined_index=4711), says()


def statuses(*shown: ObservedMember, led: bool = True, **first: Any) -> list[Manifest]:
    """Return the statuses that an operator writes one after the other, from `first` on."""
    written: list[Manifest] = [first]
    for n2 in shown:
        group = observed_group(members=(member(0), member(1), n2))
        if not led:
            group = observed_group(members=(member(0), member(1), n2), leader=None)
        written.append(
            build_status(group, LeaderHistory([]), generation=1, previous=written[-1], now=NOW)
        )
    return written


def told(*shown: ObservedMember, led: bool = True) -> list[str]:
    """Return the reasons of the Events about n2."""
    written = [each.get("members", []) for each in statuses(*shown, led=led)]
    pairs = itertools.pairwise(written)
    return [note.reason for pair in pairs for note in member_events(*pair)]


def test_a_lost_log_and_the_new_vote_are_told_once_each() -> None:
    assert told(FRESH, JOINING, JOINING, BACK, BACK) == ["VolumeReset", "MemberReadmitted"]


def test_a_member_that_joins_faster_than_the_operator_looks_is_told_all_the_same() -> None:
    assert told(FRESH, BACK, BACK) == ["MemberReadmitted"]


def test_an_answer_that_fails_in_between_tells_nothing_twice() -> None:
    shown = (FRESH, SILENT, JOINING, SILENT, JOINING, SILENT, BACK, SILENT, BACK)

    assert told(*shown) == ["VolumeReset", "MemberReadmitted"]


def test_a_second_loss_is_told_again() -> None:
    again = says(joined_index=4800)

    assert told(BACK, FRESH, JOINING, again) == [
        "MemberReadmitted", "VolumeReset", "MemberReadmitted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "shown",
    [
        says(joining=True, ready=False, storage=StorageState.HEALING),
        member(
            2,
            membership=MembershipRole.LEARNER,
            status=node_status("n2", joining=True, joined_index=-1),
        ),
        FRESH,
        SILENT,
    ],
    ids=["mends its log", "is being added", "serves", "is silent"],
)
def test_a_member_that_has_lost_no_volume_is_not_named(shown: ObservedMember) -> None:
    assert told(FRESH, shown) == []
    assert "joining" not in statuses(shown)[-1]["members"][2]


def test_the_members_of_a_group_without_a_leader_may_all_be_new() -> None:
    assert told(JOINING, led=False) == []
    assert told(JOINING, led=True) == ["VolumeReset"]


def test_the_events_say_what_happened_and_what_to_do() -> None:
    written = [each.get("members", []) for each in statuses(FRESH, JOINING, BACK)]
    (reset,) = member_events(*written[1:3])
    (readmitted,) = member_events(*written[2:4])

    assert (reset.severity, readmitted.severity) == ("Warning", "Normal")
    assert "find out what happened to it" in reset.message
    assert "up to entry 4711" in readmitted.message
