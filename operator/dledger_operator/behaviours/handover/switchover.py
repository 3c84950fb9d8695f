"""Carries out a `DLedgerSwitchover`, one step at a time, and deletes it when its time has come."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dledger_formats.http.status import NodeStatus, is_stranger
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator import names
from dledger_operator.api_objects import Manifest, PodView, Problem
from dledger_operator.behaviours.children.identity import IDENTITY_KEY
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.handover.candidates import Candidates, find_candidates
from dledger_operator.behaviours.handover.phase_times import PhaseTimes
from dledger_operator.behaviours.handover.placement import PlacementState, find_places, moved_back
from dledger_operator.behaviours.handover.switchover_steps import (
    Begin,
    End,
    HandOver,
    RecordLeader,
    Step,
    SwitchoverState,
    Wait,
    next_step,
)
from dledger_operator.behaviours.leader import endpoints
from dledger_operator.behaviours.leader.member_pods import is_member
from dledger_operator.behaviours.loops import Pace, backoff_s
from dledger_operator.behaviours.members import observe
from dledger_operator.behaviours.one_off.worker import COMPLETE, OneOffWorker, group_of
from dledger_operator.behaviours.report.event_recorder import EventNote
from dledger_operator.clients.errors import MemberSilentError, NotFoundError
from dledger_operator.conditions.condition import Judgment, stamped
from dledger_operator.observed_state import Leader
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.spec_reader import InvalidSpecError
from dledger_operator.spec.switchover_request import SwitchoverRequest

logger = logging.getLogger(__name__)

PACE: Final = Pace(interval_s=60.0, gap_s=0.02, failure_gap_s_max=2.0)
# How soon the operator looks again while the switchover runs: no event tells that a member leads.
LOOK_AGAIN_S: Final = 0.1
WAITING_S: Final = 1.0
# A leader takes no appends while it hands over, so a transfer that fails is not repeated at once.
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 10.0
PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ENDED_PHASES: Final = (SUCCEEDED, FAILED)
TRANSFER_REFUSED: Final = "TransferRefused"
INVALID_SPEC: Final = "InvalidSpec"
FINISHED_EVENT: Final = "SwitchoverFinished"


class SwitchoverWorker(OneOffWorker):
    """Carries out one DLedgerSwitchover, and deletes it `ttlAfterFinished` after its end."""

    kind = names.SWITCHOVER_KIND
    behaviour = "switchover"
    pace = PACE
    ended_phases = ENDED_PHASES

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the switchover no longer exists."""
        super().__init__(body, context, on_gone)
        self._times = PhaseTimes(context.clock)
        self._failures = 0
        self._retry_at_s = 0.0
        self._refused: Wait | None = None
        """Why the leader did not hand over when it was last asked."""
        self._deleted = False
        self._ips: Mapping[str, str] = {}
        self._identity = ""
        self._wanted: Revision | None = None
        """What the StatefulSet makes pods of."""

    def done(self) -> bool:
        """Return whether the switchover was deleted."""
        return self._deleted

    async def _run_once(self) -> float | None:
        """Take at most one step. The object is read first: what an earlier operator has recorded
        counts.
        """
        if self.ended() and not self._is_due():
            return None
        existing = await self._context.api.custom_objects(self.kind, self.namespace)
        body = next((each for each in existing if each["metadata"]["uid"] == self.uid), None)
        if body is None:
            self._deleted = True
            self._on_gone()
            return None
        self._body, self._status = body, body.get("status") or {}
        try:
            request = SwitchoverRequest.from_body(body)
        except InvalidSpecError as error:
            if not self.ended():
                await self._end(End(succeeded=False, reason=INVALID_SPEC, message=str(error)))
            return None
        if self.ended():
            await self._delete()
            return None
        state = await self._observe(request, existing)
        return await self._take(state, next_step(state))

    async def _observe(
        self, request: SwitchoverRequest, existing: Sequence[Mapping[str, Any]]
    ) -> SwitchoverState:
        started_at, now = self._status.get("startedAt"), self._context.now()
        begun = datetime.fromisoformat(started_at) if started_at else None
        first = earlier(self._body, existing)
        group, candidates, in_service, back = None, Candidates.nobody(), None, None
        if begun and not first:
            group = await self._group(request)
        if group is not None:
            pods = await self._pods(group)
            candidates = await self._ask_members(group, pods)
            back = self._moved_back(group, pods, candidates, request.target)
            leader = candidates.leader
            if leader is not None and leader.member_id == request.target:
                service = names.master_service(group.name)
                found = await self._context.api.service_endpoints(group.namespace, service)
                pod = names.pod(group.name, names.ordinal(leader.member_id))
                in_service = endpoints.judge(found, service=service, leader_pod=pod)
        return SwitchoverState(
            request=request,
            first=first,
            begun=begun is not None,
            from_member=str(self._status.get("from", "")),
            elapsed_s=(now - begun).total_seconds() if begun else 0.0,
            group_exists=group is not None,
            paused=group.paused if group else False,
            hibernate=group.hibernate if group else False,
            candidates=candidates,
            moved_back=back,
            endpoints=in_service,
        )

    async def _group(self, request: SwitchoverRequest) -> Group | None:
        """Return the group, or at least what following its leader needs; None if it is missing."""
        try:
            body = await self._context.api.group(request.namespace, request.group_name)
        except NotFoundError:
            return None
        self._identity = str((body.get("status") or {}).get(IDENTITY_KEY, ""))
        try:
            return Group.from_body(body, self._context.node_image)
        except InvalidSpecError:
            return Group.to_follow(body, self._context.node_image)

    async def _pods(self, group: Group) -> Sequence[PodView]:
        """Read the pods of the members."""
        api, namespace = self._context.api, group.namespace
        stateful_set = await api.stateful_set(namespace, names.stateful_set(group.name))
        self._wanted = stateful_set.revision if stateful_set else None
        listed = await api.member_pods(namespace, group.name) if stateful_set else ()
        uids = {stateful_set.uid} if stateful_set else set()
        return [pod for pod in listed if is_member(pod, group.name, uids)]

    async def _ask_members(self, group: Group, pods: Sequence[PodView]) -> Candidates:
        def strange(answer: NodeStatus) -> bool:
            return is_stranger(answer, group.name, self._identity)

        answers = await observe.statuses(self._context.member_http, pods, strange)
        self._ips = {pod.member_id: pod.ip for pod in pods}
        behind = [pod.name for pod in pods if self._wanted and pod.revision != self._wanted]
        return find_candidates(
            pods, answers, staying=group.member_ids, rolling_out=frozenset(behind)
        )

    def _moved_back(
        self, group: Group, pods: Sequence[PodView], candidates: Candidates, target: str
    ) -> Problem | None:
        nodes, preference = self._context.nodes, group.preferred_leader
        state = PlacementState(
            candidates=candidates,
            places=find_places(pods, nodes, preference),
            preference=preference,
            nodes_readable=nodes.readable,
            able_s={},
        )
        return moved_back(state, target)

    async def _take(self, state: SwitchoverState, step: Step) -> float | None:
        if isinstance(step, End):
            if step.succeeded:
                self._times.note("led")
                self._times.note("ended")
            await self._end(step)
            return 0.0
        if isinstance(step, Begin):
            self._times.note("begun")
            await self._show(
                RUNNING, Wait(reason=RUNNING, message="checks the target"), begins=True
            )
            return 0.0
        if isinstance(step, RecordLeader):
            message = f"asks {step.leader.member_id} to hand over to {state.request.target}"
            waits = Wait(reason=RUNNING, message=message)
            await self._show(RUNNING, waits, from_member=step.leader.member_id)
            return 0.0
        if isinstance(step, HandOver):
            return await self._hand_over(state, step.leader)
        if state.endpoints is not None:
            self._times.note("led")
        await self._show(RUNNING if state.begun else PENDING, step)
        return LOOK_AGAIN_S if state.begun else WAITING_S

    async def _hand_over(self, state: SwitchoverState, leader: Leader) -> float:
        """Ask the leader, unless it has refused a moment ago."""
        if self._refused and self._context.clock() < self._retry_at_s:
            await self._show(RUNNING, self._refused)
            return LOOK_AGAIN_S
        self._times.note("asked")
        target, group = state.request.target, state.request.group_name
        requests = self._context.authorized_requests(self.namespace, group)
        try:
            answer = await requests.transfer(
                self._ips.get(leader.member_id, ""),
                group,
                leader,
                target,
                identity=self._identity,
            )
            refusal = "" if answer.code is DLedgerResponseCode.SUCCESS else answer.code.name
        except MemberSilentError as error:
            refusal = str(error)
        self._refused = None
        if refusal:
            self._failures += 1
            pause_s = backoff_s(self._failures, RETRY_S_MIN, RETRY_S_MAX, self._context.random)
            self._retry_at_s = self._context.clock() + pause_s
            message = f"{leader.member_id} did not hand over to {target}: {refusal}"
            self._refused = Wait(reason=TRANSFER_REFUSED, message=message)
        else:
            self._times.note("led")
        return 0.0

    async def _show(
        self, phase: str, wait: Wait, *, begins: bool = False, from_member: str = ""
    ) -> None:
        """Write what the switchover waits for."""
        await self._write(
            self._built(phase, Judgment(holds=False, reason=wait.reason, message=wait.message))
            | ({"startedAt": names.timestamp(self._context.now())} if begins else {})
            | ({"from": from_member} if from_member else {})
        )

    def _built(self, phase: str, judgment: Judgment) -> Manifest:
        """Return a status that keeps what was recorded."""
        generation = self._body["metadata"].get("generation", 1)
        conditions = self._status.get("conditions") or []
        kept = {key: self._status[key] for key in ("startedAt", "from") if key in self._status}
        return {
            **kept,
            "observedGeneration": generation,
            "phase": phase,
            "conditions": [
                stamped(
                    COMPLETE,
                    judgment,
                    previous=next((one for one in conditions if one.get("type") == COMPLETE), None),
                    now=self._context.now(),
                    generation=generation,
                )
            ],
        }

    async def _end(self, end: End) -> None:
        phase = SUCCEEDED if end.succeeded else FAILED
        judgment = Judgment(holds=end.succeeded, reason=end.reason, message=end.message)
        status = self._built(phase, judgment) | self._times.to_json()
        status["finishedAt"] = names.timestamp(self._context.now())
        if end.leader is not None:
            status["term"] = end.leader.term
        if not await self._write(status):
            return
        self._context.metrics.switchovers.labels(end.reason).inc()
        seconds = self._times.between("asked", "led")
        if end.succeeded and seconds is not None:
            self._context.metrics.switchover_s.observe(seconds)
        logger.info("switchover %s/%s: %s: %s", self.namespace, self.name, phase, end.message)
        severity = NORMAL if end.succeeded else WARNING
        note = EventNote(severity=severity, reason=FINISHED_EVENT, message=end.message)
        await self._context.events.record(self.kind, self._body, note)

    def _is_due(self) -> bool:
        """Return whether the time of a switchover that has ended has come."""
        try:
            ttl_s = SwitchoverRequest.from_body(self._body).ttl_after_finished_s
            finished_at = datetime.fromisoformat(self._status["finishedAt"])
        except (InvalidSpecError, KeyError, TypeError, ValueError):
            return False  # it says nothing about its end, so it is kept
        return (self._context.now() - finished_at).total_seconds() >= ttl_s

    async def _delete(self) -> None:
        try:
            await self._context.api.delete_custom_object(self.kind, self._body)
        except NotFoundError:
            logger.info("switchover %s/%s is gone already", self.namespace, self.name)
        self._deleted = True


def earlier(body: Mapping[str, Any], existing: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of an earlier switchover of the same group that has not ended; empty if there
    is none. Two of the same second are ordered by name.
    """

    def order(each: Mapping[str, Any]) -> tuple[bool, str, str]:
        # One that has begun keeps its turn, whatever the clocks of two API servers say.
        metadata, begun = each["metadata"], "startedAt" in (each.get("status") or {})
        return (not begun, metadata["creationTimestamp"], metadata["name"])

    rivals = [
        each
        for each in existing
        if group_of(each) == group_of(body)
        and each["metadata"]["uid"] != body["metadata"]["uid"]
        and (each.get("status") or {}).get("phase") not in ENDED_PHASES
        and order(each) < order(body)
    ]
    return str(min(rivals, key=order)["metadata"]["name"]) if rivals else ""
