"""Everything that is done for one group, side by side, until the group is gone.

    reconcile   spec                     -> children
    follow      who leads                -> role labels
    endpoints   EndpointSlices           -> does the master Service lead to the leader?
    observe     pods, volumes, /status   -> what is known of members
    scale       members there are        -> members that the spec asks for
    report      all that is known        -> status, metrics, Events

Each is a loop of its own: a member that does not answer must not keep a leader from being followed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.behaviours.children.reconcile import Reconciled, reconcile
from dledger_operator.behaviours.context import Tools
from dledger_operator.behaviours.leader import endpoints
from dledger_operator.behaviours.leader.double_master import DoubleMasterWatch
from dledger_operator.behaviours.leader.follow_leader import Decision, Followed, LeaderFollower
from dledger_operator.behaviours.leader.leader_history import LeaderHistory, PhaseTime
from dledger_operator.behaviours.leader.leader_polls import LeaderPolls
from dledger_operator.behaviours.loops import Pace, Wake, repeat
from dledger_operator.behaviours.members import observe
from dledger_operator.behaviours.members.beginning import Beginning
from dledger_operator.behaviours.members.electorate import heard, remembered
from dledger_operator.behaviours.members.scale import Scaler
from dledger_operator.behaviours.members.scale_steps import Seen
from dledger_operator.behaviours.report.event_recorder import News
from dledger_operator.behaviours.report.group_events import ConditionNews, of_leader_change
from dledger_operator.behaviours.report.status import (
    StatusReporter,
    build_status,
    leader_changes_from_json,
)
from dledger_operator.clients.errors import NotFoundError
from dledger_operator.facts import Electorate, GroupFacts
from dledger_operator.spec.group import Group, ImageDefaults
from dledger_operator.spec.spec_reader import InvalidSpecError
from dledger_operator.views import EndpointView, VolumeView

logger = logging.getLogger(__name__)

PACES: Final = {
    "reconcile": Pace(interval_s=60.0, gap_s=1.0),
    "follow": Pace(interval_s=10.0, gap_s=0.02, failure_gap_s_max=1.0),
    "endpoints": Pace(interval_s=30.0, gap_s=0.02, failure_gap_s_max=5.0),
    "observe": Pace(interval_s=5.0, gap_s=0.5, failure_gap_s_max=5.0),
    "scale": Pace(interval_s=60.0, gap_s=0.1, failure_gap_s_max=10.0),
    "report": Pace(interval_s=10.0, gap_s=0.25, failure_gap_s_max=10.0),
}
# An operator that has just started knows nothing yet; it must not say that nobody leads.
GATHERING_S_MAX: Final = 5.0


class GroupWorker:
    """Works for one group."""

    def __init__(self, body: Mapping[str, Any], tools: Tools, on_gone: Callable[[], None]) -> None:
        """Take `on_gone` for the news that the API server does not know the group any more."""
        metadata = body["metadata"]
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self._body = body
        self._tools = tools
        self._on_gone = on_gone
        self._started_s = tools.clock()
        self._is_new = not body.get("status")
        self._beginning = Beginning(datetime.fromisoformat(metadata["creationTimestamp"]))
        self._wakes = {loop: Wake() for loop in PACES}
        self._group = group_to_follow(body, tools.node_image)
        self._reconciled = Reconciled()
        self._followed = Followed()
        self._endpoints: list[EndpointView] | None = None
        self._volumes: list[VolumeView] = []
        self._answers: dict[str, NodeStatus] | None = None
        self._electorate = remembered(body.get("status") or {}, self._group)
        self._steps = 0
        self._answers_after_steps = 0
        self._children: dict[tuple[str, str], object] = {}
        self._news: list[News] = []
        self._condition_news = ConditionNews()
        self._double_masters = DoubleMasterWatch()
        self._history = LeaderHistory(leader_changes_from_json(body.get("status") or {}))
        self._reporter = StatusReporter(tools.api, clock=tools.clock)
        self._polls = LeaderPolls(tools.pages, tools.random, self._heard)
        self._follower = LeaderFollower(
            tools.api,
            self._polls,
            clock=tools.clock,
            on_decision=self._decided,
            on_settled=self._settled,
        )
        self._scaler = Scaler(
            tools.api,
            tools.requests,
            clock=tools.clock,
            random=tools.random,
            on_members=self._heard_of_members,
            tell=self._news.append,
        )

    async def run(self) -> None:
        """Run every behaviour until cancelled."""
        turns = {
            "reconcile": self._reconcile,
            "follow": self._follow,
            "endpoints": self._check_endpoints,
            "observe": self._observe,
            "scale": self._scale,
            "report": self._report,
        }
        self._count_double_masters(0)
        try:
            async with asyncio.TaskGroup() as tasks:
                for loop, turn in turns.items():
                    tasks.create_task(
                        repeat(
                            turn,
                            what=f"{self.namespace}/{self.name}: {loop}",
                            wake=self._wakes[loop],
                            pace=PACES[loop],
                            random=self._tools.random,
                            on_failure=self._tools.metrics.failures.labels(loop).inc,
                        )
                    )
        finally:
            await self._polls.stop()

    # What happens outside

    def changed(self, body: Mapping[str, Any]) -> None:
        """Take a newer version of the group's object."""
        before, self._body = self._body, body
        if body["metadata"].get("generation") != before["metadata"].get("generation"):
            self._group = group_to_follow(body, self._tools.node_image) or self._group
            self._wake("reconcile", "follow")

    def pod_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Take a watch event of one of the group's pods; `kind` is None for one from a list."""
        if self._group is not None:
            metadata, roles = body["metadata"], self._group.roles
            labels = metadata.get("labels") or {}
            master = kind != "DELETED" and labels.get(roles.label) == roles.master
            uid, version = metadata["uid"], int(metadata["resourceVersion"])
            if kind is None:
                self._double_masters.saw_listed(uid, version, master=master)
            else:
                self._count_double_masters(self._double_masters.saw(uid, version, master=master))
        self._polls.hurry()
        self._wake("follow")

    def endpoints_changed(self) -> None:
        """Hear that an EndpointSlice of the group changed."""
        self._wake("endpoints")

    def child_changed(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Take a watch event of a child that somebody may have changed or deleted.

        A StatefulSet's status moves with every pod; only another generation is another spec.
        """
        metadata = body["metadata"]
        key = (body.get("kind", ""), metadata["name"])
        version = metadata.get("generation") or metadata["resourceVersion"]
        if kind == "DELETED" or self._children.get(key) != version:
            self._wake("reconcile")
        self._children[key] = version

    def _heard(self) -> None:
        """Hear that a member says something new, or has fallen silent."""
        self._history.look(self._tools.clock(), self._polls.observations(), self._followed.pods)
        self._wake("follow")

    def _heard_of_members(self, members: Electorate) -> None:
        """Hear from a leader who belongs to the group: labels, budget and status follow."""
        if members != self._electorate:
            self._electorate = members
            self._wake("reconcile", "follow", "scale", "report")

    # The six loops

    async def _reconcile(self) -> None:
        body = self._body
        if body["metadata"].get("deletionTimestamp"):
            return
        async with self._tools.reconcile_slots:
            began_s = self._tools.clock()
            outcome = await reconcile(
                self._tools.api,
                {**body, "status": self._status()},
                self._tools.node_image,
                led=self._history.leader is not None,
                voters=len(self._electorate.voters),
            )
        result = outcome.problem.reason if outcome.problem else "Applied"
        self._tools.metrics.reconcile_s.labels(result).observe(self._tools.clock() - began_s)
        self._reconciled = outcome
        self._wake("scale", "report")

    async def _follow(self) -> None:
        if self._group is not None:
            await self._follower.turn(self._group, self._electorate)

    def _decided(self, decision: Decision) -> None:
        """Note a leader as soon as it is proven, before the labels follow."""
        before, leader = self._history.leader, decision.leader
        if leader is None:
            return
        self._time(self._history.proven(self._tools.clock(), self._tools.now(), leader))
        if leader != before:
            change = self._history.changes[0]
            news = of_leader_change(change)
            logger.info("%s/%s: %s", self.namespace, self.name, news.message)
            self._news.append(news)
            self._tools.metrics.count_leader_change(self.namespace, self.name, change.reason)
        if before is None:
            self._wake("reconcile")  # it has been founded

    def _settled(self, followed: Followed) -> None:
        """Note that the labels are as right as they can be."""
        if followed.master_pod:
            self._time(self._history.relabelled(self._tools.clock()))
        if followed.leader != self._followed.leader:
            self._wake("endpoints")
        if followed != self._followed:
            self._wake("observe", "report")
        self._followed = followed

    async def _check_endpoints(self) -> None:
        if self._group is None:
            return
        service = names.master_service(self.name)
        found = await self._tools.api.service_endpoints(self.namespace, service)
        if found != self._endpoints:
            self._endpoints = found
            self._wake("report")
        judged = endpoints.judge(found, service=service, leader_pod=self._followed.leader_pod)
        if judged.synced and self._followed.leader == self._history.leader:
            self._time(self._history.endpoints_synced(self._tools.clock()))

    async def _observe(self) -> None:
        group, pods, steps = self._group, self._followed.pods, self._steps
        if group is None or not pods:
            self._answers_after_steps = steps
            return
        all_ready = len(pods) >= group.replicas and all(pod.ready for pod in pods)
        api = self._tools.api
        self._volumes = [] if all_ready else await api.volumes(self.namespace, self.name)
        self._answers = await observe.statuses(self._tools.pages, pods)
        self._answers_after_steps = steps
        self._heard_of_members(heard(self._answers.values(), self._electorate))
        self._wake("report")
        if not self._scaler.at_rest:
            self._wake("scale")

    async def _scale(self) -> None:
        """Take a step, unless the spec is not in force yet, or what members said is from before the
        last one.
        """
        group, applied = self._group, self._reconciled
        current = applied.generation == self._body["metadata"].get("generation", 1)
        if group is None or applied.shape is None or applied.problem or not current:
            return
        if self._answers_after_steps != self._steps:
            return
        name = names.stateful_set(self.name)
        stateful_set = await self._tools.api.stateful_set(self.namespace, name)
        if stateful_set is None:
            self._wake("reconcile")
            return
        pods = [pod for pod in self._followed.pods if not pod.leaving]
        answers = self._answers or {}
        seen = Seen(
            replicas=group.replicas,
            shape=replace(applied.shape, pods=stateful_set.replicas),
            leader=self._followed.leader,
            electorate=self._electorate,
            answers={pod.member_id: answers[pod.uid] for pod in pods if pod.uid in answers},
        )
        ips = {pod.member_id: pod.ip for pod in pods if pod.ip}
        if await self._scaler.turn(group, seen, stateful_set, ips):
            self._steps += 1
            self._wake("observe")
        self._wake("report")

    async def _report(self) -> None:
        if not self._knows_enough():
            return
        body, now = self._body, self._tools.now()
        previous = self._status()
        facts = self._facts(now)
        status = build_status(
            facts, self._history, generation=self._reconciled.generation, previous=previous, now=now
        )
        self._news += self._condition_news.of_conditions(
            previous.get("conditions") or [], status["conditions"], now
        )
        if self._group:
            self._tools.metrics.show(
                facts, image=self._group.image, flush_disk_type=self._group.flush_disk_type.value
            )
        try:
            await self._reporter.report(body, status)
        except NotFoundError:
            self._on_gone()
            return
        while self._news:
            await self._tools.news.post(names.GROUP_KIND, body, self._news.pop(0))

    # What is known

    def _status(self) -> Mapping[str, Any]:
        """The group's status as it was written last."""
        return self._reporter.written or self._body.get("status") or {}

    def _knows_enough(self) -> bool:
        """Whether a report would tell of the group, and not of this process's ignorance.

        A group that had no status is new, and there is nothing better to be kept.
        """
        if not self._reconciled.generation:
            return False
        if self._is_new:
            return True
        looked = self._endpoints is not None and self._answers is not None
        known = looked and self._followed.leader is not None
        return known or self._tools.clock() - self._started_s > GATHERING_S_MAX

    def _facts(self, now: datetime) -> GroupFacts:
        group, followed, answers = self._group, self._followed, self._answers or {}
        members = (
            observe.members(group, followed.pods, self._volumes, answers, self._electorate)
            if group
            else ()
        )
        shape = self._reconciled.shape
        return GroupFacts(
            namespace=self.namespace,
            name=self.name,
            replicas=group.replicas if group else 0,
            first_voters=shape.first_voters if shape else None,
            electorate=self._electorate,
            leader=followed.leader,
            disputed=followed.disputed,
            members=members,
            endpoints=endpoints.judge(
                self._endpoints or [],
                service=names.master_service(self.name),
                leader_pod=followed.leader_pod,
            ),
            paused=group.paused if group else False,
            problem=self._reconciled.problem,
            warning=self._reconciled.warning,
            obstacle=self._scaler.obstacle,
            starting=self._beginning.lasts(members, now),
        )

    def _count_double_masters(self, count: int) -> None:
        if count:
            logger.error("%s/%s: two pods were labelled master at once", self.namespace, self.name)
        self._tools.metrics.count_double_masters(self.namespace, self.name, count)

    def _time(self, phases: Sequence[PhaseTime]) -> None:
        for each in phases:
            self._tools.metrics.failover_s.labels(each.phase).observe(each.seconds)
        self._wake("report")

    def _wake(self, *loops: str) -> None:
        for loop in loops:
            self._wakes[loop].set()


def group_to_follow(body: Mapping[str, Any], images: ImageDefaults) -> Group | None:
    """Read as much of a spec as following needs; None when even that is not there."""
    for read in (Group.from_body, Group.to_follow):
        try:
            return read(body, images)
        except InvalidSpecError:
            continue
    return None
