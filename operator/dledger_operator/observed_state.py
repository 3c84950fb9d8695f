"""The observed state of one group: the input of decisions, conditions, status and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dledger_formats.audit import Verdict
from dledger_formats.http.status import MembershipRole, NodeStatus, StorageState
from dledger_operator.held_template import HeldTemplate
from dledger_operator.observed_audits import ObservedAudits
from dledger_operator.problem import Problem
from dledger_operator.spec.accepted import AcceptedSpec
from dledger_operator.spec.broker import BrokerSpec

DECIDING: Final = (Verdict.SOUND, Verdict.DAMAGED, Verdict.DIVERGED)
"""The verdicts about the whole log; an Incomplete audit could not read all of it."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Leader:
    """A member that leads a term. Raft allows at most one leader per term."""

    term: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Victory:
    """How a member became leader, as it reports."""

    stood_because: str
    """A value of `StoodBecause`, or one of a later release."""
    former_leader_id: str
    """The leader that the member followed before; empty if it knew none."""
    silent_s: float
    """From the last message of a leader until the member stood for election."""
    election_s: float
    """From then until its first entry of the term was committed."""
    proved_s: float = field(compare=False)
    """When that entry was committed, on the operator's monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The last answer of one pod about its leader.

    It is tied to a pod, not to a member: an answer of a deleted pod says nothing about its
    replacement.
    """

    pod_uid: str
    member_id: str
    answers: bool
    """Whether the pod answered the last request; if not, the other fields hold its last answer."""
    term: int
    """A member's term never decreases, so this stays a valid lower bound after it stops answering.
    """
    leader_id: str | None
    master: bool
    """Whether the member claims to lead `term` with its first entry of that term committed."""
    victory: Victory | None = None
    """How the member won; None if it is not master, or if it runs an earlier release."""

    def follows(self, leader: Leader) -> bool:
        """Return whether the pod answers and names this leader in this term."""
        named = Leader(term=self.term, member_id=self.leader_id) if self.leader_id else None
        return self.answers and named == leader

    def leads(self, leader: Leader) -> bool:
        """Return whether the pod claims to be this leader."""
        return self.master and Leader(term=self.term, member_id=self.member_id) == leader


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The voters and learners of a group, as its leader last reported them."""

    voters: frozenset[str]
    learners: frozenset[str] = frozenset()

    @property
    def quorum(self) -> int:
        """Number of voters that make a majority."""
        return len(self.voters) // 2 + 1

    def role_of(self, member_id: str) -> MembershipRole:
        """Return the role of a member in the group."""
        if member_id in self.voters:
            return MembershipRole.VOTER
        return MembershipRole.LEARNER if member_id in self.learners else MembershipRole.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """One leader change, with the duration of its phases in seconds.

    A phase is None if the operator did not observe both its start and its end.
    """

    from_member: str
    """The previous leader; empty for the first one."""
    to_member: str
    term: int
    reason: str
    at: datetime
    detect_s: float | None = None
    """From the first sign of a lost leader until a member is in a later term."""
    elect_s: float | None = None
    """From the end of detection until a new leader has proved itself."""
    relabel_s: float | None = None
    """From the election until the role labels match the new leader."""
    endpoints_s: float | None = None
    """From the relabeling until the new leader is the master Service's only endpoint."""
    first_write_s: float | None = None
    """From the last message of the old leader until the new one acknowledged a canary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEndpoints:
    """Whether the endpoints of the master Service match the leader."""

    synced: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMember:
    """One member: its pod, its volume claim and its own status."""

    member_id: str
    pod: str
    role: str
    """master, slave or none, whatever label values the group's spec.roles chooses."""
    membership: MembershipRole
    """The membership that the leader, not the member itself, last reported."""
    exists: bool
    """Whether the member has a pod."""
    leaving: bool = False
    """Whether its pod is being deleted."""
    ready: bool
    """Whether the member answers and serves its role, and its pod is Ready."""
    reason: str
    """Human-readable reason why the member is not ready; empty when it is ready."""
    problem: Problem | None
    """Why the member's pod or volume claim does not start."""
    danger: Problem | None = None
    """A problem that will stop the member, although it may be ready now."""
    status: NodeStatus | None
    """The member's answer in the last round; None if it did not answer."""
    image: str = ""
    """The image of the member's pod; empty without a pod."""
    revision: str = ""
    """The name of the pod's revision; empty for a pod of an earlier release of the operator."""
    behind: str = ""
    """In which parts the pod differs from what the spec asks for; empty if in none."""
    volume_requested: str = ""
    """The size that the member's volume claim asks for; empty without a claim."""
    volume_capacity: str = ""
    """The size of its volume, as Kubernetes reports it; empty before it is bound."""
    lacks: str = ""
    """Which live settings of the spec the member does not have in force yet, as it reports; empty
    if none, or if it does not answer.
    """

    @property
    def is_healing(self) -> bool:
        """Whether the member reports that it is healing its log, which needs no user action."""
        return self.status is not None and self.status.storage is StorageState.HEALING

    @property
    def unmended(self) -> str:
        """The damage that a member in service found, and why it is not mended yet; or empty."""
        return "" if self.status is None else self.status.unmended

    @property
    def is_without_log(self) -> bool:
        """Whether the member has started without its promises: its volume was lost, emptied or set
        back.
        """
        return self.status is not None and self.status.joining and not self.is_healing


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Whether the leader is where it should be: it is the preferred one, and its node is not being
    drained.
    """

    holds: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollPlan:
    """Which pods are to be replaced, in this order."""

    revision: str
    """The name of the revision that they are replaced for."""
    in_force: str
    """The name of the revision that a pod gets if it is recreated now; empty if unknown."""
    image_in_force: str
    """The image of that revision."""
    opens_at: datetime | None
    """When spec.updateWindow opens next; None if the plan does not wait for that."""
    cause: str
    """Spec, or Operator if only an upgrade of the operator asks for it."""
    pods: Sequence[tuple[str, str]]
    """The name of each pod, and why."""
    waiting: Problem | None
    """What the next step waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """What the last conclusive audit of a group found."""

    audit: str
    """Name of the DLedgerAudit, which may have been deleted."""
    verdict: Verdict
    """Sound, Damaged or Diverged."""
    message: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGroup:
    """One group at one point in time."""

    namespace: str
    name: str
    replicas: int
    """`spec.replicas`, of the last accepted spec."""
    first_voters: int | None
    """`Shape.first_voters`; None until the group was reconciled once."""
    identity: str
    """The group's identity; empty while it is not known."""
    accepted: AcceptedSpec | None = None
    """The choices of the last spec that was valid; None if they are not known."""
    membership: Membership
    leader: Leader | None
    disputed: bool
    """Whether two members claim to lead the same term, which Raft rules out."""
    foreign_pods: Sequence[str] = ()
    """Pods that carry the group's label but do not belong to its members."""
    overstated_pods: Sequence[str] = ()
    """Pods whose term annotation is above every member's term, with that term."""
    follow_problem: Problem | None = None
    """Why the pods cannot be listed or labeled, so that the Services may select wrong ones."""
    pods_known: bool = True
    members: Sequence[ObservedMember]
    endpoints: ObservedEndpoints
    paused: bool
    hibernate: bool = False
    """`spec.hibernate`, of the last accepted spec."""
    problem: Problem | None
    """Why the spec is not in effect: it is invalid, or the API server refused a child."""
    warning: Problem | None
    """A part of the spec that cannot be applied, although the rest was applied."""
    growth: Problem | None = None
    """What keeps a volume claim from getting the size that it should have."""
    scaling_problem: Problem | None
    """Why the next step of scaling cannot be taken now."""
    plan: RollPlan | None = None
    """None if no pod is to be replaced."""
    held_template: HeldTemplate | None = None
    """The template that stays in force while a change of it waits."""
    roll_problem: Problem | None = None
    """What the roll waits for, also after its last pod was replaced."""
    audit: AuditFinding | None = None
    """None before the first audit."""
    audits: ObservedAudits = field(default_factory=ObservedAudits)
    placement: Placement | None = None
    """None until the placement was checked."""
    broker: BrokerSpec | None = None
    """`spec.broker`; None if the members are no broker."""
    starting: bool
    """Whether the group is in its startup grace period, in which members need not be ready."""
    copies_archive: bool = False
    """Whether members of a new group still copy the archive that the group begins with."""

    @property
    def hibernates(self) -> bool:
        """Whether the group is to have no pods, and has none."""
        return self.hibernate and self.pods_known and not any(each.exists for each in self.members)

    @property
    def falls_asleep(self) -> bool:
        """Whether the group is to have no pods, and all of its pods are being deleted."""
        return self.hibernate and {each.leaving for each in self.members if each.exists} == {True}

    @property
    def behind(self) -> Sequence[ObservedMember]:
        """Members whose pods differ from what the spec asks for."""
        return [each for each in self.members if each.behind]

    @property
    def lacking(self) -> Sequence[ObservedMember]:
        """Members that do not have a live setting of the spec in force yet."""
        return [each for each in self.members if each.lacks]

    @property
    def unfinished(self) -> bool:
        """Whether a member lacks a part of the spec: its pod, its settings or its volume."""
        return bool(self.behind or self.lacking or self.growth)

    @property
    def is_run_by_no_pod(self) -> bool:
        """Whether there are pods, and none of them runs what the spec asks for."""
        existing = [each for each in self.members if each.exists]
        return bool(existing) and all(each.behind for each in existing)

    @property
    def voters(self) -> Sequence[ObservedMember]:
        """Members that vote."""
        return [each for each in self.members if each.membership is MembershipRole.VOTER]

    @property
    def ready_voters(self) -> int:
        """Number of ready voters."""
        return sum(member.ready for member in self.voters)

    @property
    def quorum_slack(self) -> int:
        """Number of ready voters beyond a majority; negative without a majority."""
        return self.ready_voters - self.membership.quorum

    @property
    def leading(self) -> ObservedMember | None:
        """The leader's member; None without a leader."""
        leader_id = self.leader.member_id if self.leader else None
        return next((each for each in self.members if each.member_id == leader_id), None)

    def unstored_entries(self, member: ObservedMember) -> int | None:
        """Return how many entries of the leader's log a member has not stored, as far as the leader
        knows; None if the leader does not report it.

        The count runs to the end of that log and also covers members out of reach. For committed
        entries that a member lacks, see `NodeStatus.lacks_committed`. Both indexes come from one
        answer of the leader, so they belong to the same moment.
        """
        leading = self.leading
        if leading is None or leading.status is None:
            return None
        if member.member_id == leading.member_id:
            return 0
        peer = leading.status.follower(member.member_id)
        return max(0, leading.status.ledger_end_index - peer.match_index) if peer else None
