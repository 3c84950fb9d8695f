"""What is known about the audits of one group, and what is planned."""

from dataclasses import dataclass
from datetime import datetime

from dledger_operator.problem import Problem

FAILED = "Failed"
"""The result of an audit that ended without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAudit:
    """An audit that has ended."""

    audit: str
    """Name of the DLedgerAudit, which may have been deleted."""
    result: str
    """The audit's verdict, or Failed."""
    message: str
    started_at: datetime | None
    """When the audit's pod started; None if none did."""
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrinking:
    """A removal of members that an audit must precede."""

    replicas: int
    """The `spec.replicas` that asks for it."""
    since: datetime
    """When the operator first saw that value."""
    audit: str = ""
    """Name of the audit that was created for it; empty before that."""
    passed: bool = False
    """Whether an audit that began later was Sound. An inconclusive audit does not reset this; only
    one that finds damage does.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """What is recorded about the audits that `spec.audit` asks for."""

    policy: str = ""
    """What `spec.audit` asked for when the plan was made."""
    since: datetime
    """When the plan was made. Audits that were due earlier are not made up for."""
    scheduled_at: datetime | None = None
    """The last scheduled time for which an audit was created."""
    next_at: datetime | None = None
    """The next scheduled time; None without a schedule."""
    created_at: datetime | None = None
    """When the operator last created an audit."""
    shrinking: Shrinking | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAudits:
    """The audits of a group at one point in time."""

    last: EndedAudit | None = None
    """The audit that ended last; None before the first."""
    plan: AuditPlan | None = None
    """None if `spec.audit` asks for nothing."""
    problem: Problem | None = None
    """Why the operator does not create the audits that `spec.audit` asks for."""
    waiting: str = ""
    """Which audit has not begun yet, and why; empty if none waits."""
