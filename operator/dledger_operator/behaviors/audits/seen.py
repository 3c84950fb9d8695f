"""What one process has seen of a group's audits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_operator import reasons
from dledger_operator.behaviors.audits import planning
from dledger_operator.behaviors.audits.judging import RUNNING
from dledger_operator.behaviors.audits.records import (
    ended_audit,
    has_ended,
    recorded_last,
    recorded_plan,
)
from dledger_operator.behaviors.report.audit_findings import finding_of, latest, recorded_finding
from dledger_operator.observed_audits import AuditPlan, EndedAudit, ObservedAudits
from dledger_operator.observed_state import AuditFinding
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

_ON_ITS_WAY: Final = ("", reasons.JOB_CREATED, RUNNING, reasons.TRYING_AGAIN)
"""Reasons of an audit that waits for nothing but its pod."""


@dataclass(slots=True, kw_only=True)
class SeenAudits:
    """The audits of one group: the objects, what they found, and what is planned."""

    created_at: datetime
    """When the group was created. Audits of an earlier group of the same name do not count."""
    finding: AuditFinding | None = None
    last: EndedAudit | None = None
    plan: AuditPlan | None = None
    problem: Problem | None = None
    bodies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The DLedgerAudits that exist, by uid."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "SeenAudits":
        """Return what the status of a group records."""
        status = body.get("status") or {}
        return cls(
            created_at=datetime.fromisoformat(body["metadata"]["creationTimestamp"]),
            finding=recorded_finding(status),
            last=recorded_last(status),
            plan=recorded_plan(status),
        )

    def take(self, body: Mapping[str, Any]) -> None:
        """Store a DLedgerAudit of the group, and what it found if it has ended.

        A finding replaces the known one only if its audit began later.
        """
        self.bodies[body["metadata"]["uid"]] = body
        finding, ended = finding_of(body), ended_audit(body)
        if finding is not None and finding.started_at >= self.created_at:
            self.finding = latest(self.finding, finding)
        if ended is None or (ended.started_at or ended.ended_at) < self.created_at:
            return
        if self.last is None or ended.ended_at > self.last.ended_at:
            self.last = ended

    def forget(self, body: Mapping[str, Any]) -> None:
        """Drop a deleted DLedgerAudit. What it found stays."""
        self.bodies.pop(body["metadata"]["uid"], None)

    def holds_back(self, group: Group) -> Problem | None:
        """Return why no member may be removed yet; None if one may."""
        under_way = self._waiting() or self._under_way()
        return planning.holds_back(group.audit, self.plan, self.last, group.replicas, under_way)

    @property
    def kept(self) -> str:
        """Name of the audit that found what makes the group Degraded; empty if none did."""
        finding = self.finding
        return finding.audit if finding and finding.verdict is not Verdict.SOUND else ""

    def observed(self) -> ObservedAudits:
        """Return what conditions, status and metrics show."""
        return ObservedAudits(
            last=self.last, plan=self.plan, problem=self.problem, waiting=self._waiting()
        )

    def _waiting(self) -> str:
        """Return which audit waits for more than its turn and its pod, and why; else empty."""
        for body, reason, message in self._unended():
            if reason not in (*_ON_ITS_WAY, reasons.EARLIER_AUDIT):
                return f"audit {body['metadata']['name']} waits: {reason}: {message}"
        return ""

    def _under_way(self) -> str:
        """Return which audit is reading or is about to; empty if none is."""
        for body, reason, _ in self._unended():
            if reason in _ON_ITS_WAY:
                return f"audit {body['metadata']['name']} is {reason or 'about to begin'}"
        return ""

    def _unended(self) -> Iterator[tuple[Mapping[str, Any], str, str]]:
        """Yield the audits that have not ended, with the reason and message of each condition."""
        for body in self.bodies.values():
            conditions = (body.get("status") or {}).get("conditions") or [{}]
            if not has_ended(body):
                yield body, conditions[0].get("reason", ""), conditions[0].get("message", "")
