"""Runs a `DLedgerAudit`: creates its Job and reports the Job's result in the object's status."""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_formats.json_objects import encode
from dledger_operator import names, reasons
from dledger_operator.api_objects import JobPodView, JobView, Manifest
from dledger_operator.behaviors.audits.judging import (
    ENDED_PHASES,
    FAILED,
    FINISHED,
    PENDING,
    Outcome,
    judge,
)
from dledger_operator.behaviors.loops import Pace
from dledger_operator.behaviors.members.membership import recorded_membership
from dledger_operator.behaviors.one_off.order import earlier
from dledger_operator.behaviors.one_off.status import status_of
from dledger_operator.behaviors.one_off.worker import OneOffWorker
from dledger_operator.behaviors.report.event_recorder import AUDIT_FINISHED, EventNote
from dledger_operator.clients.errors import ConflictError, InvalidError, NotFoundError, RefusedError
from dledger_operator.conditions.condition import Judgment
from dledger_operator.resources import audit_executors, audit_job, network_policies
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.spec_reader import InvalidSpecError

logger = logging.getLogger(__name__)

PACE: Final = Pace(interval_s=15.0, gap_s=0.5, failure_gap_s_max=30.0)
TURN_S: Final = 60.0
"""How soon an audit that waits for its turn looks again without an event. Many may wait."""
JOB_REFUSED: Final = "JobRefused"
NO_ROLE: Final = "ExecutorsNotAllowed"
JOB_NAME_TAKEN: Final = "JobNameTaken"
WITHOUT_JOB_KEY: Final = "withoutJobSince"
WITHOUT_JOB_S_MAX: Final = 600.0
"""How long an audit tries to get its Job; later audits of the group wait meanwhile. In that time a
quota may get room again, or the Job of a deleted audit of the same name may end.
"""


_WITHOUT_ROLE: Final = (
    "this installation of the operator allows no executors: ask for auditExecutors.enabled=true in "
    "the chart's values, or create another audit without spec.executors"
)


def audited_members(group_status: Mapping[str, Any], group: Group) -> list[str]:
    """Return the ids of the members to read: the voters and the learners. Pure."""
    membership = recorded_membership(group_status, group)
    return sorted(membership.voters | membership.learners)


def build_status(
    outcome: Outcome, *, generation: int, previous: Mapping[str, Any], now: datetime
) -> Manifest:
    """Build the status of an audit; `previous` is its current status, or empty."""
    judgment = Judgment(
        holds=outcome.phase == FINISHED, reason=outcome.reason, message=outcome.message
    )
    status = status_of(outcome.phase, judgment, previous=previous, now=now, generation=generation)
    if outcome.job:
        status["job"] = outcome.job
    if outcome.started_at:
        status["startedAt"] = names.timestamp(outcome.started_at)
    if outcome.without_job_since:
        status[WITHOUT_JOB_KEY] = names.timestamp(outcome.without_job_since)
    if outcome.phase in ENDED_PHASES:
        status["finishedAt"] = names.timestamp(outcome.finished_at or now)
    if summary := outcome.summary:
        status |= {
            "verdict": summary.verdict.value,
            "entries": summary.entries,
            "bytes": summary.record_bytes,
            "agreedIndex": summary.agreed_index,
            "findings": summary.findings,
            "firstFindings": [json.loads(encode(finding)) for finding in summary.first_findings],
        }
    return status


def _has_ended(body: Mapping[str, Any]) -> bool:
    return (body.get("status") or {}).get("phase") in ENDED_PHASES


def _reason_of(name: str, existing: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason in the condition of one of the audits; empty before it has one."""
    status = next(
        (each.get("status") or {} for each in existing if each["metadata"]["name"] == name), {}
    )
    return str((status.get("conditions") or [{}])[0].get("reason", ""))


def _without_job_since(status: Mapping[str, Any], now: datetime) -> datetime:
    """Return since when an audit has had no Job, by its status; `now` if the status has no such
    time, or one in the future.
    """
    try:
        since = datetime.fromisoformat(status[WITHOUT_JOB_KEY])
    except (KeyError, TypeError, ValueError):
        return now
    return min(since, now) if since.tzinfo else now


class AuditWorker(OneOffWorker):
    """Runs one DLedgerAudit until it has ended."""

    kind = names.AUDIT_KIND
    behavior = "audit"
    pace = PACE
    ended_phases = ENDED_PHASES
    _executor_stays = False
    """Whether the API server has refused to delete an executor."""

    async def _run_once(self) -> float | None:
        if self.ended():
            return None
        outcome = self._bounded(await self._advance())
        if outcome.phase in ENDED_PHASES:
            await self._end_executors(outcome)
        status = build_status(
            outcome,
            generation=self._body["metadata"].get("generation", 1),
            previous=self._status,
            now=self._context.now(),
        )
        if await self._write(status) and self.ended():
            await self._record_result(outcome)
        return TURN_S if outcome.reason == reasons.EARLIER_AUDIT else None

    async def _advance(self) -> Outcome:
        try:
            request = AuditRequest.from_body(self._body)
        except InvalidSpecError as error:
            return Outcome(phase=FAILED, reason=reasons.INVALID_SPEC, message=str(error))
        name = names.audit_job(request.name)
        job = await self._context.api.job(request.namespace, name)
        if job is None and self._status.get("job"):
            message = f"Job {name} was deleted before its result was read; create another audit"
            return Outcome(phase=FAILED, reason=reasons.RESULT_LOST, message=message, job=name)
        if job is None:
            return await self._start(request, name)
        if job.owner_uid != request.uid:
            message = (
                f"a Job {name} that is not owned by this audit exists; the audit starts when that "
                "Job is deleted"
            )
            return Outcome(phase=PENDING, reason=JOB_NAME_TAKEN, message=message)
        pods = await self._context.api.job_pods(request.namespace, name, job.uid)
        executors = None
        if request.executors is not None:
            executors = await self._executors(request, pods)
        if not any(pod.running for pod in pods):
            executors = None
        outcome = judge(job, pods, name=name, executors=executors)
        if outcome.phase in ENDED_PHASES and not job.ended:
            await self._end_tries(request.namespace, name, job, pods)
        return outcome

    async def _end_tries(
        self, namespace: str, name: str, job: JobView, pods: Sequence[JobPodView]
    ) -> None:
        """Let a Job with a result not read the members again. Its pod may have been killed after it
        had written the result, and each further one would be.
        """
        if any(pod.exit_code == 0 for pod in pods):
            return  # the Job ends by itself
        try:
            with contextlib.suppress(NotFoundError, ConflictError):
                await self._context.api.end_tries(namespace, name, job.uid)
        except RefusedError as error:
            logger.warning(
                "audit %s/%s has its result, and its Job may try again: %s",
                self.namespace, self.name, error,
            )  # fmt: skip

    async def _executors(
        self, request: AuditRequest, pods: Sequence[JobPodView]
    ) -> list[JobPodView]:
        """Return the executors of live drivers, and delete those of drivers that have ended.

        Kubernetes deletes an executor with its driver's pod, which stays as long as the Job. An
        executor that runs ends by itself; one that waits for a node would wait until then. A
        deletion that the API server refuses does not hold up the audit's result.
        """
        api, ended = self._context.api, {pod.uid for pod in pods if pod.exit_code is not None}
        found = await api.executor_pods(request.namespace, request.name, {pod.uid for pod in pods})
        for pod in found:
            if pod.controller_uid in ended:
                try:
                    with contextlib.suppress(NotFoundError, ConflictError):
                        await api.delete_executor(request.namespace, pod)
                except RefusedError as error:
                    self._log_executor_that_stays(error)
        return [pod for pod in found if pod.controller_uid not in ended]

    def _log_executor_that_stays(self, error: RefusedError) -> None:
        """Log only the first refusal, since each run tries the deletion again."""
        if not self._executor_stays:
            logger.warning(
                "audit %s/%s: an executor stays until the audit's Job is deleted: %s; will retry",
                self.namespace, self.name, error,
            )  # fmt: skip
        self._executor_stays = True

    async def _end_executors(self, outcome: Outcome) -> None:
        """Revoke the permissions of the audit's account, which nothing uses any longer."""
        role = self._context.audit_driver_role
        if not role or outcome.reason == reasons.INVALID_SPEC:
            return
        request = AuditRequest.from_body(self._body)
        if request.executors is None:
            return
        try:
            await self._context.api.apply(audit_executors.binding(request, role, is_bound=False))
        except (InvalidError, RefusedError) as error:
            logger.warning(
                "audit %s/%s: its account keeps its permissions until the audit is deleted: %s",
                self.namespace, self.name, error,
            )  # fmt: skip

    async def _start(self, request: AuditRequest, job: str) -> Outcome:
        """Create the Job if the group exists and its spec is valid."""
        if request.executors is not None and not self._context.audit_driver_role:
            return Outcome(phase=FAILED, reason=NO_ROLE, message=_WITHOUT_ROLE)
        where = f"{names.GROUP_KIND} {request.namespace}/{request.group_name}"
        try:
            body = await self._context.api.group(request.namespace, request.group_name)
            group = Group.from_body(body, self._context.node_image)
        except NotFoundError:
            message = f"{where} does not exist; the audit starts when it is created"
            return Outcome(phase=PENDING, reason=reasons.GROUP_NOT_FOUND, message=message)
        except InvalidSpecError as error:
            message = f"the spec of {where} is invalid: {error}"
            return Outcome(phase=PENDING, reason=reasons.GROUP_INVALID, message=message)
        existing = await self._context.api.custom_objects(self.kind, self.namespace)
        if first := earlier(self._body, existing, _has_ended):
            message = f"{names.AUDIT_KIND} {first} of the same group goes first"
            if reason := _reason_of(first, existing):
                message += f"; it is {reason}"
            return Outcome(phase=PENDING, reason=reasons.EARLIER_AUDIT, message=message)
        members = audited_members(body.get("status") or {}, group)
        try:
            for manifest in self._manifests(request, group, members, await self._around(request)):
                await self._context.api.apply(manifest)
        except InvalidError as error:
            message = f"{error}; create another audit, whose spec differs in what the answer names"
            return Outcome(phase=FAILED, reason=JOB_REFUSED, message=message)
        except RefusedError as error:
            return Outcome(phase=PENDING, reason=JOB_REFUSED, message=str(error))
        return Outcome(
            phase=PENDING, reason=reasons.JOB_CREATED, message=f"Job {job} is starting", job=job
        )

    async def _around(self, request: AuditRequest) -> audit_executors.Surroundings:
        if request.executors is None:
            return audit_executors.Surroundings(role="")
        return audit_executors.Surroundings(
            role=self._context.audit_driver_role,
            api_ports=self._context.audit_api_ports,
            pull_secrets=await self._context.api.pull_secrets_of_default(request.namespace),
        )

    def _manifests(
        self,
        request: AuditRequest,
        group: Group,
        members: Sequence[str],
        around: audit_executors.Surroundings,
    ) -> list[Manifest]:
        """Return the objects that the audit needs, the Job last."""
        image = self._context.audit_image
        return [
            *audit_executors.build(
                request,
                group,
                around,
                guarded=network_policies.is_wanted(group),
            ),
            audit_job.build(
                request,
                group,
                member_ids=members,
                image=image.reference,
                image_pull_policy=image.pull_policy,
            ),
        ]

    def _bounded(self, outcome: Outcome) -> Outcome:
        """Fail an audit that has had no Job for ten minutes.

        The status records since when, so that time goes on across restarts of the operator.
        """
        jobless = outcome.reason in (JOB_REFUSED, JOB_NAME_TAKEN)
        if outcome.phase != PENDING or not jobless:
            return outcome
        now = self._context.now()
        since = _without_job_since(self._status, now)
        if (now - since).total_seconds() < WITHOUT_JOB_S_MAX:
            return replace(outcome, without_job_since=since)
        minutes = round(WITHOUT_JOB_S_MAX / 60)
        message = (
            f"the audit got no Job for {minutes} minutes: {outcome.message}; remove the cause, and "
            "create another audit"
        )
        return replace(outcome, phase=FAILED, message=message)

    async def _record_result(self, outcome: Outcome) -> None:
        sound = outcome.summary is not None and outcome.summary.verdict is Verdict.SOUND
        verdict = outcome.summary.verdict.value if outcome.summary else FAILED
        self._context.metrics.audits.labels(verdict).inc()
        logger.info("audit %s/%s: %s: %s", self.namespace, self.name, verdict, outcome.message)
        note = EventNote(
            severity=NORMAL if sound else WARNING,
            reason=AUDIT_FINISHED,
            message=f"{verdict}: {outcome.message}",
        )
        await self._context.events.record(names.AUDIT_KIND, self._body, note)
