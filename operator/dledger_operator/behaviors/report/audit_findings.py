"""What the last audit of a group found; read from a DLedgerAudit, kept in the group's status. Pure.

The finding outlives the DLedgerAudit, so that deleting the object hides no damage. Only an audit
that began later replaces it. An Incomplete one does not: what it could not read may be the part
that was damaged.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.observed_state import DECIDING, AuditFinding

AUDIT_KEY: Final = "audit"


def finding_of(audit: Mapping[str, Any]) -> AuditFinding | None:
    """Return what a DLedgerAudit found; None if it has not ended, or decided nothing."""
    status = audit.get("status") or {}
    conditions = status.get("conditions") or [{}]
    message = conditions[0].get("message", "")
    return _finding(audit["metadata"]["name"], {**status, "message": message})


def recorded_finding(status: Mapping[str, Any]) -> AuditFinding | None:
    """Return what a group's status records; None if it records nothing, or nothing valid."""
    recorded = status.get(AUDIT_KEY) or {}
    return _finding(str(recorded.get("name", "")), recorded)


def finding_to_json(finding: AuditFinding) -> Manifest:
    """Encode a finding for the group's status."""
    return {
        "name": finding.audit,
        "verdict": finding.verdict.value,
        "startedAt": names.timestamp(finding.started_at),
        "message": finding.message,
    }


def latest(one: AuditFinding | None, other: AuditFinding | None) -> AuditFinding | None:
    """Return the finding of the audit that began later."""
    known = [each for each in (one, other) if each is not None]
    return max(known, key=lambda each: each.started_at, default=None)


def _finding(name: str, recorded: Mapping[str, Any]) -> AuditFinding | None:
    try:
        verdict = Verdict(recorded["verdict"])
        started_at = datetime.fromisoformat(recorded["startedAt"])
    except (KeyError, TypeError, ValueError):
        return None
    if verdict not in DECIDING or started_at.tzinfo is None:
        return None
    message = str(recorded.get("message", ""))
    return AuditFinding(audit=name, verdict=verdict, message=message, started_at=started_at)
