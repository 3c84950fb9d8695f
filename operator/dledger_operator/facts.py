"""What the operator knows of one group: the vocabulary of its decisions, conditions and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dledger_formats.http.status import MembershipRole, NodeStatus
from dledger_operator.views import Trouble


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Leader:
    """Who leads: in Raft at most one member in a term."""

    term: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one member said last of who leads.

    It belongs to a pod, not to a member: what a pod said says nothing of the one that replaces it.
    """

    pod_uid: str
    member_id: str
    answers: bool
    """It answered the last question. The rest is kept from before when it did not."""
    term: int
    """Never goes back, so it is worth something even of a member that fell silent."""
    leader_id: str | None
    master: bool
    """It says that it leads `term` and that its first entry of the term is committed."""

    def follows(self, leader: Leader) -> bool:
        """Whether it names this leader in this very term."""
        named = Leader(term=self.term, member_id=self.leader_id) if self.leader_id else None
        return self.answers and named == leader


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """Who belongs to a group, as its leader said last."""

    voters: frozenset[str]
    learners: frozenset[str] = frozenset()

    @property
    def quorum(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1

    def role_of(self, member_id: str) -> MembershipRole:
        """What somebody is to the group."""
        if member_id in self.voters:
            return MembershipRole.VOTER
        return MembershipRole.LEARNER if member_id in self.learners else MembershipRole.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """One move of the leadership and how long its phases took, in seconds.

    A phase is None when it was not seen from its begin to its end.
    """

    from_member: str
    """Empty for the first leader."""
    to_member: str
    term: int
    reason: str
    at: datetime
    detect_s: float | None = None
    """From the first sign of trouble to a member being in a later term."""
    elect_s: float | None = None
    """From there to a proven new leader."""
    relabel_s: float | None = None
    """From there to the role labels being right."""
    endpoints_s: float | None = None
    """From there to the master Service having the new leader as its only endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointsFacts:
    """What the master Service leads to."""

    synced: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """One member: its pod, its volume and what it says of itself."""

    member_id: str
    pod: str
    role: str
    """master, slave or none, whatever the group's own words for them are."""
    membership: MembershipRole
    """As the leader said last, and not as the member believes."""
    exists: bool
    """It has a pod."""
    ready: bool
    """It answers, serves its role, and the kubelet finds it ready too."""
    reason: str
    """Why it is not ready, for people; empty when it is."""
    trouble: Trouble | None
    """Why its pod or volume does not come up."""
    status: NodeStatus | None
    """Its last answer; None when it did not give one lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group at one instant."""

    namespace: str
    name: str
    replicas: int
    """What the spec asks for."""
    first_voters: int | None
    """None until it is known how the group was founded."""
    electorate: Electorate
    leader: Leader | None
    disputed: bool
    """Two members claim the same term: the promise of Raft is broken."""
    members: Sequence[MemberFacts]
    endpoints: EndpointsFacts
    paused: bool
    problem: Trouble | None
    """Why the spec is not what runs: it is wrong, or a child was refused."""
    warning: Trouble | None
    """What of the spec cannot be had, although the rest was applied."""
    obstacle: Trouble | None
    """What keeps the members from becoming those that the spec asks for."""
    starting: bool
    """The group is so young that members may well not be there yet."""

    @property
    def voters(self) -> Sequence[MemberFacts]:
        """The members that vote."""
        return [each for each in self.members if each.membership is MembershipRole.VOTER]

    @property
    def ready_voters(self) -> int:
        """How many voters are ready."""
        return sum(member.ready for member in self.voters)

    @property
    def quorum_slack(self) -> int:
        """How many ready voters there are beyond a majority; negative without one."""
        return self.ready_voters - self.electorate.quorum

    @property
    def leading(self) -> MemberFacts | None:
        """The member that leads."""
        leader_id = self.leader.member_id if self.leader else None
        return next((each for each in self.members if each.member_id == leader_id), None)

    def lag_entries(self, member: MemberFacts) -> int | None:
        """How many entries a member has yet to store; None when the leader does not say.

        Both numbers are the leader's, so they are of one instant.
        """
        leading = self.leading
        if leading is None or leading.status is None:
            return None
        if member.member_id == leading.member_id:
            return 0
        for peer in leading.status.followers:
            if peer.peer_id == member.member_id:
                return max(0, leading.status.ledger_end_index - peer.match_index)
        return None
