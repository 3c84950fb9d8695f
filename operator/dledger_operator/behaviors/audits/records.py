"""What a group's status records about its audits. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.audits.judging import ENDED_PHASES
from dledger_operator.observed_audits import FAILED, AuditPlan, EndedAudit, Shrinking

LAST_KEY: Final = "lastAudit"
PLAN_KEY: Final = "auditPlan"


def ended_audit(body: Mapping[str, Any]) -> EndedAudit | None:
    """Return how a DLedgerAudit has ended; None if it has not."""
    status = body.get("status") or {}
    if not has_ended(body):
        return None
    condition = (status.get("conditions") or [{}])[0]
    fields = {
        "name": body["metadata"]["name"],
        "result": status.get("verdict") or FAILED,
        "message": condition.get("message", ""),
        "startedAt": status.get("startedAt"),
        "endedAt": status.get("finishedAt") or condition.get("lastTransitionTime"),
    }
    return _ended(fields)


def has_ended(body: Mapping[str, Any]) -> bool:
    """Return whether a DLedgerAudit has ended, with or without a verdict."""
    return (body.get("status") or {}).get("phase") in ENDED_PHASES


def recorded_last(status: Mapping[str, Any]) -> EndedAudit | None:
    """Return the last audit in a group's status; None if there is none, or no valid one."""
    return _ended(status.get(LAST_KEY) or {})


def last_to_json(last: EndedAudit) -> Manifest:
    """Encode the last audit for the group's status."""
    return {
        "name": last.audit,
        "result": last.result,
        "message": last.message,
        **_times({"startedAt": last.started_at, "endedAt": last.ended_at}),
    }


def recorded_plan(status: Mapping[str, Any]) -> AuditPlan | None:
    """Return the plan in a group's status; None if there is none, or no valid one."""
    recorded = status.get(PLAN_KEY) or {}
    since = _time(recorded, "since")
    if since is None:
        return None
    return AuditPlan(
        policy=str(recorded.get("policy", "")),
        since=since,
        scheduled_at=_time(recorded, "lastScheduleTime"),
        next_at=_time(recorded, "nextScheduleTime"),
        created_at=_time(recorded, "lastCreatedTime"),
        shrinking=_shrinking(recorded.get("scalingDown") or {}),
    )


def plan_to_json(plan: AuditPlan) -> Manifest:
    """Encode the plan for the group's status."""
    shrinking = plan.shrinking
    return {
        "policy": plan.policy,
        **_times(
            {
                "since": plan.since,
                "lastScheduleTime": plan.scheduled_at,
                "nextScheduleTime": plan.next_at,
                "lastCreatedTime": plan.created_at,
            }
        ),
        **({"scalingDown": _shrinking_to_json(shrinking)} if shrinking else {}),
    }


def without_fractions(plan: AuditPlan) -> AuditPlan:
    """Return a plan as it is read back from a status, which has whole seconds."""
    read = recorded_plan({PLAN_KEY: plan_to_json(plan)})
    assert read is not None
    return replace(read)


def _ended(recorded: Mapping[str, Any]) -> EndedAudit | None:
    ended_at, result = _time(recorded, "endedAt"), recorded.get("result")
    if ended_at is None or result not in (*Verdict, FAILED):
        return None
    return EndedAudit(
        audit=str(recorded.get("name", "")),
        result=str(result),
        message=str(recorded.get("message", "")),
        started_at=_time(recorded, "startedAt"),
        ended_at=ended_at,
    )


def _shrinking(recorded: Mapping[str, Any]) -> Shrinking | None:
    since, replicas = _time(recorded, "since"), recorded.get("replicas")
    if since is None or not isinstance(replicas, int):
        return None
    return Shrinking(
        replicas=replicas,
        since=since,
        audit=str(recorded.get("audit", "")),
        passed=recorded.get("passed") is True,
    )


def _shrinking_to_json(shrinking: Shrinking) -> Manifest:
    return {
        "replicas": shrinking.replicas,
        **_times({"since": shrinking.since}),
        **({"audit": shrinking.audit} if shrinking.audit else {}),
        **({"passed": True} if shrinking.passed else {}),
    }


def _times(times: Mapping[str, datetime | None]) -> Manifest:
    return {key: names.timestamp(moment) for key, moment in times.items() if moment}


def _time(recorded: Mapping[str, Any], key: str) -> datetime | None:
    """Read a time with its zone; None if it is missing, invalid or without a zone."""
    try:
        moment = datetime.fromisoformat(recorded[key])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
