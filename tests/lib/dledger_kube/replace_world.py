"""A group whose members can lose their volumes, with a fake API server, fake controllers and fake
members.

Members behave as the real ones do (`dledger_node.raft.joining`): a member with an empty volume does
not participate until every other member has answered it, enough of them have kept their volumes,
and it has the leader's entries.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, cast

from dledger_formats.http.status import NodeStatus, PeerStatus, Role
from dledger_kube.objects import STATEFUL_SET_UID, node_status, pod
from dledger_kube.one_off_world import Object, OneOffWorld, one_off_body
from dledger_operator import names
from dledger_operator.api_objects import PodView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.replacement.replacement import ReplaceWorker
from dledger_operator.clients.errors import ConflictError, MemberSilentError, NotFoundError
from dledger_operator.problem import Problem

JOIN_S = 3.0
"""How long a member with an empty volume takes once it may join."""


def replace_body(name: str = "renew", uid: str = "", **spec: Any) -> Object:
    """Return a DLedgerReplace of n2 of the group `flights`."""
    return one_off_body("DLedgerReplace", name, uid, {"member": "n2", **spec})


@dataclass(slots=True)
class Member:
    """A member with its pod and its volume claim."""

    ordinal: int
    serial: int = 0
    """Counts the pods."""
    claim_serial: int = 0
    """Counts the claims."""
    has_pod: bool = True
    has_claim: bool = True
    pod_leaving: bool = False
    claim_leaving: bool = False
    bound: bool = True
    """Whether its claim has a volume."""
    alive: bool = True
    """Whether its process runs."""
    answers: bool = True
    """Whether its page answers the operator while it runs."""
    whole: bool = True
    """Whether its volume has the member's promises and every committed entry; False while it
    joins.
    """
    lags: int = 0
    node_dead: bool = False
    """Whether no kubelet confirms that its pod has ended."""
    joining_since_s: float | None = None

    @property
    def id(self) -> str:
        """The member's id."""
        return names.member_id(self.ordinal)

    @property
    def serves(self) -> bool:
        """Whether the member is ready."""
        return self.runs and self.whole

    @property
    def runs(self) -> bool:
        """Whether the member answers."""
        return self.has_pod and not self.pod_leaving and self.alive

    @property
    def claim_uid(self) -> str:
        """The uid of its current claim."""
        return f"claim-{self.ordinal}-{self.claim_serial}"

    def lose(self) -> None:
        """Lose the member for good: its pod is recreated with a volume that cannot be mounted."""
        self.alive, self.serial = False, self.serial + 1


@dataclass(frozen=True, slots=True)
class Deletion:
    """The state of a group when a claim was deleted."""

    served: bool
    """Whether the member served."""
    whole: int
    """Number of other members that were whole."""
    members: int
    changing: bool
    at_s: float

    @property
    def may_go(self) -> bool:
        """Whether the claim was no longer needed."""
        return not self.served and not self.changing and self.whole * 2 > self.members


@dataclass(slots=True)
class ReplaceWorld(OneOffWorld):
    """A group and its replacements. Tests change the fields to play all other actors."""

    members: dict[str, Member] = field(
        default_factory=lambda: {f"n{each}": Member(each) for each in range(3)}
    )
    leader: str | None = "n0"
    elects: bool = True
    """Whether members that are whole elect a leader."""
    changing: bool = False
    """Whether a change of members is not committed yet."""
    asleep: bool = False
    """Whether the StatefulSet is to have no pods."""
    deleted: list[str] = field(default_factory=list)
    """The uids of the claims that the operator has deleted."""
    deletions: list[Deletion] = field(default_factory=list)
    """The state of the group at each of these deletions."""

    @classmethod
    def of(cls, count: int, **fields: Any) -> "ReplaceWorld":
        """Return a group of `count` members."""
        made = cls(members={f"n{each}": Member(each) for each in range(count)}, **fields)
        assert made.group is not None
        made.group["spec"]["replicas"] = count
        return made

    def worker(self, uid: str) -> ReplaceWorker:
        """Return the worker of an operator that has just started."""
        return ReplaceWorker(copy.deepcopy(self.objects[uid]), self.context(), lambda: None)

    def whole(self) -> list[Member]:
        """Return the members that serve and have every committed entry."""
        return [each for each in self.members.values() if each.serves and not each.lags]

    def pass_time(self, seconds: float) -> None:
        """Let time pass: controllers, kubelets and members do their work."""
        OneOffWorld.pass_time(self, seconds)
        for member in self.members.values():
            self._control(member)
        if self.leader is not None and not self.members[self.leader].serves:
            self.leader = None
        if self.elects and self.leader is None and len(self.whole()) * 2 > len(self.members):
            self.leader = self.whole()[0].id
        for member in self.members.values():
            self._join(member)

    def _control(self, member: Member) -> None:
        if member.pod_leaving and not member.node_dead:
            member.has_pod = member.pod_leaving = False
        if member.claim_leaving and not member.has_pod:
            member.has_claim = member.claim_leaving = False
        if self.asleep:
            member.has_pod = False
        elif not member.has_pod and not member.claim_leaving:
            member.has_pod, member.serial = True, member.serial + 1
            if not member.has_claim:
                member.has_claim, member.claim_serial = True, member.claim_serial + 1
                member.alive, member.whole, member.lags = True, False, 0

    def _join(self, member: Member) -> None:
        others = [each for each in self.members.values() if each is not member]
        keepers = sum(each.whole for each in others)
        may_join = all(each.runs for each in others) and self.leader is not None
        if member.whole or not member.runs or not may_join or keepers * 2 <= len(self.members):
            member.joining_since_s = None
            return
        if member.joining_since_s is None:
            member.joining_since_s = self.now_s
        member.whole = self.now_s - member.joining_since_s >= JOIN_S

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        """Get the StatefulSet."""
        view = StatefulSetView(
            namespace=namespace, name=name, uid=STATEFUL_SET_UID, resource_version="1",
            replicas=0 if self.asleep else len(self.members), first_voters=len(self.members),
            identity="",
            volume_claim_templates=[],
        )  # fmt: skip
        return cast("StatefulSetView", self.request(lambda: view))

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods."""
        return cast("list[PodView]", self.request(self._pods))

    def _pods(self) -> list[PodView]:
        return [
            pod(
                each.ordinal,
                uid=f"pod-{each.ordinal}-{each.serial}",
                leaving=each.pod_leaving,
                ready=each.serves,
                node=f"worker-{each.ordinal}",
                resource_version=f"{each.serial}-{each.serves}",
                problem=None if each.alive else Problem(reason="Unschedulable", message="no node"),
            )
            for each in self.members.values()
            if each.has_pod
        ]

    async def replace_pod(self, pod: PodView) -> None:
        """Remove a pod; it stays while no kubelet confirms its end."""

        def remove() -> None:
            found = next((each for each in self._pods() if each.name == pod.name), None)
            if found is None:
                raise NotFoundError(pod.name)
            if (found.uid, found.resource_version) != (pod.uid, pod.resource_version):
                raise ConflictError(pod.name)
            self.members[pod.member_id].pod_leaving = True

        self.request(remove)

    async def volume_claim(self, namespace: str, name: str) -> VolumeClaimView | None:
        """Get a volume claim."""
        claims = {each.name: each for each in self._claims()}
        return cast("VolumeClaimView | None", self.request(lambda: claims.get(name)))

    def _claims(self) -> list[VolumeClaimView]:
        return [
            VolumeClaimView(
                name=f"data-flights-{each.ordinal}", uid=each.claim_uid, ordinal=each.ordinal,
                first_voters=3, identity="", leaving=each.claim_leaving, problem=None,
                volume=f"pv-{each.ordinal}-{each.claim_serial}" if each.bound else "",
            )
            for each in self.members.values()
            if each.has_claim
        ]  # fmt: skip

    async def delete_claim_of_lost_member(self, claim: VolumeClaimView, replacement: str) -> None:
        """Delete a claim, which stays while a pod uses it."""

        def delete() -> None:
            member = self.members[f"n{claim.ordinal}"]
            if not member.has_claim or member.claim_uid != claim.uid:
                raise ConflictError(claim.name)
            member.claim_leaving = True
            self.deleted.append(claim.uid)
            others = sum(each is not member for each in self.whole())
            count = len(self.members)
            self.deletions.append(Deletion(member.serves, others, count, self.changing, self.now_s))

        self.request(delete)

    async def status_of(self, ip: str) -> NodeStatus:
        """Ask a member for its status."""
        member = self.members[f"n{int(ip.rsplit('.', 1)[1]) - 1}"]
        if not (member.runs and member.answers):
            raise MemberSilentError(member.id)
        leads = member.id == self.leader
        followers = [
            PeerStatus(peer_id=each.id, match_index=5000 - each.lags, reachable=each.runs)
            for each in self.members.values()
            if each is not member
        ]
        status = node_status(
            member.id,
            leader_id=self.leader,
            role=Role.LEADER if leads else Role.FOLLOWER,
            master=leads,
            ready=member.whole,
            joining=not member.whole,
            reason="" if member.whole else "waits for entries",
            committed_index=5000,
            ledger_end_index=5000,
            followers=followers if leads else [],
            voters=sorted(self.members),
            membership_index=5001 if self.changing else 0,
        )
        return cast("NodeStatus", self.request(lambda: status))
