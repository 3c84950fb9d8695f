"""Whole turns of two operators, with the real code and every request a step of its own.

Small scopes are explored exhaustively: every order of the requests of two operators that believe
different things, with one fault anywhere, and one LIST from a cache that has seen nothing yet.
Longer histories are random: the group elects and changes its voters, pods and their StatefulSet are
replaced, requests fail before or after the server has done them, LISTs are old, operators crash.
`FollowedGroup.judge` checks every change of a pod. When all is quiet, a new operator makes the
labels right.

HISTORIES=20000 runs that many histories instead of a sample, and all scopes with a fault (minutes).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from dledger_kube.choices import Choices, all_choices
from dledger_kube.followed_group import Member
from dledger_kube.followed_history import History, Operated, recreated
from dledger_kube.objects import leads, membership, pod, says, silent
from dledger_kube.stepped_follower import Outcome, SteppedFollower, settle
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader import role_decision
from dledger_operator.observed_state import Membership, Observation
from dledger_operator.spec.group import Group

SAMPLE = 240
HISTORIES = int(os.environ.get("HISTORIES", SAMPLE))
SHARDS = 8
STEPS = 250


# Longer histories


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_no_history_of_two_operators_gives_two_masters(shard: int) -> None:
    turns = faults = promotions = old_lists = 0
    for number in range(shard, HISTORIES, SHARDS):
        random = Random(number)
        history = History(Operated(random.choice([1, 3, 3, 5]), random), random)
        for _ in range(STEPS):
            await history.step()
        await history.world.come_to_rest()
        history.world.assert_labels_are_right()
        turns, faults = turns + history.turns, faults + history.faults
        old_lists += history.old_lists
        promotions += sum(
            "master" in set(labels.values()) for _, labels in history.world.store.patches
        )

    assert turns > HISTORIES / SHARDS * 5, "too few turns to prove anything"
    assert faults > HISTORIES / SHARDS * 2
    assert old_lists > HISTORIES / SHARDS * 2
    assert promotions > HISTORIES / SHARDS


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_no_history_after_a_recreation_of_the_stateful_set_gives_two_masters(
    shard: int,
) -> None:
    for number in range(shard, HISTORIES, SHARDS):
        random = Random(number)
        history = History(await recreated(random), random)
        for _ in range(STEPS):
            await history.step()
        await history.world.come_to_rest()
        history.world.assert_labels_are_right()


# Small scopes, exhaustively


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What two operators believe, and what happens while they act."""

    pods: list[PodView]
    believed: tuple[list[Observation], list[Observation]]
    voters: tuple[Membership, Membership] = (membership(), membership())
    event: Callable[[Operated], None] | None = None
    """Happens once, at any moment."""
    faults: int = int(HISTORIES > SAMPLE)
    """How many requests fail, or operators crash, on each path."""


OLD = [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]
NEW = [says(0, 8, "n2"), silent(1), leads(2, 8)]
LABELED = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "slave", 7)]
UNLABELED = [pod(0), pod(1), pod(2)]


def replace_the_old_leaders_pod(world: Operated) -> None:
    world.store.delete("flights-1")
    world.store.put(pod(1, uid="uid-1-again", ready=False))


def write_a_status(world: Operated) -> None:
    world.store.put(replace(world.store.pods()[2], ready=False))


FRESH = pod(1, uid="uid-1-again", ip="", ready=False)
"""A pod that was just created: it has no role, no term and no address yet."""
OLD_CLAIM = [says(0, 7, "n1"), leads(1, 7, pod_uid=FRESH.uid), says(2, 7, "n1")]


def write_a_status_of_the_new_pod(world: Operated) -> None:
    world.store.put(world.store.pods()[1])


def give_an_address(world: Operated) -> None:
    world.store.put(replace(world.store.pods()[1], ip="127.0.0.2"))


def become_ready(world: Operated) -> None:
    world.store.put(replace(world.store.pods()[1], ip="127.0.0.2", ready=True))


SCOPES = {
    "a failover, and one operator knows it": Scope(pods=LABELED, believed=(NEW, OLD), faults=1),
    "first labels for two terms": Scope(pods=UNLABELED, believed=(NEW, OLD)),
    "both know it": Scope(pods=UNLABELED, believed=(NEW, NEW), faults=1),
    "the old leader's pod is replaced": Scope(
        pods=LABELED, believed=(NEW, OLD), event=replace_the_old_leaders_pod
    ),
    "a kubelet writes": Scope(pods=LABELED, believed=(NEW, OLD), event=write_a_status),
    "a pod was just created": Scope(
        pods=[pod(0, "slave", 7), FRESH, pod(2, "slave", 7)],
        believed=(NEW, OLD_CLAIM),
        event=give_an_address,
    ),
    "a pod was just created, and the others still name its member": Scope(
        pods=[pod(0, "slave", 7), FRESH, pod(2, "slave", 7)],
        believed=(NEW, [says(0, 7, "n1"), says(2, 7, "n1")]),
        event=become_ready,
    ),
    "one believes in one voter": Scope(
        pods=UNLABELED, believed=(NEW, OLD), voters=(membership(), membership(1))
    ),
}


@dataclass(frozen=True, slots=True)
class Move:
    """What may happen next: a request of an operator ends, or without one the operator crashes."""

    operator: SteppedFollower
    request: int | None
    outcome: Outcome = Outcome.OK

    @property
    def is_fault(self) -> bool:
        """Whether it uses up the one fault of a path."""
        return self.request is None or self.outcome not in (Outcome.OK, Outcome.OLD)

    async def make(self) -> None:
        """Let it happen. A turn whose GET has failed is tried again, as the loop does."""
        if self.request is None:
            await self.operator.crash()
            return
        is_get = self.operator.requests[self.request].is_get
        await self.operator.let_on(self.request, self.outcome)
        if is_get and self.is_fault:
            self.operator.begin()
            await settle()


def moves_of(operators: list[SteppedFollower], *, faults: bool, old_lists: bool) -> list[Move]:
    """Return what may happen next."""
    for operator in operators:
        for number, request in enumerate(operator.requests):
            if request.is_get:
                # What it reads does not change here, so its place in the order does not matter, and
                # nor does whether the server has answered one that fails.
                move = Move(operator, number)
                return [move, replace(move, outcome=Outcome.REFUSED)] if faults else [move]
    running = [operator for operator in operators if operator.runs]
    # One operator's own patches concern different pods: their order matters to nobody.
    moves = [Move(each, 0) for each in running]
    old = [Move(each, 0, Outcome.OLD) for each in running if each.is_list_old()]
    if faults:
        failing = (Outcome.REFUSED, Outcome.UNANSWERED)
        moves += [replace(move, outcome=how) for move in moves for how in failing]
        moves += [Move(each, None) for each in running]
    return moves + old if old_lists else moves


async def explore(scope: Scope, choices: Choices) -> None:
    """Run one path: an order of the requests, at most one fault or crash, and the event."""
    world = Operated(3, Random(0))
    world.leader_of = {7: 1, 8: 2}
    world.members = [
        Member(term=8, leader=2),
        Member(term=7, leader=1, master=True),
        Member(term=8, leader=2, master=True),
    ]
    for each in scope.pods:
        world.store.put(each)
    for operator, seen, voters in zip(world.operators, scope.believed, scope.voters, strict=True):
        operator.observations = {each.pod_uid: each for each in seen}
        operator.membership = voters
        for stored in world.store.pods():
            operator.saw(stored)
        operator.begin()
    await settle()
    event, faults, old_lists = scope.event, scope.faults, 1
    while any(operator.runs for operator in world.operators):
        moves = moves_of(world.operators, faults=faults > 0, old_lists=old_lists > 0)
        number = choices.pick(len(moves) + (event is not None))
        if number == len(moves):
            assert event is not None
            event(world)
            event = None
        else:
            faults -= moves[number].is_fault
            old_lists -= moves[number].outcome is Outcome.OLD
            await moves[number].make()
    await world.come_to_rest()
    world.assert_labels_are_right()


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
async def test_no_order_of_two_operators_requests_gives_two_masters(scope: Scope) -> None:
    paths = 0
    for choices in all_choices():
        await explore(scope, choices)
        paths += 1
    assert paths > 100, "too few paths to prove anything"


async def test_a_pod_without_an_address_needs_no_fence_only_since_fences_name_the_leaders_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that name, the fences for the pod before it would do for an operator that believes an
    older claim of the same member, and lists the new pod once it has its address.
    """
    is_labeled = role_decision._is_labeled

    def whichever_pod(wanted: role_decision.RolePatch, of: Group) -> bool:
        return is_labeled(replace(wanted, leader_pod_uid=wanted.pod.leader_pod_uid), of)

    monkeypatch.setattr(role_decision, "_is_labeled", whichever_pod)

    async def explore_all() -> None:
        for choices in all_choices():
            await explore(SCOPES["a pod was just created"], choices)

    with pytest.raises(AssertionError, match="two masters"):
        await explore_all()


async def test_a_pod_that_was_just_created_holds_up_no_promotion() -> None:
    world = Operated(3, Random(0))
    world.leader_of = {7: 1, 8: 2}
    for each in (pod(0, "slave", 7), FRESH, pod(2, "slave", 7)):
        world.store.put(each)
    operator = world.operators[0]
    operator.observations = {each.pod_uid: each for each in NEW}
    operator.begin()
    await settle()
    while operator.runs:
        write_a_status_of_the_new_pod(world)  # each one would make a fence conflict
        await operator.let_on(0, Outcome.OK)

    roles = {each.member_id: each.role(world.group.roles) for each in world.store.pods()}
    assert roles == {"n0": "slave", "n1": "", "n2": "master"}
    assert world.store.conflicts == 0
