"""A group that elects, crashes and changes its voters, and the pods of its members.

The model only guarantees one leader per term. Members learn of it late, pods are replaced, kubelets
update pods, and term annotations are forged. After every change of a pod `judge` checks that
there are never two masters, no pod's term decreases unless it was forged, and a pod with the master
label for a term led that term.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from dledger_kube.objects import group, membership, pod
from dledger_kube.pod_store import PodStore
from dledger_operator.api_objects import PodView


@dataclass(slots=True, eq=False)
class Member:
    """The state of one member's process."""

    term: int = 0
    leader: int | None = None
    master: bool = False


class FollowedGroup:
    """The group. Every step may happen at any time; `random` chooses."""

    def __init__(self, replicas: int, random: Random) -> None:
        self.random = random
        self.group = group(replicas=replicas)
        self.membership = membership(replicas)
        self.members = [Member() for _ in range(replicas)]
        self.leader_of: dict[int, int] = {}
        self.elected: Member | None = None
        self.incarnations = 0
        self.terms_seen: dict[str, int] = {}
        self.forged: dict[str, int] = {}
        """The forged term of a pod, by its uid."""
        self.store = PodStore(on_change=self.judge)
        for ordinal in range(replicas):
            self.store.put(pod(ordinal))

    def disturbances(self) -> dict[Callable[[], None], int]:
        """Return the steps of the group and of Kubernetes, with their weights."""
        return {
            self.elect: 6,
            self.learn_who_leads: 20,
            self.commit_the_first_entry: 30,
            self.campaign_without_success: 1,
            self.restart_a_process: 1,
            self.replace_a_pod: 1,
            self.write_a_pod_status: 4,
            self.forge_a_term: 1,
        }

    # Steps of the group

    def elect(self) -> None:
        voters = self.random.sample(
            self.members, self.random.randint(self.membership.quorum, len(self.members))
        )
        term = max([0, *self.leader_of, *(member.term for member in self.members)])
        term += self.random.randint(1, 3)
        self.elected = voters[0]
        self.leader_of[term] = self.members.index(voters[0])
        for member in voters:
            member.term, member.leader, member.master = term, None, False

    def learn_who_leads(self) -> None:
        member = self.random.choice(self.members)
        leader = self.leader_of.get(member.term)
        if leader is not None and self.members[leader] is not member:
            member.leader = leader

    def commit_the_first_entry(self) -> None:
        leader = self.elected
        if leader is None:
            return
        following = sum(member.term == leader.term for member in self.members)
        if following >= self.membership.quorum:
            leader.leader, leader.master = self.leader_of[leader.term], True

    def campaign_without_success(self) -> None:
        member = self.random.choice(self.members)
        self._depose(member)
        member.term += 1

    def restart_a_process(self) -> None:
        self._depose(self.random.choice(self.members))

    def _depose(self, member: Member) -> None:
        member.leader, member.master = None, False
        if self.elected is member:
            self.elected = None

    # Steps of Kubernetes

    def replace_a_pod(self) -> None:
        self._replace_pod_of(self.random.randrange(len(self.members)))

    def _replace_pod_of(self, ordinal: int) -> None:
        self._depose(self.members[ordinal])
        self.incarnations += 1
        self.store.delete(f"flights-{ordinal}")
        uid, owner = f"uid-{ordinal}-{self.incarnations}", self.store.stateful_set_uid
        self.store.put(pod(ordinal, uid=uid, ip="", ready=False, owner_uid=owner))

    def recreate_the_stateful_set(self) -> None:
        """Somebody deletes the StatefulSet: its pods run on until each of them is replaced."""
        self.incarnations += 1
        self.store.stateful_set_uid = f"stateful-set-{self.incarnations}"

    def replace_a_pod_of_an_earlier_stateful_set(self) -> bool:
        """Replace a pod that the present StatefulSet does not own. Return whether there was one."""
        owner = self.store.stateful_set_uid
        left = [k for k, each in enumerate(self.store.pods()) if each.owner_uid != owner]
        if left:
            self._replace_pod_of(self.random.choice(left))
        return bool(left)

    def write_a_pod_status(self) -> None:
        """Write as a kubelet does: a pod gets its address first, and is ready only after that."""
        stored = self.random.choice(self.store.pods())
        leaving = stored.leaving or self.random.random() < 0.02
        ready = bool(stored.ip) and self.random.random() < 0.8
        ip = stored.ip or self.random.choice(["", f"127.0.0.{stored.member_id[1:]}"])
        self.store.put(replace(stored, ip=ip, ready=ready, leaving=leaving))

    def forge_a_term(self) -> None:
        stored = self.random.choice(self.store.pods())
        term = max([stored.term, *self.leader_of]) + self.random.randint(10, 20)
        self.forged[stored.uid] = term
        self.store.put(replace(stored, term=term))

    # Invariants

    def judge(self, pods: list[PodView]) -> None:
        masters = [each for each in pods if each.role(self.group.roles) == "master"]
        assert len(masters) <= 1, f"two masters: {masters}"
        for each in masters:
            led = self.leader_of.get(each.term) == int(each.member_id[1:])
            assert led or self.forged.get(each.uid) == each.term, f"{each} never led"
        for each in pods:
            seen = self.terms_seen.get(each.uid, -1)
            assert each.term >= seen or self.forged.get(each.uid) == seen, f"{each} went back"
            self.terms_seen[each.uid] = each.term
