"""Write reports and entries as text or as lines of JSON."""

import base64
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from tqdm import tqdm

from dledger_formats import console
from dledger_formats.log import disk, memberships
from dledger_formats.log.disk import EntryHeader
from dledger_node.raft.membership import Membership
from dledger_node.store_command.report import Report

BODY_PREVIEW_BYTES: Final = 48
_MAGIC_NAMES: Final = {disk.NORMAL: "entry", disk.NOOP: "no-op"}


class _Bar(tqdm):  # type: ignore[type-arg]  # the class takes no argument at run time
    """A progress bar without tqdm's monitor thread, which serves only stalled loops."""

    monitor_interval = 0


def with_progress(title: str, work: Callable[[Callable[[int], object]], Report]) -> Report:
    """Call `work` with a callback for its position in bytes; show a progress bar on a terminal."""
    if not sys.stderr.isatty():
        return work(lambda pos: None)
    with _Bar(desc=title, unit="B", unit_scale=True, unit_divisor=1024, leave=False) as bar:

        def advance(pos: int) -> None:
            bar.update(pos - bar.n)

        return work(advance)


def line(text: str = "") -> None:
    """Write one line to standard output, unless nobody reads it. Raises OutputError."""
    console.write(f"{text}\n")


def json_line(value: dict[str, Any]) -> None:
    """Write one object as a line."""
    line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def complain(text: str) -> None:
    """Write one line to standard error, after what was written to standard output."""
    console.flush()
    sys.stderr.write(f"dledger-node: {text}\n")


def write_report(report: Report, *, as_json: bool) -> None:
    """Write the content of a folder and every finding."""
    if as_json:
        for finding in report.findings.kept:
            json_line(finding.to_json(report.findings.severity_of(finding.kind)))
        json_line(report.to_json())
        return
    _write_contents(report)
    for finding in report.findings.kept:
        place = finding.file if finding.byte is None else f"{finding.file}, byte {finding.byte}"
        severity = report.findings.severity_of(finding.kind).name.lower()
        line(f"{severity:<10}  {finding.kind}  {place}{_entries(finding)}")
        line(f"            {finding.detail}")
    more = report.findings.counts.total() - len(report.findings.kept)
    if more:
        line(f"            and {more} more findings")
    line(f"{report.folder}: {report.verdict.value}")


def _entries(finding: Any) -> str:
    if finding.first_index is None:
        return ""
    if finding.last_index in (None, finding.first_index):
        return f", entry {finding.first_index}"
    return f", entries {finding.first_index} to {finding.last_index}"


def _write_contents(report: Report) -> None:
    for log in (report.data, report.index):
        count, size = len(log.segments), log.segment_size
        line(f"{log.folder.name + ':':<12}{count} segments of {size:,} bytes")
    for first, last, term in report.runs:
        line(f"{'entries:':<12}{first} to {last} of term {term}")
    if not report.runs:
        line(f"{'entries:':<12}none")
    if report.checkpoint is not None:
        durable, committed = report.checkpoint.end_index, report.checkpoint.committed_index
        line(f"{'checkpoint:':<12}durable to {durable}, committed to {committed}")
    if report.membership is not None:
        index, (voters, learners) = report.membership.index, _members(report.membership.membership)
        line(f"{'members:':<12}voters {voters}; learners {learners}; since entry {index}")
    if report.hard_state is not None:
        vote = report.hard_state.vote_for
        line(f"{'term:':<12}{report.hard_state.term}, {f'voted for {vote}' if vote else 'no vote'}")


def _members(membership: Membership) -> tuple[str, str]:
    return ", ".join(membership.voters), ", ".join(membership.learners) or "none"


def write_entry_titles() -> None:
    """Write the header of the table of entries."""
    line(f"{'INDEX':>12} {'TERM':>8} {'KIND':<7} {'POSITION':>16} {'BODY':>9}  BEGINS WITH")


def write_entry(header: EntryHeader, body: bytes, *, as_json: bool, whole_body: bool) -> None:
    """Write one entry."""
    changes = memberships.is_membership(header.magic, header.channel)
    kind = "members" if changes else _MAGIC_NAMES[header.magic]
    if not as_json:
        shown = body if whole_body else body[:BODY_PREVIEW_BYTES]
        text = repr(shown)[2:-1] + ("…" if len(shown) < len(body) else "")
        line(
            f"{header.index:>12} {header.term:>8} {kind:<7} {header.pos:>16} {len(body):>9}  {text}"
        )
        return
    value: dict[str, Any] = {
        "index": header.index,
        "term": header.term,
        "kind": kind,
        "pos": header.pos,
        "bodyBytes": len(body),
        "bodyCrc": f"{header.body_crc:08x}",
        "chainCrc": f"{header.chain_crc:08x}",
    }
    if whole_body or changes:
        try:
            value["body"] = body.decode()
        except UnicodeDecodeError:
            value["bodyBase64"] = base64.b64encode(body).decode()
    json_line(value)
