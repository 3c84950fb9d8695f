"""The result of an audit as one HTML page, which opens no URL and runs no script.

The page is built as a tree and not from text, so that no text from a member can become markup. It
has at most about a MiB, whatever the audit found: the newest segments and the first findings are
shown.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from dledger_audit import amounts_text, outlook_text
from dledger_audit.audit import AuditResult
from dledger_audit.capture import Capture
from dledger_audit.checks.coverage import SegmentTotals
from dledger_audit.report import MEMBER_COLUMNS, member_row, place_of
from dledger_formats.audit import AuditSummary, Finding
from dledger_formats.http.retention import HeldSnapshot, Removal, RemovalRule

SEGMENTS_SHOWN_MAX: Final = 400
FINDINGS_SHOWN_MAX: Final = 500
TEXT_LENGTH_MAX: Final = 500
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
body { font: 15px/1.4 sans-serif; margin: 2em; max-width: 90em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #bbb; padding: .2em .6em; text-align: left; vertical-align: top }
th { background: #eee }
.n { text-align: right; white-space: nowrap }
.Sound, .ok { background: #d8f0d8 }
.Incomplete, .warning, .gone { background: #fff0c0 }
.Damaged, .Diverged, .critical, .bad { background: #f8d0d0 }
h1 span { padding: 0 .4em }
"""
_RULES: Final = {
    RemovalRule.SIZE: "the log was larger than its limit",
    RemovalRule.AGE: "the segment had expired",
    RemovalRule.FILLING_VOLUME: "the segment had expired, and the volume was filling up",
    RemovalRule.FORCE: "the volume was nearly full",
    RemovalRule.LEADER_LOG: "the member took the leader's log, which began later",
    RemovalRule.EARLIER: "removals before the last hundred, together",
    RemovalRule.UNRECORDED: "on purpose; by which rule is not known",
}


def render(
    capture: Capture, summary: AuditSummary, audited: AuditResult, written_at: datetime
) -> bytes:
    """Return the page, in UTF-8."""
    root = ET.Element("html", lang="en")
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    _add(head, "title", f"Audit of {capture.group}: {summary.verdict}")
    ET.SubElement(head, "style").text = _STYLE
    body = ET.SubElement(root, "body")
    _verdict(body, capture, summary, written_at)
    _members(body, capture, audited)
    _findings(body, summary.first_findings)
    _segments(body, list(capture.urls), audited.segments)
    _removed(body, capture)
    _next(body, audited)
    _compaction(body, audited)
    _snapshots(body, capture)
    text = ET.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode()


def _verdict(
    body: ET.Element, capture: Capture, summary: AuditSummary, written_at: datetime
) -> None:
    title = _add(body, "h1", f"Audit of {capture.group}: ")
    _add(title, "span", summary.verdict.value, summary.verdict.value)
    _add(body, "p", summary.message)
    ended = written_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    _add(body, "p", f"The audit ended at {ended}.")


def _members(body: ET.Element, capture: Capture, audited: AuditResult) -> None:
    _add(body, "h2", "Members")
    table = _table(body, MEMBER_COLUMNS)
    for member in capture.urls:
        cells = member_row(member, audited.totals.get(member))
        _row(table, [(cell, "n" if column else "") for column, cell in enumerate(cells)])


def _findings(body: ET.Element, findings: Sequence[Finding]) -> None:
    _add(body, "h2", "Findings")
    if not findings:
        _add(body, "p", "Nothing was found.")
        return
    table = _table(body, ("severity", "check", "where", "what, and what to do"))
    for each in findings[:FINDINGS_SHOWN_MAX]:
        cells = [each.severity, each.check, place_of(each), each.detail]
        _row(table, [(cell, "") for cell in cells], each.severity)
    if len(findings) > FINDINGS_SHOWN_MAX:
        _more(body, len(findings) - FINDINGS_SHOWN_MAX, "findings")


def _segments(body: ET.Element, members: Sequence[str], segments: Sequence[SegmentTotals]) -> None:
    _add(body, "h2", "Segments")
    cells = {(each.segment, each.member): each for each in segments}
    names = sorted({each.segment for each in segments})
    table = _table(body, ("segment", *members))
    for name in reversed(names[-SEGMENTS_SHOWN_MAX:]):
        row = [(f"{name:020}", "n")]
        for member in members:
            found = cells.get((name, member))
            row.append((_segment(found), f"n {_state(found)}"))
        _row(table, row)
    if len(names) > SEGMENTS_SHOWN_MAX:
        _more(body, len(names) - SEGMENTS_SHOWN_MAX, "older segments")
    _add(body, "p", "A cell without numbers: the member has no entries of this segment.")


def _segment(found: SegmentTotals | None) -> str:
    if found is None:
        return "-"
    text = f"{found.first_index:,}-{found.last_index:,}, {found.record_bytes:,} bytes"
    damaged = f", {found.damaged:,} damaged" if found.damaged else ""
    return text + damaged + (f", {found.absent:,} not read" if found.absent else "")


def _state(found: SegmentTotals | None) -> str:
    if found is None:
        return ""
    if found.damaged:
        return "bad"
    return "gone" if found.absent else "ok"


def _removed(body: ET.Element, capture: Capture) -> None:
    _add(body, "h2", "Removed from the front")
    removals: list[tuple[str, Removal]] = [
        (member, removal)
        for member, manifest in capture.manifests.items()
        if manifest.retention is not None
        for removal in manifest.retention.removals
    ]
    if not removals:
        _add(body, "p", "No member reports that it removed entries.")
        return
    table = _table(body, ("member", "entries", "rule", "why", "when", "every voter held them"))
    for member, each in removals:
        known = each.removed_at_ms >= 0
        forced = "not known: forced" if each.is_forced else "yes" if known else "-"
        cells = [
            (member, ""), (f"{each.first_index:,}-{each.last_index:,}", "n"), (each.rule.value, ""),
            (_RULES[each.rule], ""), (_time(each.removed_at_ms), ""), (forced, ""),
        ]  # fmt: skip
        _row(table, cells, "warning" if each.is_forced else "")


def _next(body: ET.Element, audited: AuditResult) -> None:
    lines = list(outlook_text.lines(audited.outlooks))
    _add(body, "h2", "Next removals")
    _add(body, "pre" if lines else "p", "\n".join(lines[1:]) or "No retention is set.")


def _compaction(body: ET.Element, audited: AuditResult) -> None:
    amounts = audited.compaction
    if amounts is None:
        return
    _add(body, "h2", "Live and dead")
    _add(body, "p", f"Compaction: {amounts_text.summary(amounts)}.")
    if not amounts.segments:
        return
    table = _table(body, amounts_text.COLUMNS)
    for each in amounts_text.shown(amounts):
        _row(table, [(cell, "n") for cell in amounts_text.row(each)])
    if (left := len(amounts.segments) - amounts_text.SEGMENTS_SHOWN_MAX) > 0:
        _more(body, left, "older segments")


def _snapshots(body: ET.Element, capture: Capture) -> None:
    held: list[tuple[str, HeldSnapshot]] = [
        (member, each)
        for member, manifest in capture.manifests.items()
        if manifest.retention is not None
        for each in manifest.retention.snapshots
    ]
    if not held:
        return
    _add(body, "h2", "Snapshots of the state")
    table = _table(body, ("member", "last entry", "term", "bytes", "CRC-32"))
    for member, each in held:
        numbers = (each.last_included_index, each.last_included_term, each.data_bytes)
        cells = [*(f"{number:,}" for number in numbers), f"{each.data_crc32:08x}"]
        _row(table, [(member, ""), *((cell, "n") for cell in cells)])


def _time(at_ms: int) -> str:
    if at_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{at_ms} ms"


def _table(body: ET.Element, columns: Sequence[str]) -> ET.Element:
    table = ET.SubElement(body, "table")
    head = ET.SubElement(table, "tr")
    for column in columns:
        _add(head, "th", column)
    return table


def _row(table: ET.Element, cells: Iterable[tuple[str, str]], state: str = "") -> None:
    row = ET.SubElement(table, "tr", {"class": state} if state else {})
    for text, kind in cells:
        _add(row, "td", text, kind.strip())


def _more(body: ET.Element, count: int, what: str) -> None:
    _add(body, "p", f"and {count:,} more {what}")


def _add(parent: ET.Element, tag: str, text: str, kind: str = "") -> ET.Element:
    """Add an element with a text of bounded length, in which no control character is left."""
    element = ET.SubElement(parent, tag, {"class": kind} if kind else {})
    shown = text if tag == "pre" or len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}…"
    element.text = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}"
        for each in shown
    )
    return element
