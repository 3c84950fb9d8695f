"""The outcome of an audit, from its Job and pods. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import AuditFailure, AuditSummary
from dledger_formats.json_objects import FormatError
from dledger_operator import reasons
from dledger_operator.api_objects import JobPodView, JobView

PENDING: Final = "Pending"
RUNNING: Final = "Running"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"
ENDED_PHASES: Final = (FINISHED, FAILED)
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
"""The reason of a Job whose pods have failed too often."""
WAITING_FOR_EXECUTORS: Final = "WaitingForExecutors"
_REASON: Final = re.compile("[A-Za-z]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The progress of an audit, with the reason for its phase."""

    phase: str
    reason: str
    message: str
    job: str = ""
    """Name of the Job; empty until it is created."""
    summary: AuditSummary | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    without_job_since: datetime | None = None
    """Since when the audit has had no Job, as it was refused or its name is taken; else None."""


def judge(
    job: JobView,
    pods: Sequence[JobPodView],
    *,
    name: str,
    executors: Sequence[JobPodView] | None = None,
) -> Outcome:
    """Return the outcome of an audit from its Job and pods; `executors` is None if it uses none.

    A pod that ended without a result, because it was evicted or its node was lost, does not end the
    audit: the Job tries again until the Job itself has failed. The first result counts.
    """
    ended = sorted((pod for pod in pods if pod.exit_code is not None), key=_order_of_end)
    for pod in ended:
        result = _result_of(pod)
        if isinstance(result, AuditFailure):
            return Outcome(
                phase=FAILED,
                reason=result.failed,
                message=result.message,
                job=name,
                started_at=job.started_at,
                finished_at=pod.finished_at,
            )
        if isinstance(result, AuditSummary):
            return Outcome(
                phase=FINISHED,
                reason=result.verdict.value,
                message=result.message,
                job=name,
                summary=result,
                started_at=job.started_at,
                finished_at=pod.finished_at,
            )
    if job.ended:
        return _without_result(job, ended, name)
    running = next((pod for pod in pods if pod.running), None)
    if running is not None:
        reason, message = _running(running.name, executors)
        return Outcome(
            phase=RUNNING, reason=reason, message=message, job=name, started_at=job.started_at
        )
    waiting = [pod for pod in pods if pod.exit_code is None]
    problem = next((pod.problem for pod in waiting if pod.problem), None)
    if problem is not None:
        return Outcome(phase=PENDING, reason=problem.reason, message=problem.message, job=name)
    if ended:
        message = f"{_last_words(ended)[1]}; Job {name} tries again"
        return Outcome(phase=PENDING, reason=reasons.TRYING_AGAIN, message=message, job=name)
    return Outcome(
        phase=PENDING, reason=reasons.JOB_CREATED, message=f"Job {name} is starting", job=name
    )


def _order_of_end(pod: JobPodView) -> tuple[bool, float]:
    """Return the place of a pod among those that have ended, the first one first."""
    at = pod.finished_at
    return at is None, at.timestamp() if at else 0.0


def _running(pod: str, executors: Sequence[JobPodView] | None) -> tuple[str, str]:
    """Return the reason and the message of an audit whose pod runs."""
    if executors is None:
        return RUNNING, f"pod {pod} is reading the members' logs"
    run = sum(each.running for each in executors)
    trouble = next(
        (f"{each.name}: {each.problem.reason}: {each.problem.message}" for each in executors
         if each.problem and each.exit_code is None), "",
    )  # fmt: skip
    waits = f"; pod {trouble}" if trouble else ""
    if not run:
        return WAITING_FOR_EXECUTORS, f"pod {pod} has no executor that runs{waits}"
    plural = "s" if run > 1 else ""
    return RUNNING, f"{run} executor{plural} of pod {pod} read the members' logs{waits}"


def _result_of(pod: JobPodView) -> AuditSummary | AuditFailure | FormatError:
    """Return the result that a pod left, or why it left none."""
    raw = pod.termination_message.encode()
    try:
        return AuditSummary.from_json(raw)
    except FormatError as error:
        try:
            failure = AuditFailure.from_json(raw)
        except FormatError:
            return error
        return failure if _REASON.fullmatch(failure.failed) else error


def _without_result(job: JobView, ended: Sequence[JobPodView], name: str) -> Outcome:
    """Return the outcome of an audit whose Job has ended without a result from any pod."""
    known: dict[str, Any] = {"phase": FAILED, "job": name, "started_at": job.started_at}
    failed = job.failure
    if failed and (not ended or failed.reason != BACKOFF_LIMIT_EXCEEDED):
        message = f"Job {name} failed before the audit had a result: {failed.message}"
        return Outcome(reason=failed.reason, message=message, **known)
    if not ended:
        message = f"the pod of Job {name} was deleted before its result was read"
        return Outcome(reason=reasons.RESULT_LOST, message=message, **known)
    reason, words = _last_words(ended)
    tries = f" after {len(ended)} tries" if len(ended) > 1 else ""
    message = f"{words}; Job {name} has given up{tries}; see the pod's log"
    finished_at = max((each.finished_at for each in ended if each.finished_at), default=None)
    return Outcome(reason=reason, message=message, finished_at=finished_at, **known)


def _last_words(ended: Sequence[JobPodView]) -> tuple[str, str]:
    """Return why the pod that ended last has no result, in one word and in a sentence."""
    last = max(ended, key=lambda pod: (pod.finished_at is not None, pod.finished_at, pod.name))
    reason = last.problem.reason if last.problem else "NoSummary"
    return reason, (
        f"pod {last.name} terminated with exit code {last.exit_code} ({reason}) and without a "
        f"valid summary ({_result_of(last)})"
    )
