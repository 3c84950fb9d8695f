"""Decides which audits of a group are due, and which are no longer kept. Pure.

A group may be audited at the times of a schedule, after a leader was lost, and before members are
removed. Audits are created one at a time. The name of each is derived from its cause and from the
minute, so an operator that has lost its record finds it again. If several times of the schedule
were missed, because the operator did not run or another audit did, only the last is made up for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_operator import names
from dledger_operator.behaviors.audits.records import has_ended
from dledger_operator.observed_audits import AuditPlan, EndedAudit, Shrinking
from dledger_operator.problem import Problem
from dledger_operator.spec.audit_policy import AuditPolicy

SCHEDULE: Final = "Schedule"
FAILOVER: Final = "Failover"
SCALING_DOWN: Final = "ScalingDown"
_DAMAGE: Final = (Verdict.DAMAGED, Verdict.DIVERGED)
_LETTER_OF_CAUSE: Final = {SCHEDULE: "", FAILOVER: "f", SCALING_DOWN: "s"}

# A lost member comes back and catches up first; otherwise the audit could only be Incomplete.
SETTLING_MIN: Final = timedelta(seconds=60)
SETTLING_MAX: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A group, as far as its audits depend on it."""

    group: str
    now: datetime
    may_audit: bool
    """Whether the group has pods and is not paused."""
    removes: bool
    """Whether voters or learners are to be removed."""
    replicas: int
    """`spec.replicas`."""
    failed_over_at: datetime | None
    """When a leader was last lost without a plan; None if that is not known."""
    is_whole: bool
    """Whether every voter is ready."""
    last: EndedAudit | None
    kept: str
    """Name of an audit that is kept whatever its age; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAudit:
    """An audit to create."""

    name: str
    cause: str
    why: str
    """What the audit is created for, in words."""
    since: datetime | None = None
    """An existing audit of this name counts only if created since then; None if any counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do now."""

    plan: AuditPlan
    """The plan once `create` is done."""
    plan_without: AuditPlan
    """The plan while `create` cannot be done."""
    create: NewAudit | None
    delete: Sequence[Mapping[str, Any]]
    """Audits that are no longer kept."""


def decide(
    policy: AuditPolicy,
    plan: AuditPlan | None,
    known: Sequence[Mapping[str, Any]],
    situation: Situation,
) -> Step:
    """Return the next step; `known` are all DLedgerAudits of the group."""
    plan = _continued(policy, plan, situation)
    runs = any(not has_ended(each) for each in known)
    due = None if runs or not situation.may_audit else _due(policy, plan, known, situation)
    planned, create = (replace(due[0], created_at=situation.now), due[1]) if due else (plan, None)
    return Step(
        plan=planned,
        plan_without=plan,
        create=create,
        delete=_no_longer_kept(policy, known, situation),
    )


def holds_back(
    policy: AuditPolicy | None,
    plan: AuditPlan | None,
    last: EndedAudit | None,
    replicas: int,
    under_way: str = "",
) -> Problem | None:
    """Return why no member may be removed yet, for want of a Sound audit; None if one may.

    Any audit that began after the removal was asked for counts, no matter who created it. After a
    Sound one, only damage stops the removal of the remaining members. `under_way` describes what
    the audits that have not ended are doing.
    """
    if policy is None or not policy.before_scaling_down:
        return None
    shrinking = plan.shrinking if plan else None
    asked = shrinking is not None and shrinking.replicas == replicas
    if shrinking and asked and shrinking.passed and (last is None or last.result not in _DAMAGE):
        return None
    if shrinking is None or not asked or not _answers(last, shrinking):
        what = f"audit {shrinking.audit}" if shrinking and shrinking.audit else "an audit"
        message = f"{what} goes first, as spec.audit.beforeScalingDown asks for"
        message += f"; {under_way}" if under_way else ""
        return Problem(reason="AuditGoesFirst", message=message)
    assert last is not None
    if last.result == Verdict.SOUND:
        return None
    message = (
        f"audit {last.audit}, which goes before members are removed, is {last.result}: "
        f"{last.message}; follow its advice and create another DLedgerAudit: members are removed "
        "once it is Sound; or set spec.audit.beforeScalingDown to false"
    )
    return Problem(reason="AuditNotSound", message=message)


def _continued(policy: AuditPolicy, plan: AuditPlan | None, situation: Situation) -> AuditPlan:
    """Return the plan for this policy, with the removal of members that is asked for now."""
    now = situation.now
    if plan is None or plan.policy != policy.key:
        shrinking = plan.shrinking if plan else None
        created_at = plan.created_at if plan else None
        plan = AuditPlan(policy=policy.key, since=now, created_at=created_at, shrinking=shrinking)
    plan = _not_ahead(plan, now)
    if not situation.removes or not policy.before_scaling_down:
        plan = replace(plan, shrinking=None)
    elif plan.shrinking is None or plan.shrinking.replicas != situation.replicas:
        plan = replace(plan, shrinking=Shrinking(replicas=situation.replicas, since=now))
    else:
        plan = replace(plan, shrinking=_judged(plan.shrinking, situation.last))
    schedule = policy.schedule
    return replace(plan, next_at=schedule.next_after(now) if schedule else None)


def _not_ahead(plan: AuditPlan, now: datetime) -> AuditPlan:
    """Return a plan without times in the future. An operator whose clock was ahead has recorded
    them, and no audit would be due before they have passed.
    """
    shrinking = plan.shrinking
    return replace(
        plan,
        since=min(plan.since, now),
        scheduled_at=plan.scheduled_at and min(plan.scheduled_at, now),
        created_at=plan.created_at and min(plan.created_at, now),
        shrinking=shrinking and replace(shrinking, since=min(shrinking.since, now)),
    )


def _due(
    policy: AuditPolicy,
    plan: AuditPlan,
    known: Sequence[Mapping[str, Any]],
    situation: Situation,
) -> tuple[AuditPlan, NewAudit] | None:
    """Return the plan once the due audit is created, and that audit; None if none is due."""
    now, shrinking = situation.now, plan.shrinking
    if shrinking and not shrinking.passed and not _answers(situation.last, shrinking):
        why = f"spec.replicas is {shrinking.replicas}"
        audit = replace(_new(situation, SCALING_DOWN, now, why), since=shrinking.since)
        return replace(plan, shrinking=replace(shrinking, audit=audit.name)), audit
    if policy.after_failover and (lost_at := _unaudited_failover(plan, known, situation)):
        why = f"the leader was lost at {names.timestamp(lost_at)}"
        return plan, _new(situation, FAILOVER, lost_at, why)
    if policy.schedule is None:
        return None
    slot = policy.schedule.due(max(plan.since, plan.scheduled_at or plan.since), now)
    if slot is None:
        return None
    why = f"the schedule {policy.schedule} was due at {names.timestamp(slot)}"
    return replace(plan, scheduled_at=slot), _new(situation, SCHEDULE, slot, why)


def _new(situation: Situation, cause: str, moment: datetime, why: str) -> NewAudit:
    minute = moment.astimezone(UTC).strftime("%y%m%d%H%M")
    name = f"{situation.group}-{_LETTER_OF_CAUSE[cause]}{minute}"
    return NewAudit(name=name, cause=cause, why=why)


def _judged(shrinking: Shrinking, last: EndedAudit | None) -> Shrinking:
    """Return a removal, updated by the result of the last audit."""
    if last is not None and last.result in _DAMAGE:
        return replace(shrinking, passed=False)
    sound = last is not None and last.result == Verdict.SOUND and _answers(last, shrinking)
    return replace(shrinking, passed=shrinking.passed or sound)


def _answers(last: EndedAudit | None, shrinking: Shrinking) -> bool:
    """Return whether the last audit counts for this removal of members."""
    if last is None:
        return False
    later = last.started_at is not None and last.started_at >= shrinking.since
    return later or bool(shrinking.audit and last.audit == shrinking.audit)


def _unaudited_failover(
    plan: AuditPlan, known: Sequence[Mapping[str, Any]], situation: Situation
) -> datetime | None:
    """Return when the last failover was, if no audit began after it and the members had time to
    come back.
    """
    lost_at, last = situation.failed_over_at, situation.last
    begun = [datetime.fromisoformat(each["metadata"]["creationTimestamp"]) for each in known]
    begun += [each for each in (plan.created_at, last.started_at if last else None) if each]
    if lost_at is None or lost_at <= max([plan.since, *begun]):
        return None
    ago = situation.now - lost_at
    settled = ago >= (SETTLING_MIN if situation.is_whole else SETTLING_MAX)
    return lost_at if settled else None


def _no_longer_kept(
    policy: AuditPolicy, known: Sequence[Mapping[str, Any]], situation: Situation
) -> list[Mapping[str, Any]]:
    """Return the audits to delete, oldest first. Audits that users created stay."""
    ended = [each for each in known if is_planned(each) and has_ended(each)]
    ended.sort(key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
    surplus = ended[: max(0, len(ended) - policy.keep)]
    return [each for each in surplus if each["metadata"]["name"] != situation.kept]


def is_planned(body: Mapping[str, Any]) -> bool:
    """Return whether the operator has created a DLedgerAudit by itself."""
    return names.AUDIT_CAUSE_LABEL in (body["metadata"].get("labels") or {})
