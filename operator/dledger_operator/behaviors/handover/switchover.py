"""Carries out a `DLedgerSwitchover`, one step at a time."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator import names, reasons
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.handover.candidates import Candidates, find_candidates
from dledger_operator.behaviors.handover.placement import PlacementState, find_places, moved_back
from dledger_operator.behaviors.handover.switchover_steps import (
    RecordLeader,
    Step,
    SwitchoverState,
    next_step,
)
from dledger_operator.behaviors.leader import endpoints
from dledger_operator.behaviors.loops import Pace, backoff_s
from dledger_operator.behaviors.members.group_now import GroupNow, look
from dledger_operator.behaviors.one_off.stepped import RUNNING, SteppedWorker
from dledger_operator.behaviors.one_off.steps import End
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader, ObservedEndpoints
from dledger_operator.problem import Problem
from dledger_operator.spec.switchover_request import SwitchoverRequest

# A leader takes no appends while it hands over, so a transfer that fails is not repeated at once.
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 10.0


class SwitchoverWorker(SteppedWorker[SwitchoverRequest]):
    """Carries out one DLedgerSwitchover, and deletes it `ttlAfterFinished` after its end."""

    kind = names.SWITCHOVER_KIND
    behavior = "switchover"
    pace = Pace(interval_s=60.0, gap_s=0.02, failure_gap_s_max=2.0)
    finished_event = "SwitchoverFinished"
    recorded = ("from",)
    phases: ClassVar[Mapping[str, tuple[str, str]]] = {
        "checkSeconds": ("begun", "asked"),
        "transferSeconds": ("asked", "led"),
        "serviceSeconds": ("led", "ended"),
    }
    look_again_s = 0.1  # no event reports that a member leads

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the switchover no longer exists."""
        super().__init__(body, context, on_gone)
        self._failures = 0
        self._retry_at_s = 0.0
        self._refused: Wait | None = None
        """Why the leader did not hand over when it was last asked."""

    def _parse(self, body: Mapping[str, Any]) -> SwitchoverRequest:
        return SwitchoverRequest.from_body(body)

    async def _advance(self, request: SwitchoverRequest, first: str) -> float | None:
        now = None
        if self._begun and not first:
            now = await look(self._context, request.namespace, request.group_name)
        state = await self._observe(request, first, now)
        return await self._carry_out(state, next_step(state), now)

    async def _observe(
        self, request: SwitchoverRequest, first: str, now: GroupNow | None
    ) -> SwitchoverState:
        candidates, in_service, back = Candidates.nobody(), None, None
        if now is not None:
            candidates = _candidates(now)
            back = self._moved_back(now, candidates, request.target)
            leader = candidates.leader
            if leader is not None and leader.member_id == request.target:
                in_service = await self._endpoints(now, leader)
        return SwitchoverState(
            request=request,
            first=first,
            begun=self._begun,
            from_member=str(self._status.get("from", "")),
            elapsed_s=self._elapsed_s(),
            group_exists=now is not None,
            paused=now.group.paused if now else False,
            hibernate=now.group.hibernate if now else False,
            candidates=candidates,
            moved_back=back,
            endpoints=in_service,
        )

    async def _endpoints(self, now: GroupNow, leader: Leader) -> ObservedEndpoints:
        service = names.master_service(now.group.name)
        found = await self._context.api.service_endpoints(now.group.namespace, service)
        pod = names.pod(now.group.name, names.ordinal(leader.member_id))
        return endpoints.judge(found, service=service, leader_pod=pod)

    def _moved_back(self, now: GroupNow, candidates: Candidates, target: str) -> Problem | None:
        nodes, preference = self._context.nodes, now.group.preferred_leader
        state = PlacementState(
            candidates=candidates,
            places=find_places(now.pods, nodes, preference),
            preference=preference,
            nodes_readable=nodes.readable,
            able_s={},
        )
        return moved_back(state, target)

    async def _carry_out(
        self, state: SwitchoverState, step: Step, now: GroupNow | None
    ) -> float | None:
        if isinstance(step, RecordLeader):
            message = f"asks {step.leader.member_id} to hand over to {state.request.target}"
            await self._record(RUNNING, message, **{"from": step.leader.member_id})
            return 0.0
        if isinstance(step, HandOver):
            leader = state.candidates.leader
            assert leader is not None
            return await self._hand_over(state, leader, now)
        succeeded = isinstance(step, End) and step.succeeded
        if succeeded or state.endpoints is not None:
            self._times.note("led")
        return await self._take(step)

    async def _hand_over(
        self, state: SwitchoverState, leader: Leader, now: GroupNow | None
    ) -> float | None:
        """Ask the leader to hand over, unless it refused a moment ago."""
        if self._refused and self._context.clock() < self._retry_at_s:
            return await self._take(self._refused)
        self._times.note("asked")
        target, group = state.request.target, state.request.group_name
        requests = self._context.authorized_requests(self.namespace, group)
        try:
            answer = await requests.transfer(
                now.ip_of(leader.member_id) if now else "",
                group,
                leader,
                target,
                identity=now.identity if now else "",
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
            self._refused = Wait(Problem(reason=reasons.TRANSFER_REFUSED, message=message))
        else:
            self._times.note("led")
        return 0.0

    def _count(self, end: End) -> None:
        self._context.metrics.switchovers.labels(end.reason).inc()
        seconds = self._times.between("asked", "led")
        if end.succeeded and seconds is not None:
            self._context.metrics.switchover_s.observe(seconds)


def _candidates(now: GroupNow) -> Candidates:
    wanted = now.stateful_set.revision if now.stateful_set else None
    behind = [pod.name for pod in now.pods if wanted and pod.revision != wanted]
    return find_candidates(
        now.pods, now.answers, staying=now.group.member_ids, rolling_out=frozenset(behind)
    )
