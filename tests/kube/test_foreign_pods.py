"""Pods that carry the group's label but are not its members': none is believed, and none keeps a
role.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dledger_kube.objects import STATEFUL_SET_UID, group, leads, membership, pod, says
from dledger_kube.pod_store import PodStore
from dledger_kube.stepped_follower import Outcome, SteppedFollower, settle
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.children.child_edits import AT_ONCE_MAX, QUIET_S_MIN
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


# Pods without the name of a member's pod


STRANGER = pod(
    1,
    "master",
    name="web-1",
    uid="web",
    owner_uid="",
    labels={"dledger.io/role": "master", "app": "web", "dledger.io/member": "n5"},
)
LED = [leads(0, 8), says(1, 8, "n0"), says(2, 8, "n0")]
RIGHT = {"flights-0": "master", "flights-1": "slave", "flights-2": "slave"}


def visited(*strangers: PodView) -> World:
    """Return a group without labels, led by n0, and pods that carry its label as well."""
    world = World([pod(0), pod(1), pod(2), *strangers], LED)
    world.store.stateful_set_uid = STATEFUL_SET_UID
    return world


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_a_stranger_loses_a_role_by_which_a_service_selects_and_nothing_else(
    role: str,
) -> None:
    labels = {**STRANGER.labels, "dledger.io/role": role}
    world = visited(replace(STRANGER, labels=labels))

    await world.operator.turn()

    assert world.roles() == RIGHT | {"web-1": ""}
    assert world.store.patches[0] == ("web-1", {"dledger.io/role": None}), "before the promotion"
    found = world.found("web-1")
    assert found.labels == {"app": "web", "dledger.io/member": "n5"}
    assert (found.term, found.leader_pod_uid) == (STRANGER.term, STRANGER.leader_pod_uid)
    assert all(len(masters) <= 1 for masters in world.masters_seen)
    assert world.operator.settled is not None
    assert world.operator.settled.foreign == ("web-1",)


async def test_a_stranger_loses_its_role_while_no_leader_is_known() -> None:
    world = visited(STRANGER)
    world.operator.observations = {}

    await world.operator.turn()

    assert world.roles()["web-1"] == ""


@pytest.mark.parametrize("labels", [{}, {"dledger.io/role": "none"}, {"part": "master"}])
async def test_a_stranger_that_no_service_selects_is_left_alone(labels: dict[str, str]) -> None:
    world = visited(replace(STRANGER, labels=labels))

    await world.operator.turn()

    assert world.found("web-1").labels == labels
    assert "web-1" not in [name for name, _ in world.store.patches]


async def test_a_replica_that_does_not_act_leaves_strangers_to_the_one_that_does() -> None:
    world = visited(STRANGER)
    world.stands_by = True
    for _ in range(3):
        await world.operator.turn()
        world.now_s += 1.0

    assert world.roles() == RIGHT | {"web-1": "master"}


@pytest.mark.parametrize("how", [Outcome.REFUSED, Outcome.UNANSWERED])
async def test_a_stranger_that_cannot_be_relabeled_keeps_no_leader_from_its_label(
    how: Outcome,
) -> None:
    world = visited(STRANGER)
    world.operator.begin()
    await settle()
    while world.operator.runs:
        is_strangers = world.operator.requests[0].what == "relabel web-1"
        await world.operator.let_on(0, how if is_strangers else Outcome.OK)

    assert {name: role for name, role in world.roles().items() if name != "web-1"} == RIGHT


async def test_a_client_that_gives_the_role_again_and_again_is_slowed_down() -> None:
    world = visited(STRANGER)
    for _ in range(100):
        await world.operator.turn()
        world.store.put(STRANGER)
        world.now_s += 1.0

    assert len(times(world)) == AT_ONCE_MAX + 1, "and once a minute from then on"
    await world.operator.turn()
    world.now_s += QUIET_S_MIN
    before = len(times(world))
    for _ in range(AT_ONCE_MAX):
        world.store.put(STRANGER)
        await world.operator.turn()
    assert len(times(world)) == before + AT_ONCE_MAX


async def test_a_controller_that_makes_another_such_pod_each_time_is_not_kept_busy() -> None:
    """It lets go of a pod that it no longer selects: the namespace would fill up with pods."""
    world = visited()
    for number in range(AT_ONCE_MAX + 5):
        if "master" not in {world.roles()[name] for name in world.roles() if "web" in name}:
            world.store.put(replace(STRANGER, name=f"web-{number}x", uid=f"web-{number}"))
        await world.operator.turn()
        world.now_s += 120.0

    assert len(times(world)) == AT_ONCE_MAX
    assert len(world.store.pods()) == 3 + AT_ONCE_MAX + 1


def times(world: World) -> list[str]:
    """Return the names of the strangers that have lost their role, once for each time."""
    return [name for name, _ in world.store.patches if name.startswith("web")]
