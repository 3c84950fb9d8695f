"""The verdict on an audit's findings. Only this module maps checks to verdicts."""

from collections.abc import Collection
from typing import Final

from dledger_formats.audit import ExitCode, Finding, Verdict

INFO: Final = "info"
"""Informational; nothing is wrong."""
WARNING: Final = "warning"
"""Something was not read, or is wrong and repairs itself."""
CRITICAL: Final = "critical"
"""Acknowledged entries, or the state, are damaged, missing, or differ between members."""

SEVERITIES: Final = (CRITICAL, WARNING, INFO)

MINORITY: Final = "differs_from_majority"
NO_MAJORITY: Final = "no_majority"
TOO_FEW_COPIES: Final = "too_few_copies"
UNREACHABLE: Final = "member_unreachable"
NOTHING_COMMITTED: Final = "nothing_committed"
BEGINS_LATER: Final = "begins_later"
UNREADABLE: Final = "unreadable"
HISTORY: Final = "history_differs"
NOT_COUNTED: Final = "not_counted"
CHANGED: Final = "changed"
REMOVED: Final = "removed"
UNRECORDED: Final = "unrecorded"
BAD_INDEX_UNIT: Final = "bad_index_unit"
UNKNOWN_ENTRY: Final = "unknown_entry"
FOREIGN_FILE: Final = "foreign_file"
BAD_SNAPSHOT: Final = "bad_snapshot"
SNAPSHOT_TERM: Final = "snapshot_term"
SNAPSHOT_AHEAD: Final = "snapshot_ahead"
SNAPSHOT_DIFFERS: Final = "snapshot_differs"
NO_SNAPSHOT: Final = "no_snapshot"
WRONG_SNAPSHOT: Final = "wrong_snapshot"
STATE_NOT_REPLAYED: Final = "state_not_replayed"
SNAPSHOT_UNREAD: Final = "snapshot_unread"
SNAPSHOT_NOT_SERVED: Final = "snapshot_not_served"
HISTORY_CHANGED: Final = "history_changed"
HISTORY_LOST: Final = "history_lost"
HISTORY_TERM: Final = "history_term"
HISTORY_BEGIN: Final = "history_begin"
KNOWN_BEFORE: Final = "known_before"
HISTORY_NOT_KEPT: Final = "history_not_kept"

DIVERGENCE: Final = frozenset({MINORITY, NO_MAJORITY, HISTORY, SNAPSHOT_DIFFERS})
OMISSION: Final = frozenset(
    {
        UNREACHABLE, NOT_COUNTED, NOTHING_COMMITTED, BEGINS_LATER, UNREADABLE, UNKNOWN_ENTRY,
        CHANGED, SNAPSHOT_UNREAD, FOREIGN_FILE,
    }
)  # fmt: skip

EXIT_CODES: Final = {
    Verdict.SOUND: ExitCode.SOUND,
    Verdict.INCOMPLETE: ExitCode.INCOMPLETE,
    Verdict.DAMAGED: ExitCode.DAMAGED,
    Verdict.DIVERGED: ExitCode.DIVERGED,
}


def judge(findings: Collection[Finding]) -> Verdict:
    """Return the worst verdict that any finding causes."""
    if any(finding.check in DIVERGENCE for finding in findings):
        return Verdict.DIVERGED
    if any(finding.severity == CRITICAL for finding in findings):
        return Verdict.DAMAGED
    if any(finding.check in OMISSION for finding in findings):
        return Verdict.INCOMPLETE
    return Verdict.SOUND


def in_order(findings: Collection[Finding]) -> list[Finding]:
    """Sort by severity, with the findings that decide the verdict first, then by place."""
    return sorted(
        findings,
        key=lambda finding: (
            SEVERITIES.index(finding.severity),
            finding.check not in (*DIVERGENCE, TOO_FEW_COPIES),
            finding.member,
            finding.first_index,
            finding.check,
        ),
    )
