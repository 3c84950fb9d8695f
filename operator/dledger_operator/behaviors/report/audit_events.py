"""Decides which Event reports a group's last audit. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dledger_formats.audit import Verdict
from dledger_operator.behaviors.audits.records import recorded_last
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.resources.event import NORMAL, WARNING

AUDIT_PASSED: Final = "AuditPassed"
AUDIT_NOT_PASSED: Final = "AuditNotPassed"


def audit_events(previous: Mapping[str, Any], status: Mapping[str, Any]) -> list[EventNote]:
    """Return the Event about an audit that has ended since the previous status."""
    before, last = recorded_last(previous), recorded_last(status)
    if last is None or last == before:
        return []
    sound = last.result == Verdict.SOUND
    return [
        EventNote(
            severity=NORMAL if sound else WARNING,
            reason=AUDIT_PASSED if sound else AUDIT_NOT_PASSED,
            message=f"audit {last.audit} is {last.result}: {last.message}",
        )
    ]
