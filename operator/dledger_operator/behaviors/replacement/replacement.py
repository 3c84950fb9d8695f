"""Carries out a `DLedgerReplace`, one step at a time."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from dledger_operator import names, reasons
from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.behaviors.loops import Pace
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.members.group_now import GroupNow, look
from dledger_operator.behaviors.members.membership import proven_leader
from dledger_operator.behaviors.one_off.stepped import RUNNING, SteppedWorker
from dledger_operator.behaviors.one_off.steps import Begin, End
from dledger_operator.behaviors.replacement.replacement_steps import (
    DeleteClaim,
    RecordClaim,
    RecordVolume,
    RemovePod,
    ReplaceState,
    Step,
    in_time,
    next_step,
)
from dledger_operator.behaviors.steps import Wait
from dledger_operator.clients.errors import (
    ConflictError,
    EvictionRefusedError,
    NotFoundError,
    RefusedError,
)
from dledger_operator.problem import Problem
from dledger_operator.spec.replace_request import ReplaceRequest

logger = logging.getLogger(__name__)


class ReplaceWorker(SteppedWorker[ReplaceRequest]):
    """Carries out one DLedgerReplace, and deletes it `ttlAfterFinished` after its end."""

    kind = names.REPLACE_KIND
    behavior = "replacement"
    pace = Pace(interval_s=60.0, gap_s=0.05, failure_gap_s_max=5.0)
    finished_event = "ReplacementFinished"
    recorded = ("claimUid", "volume", "newVolume")
    phases: ClassVar[Mapping[str, tuple[str, str]]] = {
        "checkSeconds": ("begun", "removed"),
        "volumeSeconds": ("removed", "renewed"),
        "joinSeconds": ("renewed", "ended"),
    }
    look_again_s = 1.0

    def _parse(self, body: Mapping[str, Any]) -> ReplaceRequest:
        return ReplaceRequest.from_body(body)

    def _is_out_of_the_way(self, first: Mapping[str, Any]) -> bool:
        """Return whether an earlier replacement in the group lets this one begin.

        A member that joins may wait for another lost one, which needs a new volume first. But the
        new volume of a member does not count as lost before that member's replacement has ended.
        """
        if super()._is_out_of_the_way(first):
            return True
        is_of_another = first["spec"].get("member") != self._body["spec"].get("member")
        return is_of_another and "newVolume" in (first.get("status") or {})

    async def _advance(self, request: ReplaceRequest, first: str) -> float | None:
        now, claim = None, None
        if self._begun:
            now = await look(self._context, request.namespace, request.group_name)
        if now is not None:
            claim = await self._claim(request)
        state = self._state(request, first, now, claim)
        try:
            return await self._carry_out(request, next_step(state))
        except (ConflictError, NotFoundError) as error:
            logger.info("replacement %s/%s: %s", self.namespace, self.name, error)
            return self.look_again_s
        except (EvictionRefusedError, RefusedError) as error:
            budget = isinstance(error, EvictionRefusedError)
            reason = reasons.DISRUPTION_BUDGET if budget else reasons.REQUEST_REFUSED
            refused = Wait(Problem(reason=reason, message=str(error)))
            return await self._take(in_time(state, refused))

    async def _claim(self, request: ReplaceRequest) -> VolumeClaimView | None:
        """Get the claim that the member's pod uses: by its name, since somebody may have removed
        its label.
        """
        pod_name = names.pod(request.group_name, names.ordinal(request.member))
        return await self._context.api.volume_claim(request.namespace, names.volume_claim(pod_name))

    def _state(
        self,
        request: ReplaceRequest,
        first: str,
        now: GroupNow | None,
        claim: VolumeClaimView | None,
    ) -> ReplaceState:
        pods = now.pods if now else ()
        answers = observe.by_member(pods, now.answers if now else {})
        made = now.stateful_set if now else None
        hibernate = now is not None and now.group.hibernate
        pod = next((pod for pod in pods if pod.member_id == request.member), None)
        return ReplaceState(
            request=request,
            first=first,
            begun=self._begun,
            claim_uid=self._status.get("claimUid"),
            has_volume="newVolume" in self._status,
            elapsed_s=self._elapsed_s(),
            group_exists=now is not None,
            group_invalid=now.invalid if now else "",
            paused=now.group.paused if now else False,
            hibernate=hibernate,
            asleep=hibernate and not (made and made.replicas),
            has_stateful_set=made is not None and not made.leaving,
            staying=now.group.member_ids if now else (),
            pod=pod,
            node_ready=self._context.nodes.is_ready(pod.node) if pod else None,
            claim=claim,
            leading=proven_leader(list(answers.values())),
            answers=answers,
        )

    async def _carry_out(self, request: ReplaceRequest, step: Step) -> float | None:
        member = request.member
        if isinstance(step, Begin | Wait | End):
            return await self._take(step)
        if isinstance(step, RecordClaim):
            uid, volume = (step.claim.uid, step.claim.volume) if step.claim else ("", "")
            message = f"deletes the volume claim of {member}"
            await self._record(RUNNING, message, claimUid=uid, volume=volume)
        elif isinstance(step, DeleteClaim):
            self._times.note("removed")
            await self._context.api.delete_claim_of_lost_member(step.claim, self.name)
        elif isinstance(step, RemovePod):
            await self._context.api.replace_pod(step.pod)
        elif isinstance(step, RecordVolume):
            self._times.note("renewed")
            message = f"{member} has the new volume {step.claim.volume} and joins again"
            await self._record(RUNNING, message, newVolume=step.claim.volume)
        return 0.0

    def _count(self, end: End) -> None:
        self._context.metrics.replacements.labels(end.reason).inc()
