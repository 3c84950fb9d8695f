"""Random histories of a followed group and of two operators, with the real code.

The group elects and changes its voters, pods are replaced, requests fail before or after the server
has done them, LISTs are old, and operators crash.
"""

from dataclasses import dataclass, replace
from random import Random

from dledger_formats.http.status import NodeStatus
from dledger_kube.followed_group import FollowedGroup
from dledger_kube.objects import node_status, says
from dledger_kube.stepped_follower import Outcome, Request, SteppedFollower, settle
from dledger_operator.api_objects import PodView
from dledger_operator.observed_state import Observation

TURNS = 2


class Operated(FollowedGroup):
    """The group and two operators."""

    def __init__(self, replicas: int, random: Random) -> None:
        super().__init__(replicas, random)
        self.now_s = 0.0
        self.operators = [self.new_operator(), self.new_operator()]

    def new_operator(self) -> SteppedFollower:
        """Return an operator that has just started."""
        return SteppedFollower(
            self.store,
            self.group,
            self.membership,
            clock=lambda: self.now_s,
            answer=self.answer,
        )

    def answer(self, asked: PodView) -> NodeStatus | None:
        """Answer for a pod's member, unless the pod has no address or has been replaced."""
        ordinal = int(asked.member_id[1:])
        if not asked.ip or self.store.pods()[ordinal].uid != asked.uid:
            return None
        member = self.members[ordinal]
        return node_status(asked.member_id, term=member.term, master=member.master)

    def observation(self, ordinal: int) -> Observation:
        """Return what a member says now."""
        member, stored = self.members[ordinal], self.store.pods()[ordinal]
        leader_id = None if member.leader is None else f"n{member.leader}"
        return says(ordinal, member.term, leader_id, master=member.master, pod_uid=stored.uid)

    def change_the_voters(self) -> None:
        """Add or remove one voter, as the leader does whose first entry is committed."""
        if self.elected is None or not self.elected.master:
            return
        leader = f"n{self.members.index(self.elected)}"
        changed = self.membership.voters ^ {f"n{self.random.randrange(len(self.members))}"}
        if changed and leader in changed:
            self.membership = replace(self.membership, voters=frozenset(changed))

    async def come_to_rest(self) -> None:
        """End all disturbances, and let one new operator that sees the truth finish."""
        for each in self.operators:
            await each.crash()
        while self.replace_a_pod_of_an_earlier_stateful_set():
            pass
        for stored in self.store.pods():
            address = stored.ip or f"127.0.1.{stored.member_id[1:]}"
            self.store.put(replace(stored, ready=True, leaving=False, ip=address))
        self.elect()
        for member in self.members:
            assert self.elected is not None
            member.term, member.leader = self.elected.term, self.leader_of[self.elected.term]
            member.master = False
        self.commit_the_first_entry()
        operator = self.new_operator()
        for ordinal, stored in enumerate(self.store.pods()):
            operator.observations[stored.uid] = self.observation(ordinal)
        for _ in range(TURNS):
            await operator.turn()

    def assert_labels_are_right(self) -> None:
        """Compare every label with what the members do."""
        assert self.elected is not None
        leader = self.members.index(self.elected)
        wanted = {
            f"n{k}": "master" if k == leader
            else "slave" if f"n{k}" in self.membership.voters
            else "none"
            for k in range(len(self.members))
        }  # fmt: skip
        assert {each.member_id: each.role(self.group.roles) for each in self.store.pods()} == wanted


@dataclass(slots=True)
class History:
    """A random history of the group and its operators."""

    world: Operated
    random: Random
    turns: int = 0
    faults: int = 0
    old_lists: int = 0

    async def step(self) -> None:
        """Do anything that may happen next."""
        world, operator = self.world, self.random.choice(self.world.operators)
        world.now_s += self.random.choice([0.0, 0.01, 0.1, 11.0])
        kind = self.random.choices(
            [
                "group", "voters", "observe", "tell", "lose", "believe", "turn", "request",
                "crash", "renew",
            ],
            [14, 1, 20, 10, 1, 2, 12, 50, 1, 1],
        )[0]  # fmt: skip
        ordinal = self.random.randrange(len(world.members))
        if kind == "group":
            steps, weights = zip(*world.disturbances().items(), strict=True)
            self.random.choices(steps, weights)[0]()
        elif kind == "voters":
            world.change_the_voters()
        elif kind == "observe":
            if world.store.pods()[ordinal].ip:
                seen = world.observation(ordinal)
                operator.observations[seen.pod_uid] = seen
        elif kind == "tell":
            operator.saw(self.random.choice(world.store.pods()))
        elif kind == "lose" and operator.observations:
            uid = self.random.choice(sorted(operator.observations))
            operator.observations[uid] = replace(operator.observations[uid], answers=False)
        elif kind == "renew":
            world.replace_a_pod_of_an_earlier_stateful_set()
        elif kind == "believe":
            operator.membership = world.membership
        elif kind == "turn" and not operator.runs:
            self.turns += 1
            operator.begin()
            await settle()
        elif kind == "request" and operator.requests:
            number = self.random.randrange(len(operator.requests))
            await operator.let_on(number, self.outcome_of(operator.requests[number]))
        elif kind == "crash":
            await operator.crash()
            world.operators[world.operators.index(operator)] = world.new_operator()

    def outcome_of(self, request: Request) -> Outcome:
        """Choose how a request ends."""
        if self.random.random() < 0.1:
            self.faults += 1
            return self.random.choice([Outcome.REFUSED, Outcome.UNANSWERED])
        old = request.not_older_than > 0 and self.random.random() < 0.7
        self.old_lists += old
        return Outcome.OLD if old else Outcome.OK


async def recreated(random: Random) -> Operated:
    """Return a labeled group whose StatefulSet was deleted. Some of the pods are new ones, and one
    operator may not know of the new StatefulSet yet.
    """
    world = Operated(random.choice([1, 3, 3, 5]), random)
    await world.come_to_rest()
    world.operators = [world.new_operator(), world.new_operator()]
    if random.random() < 0.5:
        await world.operators[0].turn()
    world.recreate_the_stateful_set()
    for _ in range(random.randint(1, len(world.members))):
        world.replace_a_pod_of_an_earlier_stateful_set()
    for stored in world.store.pods():
        address = stored.ip or f"127.0.2.{stored.member_id[1:]}"
        world.store.put(replace(stored, ip=address))
    return world
