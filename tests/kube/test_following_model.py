"""A model test: two operators label the pods of a group that elects and crashes, in random order.

The model only guarantees one leader per term. Members learn of it late, answers are stale, pods are
replaced, kubelets update pods in between, somebody forges term annotations, and operators crash
between two patches. Checked after every change of a pod: there are never two masters, no pod's term
decreases unless it was forged, and a pod with the master label for a term led that term.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from dledger_formats.http.status import NodeStatus
from dledger_kube.followed_group import FollowedGroup
from dledger_kube.objects import node_status, says
from dledger_operator import names
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.member_pods import overstated
from dledger_operator.behaviors.leader.role_decision import RolePatch, decide, taken_back
from dledger_operator.clients.errors import ConflictError, NotFoundError
from dledger_operator.observed_state import Observation

STEPS = 6000
STEPS_BETWEEN_QUIET = 500
TURNS_MAX = 10


@dataclass(slots=True)
class Operator:
    """The state of one operator, which is lost when it crashes."""

    observations: dict[str, Observation] = field(default_factory=dict)
    pods: list[PodView] | None = None
    pending: list[RolePatch] = field(default_factory=list)
    answers: dict[str, NodeStatus] | None = None
    """Answers that were asked for after the LIST; None unless a term looks forged."""
    not_following: frozenset[str] = frozenset()


class World(FollowedGroup):
    """The group and its operators."""

    def __init__(self, replicas: int, random: Random) -> None:
        super().__init__(replicas, random)
        self.taken_back = 0
        self.promotions = 0
        self.operators = [Operator(), Operator()]

    def steps(self) -> dict[Callable[[], None], int]:
        """Return every step with its weight; steps that make progress have the highest ones."""
        return {
            **self.disturbances(),
            self.ask_a_member: 150,
            self.observe_a_member: 200,
            self.lose_a_member: 6,
            self.time_out_followers: 1,
            self.decide_on_the_next_step: 100,
            self.patch_one_pod: 150,
            self.crash: 1,
        }

    # Steps of the operators

    def observe_a_member(self) -> None:
        ordinal = self.random.randrange(len(self.members))
        member, stored = self.members[ordinal], self.store.pods()[ordinal]
        if not stored.ip:
            return
        leader_id = None if member.leader is None else f"n{member.leader}"
        self.random.choice(self.operators).observations[stored.uid] = says(
            ordinal, member.term, leader_id, master=member.master, pod_uid=stored.uid
        )

    def lose_a_member(self) -> None:
        observations = self.random.choice(self.operators).observations
        if observations:
            uid = self.random.choice(sorted(observations))
            observations[uid] = replace(observations[uid], answers=False)

    def time_out_followers(self) -> None:
        operator = self.random.choice(self.operators)
        operator.not_following = frozenset(stored.uid for stored in self.store.pods())

    def decide_on_the_next_step(self) -> None:
        operator = self.random.choice(self.operators)
        if operator.pending:
            return
        if operator.answers is not None:
            return
        observations = list(operator.observations.values())
        if operator.pods is None:
            operator.pods = self.store.pods()
            if overstated(operator.pods, observations, self.membership):
                operator.answers = {}
            return
        decision = decide(
            pods=operator.pods,
            observations=observations,
            group=self.group,
            membership=self.membership,
            not_following=operator.not_following,
        )
        operator.pending = list(decision.patches)
        if not decision.patches:
            operator.pods = None

    def ask_a_member(self) -> None:
        """Ask the next member after a LIST with a forged term; then decide what is forged."""
        operator = self.random.choice(self.operators)
        if operator.answers is None or operator.pods is None:
            return
        asked_for = [each for each in operator.pods if each.ip]
        missing = [each for each in asked_for if each.uid not in operator.answers]
        if missing:
            asked = self.random.choice(missing)
            member = self.members[int(asked.member_id[1:])]
            operator.answers[asked.uid] = node_status(
                asked.member_id, term=member.term, master=member.master
            )
            return
        operator.pending = list(
            taken_back(operator.pods, operator.answers, self.group, self.membership)
        )
        self.taken_back += len(operator.pending)
        operator.answers = None

    def patch_one_pod(self) -> None:
        operator = self.random.choice(self.operators)
        if not operator.pending:
            return
        patch = operator.pending.pop(self.random.randrange(len(operator.pending)))
        try:
            changed = self.store.relabel(
                patch.pod,
                {self.group.roles.label: patch.role},
                {
                    names.TERM_ANNOTATION: str(patch.term),
                    names.LEADER_POD_ANNOTATION: patch.leader_pod_uid,
                },
            )
        except (ConflictError, NotFoundError):
            operator.pods = None
        else:
            self.promotions += patch.role == "master"
            if operator.pods is not None:
                operator.pods = [changed if p.uid == changed.uid else p for p in operator.pods]

    def crash(self) -> None:
        self.operators[self.random.randrange(2)] = Operator()

    def settle(self) -> dict[str, str]:
        """Stop all disturbances, let one operator finish, and return the role of every member."""
        for stored in self.store.pods():
            address = stored.ip or f"127.0.0.{stored.member_id[1:]}"
            self.store.put(replace(stored, ip=address, ready=True, leaving=False))
        self.forge_a_term()
        self.elect()
        for member in self.members:
            assert self.elected is not None
            member.term, member.leader = self.elected.term, self.leader_of[self.elected.term]
            member.master = False
        self.commit_the_first_entry()
        self.operators = [Operator()]
        while len(self.operators[0].observations) < len(self.members):
            self.observe_a_member()
        for _ in range(TURNS_MAX):
            self.decide_on_the_next_step()
            while self.operators[0].answers is not None:
                self.ask_a_member()
            while self.operators[0].pending:
                self.patch_one_pod()
        self.operators = [Operator(), Operator()]
        return {each.member_id: each.role(self.group.roles) for each in self.store.pods()}


@pytest.mark.parametrize("replicas", [1, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_there_are_never_two_masters_and_the_labels_come_right_when_it_is_quiet(
    seed: int, replicas: int
) -> None:
    random = Random(f"{seed}/{replicas}")
    world = World(replicas, random)
    steps, weights = zip(*world.steps().items(), strict=True)

    for number in range(STEPS):
        random.choices(steps, weights)[0]()
        if number % STEPS_BETWEEN_QUIET == 0:
            roles = world.settle()
            assert world.elected is not None
            leader = f"n{world.members.index(world.elected)}"
            assert roles == {each: "master" if each == leader else "slave" for each in roles}

    assert world.taken_back, "the model takes back too few forged terms to prove anything"
    assert world.promotions > STEPS / 400, "the model promotes too rarely to prove anything"
