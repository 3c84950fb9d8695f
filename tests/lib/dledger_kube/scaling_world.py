"""A fake group for tests of scaling: a StatefulSet, its pods, and a leader that accepts or refuses
membership changes by the node's rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dledger_formats.http.status import NodeStatus, PeerStatus
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipResponse
from dledger_formats.settings import GroupState
from dledger_kube.objects import node_status
from dledger_operator import names
from dledger_operator.api_objects import StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.members.scale_steps import ScaleState
from dledger_operator.clients.errors import ConflictError, MemberSilentError
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.spec.shape import Shape

IDENTITY = "an-identity"
KNOWN = tuple(f"n{ordinal}" for ordinal in range(names.REPLICAS_MAX))


@dataclass(slots=True)
class ScalingWorld:
    """The world outside the operator. Tests change its fields to play other clients."""

    replicas: int = 3
    """`spec.replicas`."""
    first_voters: int = 3
    pods: int = 3
    version: int = 1
    voters: set[str] = field(default_factory=lambda: {"n0", "n1", "n2"})
    learners: set[str] = field(default_factory=set)
    leader: str | None = "n1"
    term: int = 7
    down: set[str] = field(default_factory=set)
    behind: set[str] = field(default_factory=set)
    """Learners that have not caught up."""
    outdated: set[str] = field(default_factory=set)
    """Members whose settings name only the first voters."""
    hibernate: bool = False
    """`spec.hibernate`."""
    rolling: bool = False
    """Whether pods are to be replaced."""
    unready: set[str] = field(default_factory=set)
    """Members that answer and do not serve."""
    lags: dict[str, int] = field(default_factory=dict)
    """How many committed entries a member lacks."""
    answers_lost: int = 0
    """Number of next requests that get no answer, although they may take effect."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    removed_pods: list[str] = field(default_factory=list)
    claims: set[int] = field(default_factory=set)
    """Ordinals of the volume claims, with `storage.retain.whenScaled: Delete`."""

    @property
    def members(self) -> set[str]:
        """Voters and learners."""
        return self.voters | self.learners

    def up(self, member_id: str) -> bool:
        """Return whether a member runs."""
        return names.ordinal(member_id) < self.pods and member_id not in self.down

    def has_quorum(self, voters: set[str]) -> bool:
        """Return whether a majority of these voters runs."""
        return sum(map(self.up, voters)) > len(voters) // 2

    def elect(self, candidate: str | None = None) -> None:
        """Elect a running voter, or none without a majority."""
        able = sorted(filter(self.up, self.voters))
        if not able or not self.has_quorum(self.voters):
            self.leader = None
        else:
            self.term += 1
            self.leader = candidate if candidate in able else able[0]

    def settle(self) -> None:
        """Elect again if the leader does not run or has no majority."""
        lost = self.leader is None or not self.up(self.leader)
        if lost or not self.has_quorum(self.voters):
            self.elect()

    def stateful_set(self) -> StatefulSetView:
        """Return the current StatefulSet."""
        return StatefulSetView(
            namespace="air", name="flights",
            uid="stateful-set-uid",
            resource_version=str(self.version),
            replicas=self.pods, first_voters=self.first_voters, identity="",
            volume_claim_templates=[],
        )  # fmt: skip

    def state(self, membership: Membership | None = None) -> ScaleState:
        """Return the state that an operator would observe now."""
        own = Membership(voters=frozenset(self.voters), learners=frozenset(self.learners))
        shape = replace(Shape.of_new(self.first_voters), identity=IDENTITY)
        return ScaleState(
            replicas=self.replicas,
            shape=replace(shape, state=GroupState.EXISTING, pods=self.pods),
            leader=Leader(term=self.term, member_id=self.leader) if self.leader else None,
            membership=membership or own,
            answers={each: self.status(each) for each in KNOWN if self.up(each)},
            unwanted_claims=frozenset(claim.ordinal for claim in self.unwanted_claims()),
            hibernate=self.hibernate,
            rolling=self.rolling,
        )

    def status(self, member_id: str) -> NodeStatus:
        """Return a member's status; every member knows the last change."""
        known = KNOWN[: self.first_voters] if member_id in self.outdated else KNOWN
        leads = member_id == self.leader
        followers = [
            PeerStatus(
                peer_id=each, match_index=99 - self.lags.get(each, 0), reachable=self.up(each)
            )
            for each in sorted(self.members - {member_id})
        ]
        return node_status(
            member_id, term=self.term, leader_id=self.leader, master=leads,
            followers=followers if leads else [],
            voters=sorted(self.voters), learners=sorted(self.learners),
            addable=[each for each in known if each not in self.members],
            membership_index=50, ready=member_id not in self.unready,
        )  # fmt: skip

    def ips(self) -> Mapping[str, str]:
        """Return the address of every pod by member id."""
        return {each: f"ip-{each}" for each in KNOWN[: self.pods]}

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        """Set the replicas, as the API server and the StatefulSet controller would."""
        if stateful_set.resource_version != str(self.version):
            raise ConflictError("the StatefulSet was changed")
        self.removed_pods += KNOWN[replicas : self.pods]
        self.version += 1
        self.pods = replicas
        self.claims |= set(range(replicas))

    async def delete_volume_claim(self, claim: VolumeClaimView) -> None:
        """Delete a claim, which must hold no member's log."""
        assert names.member_id(claim.ordinal) not in self.members, "a member lost its log"
        assert claim.ordinal >= self.pods
        self.claims.remove(claim.ordinal)

    def unwanted_claims(self) -> list[VolumeClaimView]:
        """Return the claims without a pod."""
        return [
            VolumeClaimView(
                name=f"data-flights-{ordinal}", ordinal=ordinal, first_voters=self.first_voters,
                identity="", leaving=False, problem=None,
            )
            for ordinal in sorted(self.claims)
            if ordinal >= self.pods
        ]  # fmt: skip

    async def change(
        self,
        ip: str,
        group: str,
        leader: Leader,
        kind: ChangeKind,
        member_id: str,
        *,
        identity: str = "",
    ) -> ChangeMembershipResponse:
        """Change a member, as a leader would."""
        assert (group, identity) == ("flights", IDENTITY)
        self.requests.append((kind.value, member_id))
        self._reach(ip, leader)
        code = self._judge(kind, member_id)
        if code is Code.SUCCESS:
            self._apply(kind, member_id)
        self._answer()
        return ChangeMembershipResponse(
            code=code, voters=tuple(sorted(self.voters)), learners=tuple(sorted(self.learners))
        )

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str, *, identity: str = ""
    ) -> LeadershipTransferResponse:
        """Transfer the leadership, as a leader would."""
        assert (group, identity) == ("flights", IDENTITY)
        self.requests.append(("TRANSFER", to))
        self._reach(ip, leader)
        if not self.up(to) or to in self.unready:
            return LeadershipTransferResponse(code=Code.TAKE_LEADERSHIP_FAILED)
        self.elect(to)
        self._answer()
        return LeadershipTransferResponse()

    def _reach(self, ip: str, leader: Leader) -> None:
        if self.leader is None or ip != f"ip-{self.leader}" or leader.term != self.term:
            raise MemberSilentError(f"{leader.member_id} is not the leader of term {leader.term}")

    def _answer(self) -> None:
        if self.answers_lost:
            self.answers_lost -= 1
            raise MemberSilentError("no answer")

    def _judge(self, kind: ChangeKind, member_id: str) -> Code:
        """Apply the rules of `dledger_node.raft.changes` that are visible from outside."""
        if not self.has_quorum(self.voters):
            return Code.WAIT_QUORUM_ACK_TIMEOUT
        match kind:
            case ChangeKind.ADD_LEARNER:
                return Code.SUCCESS
            case ChangeKind.PROMOTE:
                if member_id not in self.members:
                    return Code.NO_SUCH_MEMBER
                if member_id in self.behind or not self.up(member_id):
                    return Code.FALL_BEHIND_TOO_MUCH
                after = self.voters | {member_id}
            case _:
                after = self.voters - {member_id}
        if not after:
            return Code.LAST_VOTER
        return Code.SUCCESS if self.has_quorum(after) else Code.QUORUM_AT_RISK

    def _apply(self, kind: ChangeKind, member_id: str) -> None:
        match kind:
            case ChangeKind.ADD_LEARNER if member_id not in self.voters:
                self.learners.add(member_id)
            case ChangeKind.PROMOTE:
                self.learners.discard(member_id)
                self.voters.add(member_id)
            case ChangeKind.REMOVE:
                self.learners.discard(member_id)
                self.voters.discard(member_id)
                if member_id == self.leader:
                    self.elect()
            case _:
                pass
