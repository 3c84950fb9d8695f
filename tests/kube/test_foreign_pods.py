"""Pods that carry the group's label but are not its members': none is believed, and none keeps a
role.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dledger_kube.objects import group, leads, membership, pod, says
from dledger_kube.pod_store import PodStore
from dledger_kube.stepped_follower import SteppedFollower
from dledger_operator.api_objects import PodView
from dledger_operator.observed_state import Leader, Observation

N0_LEADS = [leads(0, 8, pod_uid="new-0"), says(2, 8, "n0", pod_uid="new-2")]


class World:
    """Pods of a group, and an operator that has just started."""

    def __init__(self, pods: Sequence[PodView], told: Sequence[Observation]) -> None:
        self.masters_seen: list[set[str]] = []
        self.now_s = 0.0
        self.stands_by = False
        self.store = PodStore(pods, self._watch)
        self.store.stateful_set_uid = "recreated"
        self.operator = SteppedFollower(
            self.store,
            group(),
            membership(),
            clock=lambda: self.now_s,
            answer=lambda _: None,
            stands_by=lambda: self.stands_by,
        )
        self.operator.observations = {each.pod_uid: each for each in told}

    def roles(self) -> dict[str, str]:
        return {each.name: each.role(group().roles) for each in self.store.pods()}

    def found(self, name: str) -> PodView:
        return next(each for each in self.store.pods() if each.name == name)

    def _watch(self, pods: list[PodView]) -> None:
        self.masters_seen.append(
            {each.name for each in pods if each.role(group().roles) == "master"}
        )


def new(ordinal: int, **fields: object) -> PodView:
    """Return a pod of the StatefulSet that was made anew."""
    return pod(ordinal, uid=f"new-{ordinal}", owner_uid="recreated", **fields)


def left_behind(**fields: object) -> World:
    """Return a group whose old master, n1, is the last pod of its deleted StatefulSet."""
    old = pod(1, "master", 7, leaving=True)
    return World([new(0), replace(old, **fields), new(2)], N0_LEADS)  # type: ignore[arg-type]


async def test_an_operator_that_starts_after_a_recreation_shows_no_second_master() -> None:
    world = left_behind()

    await world.operator.turn()

    assert world.roles() == {"flights-0": "master", "flights-1": "none", "flights-2": "slave"}
    assert all(len(masters) <= 1 for masters in world.masters_seen), "the fence comes first"
    assert world.found("flights-1").term == 8
    assert world.found("flights-1").leader_pod_uid == "new-0"


@pytest.mark.parametrize("owner", ["", "another"], ids=["no owner", "another owner"])
async def test_whoever_has_the_name_of_a_members_pod_is_fenced_before_a_promotion(
    owner: str,
) -> None:
    """Another process of the operator may believe it, as one that was recreated without its pods
    does for a moment.
    """
    world = left_behind(owner_uid=owner, labels={}, leaving=False)

    await world.operator.turn()

    assert world.roles() == {"flights-0": "master", "flights-1": "none", "flights-2": "slave"}
    assert world.operator.settled is not None
    assert world.operator.settled.foreign == ("flights-1",)


async def test_the_term_of_a_pod_that_is_not_believed_hides_no_leader_and_is_not_lowered() -> None:
    world = left_behind(term=9999)

    await world.operator.turn()

    assert world.roles()["flights-0"] == "master"
    assert world.found("flights-1").term == 9999


async def test_a_pod_that_is_not_believed_keeps_its_role_while_no_leader_is_known() -> None:
    """It may be that of the leader: its StatefulSet was deleted, but it still runs."""
    world = left_behind(leaving=False)
    world.operator.observations = {}

    await world.operator.turn()

    assert world.roles()["flights-1"] == "master"
    assert not world.store.patches


async def test_a_pod_that_leaves_with_its_stateful_set_is_not_called_foreign() -> None:
    world = left_behind()

    await world.operator.turn()

    assert world.operator.settled is not None
    assert world.operator.settled.foreign == ()
    assert world.operator.settled.leader == Leader(term=8, member_id="n0")
