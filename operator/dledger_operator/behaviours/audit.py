"""Runs an audit that a user asked for: one Job, whose last words become the object's status."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.json_objects import FormatError, encode
from dledger_operator import names
from dledger_operator.behaviours.context import Tools
from dledger_operator.behaviours.loops import Pace, Wake, repeat
from dledger_operator.behaviours.members import electorate
from dledger_operator.behaviours.report.event_recorder import AUDIT_FINISHED, News
from dledger_operator.clients.errors import NotFoundError, RefusedError
from dledger_operator.conditions.condition import Judgement, stamped
from dledger_operator.resources import audit_job
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.spec_reader import InvalidSpecError
from dledger_operator.views import JobPodView, JobView, Manifest

logger = logging.getLogger(__name__)

PACE: Final = Pace(interval_s=15.0, gap_s=0.5, failure_gap_s_max=30.0)
COMPLETE: Final = "Complete"
PENDING: Final = "Pending"
RUNNING: Final = "Running"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"
ENDED_PHASES: Final = (FINISHED, FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far an audit is, and why it is not further."""

    phase: str
    reason: str
    message: str
    job: str = ""
    """The Job, once there is one."""
    summary: AuditSummary | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


def judge(job: JobView, pods: Sequence[JobPodView], *, name: str) -> Outcome:
    """Read an audit's state from its Job and pod. Pure."""
    ended = next((pod for pod in pods if pod.exit_code is not None), None)
    if ended is not None:
        return _judge_ended(ended, job, name)
    if job.failure:
        return Outcome(
            phase=FAILED,
            reason=job.failure.reason,
            message=f"the audit was stopped before it had a result: {job.failure.message}",
            job=name,
            started_at=job.started_at,
        )
    if job.ended:
        message = f"the pod of Job {name} is gone, and its result with it"
        return Outcome(
            phase=FAILED, reason="ResultLost", message=message, job=name, started_at=job.started_at
        )
    running = next((pod for pod in pods if pod.running), None)
    if running is not None:
        message = f"pod {running.name} reads the logs"
        return Outcome(
            phase=RUNNING, reason=RUNNING, message=message, job=name, started_at=job.started_at
        )
    trouble = next((pod.trouble for pod in pods if pod.trouble), None)
    if trouble is not None:
        return Outcome(phase=PENDING, reason=trouble.reason, message=trouble.message, job=name)
    return Outcome(phase=PENDING, reason="JobCreated", message=f"Job {name} starts", job=name)


def _judge_ended(pod: JobPodView, job: JobView, name: str) -> Outcome:
    try:
        summary = AuditSummary.from_json(pod.termination_message.encode())
    except FormatError as error:
        reason = pod.trouble.reason if pod.trouble else "NoSummary"
        return Outcome(
            phase=FAILED,
            reason=reason,
            message=(
                f"pod {pod.name} ended with exit code {pod.exit_code} and without a summary "
                f"({error}); its log says more"
            ),
            job=name,
            started_at=job.started_at,
            finished_at=pod.finished_at,
        )
    return Outcome(
        phase=FINISHED,
        reason=summary.verdict.value,
        message=summary.message,
        job=name,
        summary=summary,
        started_at=job.started_at,
        finished_at=pod.finished_at,
    )


def build_status(
    outcome: Outcome, *, generation: int, previous: Mapping[str, Any], now: datetime
) -> Manifest:
    """Build the status of an audit; `previous` is the one before, or empty."""
    conditions = previous.get("conditions") or []
    status: Manifest = {
        "observedGeneration": generation,
        "phase": outcome.phase,
        "conditions": [
            stamped(
                COMPLETE,
                Judgement(
                    holds=outcome.phase == FINISHED, reason=outcome.reason, message=outcome.message
                ),
                previous=next((each for each in conditions if each.get("type") == COMPLETE), None),
                now=now,
                generation=generation,
            )
        ],
    }
    if outcome.job:
        status["job"] = outcome.job
    if outcome.started_at:
        status["startedAt"] = names.timestamp(outcome.started_at)
    if outcome.finished_at:
        status["finishedAt"] = names.timestamp(outcome.finished_at)
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


class AuditWorker:
    """Works for one DLedgerAudit until it has ended."""

    def __init__(self, body: Mapping[str, Any], tools: Tools, on_gone: Callable[[], None]) -> None:
        """Take `on_gone` for the news that the API server does not know the audit any more."""
        self.uid: str = body["metadata"]["uid"]
        self.namespace: str = body["metadata"]["namespace"]
        self.name: str = body["metadata"]["name"]
        self._body = body
        self._status: Mapping[str, Any] = body.get("status") or {}
        self._tools = tools
        self._on_gone = on_gone
        self._wake = Wake()

    async def run(self) -> None:
        """Take turns until the audit has ended."""
        await repeat(
            self._turn,
            what=f"audit {self.namespace}/{self.name}",
            wake=self._wake,
            pace=PACE,
            random=self._tools.random,
            on_failure=self._tools.metrics.failures.labels("audit").inc,
            until=self.ended,
        )

    def ended(self) -> bool:
        """Whether the status tells the end."""
        return self._status.get("phase") in ENDED_PHASES

    def changed(self, body: Mapping[str, Any]) -> None:
        """Take a newer version of the audit's object; its spec cannot have changed."""
        self._body = body

    def look_again(self) -> None:
        """Hear that the Job, or the group that was waited for, changed."""
        self._wake.set()

    async def _turn(self) -> None:
        if self.ended():
            return
        outcome = await self._advance()
        status = build_status(
            outcome,
            generation=self._body["metadata"].get("generation", 1),
            previous=self._status,
            now=self._tools.now(),
        )
        if status == self._status:
            return
        try:
            await self._tools.api.apply_status(names.AUDIT_KIND, self._body, status)
        except NotFoundError:
            self._on_gone()
            return
        self._status = status
        if self.ended():
            await self._tell(outcome)

    async def _advance(self) -> Outcome:
        try:
            request = AuditRequest.from_body(self._body)
        except InvalidSpecError as error:
            return Outcome(phase=FAILED, reason="InvalidSpec", message=str(error))
        name = names.audit_job(request.name)
        job = await self._tools.api.job(request.namespace, name)
        if job is None and self._status.get("job"):
            message = f"Job {name} was removed before its result was read; create another audit"
            return Outcome(phase=FAILED, reason="ResultLost", message=message, job=name)
        if job is None:
            return await self._begin(request, name)
        if job.owner_uid != request.uid:
            message = f"Job {name} belongs to something else; the audit begins when it is gone"
            return Outcome(phase=PENDING, reason="JobNameTaken", message=message)
        pods = await self._tools.api.job_pods(request.namespace, name)
        return judge(job, pods, name=name)

    async def _begin(self, request: AuditRequest, job: str) -> Outcome:
        """Create the Job, once the group is there to be audited."""
        where = f"{names.GROUP_KIND} {request.namespace}/{request.group_name}"
        try:
            body = await self._tools.api.group(request.namespace, request.group_name)
            group = Group.from_body(body, self._tools.node_image)
        except NotFoundError:
            message = f"{where} does not exist; the audit begins when it does"
            return Outcome(phase=PENDING, reason="GroupNotFound", message=message)
        except InvalidSpecError as error:
            message = f"{where} cannot be read: {error}"
            return Outcome(phase=PENDING, reason="GroupInvalid", message=message)
        image = self._tools.audit_image
        manifest = audit_job.build(
            request,
            group,
            member_ids=sorted(electorate.remembered(body.get("status") or {}, group).voters),
            image=image.reference,
            image_pull_policy=image.pull_policy,
        )
        try:
            await self._tools.api.apply(manifest)
        except RefusedError as error:
            return Outcome(phase=PENDING, reason="JobRefused", message=str(error))
        return Outcome(phase=PENDING, reason="JobCreated", message=f"Job {job} starts", job=job)

    async def _tell(self, outcome: Outcome) -> None:
        sound = outcome.summary is not None and outcome.summary.verdict is Verdict.SOUND
        verdict = outcome.summary.verdict.value if outcome.summary else FAILED
        self._tools.metrics.audits.labels(verdict).inc()
        logger.info("audit %s/%s: %s: %s", self.namespace, self.name, verdict, outcome.message)
        news = News(
            severity=NORMAL if sound else WARNING,
            reason=AUDIT_FINISHED,
            message=f"{verdict}: {outcome.message}",
        )
        await self._tools.news.post(names.AUDIT_KIND, self._body, news)
