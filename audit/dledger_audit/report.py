"""The result of an audit as a summary for the operator and as a text report."""

from dataclasses import dataclass, fields
from typing import Final

from dledger_audit import amounts_text, outlook_text
from dledger_audit.audit import AuditResult
from dledger_audit.capture import Capture
from dledger_audit.checks.coverage import NOTHING, MemberTotals
from dledger_audit.checks.next_removal import Outlook
from dledger_audit.compaction.amounts import Amounts
from dledger_audit.verdict import in_order, judge
from dledger_formats.audit import AuditSummary, Finding, Verdict

FINDINGS_SHOWN_MAX: Final = 100
MEMBER_COLUMNS: Final = (
    "member",
    "entries",
    "first",
    "last",
    "bytes",
    "damaged",
    "without checksum",
)


def summarize(capture: Capture, audited: AuditResult) -> AuditSummary:
    """Summarize a result for the operator; `first_findings` holds all findings."""
    findings = in_order(audited.findings)
    verdict = judge(findings)
    return AuditSummary(
        verdict=verdict,
        message=_message(capture, findings, verdict),
        members=list(capture.manifests),
        entries=max((total.entries for total in audited.totals.values()), default=0),
        record_bytes=sum(total.record_bytes for total in audited.totals.values()),
        agreed_index=capture.agreed_index,
        findings=len(findings),
        first_findings=findings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(AuditSummary):
    """The summary, and parts that are printed only on request because they have no bound."""

    next_removals: list[Outlook]
    compaction: Amounts | None
    """What compaction would drop; null if no member answered."""


def full(summary: AuditSummary, audited: AuditResult) -> Report:
    """Return the report that `--output json` prints."""
    summarized = {each.name: getattr(summary, each.name) for each in fields(summary)}
    return Report(**summarized, next_removals=list(audited.outlooks), compaction=audited.compaction)


def text(capture: Capture, summary: AuditSummary, audited: AuditResult) -> str:
    """Render the verdict, the members, the findings, worst first, next removals and compaction."""
    totals = audited.totals
    shown = summary.first_findings[:FINDINGS_SHOWN_MAX]
    left_out = len(summary.first_findings) - len(shown)
    lines = [
        f"{summary.verdict}: {summary.message}",
        "",
        *_table(
            [MEMBER_COLUMNS, *(member_row(member, totals.get(member)) for member in capture.urls)]
        ),
        "",
        *(_line(finding) for finding in shown),
    ]
    if left_out:
        lines.append(f"and {left_out} more findings")
    lines += ["", *outlook_text.lines(audited.outlooks)]
    lines += ["", *amounts_text.lines(audited.compaction)]
    return "\n".join(lines).rstrip() + "\n"


def _message(capture: Capture, findings: list[Finding], verdict: Verdict) -> str:
    count = len(capture.manifests)
    members = f"{count} member{'' if count == 1 else 's'} of {capture.group}"
    if verdict is Verdict.SOUND and capture.agreed_index < 0:
        return f"{members}: nothing is committed yet"
    if verdict is Verdict.SOUND:
        return f"{members}: the same entries up to index {capture.agreed_index:,}"
    first = findings[0]
    more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
    what = first.detail.partition(";")[0]  # advice follows the semicolon
    return f"{place_of(first)}: {first.check}, {what}{more}"


def _line(finding: Finding) -> str:
    return f"{finding.severity:<8}  {finding.check}  {place_of(finding)}: {finding.detail}"


def place_of(finding: Finding) -> str:
    """Return where a finding is: member, segment and entries."""
    parts = [finding.member or "the group"]
    if finding.segment:
        parts.append(f"segment {finding.segment}")
    if finding.first_index >= 0:
        last = "" if finding.last_index == finding.first_index else f"-{finding.last_index}"
        parts.append(f"index {finding.first_index}{last}")
    return ", ".join(parts)


def member_row(member: str, total: MemberTotals | None) -> tuple[str, ...]:
    """Return the cells of MEMBER_COLUMNS for a member."""
    if total is None:
        return (member, *["-"] * (len(MEMBER_COLUMNS) - 1))
    if total == NOTHING:
        return (member, "0", "-", "-", "0", "0", "0")
    numbers = (
        total.entries,
        total.first_index,
        total.last_index,
        total.record_bytes,
        total.damaged,
        total.uncovered,
    )
    return (member, *(f"{number:,}" for number in numbers))


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the first column left and the numbers right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
