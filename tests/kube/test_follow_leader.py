"""Following a leader: real long polls over HTTP, and a fake pod store with conflicts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random

import pytest

from dledger_kube.fake_members import FakeMember, members
from dledger_kube.objects import group, membership, pod
from dledger_kube.pod_store import PodStore
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.role_decision import Decision
from dledger_operator.behaviors.leader.role_labeler import FollowResult, RoleLabeler
from dledger_operator.behaviors.loops import Pace, Wake, repeat
from dledger_operator.behaviors.members import observe
from dledger_operator.clients.errors import ConflictError, UnavailableError
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.observed_state import Leader

GROUP = group()
WAIT_S = 10.0


class World:
    """Three members, their pods, and one operator that labels the pods."""

    def __init__(
        self,
        nodes: list[FakeMember],
        client: MemberHttpClient,
        polls_of: Callable[[Callable[[], None]], LeaderPolls],
    ):
        self.nodes = nodes
        self.masters_seen: list[set[str]] = []
        self.decisions: list[Decision] = []
        self.followed = FollowResult()
        self.failures = 0
        self.changed = asyncio.Event()
        self.wake = Wake()
        self.store = PodStore(
            (pod(ordinal, ip=node.ip) for ordinal, node in enumerate(nodes)), self._watch
        )
        self.polls = polls_of(self.wake.set)
        self.labeler = RoleLabeler(
            self.store,
            self.polls,
            ask=lambda pods: observe.statuses(client, pods),
            clock=asyncio.get_running_loop().time,
            on_decision=self.decisions.append,
            on_settled=self._settled,
            on_conflict=lambda: None,
        )

    async def operate(self) -> None:
        try:
            await repeat(
                lambda: self.labeler.run_once(GROUP, membership()),
                what="follow",
                wake=self.wake,
                pace=Pace(interval_s=0.5, gap_s=0.0, failure_gap_s_max=0.1),
                random=Random(1),
                on_failure=self._failed,
            )
        finally:
            await self.polls.stop()

    def roles(self) -> dict[str, str]:
        return {each.member_id: each.role(GROUP.roles) for each in self.store.pods()}

    async def elect(self, ordinal: int, term: int) -> None:
        for node in self.nodes:
            await node.say(term, f"n{ordinal}")

    async def wait_for_roles(self, expected: dict[str, str]) -> None:
        await self.wait_until(lambda: self.roles() == expected)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def _watch(self, pods: list[PodView]) -> None:
        masters = {each.member_id for each in pods if each.role(GROUP.roles) == "master"}
        self.masters_seen.append(masters)
        self.changed.set()

    def _settled(self, followed: FollowResult) -> None:
        self.followed = followed
        self.changed.set()

    def _failed(self, _: Exception) -> None:
        self.failures += 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with members(3) as (nodes, client):
        made = World(nodes, client, lambda on_change: LeaderPolls(client, Random(1), on_change))
        task = asyncio.create_task(made.operate())
        yield made
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        # Checked here, because the loop under test would log and retry a failed assertion.
        assert all(len(masters) <= 1 for masters in made.masters_seen)
        assert not made.failures


N1_LEADS = {"n0": "slave", "n1": "master", "n2": "slave"}


async def test_a_cold_start_labels_every_pod(world: World) -> None:
    await world.elect(1, 7)

    await world.wait_for_roles(N1_LEADS)

    assert {each.term for each in world.store.pods()} == {7}


async def test_a_killed_leader_loses_its_label_before_its_successor_gets_it(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)

    await world.nodes[1].fall_silent()
    await world.nodes[0].say(8, "n2")
    await world.nodes[2].say(8, "n2")
    await world.wait_for_roles({"n0": "slave", "n1": "none", "n2": "master"})

    masters = [seen for seen in world.masters_seen if seen]
    assert masters.index({"n2"}) > masters.index({"n1"})
    assert {"n1"} not in masters[masters.index({"n2"}) :]


async def test_a_member_that_comes_back_becomes_a_slave(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)
    await world.nodes[2].fall_silent()
    stored = world.store.pods()[2]
    world.store.delete(stored.name)
    world.store.put(replace(stored, uid="reborn", labels={}, term=-1))
    world.wake.set()
    await world.wait_for_roles(N1_LEADS | {"n2": "none"})

    await world.nodes[2].answer()
    await world.nodes[2].say(7, "n1")

    await world.wait_for_roles(N1_LEADS)


async def test_a_missing_pod_does_not_delay_a_failover(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)

    world.store.delete("flights-1")
    await world.nodes[1].fall_silent()
    await world.nodes[0].say(8, "n0")
    await world.nodes[2].say(8, "n0")

    await world.wait_for_roles({"n0": "master", "n2": "slave"})


async def test_a_new_leader_is_labeled_only_after_it_has_proved_itself(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)

    for node in world.nodes:
        await node.say(8, None)
    await world.wait_for_roles(N1_LEADS | {"n1": "none"})
    await world.elect(0, 8)

    await world.wait_for_roles({"n0": "master", "n1": "slave", "n2": "slave"})


async def test_a_label_set_by_another_client_is_repaired(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)

    tampered = world.store.pods()[2]
    world.store.put(replace(tampered, labels={"dledger.io/role": "none"}))
    world.wake.set()

    await world.wait_for_roles(N1_LEADS)


async def test_the_result_names_the_leader_and_its_pod(world: World) -> None:
    await world.elect(1, 7)
    async with asyncio.timeout(WAIT_S):
        while world.followed.master_pod != "flights-1":
            world.changed.clear()
            await world.changed.wait()

    assert world.followed.leader_pod == "flights-1"
    assert world.followed.leader is not None
    assert world.followed.leader.term == 7


class ContendedStore(PodStore):
    """A store in which a kubelet updates a pod's status between the LIST and the patch."""

    def __init__(self, pods: list[PodView], times: int) -> None:
        super().__init__(pods)
        self.times = times

    async def member_pods(
        self, namespace: str, group: str, not_older_than: int = 0
    ) -> list[PodView]:
        listed = await super().member_pods(namespace, group, not_older_than)
        if self.times > 0:
            self.times -= 1
            for each in listed:
                self.put(each)
        return listed


async def follow_once(store: PodStore) -> dict[str, str]:
    async with members(3) as (nodes, client):
        for node in nodes:
            await node.say(7, "n1")
        changed = asyncio.Event()
        polls = LeaderPolls(client, Random(1), changed.set)
        labeler = RoleLabeler(
            store,
            polls,
            ask=lambda pods: observe.statuses(client, pods),
            clock=asyncio.get_running_loop().time,
            on_decision=lambda _: None,
            on_settled=lambda _: None,
            on_conflict=store.count_conflict,
        )
        try:
            polls.sync(store.pods())
            async with asyncio.timeout(WAIT_S):
                while len([each for each in polls.observations() if each.answers]) < 3:
                    changed.clear()
                    await changed.wait()
            await labeler.run_once(GROUP, membership())
        finally:
            await polls.stop()
        return {each.member_id: each.role(GROUP.roles) for each in store.pods()}


def three_pods() -> list[PodView]:
    return [pod(ordinal, ip=f"127.0.0.{ordinal + 1}") for ordinal in range(3)]


async def test_the_follower_decides_again_after_a_conflict() -> None:
    store = ContendedStore(three_pods(), times=3)

    assert await follow_once(store) == N1_LEADS
    assert store.conflicts >= 3, "each is counted, and none is a failure"


async def test_the_follower_gives_up_after_too_many_conflicts() -> None:
    with pytest.raises(UnavailableError, match="after 20 conflicts"):
        await follow_once(ContendedStore(three_pods(), times=10_000))


class RefusingStore(PodStore):
    """A store that cannot demote one pod."""

    async def relabel_pod(self, pod: PodView, labels, annotations) -> PodView:  # type: ignore[no-untyped-def]
        if pod.name == "flights-0":
            raise UnavailableError("try again later")
        return await super().relabel_pod(pod, labels, annotations)


async def test_no_pod_is_promoted_while_the_old_master_cannot_be_demoted() -> None:
    pods = [replace(each, term=6) for each in three_pods()]
    pods[0] = replace(pods[0], labels={"dledger.io/role": "master"})
    store = RefusingStore(pods)

    with pytest.raises(UnavailableError, match="try again later"):
        await follow_once(store)

    assert "master" not in [labels["dledger.io/role"] for _, labels in store.patches]


def test_a_stale_pod_conflicts_in_the_fake_store_as_in_the_api() -> None:
    store = PodStore(three_pods())
    stale = store.pods()[0]
    store.put(stale)

    with pytest.raises(ConflictError):
        store.relabel(stale, {}, {"dledger.io/term": "1"})


async def test_a_pod_that_is_not_the_stateful_sets_is_named_and_never_believed(
    world: World,
) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)
    stranger = replace(world.store.pods()[2], owner_uid="another", term=9999)
    for each in (
        replace(stranger, name="flights-99999999", uid="s1", member_id="n99999999"),
        replace(stranger, name="flights-2", uid="s2"),
    ):
        world.store.put(each)
    patches = len(world.store.patches)
    world.wake.set()

    await world.wait_until(lambda: world.followed.foreign == ("flights-2", "flights-99999999"))

    assert world.followed.leader == Leader(term=7, member_id="n1")
    assert [name for name, _ in world.store.patches[patches:]] == ["flights-99999999", "flights-2"]
    assert world.roles() == N1_LEADS | {"n2": "none", "n99999999": ""}


async def test_a_master_of_a_deleted_stateful_set_loses_its_label_before_another_gets_it(
    world: World,
) -> None:
    await world.elect(0, 7)
    await world.wait_for_roles({"n0": "master", "n1": "slave", "n2": "slave"})
    world.store.stateful_set_uid = "recreated"
    await world.nodes[0].fall_silent()
    for each in world.store.pods()[1:]:
        world.store.put(replace(each, uid=f"new-{each.uid}", owner_uid="recreated", labels={}))
    for node in world.nodes[1:]:
        await node.say(8, "n1")

    await world.wait_until(lambda: world.roles().get("n1") == "master")

    assert world.roles()["n0"] != "master"
    assert all(len(masters) <= 1 for masters in world.masters_seen)


async def test_a_forged_term_is_taken_back_once_all_voters_answer(world: World) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)
    await world.nodes[2].fall_silent()
    world.store.put(replace(world.store.pods()[0], term=9999))
    world.wake.set()
    await world.wait_until(lambda: world.followed.overstated == ("flights-0 (9999)",))
    assert world.followed.leader is None

    # Only a poll that has noticed the silence wakes the labeler once the member answers again.
    await world.wait_until(lambda: not all(each.answers for each in world.polls.observations()))
    await world.nodes[2].answer()
    world.polls.retry_now()
    await world.wait_until(lambda: world.followed.leader == Leader(term=7, member_id="n1"))

    assert {each.term for each in world.store.pods()} == {7}
    assert world.roles() == N1_LEADS


async def test_a_forged_term_is_taken_back_while_the_pods_of_new_members_wait_for_a_node(
    world: World,
) -> None:
    await world.elect(1, 7)
    await world.wait_for_roles(N1_LEADS)
    for ordinal in (3, 4):
        world.store.put(pod(ordinal, ip="", ready=False))
    world.store.put(replace(world.store.pods()[0], term=9999))
    world.store.put(replace(world.store.pods()[4], term=9999))
    world.wake.set()

    await world.wait_until(lambda: {each.term for each in world.store.pods()[:3]} == {7})

    await world.wait_for_roles(N1_LEADS | {"n3": "", "n4": "none"})
    assert world.store.pods()[4].term == 7
