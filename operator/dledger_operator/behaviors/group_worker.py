"""Runs the control loops of one group concurrently, until the group is deleted.

    reconcile   spec                       -> children
    follow      members' view of leader    -> role labels
    endpoints   EndpointSlices             -> is the leader the master Service's only endpoint?
    observe     pods, claims, /status      -> observed members
    scale       observed members, spec     -> membership changes and StatefulSet replicas
    roll        pods, /status, spec        -> pods replaced one at a time
    place       nodes, /status, spec       -> leadership transfers
    tokens      spec, time, /status        -> the group's administration token
    canary      spec, time                 -> a tiny append and read through the master Service
    audit       spec, time, audits         -> DLedgerAudits
    report      observed state             -> status, metrics, Events

On a replica of the operator that does not hold the Lease, only `follow` runs, and what the holder
has found is taken from the group's status.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dledger_operator import names
from dledger_operator.behaviors.admin_tokens.group_tokens import GroupTokens
from dledger_operator.behaviors.audits.group_audits import GroupAudits
from dledger_operator.behaviors.canary.canary import Canary
from dledger_operator.behaviors.children.child_watch import ChildWatch
from dledger_operator.behaviors.children.group_reconcile import GroupReconcile
from dledger_operator.behaviors.children.newest import generation_of
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.founding.identity import overriding_identity
from dledger_operator.behaviors.group_loops import GroupLoops
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.placer import Placer
from dledger_operator.behaviors.leader.double_master import DoubleMasterDetector
from dledger_operator.behaviors.leader.endpoints_check import EndpointsCheck
from dledger_operator.behaviors.leader.following import Following
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.member_pods import is_of_stateful_set
from dledger_operator.behaviors.leader.role_decision import Decision
from dledger_operator.behaviors.leader.role_labeler import FollowResult, RoleLabeler
from dledger_operator.behaviors.loops import WAITING_INTERVAL_S
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.members.membership import reported_membership
from dledger_operator.behaviors.members.scale import Scaler
from dledger_operator.behaviors.members.unready_reads import UnreadyReads
from dledger_operator.behaviors.report.group_counts import GroupCounts
from dledger_operator.behaviors.report.group_events import leader_events
from dledger_operator.behaviors.report.group_reporter import GroupReporter
from dledger_operator.behaviors.rolls.group_roll import GroupRoll
from dledger_operator.behaviors.rolls.permission import approved_revision
from dledger_operator.clients.errors import GroupGoneError, NotFoundError
from dledger_operator.observed_state import Membership

logger = logging.getLogger(__name__)


class GroupWorker:
    """Runs the control loops of one group."""

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the group no longer exists."""
        metadata, status = body["metadata"], body.get("status") or {}
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self._body = body
        self._context = context
        self._on_gone = on_gone
        self.loops = GroupLoops(context, f"{self.namespace}/{self.name}")
        self._wake = self.loops.wake
        self._snapshot = GroupSnapshot.of(body, context.node_image)
        self._unready = UnreadyReads(context, self._snapshot)
        self._scale_steps = self._scale_steps_at_answers = 0
        self._double_masters = DoubleMasterDetector()
        report = partial(self._wake, "report")
        key = (self.namespace, self.name)
        self._counts = GroupCounts(context.metrics, key, lambda: self.loops.acts, report)
        self._endpoints = EndpointsCheck(context, self._snapshot, report, self._counts.phases)
        self._reporter = GroupReporter(context, status, report)
        self._child_watch = ChildWatch(self.name, context.clock, self._reporter.add_event)
        self._children = GroupReconcile(
            context,
            self._snapshot,
            status=self._reporter.status,
            watch=self._child_watch,
            on_newer=self.changed,
            on_outcome=partial(self._wake, "observe", "scale", "roll", "place", "report"),
        )
        http, random, is_stranger = context.member_http, context.random, self._snapshot.is_stranger
        self._polls = LeaderPolls(http, random, self._on_poll_change, is_stranger, context.clock)
        self._rolls = GroupRoll(context, self._snapshot, self._reporter.add_event)
        self._placer = Placer(context, self._snapshot, self._reporter.add_event, report)
        self._tokens = GroupTokens(context, self._snapshot, self._reporter.add_event, report)
        self._canary = Canary(context, self._snapshot, self._reporter.add_event, self._on_write)
        self.audits = GroupAudits(context, self._snapshot, self._reporter.add_event, self._wake)
        self._labeler = RoleLabeler(
            context.api,
            self._polls,
            ask=self._rolls.ask,
            clock=context.clock,
            on_decision=self._on_decision,
            on_settled=self._on_settled,
            on_conflict=context.metrics.conflicts.labels("follow").inc,
            stands_by=lambda: not self.loops.acts,
        )
        following = self._labeler, self._polls, self._snapshot
        self._following = Following(*following, clock=context.clock, on_found=self._on_found)
        self._scaler = Scaler(
            context.api,
            context.authorized_requests(self.namespace, self.name),
            clock=context.clock,
            random=random,
            on_membership=self._on_membership,
            on_event=self._reporter.add_event,
        )

    async def run(self) -> None:
        """Follow the leader until cancelled, and run the other loops while asked to act."""
        others = {
            "reconcile": self._reconcile,
            "endpoints": self._endpoints.run_once,
            "observe": self._observe,
            "scale": self._scale,
            "roll": self._roll,
            "place": self._placer.run_once,
            "tokens": self._tokens.run_once,
            "canary": self._canary.run_once,
            "audit": self.audits.run_once,
            "report": self._report,
        }
        try:
            await self.loops.run(self._following.run_once, others)
        finally:
            await self._polls.stop()

    def act(self, epoch: object) -> None:
        """Run all loops from now on; a new `epoch` means that another process acted in between."""
        self.loops.act(epoch)
        self._counts.double_masters(0)

    def stand_by(self) -> None:
        """Only follow the leader from now on, and export nothing about the group."""
        self.loops.stand_by()
        self._context.metrics.remove_group(self.namespace, self.name)

    # Watch events

    def changed(self, body: Mapping[str, Any]) -> None:
        """Store a newer version of the object. A late event with an older spec is ignored."""
        if generation_of(body) < generation_of(self._body):
            return
        before, self._body = self._body, body
        if not self.loops.acts:
            self._snapshot.take_status(body, self._context.node_image)
            self._wake("follow")
        if any(find(body) != find(before) for find in (overriding_identity, approved_revision)):
            self._wake("reconcile")
        if generation_of(body) != generation_of(before):
            self._snapshot.take_spec(body, self._context.node_image)
            self._wake("reconcile", "follow", "tokens", "canary", "audit")

    def pod_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Process a watch event of a pod of the group; `kind` is None for a pod from a LIST."""
        if (group := self._snapshot.group_in_force) and is_of_stateful_set(body, self.name):
            self._counts.double_masters(self._double_masters.observe_event(kind, body, group.roles))
        self._polls.retry_now()
        self._labeler.saw(body["metadata"].get("resourceVersion", ""))
        self._wake("follow")

    def claim_changed(self) -> None:
        """Check the volume claims, because one was created, changed or deleted."""
        self._unready.claims_changed = True
        self._wake("reconcile", "observe")

    def node_changed(self, name: str) -> None:
        """Check where the leader runs if a pod of the group runs on the node that has changed."""
        if any(pod.node == name for pod in self._snapshot.followed.pods):
            self._wake("place", "roll")

    def endpoints_changed(self) -> None:
        """Check the endpoints, because an EndpointSlice of the group has changed."""
        self._wake("endpoints")

    def child_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Reconcile if another client may have changed or deleted a child."""
        if self._child_watch.may_change_roles(body):
            self._roles_changed()
        if self._child_watch.calls_for_reconcile(kind, body):
            self._wake("reconcile")

    # The loops, and the callbacks of their parts

    def _roles_changed(self) -> None:
        """Label the pods by the roles that the master Service has now."""
        self._labeler.roles_changed = True
        self._wake("follow")

    async def _reconcile(self) -> float | None:
        body = self._body
        if body["metadata"].get("deletionTimestamp"):
            return None
        try:
            return await self._children.run_once(body)
        except GroupGoneError:
            self._on_gone()
            return None
        finally:  # a reconciliation that failed may have applied the Services
            self._roles_changed()

    def _on_poll_change(self) -> None:
        """Process a member's new answer, or its silence."""
        pods = self._snapshot.followed.pods
        self._snapshot.history.observe(self._context.clock(), self._polls.observations(), pods)
        self._following.polls_changed()
        self._wake("follow")

    def _on_decision(self, decision: Decision) -> None:
        """Record a new leader as soon as it is proven, before the pods are relabeled."""
        snapshot, before, leader = self._snapshot, self._snapshot.history.leader, decision.leader
        self.loops.leader_first.labels(right=leader is not None and not decision.patches)
        if leader is None:
            return
        phases = snapshot.history.proven(
            self._context.clock(),
            self._context.now(),
            leader,
            self._polls.victory_of(leader),
            labeled=not decision.patches,
        )
        self._counts.phases(phases)
        if leader != before and self.loops.acts:
            change, shape = snapshot.history.changes[0], snapshot.reconciled.shape
            notes = leader_events(change, snapshot.group, shape, is_first=before is None)
            logger.info("%s/%s: %s", self.namespace, self.name, notes[0].message)
            for each in notes:
                self._reporter.add_event(each)
            self._counts.leader_change(change.reason)
        if before is None:
            self._wake("reconcile")  # a first leader ends the founding

    def _on_settled(self, followed: FollowResult) -> None:
        """Record the result of a follow run, after which no patch is left to make."""
        if followed.master_pod:
            self._counts.phases(self._snapshot.history.relabeled(self._context.clock()))
        if followed.labeled != self._snapshot.followed.labeled:
            self._wake("endpoints", "scale", "canary")
        self._on_found(followed)

    def _on_found(self, followed: FollowResult) -> None:
        """Record what is known of the pods and their leader, whether or not the labels match."""
        before = self._snapshot.followed
        if {pod.uid for pod in followed.pods} != {pod.uid for pod in before.pods}:
            self._wake("scale")  # a claim is deleted only after its pod has gone
        if followed != before:
            self._wake("observe", "roll", "place", "report")
        self._snapshot.followed = followed
        if self._snapshot.hibernates:  # hibernation does not count as time without a leader
            self._snapshot.history = LeaderHistory(self._snapshot.history.changes)

    async def _observe(self) -> float | None:
        snapshot, steps = self._snapshot, self._scale_steps
        group, pods, before = snapshot.group, snapshot.followed.pods, snapshot.observations
        if group is None or not snapshot.reconciled.generation:
            self._scale_steps_at_answers = steps
            return None
        failure = await self._unready.run_once(steps)
        snapshot.answers, snapshot.strangers = await self._rolls.ask(pods), self._polls.strangers()
        self._polls.ask_again({pod.uid for pod in pods} - snapshot.answers.keys())
        self._scale_steps_at_answers = steps
        self._on_membership(reported_membership(snapshot.answers.values(), snapshot.membership))
        if snapshot.lacks_majority or before != snapshot.observations:
            self._wake("report")
        begins = snapshot.history.leader is None and snapshot.may_begin
        if snapshot.may_get_identity or begins or self._children.growth_is_due:
            self._wake("reconcile")
        if not self._scaler.idle:
            self._wake("scale")
        if failure is not None:  # the members were asked nevertheless
            raise failure
        return self._unready.again_s()

    def _on_membership(self, membership: Membership) -> None:
        """Store the membership that a leader reports; labels, budget and status depend on it."""
        if membership != self._snapshot.membership:
            self._snapshot.membership = membership
            self._wake("reconcile", "follow", "scale", "report")

    async def _scale(self) -> float | None:
        """Take a scaling step, unless the current spec has not been applied yet or the members have
        not been asked since the last step.
        """
        api, snapshot, ask = self._context.api, self._snapshot, self._rolls.ask
        group, applied = snapshot.group, snapshot.reconciled
        is_current = applied.generation == generation_of(self._body)
        asked = self._scale_steps_at_answers == self._scale_steps
        if group is None or applied.shape is None or applied.problem or not (is_current and asked):
            return None
        if snapshot.followed.awaits_labels:
            return None
        made = await api.stateful_set(self.namespace, names.stateful_set(self.name))
        is_other = made is None or made.first_voters != applied.shape.first_voters
        if made is None or (is_other and not made.leaving):
            self._wake("reconcile")
        if made is None or is_other or made.leaving:
            return WAITING_INTERVAL_S
        pods, unbegun, clock = snapshot.followed.pods, None, self._context.clock
        if group.hibernate:  # all pods go in one step, so the members are asked right before it
            snapshot.answers = await ask(pods)
        elif snapshot.begins_with_fewer:
            unbegun, snapshot.answers = await observe.unbegun(api, ask, group, made, clock)
        claims = await observe.unwanted_claims(api, group, pods)
        nodes, ips = self._context.nodes, snapshot.pod_ips()
        state = snapshot.scale_state(group, applied.shape, made, claims, nodes, unbegun)
        if await self._scaler.run_once(group, state, made, ips, claims):
            self._scale_steps += 1
            self._wake("observe")
        self._wake("report")
        return None

    async def _roll(self) -> float | None:
        before, led = self._rolls.problem, self._snapshot.history.leader is not None
        again_s = await self._rolls.run_once(self._body, led, self._scaler.problem)
        if self._rolls.problem != before:
            self._wake("report", "place")
        return again_s

    async def _report(self) -> float | None:
        snapshot, body, nodes = self._snapshot, self._body, self._context.nodes
        generation, followed = snapshot.reconciled.generation, snapshot.followed
        if not generation or not (followed.is_known or followed.problem or snapshot.group is None):
            return None
        if not self._reporter.may_replace_status(complete=snapshot.is_complete):
            return None
        now, scaling, rolling = self._context.now(), self._scaler.problem, self._rolls.problem
        observed = snapshot.observe(now, scaling, rolling, nodes)
        try:
            return await self._reporter.report(body, observed, snapshot.history, generation)
        except NotFoundError:
            self._on_gone()
            return None

    def _on_write(self, term: int) -> None:
        """Process a canary that the leader of a term acknowledged."""
        if phases := self._snapshot.history.wrote(self._context.clock(), term):
            self._counts.phases(phases)
