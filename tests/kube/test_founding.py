"""How a group began, from what is left of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dledger_formats.settings import GroupState
from dledger_kube.objects import group
from dledger_operator.behaviours.children.founding import Traces, find_shape
from dledger_operator.resources import config_map
from dledger_operator.spec.shape import Shape
from dledger_operator.views import SettingsView, StatefulSetView, Trouble, VolumeView

NOTHING = Traces(settings=None, stateful_set=None, claims=(), status={})
STATEFUL_SET = StatefulSetView(
    namespace="air", name="flights",
    owner_uid="group-uid",
    resource_version="1", replicas=5, first_voters=3,
    volume_claim_templates=(),
)  # fmt: skip
OLDER_STATEFUL_SET = replace(STATEFUL_SET, replicas=3, first_voters=None)


def settings(first_voters: int = 3, state: GroupState = GroupState.EXISTING) -> SettingsView:
    shape = replace(Shape.of_new(first_voters), state=state)
    data: dict[str, str] = config_map.build(group(), shape)["data"]
    return SettingsView(owner_uid="group-uid", data=data)


def older_settings() -> SettingsView:
    data = settings().data
    return SettingsView(
        owner_uid="group-uid",
        data={key: text for key, text in data.items() if key != config_map.STATE_KEY},
    )


def claims(count: int, first_voters: int | None = 3) -> list[VolumeView]:
    return [
        VolumeView(
            name=f"data-flights-{ordinal}", ordinal=ordinal, first_voters=first_voters,
            leaving=False,
            trouble=None,
        )
        for ordinal in range(count)
    ]  # fmt: skip


def found(replicas: int = 5, *, led: bool = True, **left: Any) -> Shape:
    shape = find_shape(group(replicas=replicas), replace(NOTHING, **left), led=led, voters=3)
    assert isinstance(shape, Shape), shape
    return shape


def refused(replicas: int = 5, **left: Any) -> str:
    trouble = find_shape(group(replicas=replicas), replace(NOTHING, **left), led=True, voters=3)
    assert isinstance(trouble, Trouble), trouble
    assert trouble.reason == "FoundingUnknown"
    assert trouble.message.endswith("nothing was changed")
    return trouble.message


def test_a_group_that_left_no_trace_is_new() -> None:
    assert found(3, led=False) == Shape.of_new(3)


@pytest.mark.parametrize(
    "left",
    [
        {"settings": settings(), "stateful_set": STATEFUL_SET, "status": {"firstVoters": 3}},
        {"settings": settings()},
        {"settings": older_settings()},
        {"stateful_set": STATEFUL_SET},
        {"stateful_set": OLDER_STATEFUL_SET},
        {"claims": claims(5)},
        {"status": {"firstVoters": 3}},
        {"settings": older_settings(), "stateful_set": OLDER_STATEFUL_SET},
    ],
    ids=lambda left: " and ".join(left),
)
def test_any_trace_tells_who_founded_it_and_that_it_is_not_new(left: Mapping[str, Any]) -> None:
    shape = found(**left)

    assert (shape.first_voters, shape.state) == (3, GroupState.EXISTING)


@pytest.mark.parametrize(("led", "state"), [(False, GroupState.NEW), (True, GroupState.EXISTING)])
def test_a_founding_lasts_until_there_is_a_leader(led: bool, state: GroupState) -> None:
    being_founded = settings(state=GroupState.NEW)

    assert found(led=led, settings=being_founded, stateful_set=STATEFUL_SET).state is state


def test_a_founding_goes_on_with_those_that_it_began_with() -> None:
    being_founded = settings(state=GroupState.NEW)

    shape = found(5, led=False, settings=being_founded)

    assert (shape.first_voters, shape.pods) == (3, 3)


def test_a_stateful_set_that_is_there_keeps_its_pods() -> None:
    assert found(3, stateful_set=STATEFUL_SET).pods == 5
    assert found(7, stateful_set=STATEFUL_SET).pods == 5


def test_a_lost_stateful_set_comes_back_with_a_pod_for_every_volume() -> None:
    assert found(3, settings=settings(), claims=claims(5)).pods == 5
    assert found(3, settings=settings(), claims=claims(9)).pods == 7


def test_traces_that_contradict_each_other_are_all_named() -> None:
    message = refused(settings=settings(5), claims=claims(1), status={"firstVoters": 1})

    assert "the ConfigMap says 5" in message
    assert "the volume claim data-flights-0 says 3" in message
    assert "the status says 1" in message


@pytest.mark.parametrize(
    "peers", ["", "n0-a:1;n2-b:1;n3-c:1", "n0-a:1;n1-b:1", "nonsense"],
    ids=["nobody", "others", "an even number", "nonsense"],
)  # fmt: skip
def test_settings_that_make_no_sense_found_nothing(peers: str) -> None:
    refused(settings=SettingsView(owner_uid="", data={"DLEDGER_PEERS": peers}))


def test_older_volumes_tell_that_the_group_is_not_new() -> None:
    shape = found(3, claims=claims(3, None))

    assert (shape.first_voters, shape.state) == (3, GroupState.EXISTING)


def test_more_older_volumes_than_members_leave_it_open_who_founded_the_group() -> None:
    assert "volume claims for 5 members" in refused(3, claims=claims(5, None))
