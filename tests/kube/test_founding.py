"""Whether and how a group was founded, from the objects that record it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.objects import group
from dledger_operator.api_objects import SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.founding.founding import (
    FoundingRecords,
    blank_ordinals,
    find_shape,
)
from dledger_operator.problem import Problem
from dledger_operator.resources import config_map
from dledger_operator.spec.shape import Shape

NO_RECORDS = FoundingRecords(settings=None, stateful_set=None, claims=(), status={})
STATEFUL_SET = StatefulSetView(
    namespace="air", name="flights",
    uid="stateful-set-uid",
    resource_version="1", replicas=5, first_voters=3, identity="",
    volume_claim_templates=(),
)  # fmt: skip
STATEFUL_SET_WITHOUT_RECORD = replace(STATEFUL_SET, first_voters=None)


def settings(first_voters: int = 3, state: GroupState = GroupState.EXISTING) -> SettingsView:
    shape = replace(Shape.of_new(first_voters), state=state)
    data: dict[str, str] = config_map.build(group(), shape)["data"]
    return SettingsView(data=data)


def claims(count: int, first_voters: int | None = 3) -> list[VolumeClaimView]:
    return [
        VolumeClaimView(
            name=f"data-flights-{ordinal}", ordinal=ordinal, first_voters=first_voters, identity="",
            leaving=False,
            problem=None,
        )
        for ordinal in range(count)
    ]  # fmt: skip


def found(
    replicas: int = 5, *, led: bool = True, blank: frozenset[int] = frozenset(), **records: Any
) -> Shape:
    existing = replace(NO_RECORDS, **records)
    shape = find_shape(group(replicas=replicas), existing, led=led, voters=3, blank=blank)
    assert isinstance(shape, Shape), shape
    return shape


def refused(replicas: int = 5, **records: Any) -> str:
    existing = replace(NO_RECORDS, **records)
    problem = find_shape(group(replicas=replicas), existing, led=True, voters=3)
    assert isinstance(problem, Problem), problem
    assert problem.reason == "FoundingUnknown"
    assert problem.message.endswith("nothing was changed")
    return problem.message


def test_a_group_without_any_record_is_new() -> None:
    assert found(3, led=False) == Shape.of_new(3)


@pytest.mark.parametrize(
    "records",
    [
        {"settings": settings(), "stateful_set": STATEFUL_SET, "status": {"firstVoters": 3}},
        {"settings": settings()},
        {"stateful_set": STATEFUL_SET},
        {"claims": claims(5)},
        {"status": {"firstVoters": 3}},
        {"settings": settings(), "stateful_set": STATEFUL_SET_WITHOUT_RECORD},
        {"stateful_set": STATEFUL_SET_WITHOUT_RECORD, "claims": claims(3)},
    ],
    ids=lambda records: " and ".join(records),
)
def test_each_record_suffices_to_know_the_first_voters(records: Mapping[str, Any]) -> None:
    shape = found(**records)

    assert (shape.first_voters, shape.state) == (3, GroupState.EXISTING)


@pytest.mark.parametrize(("led", "state"), [(False, GroupState.NEW), (True, GroupState.EXISTING)])
def test_a_group_stays_new_until_it_has_had_a_leader(led: bool, state: GroupState) -> None:
    being_founded = settings(state=GroupState.NEW)

    assert found(led=led, settings=being_founded, stateful_set=STATEFUL_SET).state is state


def test_settings_without_an_initial_state_do_not_make_a_group_new() -> None:
    data = {key: text for key, text in settings().data.items() if key != config_map.STATE_KEY}

    shape = found(led=False, settings=SettingsView(data=data))

    assert shape.state is GroupState.EXISTING


@pytest.mark.parametrize(
    ("existing", "blank", "led", "state"),
    [
        (3, {0, 1, 2}, False, GroupState.NEW),
        (5, {0, 1, 2, 3, 4}, False, GroupState.NEW),
        (3, {0, 1, 2}, True, GroupState.EXISTING),
        (3, {0, 1}, False, GroupState.EXISTING),
        (5, {0, 1, 2}, False, GroupState.EXISTING),
        (2, {0, 1}, False, GroupState.EXISTING),
    ],
)
def test_a_group_begins_over_claims_only_if_each_is_held_by_a_blank_member(
    existing: int, blank: set[int], led: bool, state: GroupState
) -> None:
    told = frozenset(f"data-flights-{ordinal}" for ordinal in blank)

    shape = found(
        3, led=led, settings=settings(), blank=blank_ordinals(claims(existing), told),
        claims=claims(existing),
    )  # fmt: skip

    assert shape.state is state


def test_a_founding_continues_with_its_recorded_first_voters() -> None:
    being_founded = settings(state=GroupState.NEW)

    shape = found(5, led=False, settings=being_founded)

    assert (shape.first_voters, shape.pods) == (3, 3)


def test_an_existing_stateful_set_keeps_its_replicas() -> None:
    assert found(3, stateful_set=STATEFUL_SET).pods == 5
    assert found(7, stateful_set=STATEFUL_SET).pods == 5


def test_a_lost_stateful_set_is_recreated_with_a_pod_for_every_volume_claim() -> None:
    assert found(3, settings=settings(), claims=claims(5)).pods == 5
    assert found(3, settings=settings(), claims=claims(9)).pods == 7


def test_contradicting_records_are_all_named() -> None:
    message = refused(settings=settings(5), claims=claims(1), status={"firstVoters": 1})

    assert "the ConfigMap says 5" in message
    assert "volume claim data-flights-0 says 3" in message
    assert "the status says 1" in message


@pytest.mark.parametrize(
    "peers", ["", "n0-a:1;n2-b:1;n3-c:1", "n0-a:1;n1-b:1", "nonsense"],
    ids=["no peers", "other ids", "an even number", "nonsense"],
)  # fmt: skip
def test_settings_with_invalid_peers_are_refused(peers: str) -> None:
    refused(settings=SettingsView(data={"DLEDGER_PEERS": peers}))


def test_a_stateful_set_without_the_annotation_is_refused_if_nothing_else_records_it() -> None:
    message = refused(stateful_set=STATEFUL_SET_WITHOUT_RECORD, claims=claims(5, None))

    assert "the StatefulSet has no valid annotation dledger.io/first-voters" in message


def test_volume_claims_without_annotations_belong_to_an_existing_group() -> None:
    shape = found(3, claims=claims(3, None))

    assert (shape.first_voters, shape.state) == (3, GroupState.EXISTING)


def test_more_volume_claims_without_annotations_than_members_are_refused() -> None:
    assert "volume claims for 5 members" in refused(3, claims=claims(5, None))


def superseded_by(first_voters: int, *earlier: int) -> SettingsView:
    new = settings(first_voters, state=GroupState.NEW)
    return replace(new, superseded=frozenset(earlier))


@pytest.mark.parametrize(
    "records",
    [
        {"stateful_set": replace(STATEFUL_SET, first_voters=5, leaving=True)},
        {"claims": claims(5, first_voters=5)},
        {"status": {"firstVoters": 5}, "claims": claims(5, first_voters=7)},
    ],
    ids=lambda records: " and ".join(records),
)
def test_records_of_a_superseded_founding_may_outlive_it(records: Mapping[str, Any]) -> None:
    shape = found(3, led=False, settings=superseded_by(3, 5, 7), **records)

    assert (shape.first_voters, shape.pods, shape.state) == (3, 3, GroupState.NEW)
    assert shape.superseded == {5, 7}


def test_a_stateful_set_of_a_superseded_founding_that_is_not_being_deleted_is_a_contradiction() -> (
    None
):
    """An earlier release, or somebody who restored it, may have made it again."""
    made = replace(STATEFUL_SET, first_voters=5)

    message = refused(settings=superseded_by(3, 5), stateful_set=made, status={"firstVoters": 5})

    assert "the StatefulSet says 5" in message
    assert "the status says 5" in message
    assert "delete the ConfigMap, and leave the StatefulSet: its members may have begun" in message


def test_other_records_than_those_of_superseded_foundings_contradict() -> None:
    assert "the status says 7" in refused(settings=superseded_by(3, 5), status={"firstVoters": 7})


def test_a_group_that_was_founded_again_keeps_its_pods_once_it_has_begun() -> None:
    """Its ConfigMap still tells of the superseded foundings."""
    begun = replace(superseded_by(3, 5), data=settings(3).data)

    assert found(5, settings=begun, stateful_set=STATEFUL_SET).pods == 5
    assert found(5, settings=begun, claims=claims(5)).pods == 5


ASLEEP = replace(settings(), note="0")


@pytest.mark.parametrize("count", [3, 7], ids=["claims of members", "claims of removed ones too"])
@pytest.mark.parametrize(
    ("records", "hibernate", "pods"),
    [
        ({"settings": ASLEEP}, True, 0),
        ({"settings": replace(ASLEEP, note="5")}, True, 5),
        ({"settings": settings()}, True, 0),
        ({"settings": ASLEEP}, False, 0),
        ({"settings": settings()}, False, None),
        ({"settings": settings(state=GroupState.NEW), "led": False}, True, None),
        ({"led": False}, True, None),
    ],
    ids=["noted", "pods are left", "no note", "woken", "awake", "a new group", "no settings"],
)
def test_a_stateful_set_that_a_sleeping_group_has_lost_wakes_nobody(
    records: dict[str, Any], count: int, pods: int | None, *, hibernate: bool
) -> None:
    led = records.get("led", True)
    existing = replace(NO_RECORDS, claims=claims(count), settings=records.get("settings"))
    shape = find_shape(group(hibernate=hibernate), existing, led=led, voters=3)

    assert isinstance(shape, Shape), shape
    assert shape.pods == (count if pods is None else pods)
