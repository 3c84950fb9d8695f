"""A fake group for tests of rolls: pods that start, fail and recover, and members that elect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from dledger_formats.http.status import NodeStatus, PeerStatus
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_kube.objects import NOW, STATEFUL_SET_UID, node_status, pod
from dledger_operator.api_objects import PodView, StatefulSetView, VolumeClaimView
from dledger_operator.clients.errors import ConflictError, EvictionRefusedError, MemberSilentError
from dledger_operator.observed_state import Leader
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision

BAD = "bad"
"""Pods of a revision whose image has this word in its name never run."""
HUNG = "hung"
"""Pods of a revision whose image has this word in its name run and never serve."""
START_S = 3.0


@dataclass(slots=True)
class FakePod:
    """A pod of the StatefulSet."""

    uid: str
    image: str
    made_at_s: float
    stripped: bool = False
    """Whether admission took its revision."""
    down: bool = False
    """Whether the container has failed and not been restarted yet."""
    behind_entries: int = 0


@dataclass(slots=True)
class RollingWorld:
    """The world outside the operator. Tests change its fields to play other clients."""

    size: int
    image: str = "node:1"
    """The image of the StatefulSet's template."""
    now_s: float = 1000.0
    version: int = 0
    leader: str | None = None
    term: int = 1
    pods: dict[int, FakePod] = field(default_factory=dict)
    answers_lost: int = 0
    """Number of next requests that take effect and get no answer."""
    replaced: list[tuple[int, bool, str]] = field(default_factory=list)
    """Of each pod that was replaced: its ordinal, whether it served, and the new image."""
    transfers: int = 0
    ready_times_off_s: float = 0.0
    """The difference of the kubelets' clocks from the operator's."""
    strips_revisions: bool = False
    """Whether admission takes the revision from every new pod."""
    refuses_pods: bool = False
    """Whether admission refuses every new pod."""
    cordoned: frozenset[str] = frozenset()
    """The members whose nodes are cordoned."""
    budget_used_up: bool = False
    """Whether the disruption budget permits no eviction of a ready pod."""

    def __post_init__(self) -> None:
        self.settle()
        self.pass_time(60.0)

    @property
    def wanted(self) -> Revision:
        """The revision of the StatefulSet's template."""
        return Revision(parts={"image": self.image})

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the controller creates missing pods, and members elect."""
        self.now_s += seconds
        self.settle()

    def settle(self) -> None:
        """Create missing pods of the current template; elect if the leader is lost."""
        for ordinal in range(self.size):
            if ordinal not in self.pods and not self.refuses_pods:
                self.version += 1
                self.pods[ordinal] = FakePod(
                    f"uid-{self.version}", self.image, self.now_s, self.strips_revisions
                )
        able = [f"n{each}" for each in range(self.size) if self.serves(each)]
        if len(able) <= self.size // 2:
            self.leader = None
        elif self.leader not in able:
            fittest = min(able, key=lambda each: self.pods[int(each[1:])].behind_entries)
            self.leader, self.term = fittest, self.term + 1

    def runs(self, ordinal: int) -> bool:
        """Return whether a pod's container runs."""
        found = self.pods.get(ordinal)
        return found is not None and not found.down and BAD not in found.image

    def serves(self, ordinal: int) -> bool:
        """Return whether a member serves as soon as there is a majority."""
        if not self.runs(ordinal) or HUNG in self.pods[ordinal].image:
            return False
        return self.now_s - self.pods[ordinal].made_at_s >= START_S

    def has_majority_without(self, ordinal: int) -> bool:
        """Return whether the other members that serve and lack no entries are a majority."""
        others = [each for each in self.pods if each != ordinal and self.serves(each)]
        able = [k for k in others if self.pods[k].behind_entries == 0 or f"n{k}" == self.leader]
        return len(able) > self.size // 2

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView:
        """Return the StatefulSet."""
        return StatefulSetView(
            namespace=namespace, name=name, uid=STATEFUL_SET_UID, resource_version="1",
            replicas=self.size, first_voters=self.size, identity="", volume_claim_templates=[],
            revision=self.wanted, template_hash=self.image,
        )  # fmt: skip

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List no claims: none is deleted here."""
        return []

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods."""
        return [self._view(ordinal) for ordinal in sorted(self.pods)]

    def _view(self, ordinal: int) -> PodView:
        found, ready = self.pods[ordinal], self.serves(ordinal) and self.leader is not None
        message = f"{found.image}: back-off {self.now_s:g}s"  # it grows with each attempt
        problem = Problem(reason="ImagePullBackOff", message=message)
        return pod(
            ordinal,
            uid=found.uid,
            ready=ready,
            ready_since=NOW + timedelta(seconds=found.made_at_s + START_S + self.ready_times_off_s)
            if ready
            else None,
            runs=self.runs(ordinal),
            problem=None if self.runs(ordinal) else problem,
            revision=None if found.stripped else Revision(parts={"image": found.image}),
            template_hash=found.image,
        )

    def why_emptied(self, view: PodView) -> str:
        """Return why a pod's node is being emptied."""
        return "it is cordoned" if view.member_id in self.cordoned else ""

    async def ask(self, pods: Sequence[PodView]) -> Mapping[str, NodeStatus]:
        """Ask the members that run."""
        ordinals = {view.uid: int(view.member_id[1:]) for view in pods}
        return {
            uid: self._status(ordinal)
            for uid, ordinal in ordinals.items()
            if self.serves(ordinal) and self.pods[ordinal].uid == uid
        }

    def _status(self, ordinal: int) -> NodeStatus:
        member_id = f"n{ordinal}"
        leads = member_id == self.leader
        followers = [
            PeerStatus(
                peer_id=f"n{each}",
                match_index=10_000 - found.behind_entries,
                reachable=self.serves(each),
            )
            for each, found in self.pods.items()
            if each != ordinal
        ]
        return node_status(
            member_id, term=self.term, leader_id=self.leader, master=leads,
            ready=self.leader is not None, followers=followers if leads else [],
            ledger_end_index=10_000, committed_index=10_000,
            voters=[f"n{each}" for each in range(self.size)],
        )  # fmt: skip

    async def replace_pod(self, view: PodView) -> None:
        """Delete a pod; the controller recreates it."""
        ordinal = int(view.member_id[1:])
        if ordinal not in self.pods or self.pods[ordinal].uid != view.uid:
            raise ConflictError("the pod has changed")
        if self.budget_used_up and view.ready:
            raise EvictionRefusedError(f"evict pod air/{view.name}: the disruption budget")
        self.replaced.append((ordinal, self.serves(ordinal), self.image))
        del self.pods[ordinal]
        self._lose_the_answer(ConflictError("no answer"))

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Transfer the leadership, as a leader would."""
        if leader != Leader(term=self.term, member_id=self.leader or ""):
            raise MemberSilentError(f"{leader.member_id} does not lead")
        if not self.serves(int(to[1:])):
            return LeadershipTransferResponse(code=Code.TAKE_LEADERSHIP_FAILED)
        self.leader, self.term, self.transfers = to, self.term + 1, self.transfers + 1
        self._lose_the_answer(MemberSilentError("no answer"))
        return LeadershipTransferResponse()

    def _lose_the_answer(self, error: Exception) -> None:
        if self.answers_lost:
            self.answers_lost -= 1
            raise error
