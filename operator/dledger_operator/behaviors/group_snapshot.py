"""The latest results of a group's control loops, combined into the group's observed state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from dledger_formats.http.status import LeaderView, NodeStatus, is_stranger
from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import (
    CreationFailure,
    EndpointView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviors.audits.seen import SeenAudits
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.founding import founded_again
from dledger_operator.behaviors.founding.identity import IDENTITY_KEY
from dledger_operator.behaviors.founding.startup_grace import StartupGracePeriod
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader import endpoints
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.members.membership import recorded_membership
from dledger_operator.behaviors.members.observed_members import MemberJudge, MemberReads
from dledger_operator.behaviors.members.scale_steps import ScaleState
from dledger_operator.behaviors.report.status import leader_changes_from_json
from dledger_operator.behaviors.rolls.permission import Cause
from dledger_operator.behaviors.rolls.pods_to_roll import blank_claims, roll_state
from dledger_operator.behaviors.rolls.roll_plan import roll_plan
from dledger_operator.behaviors.rolls.roll_state import RollPod
from dledger_operator.behaviors.rolls.roll_steps import in_order
from dledger_operator.behaviors.volumes.growth import VolumeUse, volume_use
from dledger_operator.observed_state import (
    Membership,
    ObservedEndpoints,
    ObservedGroup,
    ObservedMember,
    Placement,
    RollPlan,
)
from dledger_operator.problem import Problem
from dledger_operator.spec.accepted import AcceptedSpec, newer, read_spec
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape


@dataclass(slots=True, kw_only=True)
class GroupSnapshot:
    """The latest findings of one group's control loops; each loop updates its own part."""

    namespace: str
    name: str
    group: Group | None
    """The spec, or what `read_group` returns; None if no leader can be followed."""
    accepted: AcceptedSpec | None
    """The spec that was accepted last; None if it is not known."""
    membership: Membership
    identity: str
    """The group's identity; empty while it is not known."""
    startup: StartupGracePeriod
    history: LeaderHistory
    audits: SeenAudits
    placement: Placement | None = None
    """Whether the leader is where it should be; None until it was checked."""
    token_problem: Problem | None = None
    """Why the group has no administration token."""
    roll_halt: Problem | None = None
    """Why a roll waits for a person or for its window; None if it does not."""
    reconciled: ReconcileResult = field(default_factory=ReconcileResult)
    followed: FollowResult = field(default_factory=FollowResult)
    endpoints: list[EndpointView] | None = None
    """Endpoints of the master Service; None until they were read."""
    claims: list[VolumeClaimView] = field(default_factory=list)
    """The group's volume claims, as they were after their last change."""
    failures: list[CreationFailure] = field(default_factory=list)
    """Why pods could not be created, read only while a pod is missing."""
    answers: dict[str, NodeStatus] | None = None
    """The members' statuses by pod uid; None until the members were asked once."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """The other groups that answer in place of pods, by pod uid (`MemberReads`)."""

    @classmethod
    def of(cls, body: Mapping[str, Any], images: ImageDefaults) -> "GroupSnapshot":
        """Return the snapshot of a group of which only the object has been read so far."""
        metadata, status = body["metadata"], body.get("status") or {}
        group, accepted = read_spec(body, images, AcceptedSpec.recorded(status))
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            group=group,
            accepted=accepted,
            membership=recorded_membership(status, group),
            identity=str(status.get(IDENTITY_KEY, "")),
            startup=StartupGracePeriod(datetime.fromisoformat(metadata["creationTimestamp"])),
            history=LeaderHistory(leader_changes_from_json(status)),
            audits=SeenAudits.of(body),
        )

    @property
    def group_in_force(self) -> Group | None:
        """`group`, with the roles that the Services were applied with."""
        if self.group is None or self.followed.roles is None:
            return self.group
        return replace(self.group, roles=self.followed.roles)

    @property
    def is_complete(self) -> bool:
        """Whether every loop has run at least once and a leader is known."""
        observed = self.endpoints is not None and self.answers is not None
        return observed and self.followed.leader is not None

    def take_reconciled(self, outcome: ReconcileResult) -> None:
        """Store the outcome of reconciling, and the identity that it found."""
        self.reconciled = outcome
        if self.history.leader is None and outcome.shape and self.is_founded_now:
            founders = map(names.member_id, range(outcome.shape.first_voters))
            self.membership = Membership(voters=frozenset(founders))
        if outcome.shape and outcome.shape.identity:
            self.identity = outcome.shape.identity

    def take_spec(self, body: Mapping[str, Any], images: ImageDefaults) -> None:
        """Store a newer spec, unless it is invalid."""
        group, self.accepted = read_spec(body, images, self.accepted)
        self.group = group or self.group

    def take_status(self, body: Mapping[str, Any], images: ImageDefaults) -> None:
        """Store what another replica of the operator has recorded in the status."""
        status = body.get("status") or {}
        accepted = newer(self.accepted, AcceptedSpec.recorded(status))
        if accepted != self.accepted:
            self.group, self.accepted = read_spec(body, images, accepted)
        self.membership = recorded_membership(status, self.group)
        self.identity = str(status.get(IDENTITY_KEY, "")) or self.identity

    @property
    def may_get_identity(self) -> bool:
        """Whether the group has no identity, and all of its voters have answered."""
        applied = self.reconciled.shape is not None
        return applied and not self.identity and self.reported_identities() is not None

    def is_stranger(self, view: LeaderView | NodeStatus) -> bool:
        """Return whether an answer is from another group's member, reached at a stale address."""
        return is_stranger(view, self.name, self.identity)

    def reported_identities(self) -> frozenset[str] | None:
        """Return the identities that members report; None unless all voters have answered.

        One of them must be master: members that have just started may not know their identity yet.
        """
        answers = observe.by_member(self.followed.pods, self.answers or {})
        voters = self.membership.voters
        if not voters or not voters <= answers.keys():
            return None
        if not any(answer.master for answer in answers.values()):
            return None
        return frozenset(answer.group_identity for answer in answers.values()) - {""}

    def judge_endpoints(self) -> ObservedEndpoints:
        """Compare the master Service's endpoints with the leader."""
        return endpoints.judge(
            self.endpoints,
            service=names.master_service(self.name),
            leader_pod=self.followed.leader_pod,
        )

    def scale_state(
        self,
        group: Group,
        shape: Shape,
        stateful_set: StatefulSetView,
        claims: Sequence[VolumeClaimView],
        nodes: Nodes,
        unbegun: founded_again.Unbegun | None = None,
    ) -> ScaleState:
        """Return the input of the next scaling step. `claims` may be deleted with their members."""
        pods = [pod for pod in self.followed.pods if not pod.leaving]
        return ScaleState(
            replicas=group.replicas,
            shape=replace(shape, pods=stateful_set.replicas),
            leader=self.followed.leader,
            membership=self.membership,
            answers=observe.by_member(pods, self.answers or {}),
            unwanted_claims=frozenset(claim.ordinal for claim in claims),
            hibernate=group.hibernate,
            rolling=bool(self.pods_to_replace),
            roll_halt=self.roll_halt,
            held_back=self.audits.holds_back(group),
            emptied=frozenset(pod.member_id for pod in pods if nodes.why_emptied(pod)),
            unbegun=unbegun,
        )

    def pod_ips(self) -> dict[str, str]:
        """Return the pod IPs by member id, without pods that are leaving."""
        pods = self.followed.pods
        return {pod.member_id: pod.ip for pod in pods if pod.ip and not pod.leaving}

    @property
    def is_founded_now(self) -> bool:
        """Whether the settings let the members begin the group."""
        shape = self.reconciled.shape
        return shape is not None and shape.state is GroupState.NEW

    @property
    def blank_claims(self) -> frozenset[str]:
        """The names of the volume claims that are held by blank members."""
        seed = self.group.seed if self.group else None
        return blank_claims(self.claims, self.followed.pods, self.answers or {}, seed)

    @property
    def volume_use(self) -> dict[str, VolumeUse]:
        """How full the volumes are, as the members report, by the name of the claim."""
        return volume_use(self.followed.pods, self.answers or {})

    @property
    def may_begin(self) -> bool:
        """Whether blank members hold all volume claims, but the settings do not let them begin."""
        held = {claim.name for claim in self.claims}
        may = self.reconciled.shape is not None and not self.is_founded_now
        return may and bool(held) and held == self.blank_claims

    @property
    def begins_with_fewer(self) -> bool:
        """Whether the group is to be founded again, with fewer first voters."""
        group, shape = self.group, self.reconciled.shape
        if group is None or shape is None or group.hibernate or self.history.leader is not None:
            return False
        return founded_again.applies(group.replicas, shape)

    @property
    def is_scaling(self) -> bool:
        """Whether the group does not have the voters that its spec asks for, or has learners."""
        wanted = frozenset(self.group.member_ids if self.group else ())
        return self.membership.voters != wanted or bool(self.membership.learners)

    @property
    def removes_members(self) -> bool:
        """Whether the group has voters or learners that its spec does not ask for."""
        # Pods that never became members do not count: they hold nothing.
        members = self.membership.voters | self.membership.learners
        replicas = self.group.replicas if self.group else names.REPLICAS_MAX
        return any(names.ordinal(each) >= replicas for each in members)

    @property
    def hibernates(self) -> bool:
        """Whether the group is to have no pods, and has none."""
        asleep = self.followed.is_known and not self.followed.pods
        return asleep and self.group is not None and self.group.hibernate

    @property
    def observations(self) -> tuple[object, ...]:
        """The latest findings about members and claims, to compare with earlier ones."""
        return self.answers, self.claims, self.failures, self.strangers

    @property
    def lacks_majority(self) -> bool:
        """Whether too few voters are ready, although the group is to run."""
        group, answers = self.group_in_force, self.answers or {}
        if group is None or group.hibernate:
            return False
        judge = MemberJudge(group, self.membership)
        seen = judge.members(MemberReads(self.followed.pods, answers=answers))
        ready = {each.member_id for each in seen if each.ready}
        return len(ready & self.membership.voters) < self.membership.quorum

    @property
    def pods_to_replace(self) -> frozenset[str]:
        """The names of the pods that a roll to the revision in force will replace."""
        wanted = self.reconciled.in_force
        pods = self.followed.pods if wanted is not None else ()
        return frozenset(pod.name for pod in pods if pod.revision != wanted)

    def roll_target(self, generation: int) -> Revision | None:
        """Return the revision that pods may be replaced for; None if there is none now."""
        applied = self.reconciled
        is_current = applied.generation == generation and applied.shape is not None
        if not is_current or applied.problem or (applied.held and applied.held.cause is Cause.SPEC):
            return None
        return applied.wanted

    def plan(self, now: datetime, waiting: Problem | None) -> RollPlan | None:
        """Return the plan of a roll; `waiting` is what the next step waits for."""
        window = self.group.update_window if self.group else None
        return roll_plan(self.reconciled, self._in_order, window, now, waiting)

    def _in_order(self, wanted: Revision | None) -> list[RollPod]:
        pods, answers = self.followed.pods, self.answers or {}
        return in_order(roll_state(pods, answers, wanted, self.membership, led=True, scaling=False))

    def observe(
        self,
        now: datetime,
        scaling_problem: Problem | None,
        roll_problem: Problem | None,
        nodes: Nodes,
    ) -> ObservedGroup:
        """Combine all parts into the observed state; this may end the startup grace period."""
        group, followed, shape = self.group_in_force, self.followed, self.reconciled.shape
        members = self._members(group, now, nodes) if group else ()
        return ObservedGroup(
            namespace=self.namespace,
            name=self.name,
            replicas=group.replicas if group else 0,
            first_voters=shape.first_voters if shape else None,
            identity=self.identity,
            accepted=self.accepted,
            membership=self.membership,
            leader=followed.leader,
            disputed=followed.disputed,
            foreign_pods=followed.foreign,
            overstated_pods=followed.overstated,
            follow_problem=followed.problem,
            pods_known=followed.is_known,
            members=members,
            endpoints=self.judge_endpoints(),
            paused=group.paused if group else False,
            hibernate=group.hibernate if group else False,
            problem=self.reconciled.problem,
            warning=self.reconciled.warning or self.token_problem,
            growth=self.reconciled.growth,
            scaling_problem=scaling_problem,
            plan=self.plan(now, roll_problem),
            held_template=self.reconciled.held_template,
            roll_problem=roll_problem,
            audit=self.audits.finding,
            audits=self.audits.observed(),
            placement=self.placement,
            broker=group.broker if group else None,
            starting=self.startup.is_active(members, now),
            copies_archive=self.history.leader is None
            and any(pod.copies_archive for pod in followed.pods),
        )

    def _members(self, group: Group, now: datetime, nodes: Nodes) -> tuple[ObservedMember, ...]:
        judge = MemberJudge(
            group,
            self.membership,
            wanted=self.reconciled.wanted,
            not_live=self.reconciled.not_live,
            now=now,
            node_ready=nodes.is_ready,
        )
        pods, answers = self.followed.pods, self.answers or {}
        reads = MemberReads(pods, self.claims, answers, self.failures, self.strangers)
        return judge.members(reads)
