"""What following a leader asks of the API server.

LISTs come from its cache where an event called for them, and a replica that does not act makes no
patch while the one that acts may still make it.
"""

from collections.abc import Callable

import pytest

from dledger_kube.objects import group, leads, membership, pod, says
from dledger_kube.pod_store import PodStore
from dledger_kube.stepped_follower import Outcome, SteppedFollower, settle
from dledger_operator.behaviors.leader.role_labeler import (
    CLOCK_S,
    HEAD_START_S,
    STANDING_BY_GAP_S,
)

N2_LEADS = [says(0, 8, "n2"), says(1, 8, "n2"), leads(2, 8)]


class World:
    """Three pods without labels, and an operator that sees the third one lead."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.stands_by = False
        self.store = PodStore([pod(0), pod(1), pod(2)])
        self.operator = SteppedFollower(
            self.store,
            group(),
            membership(),
            clock=lambda: self.now_s,
            answer=lambda _: None,
            stands_by=lambda: self.stands_by,
        )
        self.operator.observations = {each.pod_uid: each for each in N2_LEADS}

    def roles(self) -> list[str]:
        return [each.role(group().roles) for each in self.store.pods()]

    async def lists_of(self, *events: Callable[[], None]) -> list[int]:
        """Return from which version on the next turn lists the pods, after these events."""
        for event in events:
            event()
        before = len(self.store.lists)
        await self.operator.turn()
        return self.store.lists[before:]


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_list_is_as_new_as_etcd(world: World) -> None:
    assert await world.lists_of() == [0]


async def test_after_an_event_the_cache_is_enough_once_it_knows_that_event(world: World) -> None:
    await world.operator.turn()
    written = world.store.put(world.store.pods()[0])

    assert await world.lists_of(lambda: world.operator.saw(written)) == [
        int(written.resource_version)
    ]


async def test_after_a_members_new_answer_the_cache_is_enough_once_it_knows_the_own_patches(
    world: World,
) -> None:
    await world.operator.turn()
    newest = max(int(each.resource_version) for each in world.store.pods())

    assert await world.lists_of(
        lambda: world.operator.observations.update({"uid-0": says(0, 9)})
    ) == [newest]


async def test_a_turn_that_nothing_called_for_looks_for_what_no_event_has_told(
    world: World,
) -> None:
    await world.operator.turn()

    assert await world.lists_of() == [0]


async def test_a_conflict_is_followed_by_a_list_that_is_as_new_as_etcd(world: World) -> None:
    await world.operator.turn()
    world.operator.saw(world.store.put(pod(1)))
    before = len(world.store.lists)
    world.operator.begin()
    await settle()
    await world.operator.let_on(0, Outcome.OK)
    world.store.put(world.store.pods()[1])  # a kubelet writes between the LIST and the patch
    while world.operator.runs:
        await world.operator.let_on(0, Outcome.OK)

    first, *others = world.store.lists[before:]
    assert first > 0
    assert others == [0]
    assert world.roles() == ["slave", "slave", "master"]


async def test_a_server_that_does_not_know_the_version_is_asked_for_what_it_has(
    world: World,
) -> None:
    await world.operator.turn()
    world.operator.saw(world.store.pods()[0])
    world.operator.begin()
    await settle()
    await world.operator.let_on(0, Outcome.REFUSED)

    assert await world.lists_of(
        lambda: world.operator.saw(pod(0, resource_version="not a number"))
    ) == [0]


async def test_a_replica_that_does_not_act_leaves_the_labels_to_the_one_that_does(
    world: World,
) -> None:
    world.stands_by = True
    await world.operator.turn()

    assert world.roles() == ["", "", ""]
    assert world.operator.settled is None
    assert world.operator.looks_again_s == pytest.approx(HEAD_START_S + CLOCK_S)


async def test_a_replica_that_does_not_act_labels_the_pods_once_the_head_start_is_over(
    world: World,
) -> None:
    world.stands_by = True
    await world.operator.turn()
    world.now_s += HEAD_START_S
    await world.operator.turn()

    assert world.roles() == ["slave", "slave", "master"]
    assert world.operator.settled is not None


async def test_each_change_of_the_leader_has_a_head_start_of_its_own(world: World) -> None:
    await world.operator.turn()
    world.stands_by = True
    world.operator.observations = {
        each.pod_uid: each for each in (says(0, 9, "n1"), leads(1, 9), says(2, 9, "n1"))
    }
    for _ in range(2):
        world.now_s += HEAD_START_S / 2 - CLOCK_S
        await world.operator.turn()
    assert world.roles() == ["slave", "slave", "master"]
    world.now_s += HEAD_START_S
    await world.operator.turn()
    assert world.roles() == ["slave", "master", "slave"]

    world.operator.observations = {each.pod_uid: each for each in (says(0, 10, "n2"), leads(2, 10))}
    await world.operator.turn()
    assert world.roles() == ["slave", "master", "slave"]


async def test_a_replica_that_does_not_act_looks_once_in_a_while_however_many_events_come(
    world: World,
) -> None:
    world.stands_by = True
    await world.operator.turn()

    assert not await world.lists_of(lambda: world.operator.saw(world.store.pods()[0]))
    assert world.operator.looks_again_s == pytest.approx(STANDING_BY_GAP_S)
    world.now_s += STANDING_BY_GAP_S
    newest = max(int(each.resource_version) for each in world.store.pods())
    assert await world.lists_of() == [newest]


async def test_a_replica_that_does_not_act_looks_again_at_once_after_a_failure(
    world: World,
) -> None:
    """The pause after failures is the loop's: a run that asks nothing would end it."""
    world.stands_by = True
    for _ in range(2):
        before = len(world.store.lists)
        world.operator.begin()
        await settle()
        await world.operator.let_on(0, Outcome.REFUSED)
        assert len(world.store.lists) == before
        assert not world.operator.runs


async def test_events_do_not_put_off_the_end_of_the_head_start(world: World) -> None:
    world.stands_by = True
    await world.operator.turn()
    world.now_s += HEAD_START_S - STANDING_BY_GAP_S / 2
    await world.operator.turn()
    world.now_s += STANDING_BY_GAP_S / 2
    await world.operator.turn()

    assert world.roles() == ["slave", "slave", "master"]


async def test_a_replica_that_begins_to_act_waits_no_longer(world: World) -> None:
    world.stands_by = True
    await world.operator.turn()
    world.stands_by = False
    await world.operator.turn()

    assert world.roles() == ["slave", "slave", "master"]
