"""`dledger-audit`: audit the logs of a group.

    dledger-audit --group orders --member n0=http://orders-n0:40912 --member n1=http://...

The exit code tells the verdict (`dledger_formats.audit.ExitCode`): 0 Sound, 3 Incomplete,
4 Damaged, 5 Diverged. It is 2 for a wrong command line and 70 if the audit itself failed.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from dledger_audit import report
from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture, capture
from dledger_audit.session import session
from dledger_audit.verdict import EXIT_CODES
from dledger_formats import json_objects
from dledger_formats.audit import AuditSummary, ExitCode
from pyspark_dledger.http_reader import check_url
from pyspark_dledger.source import parse_members


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit, write the summary and print the report; return the exit code."""
    options = _parse(arguments)
    try:
        captured = capture(options.group, options.members)
        audited = _audit(captured, options.master)
        summary = report.summarize(captured, audited)
        if options.summary_file is not None:
            options.summary_file.write_bytes(summary.to_json())
        sys.stdout.write(_output(options.output, captured, audited, summary))
    except Exception:  # exit code 70 tells a failed audit from a verdict
        traceback.print_exc()
        return ExitCode.FAILED
    return EXIT_CODES[summary.verdict]


def _audit(captured: Capture, master: str) -> AuditResult:
    """Audit the captured members; start Spark only if at least one member answered."""
    if not captured.manifests:
        return AuditResult(findings=captured.findings, totals={})
    with session(master) as spark:
        return audit(spark, captured)


def _output(kind: str, captured: Capture, audited: AuditResult, summary: AuditSummary) -> str:
    if kind == "json":
        return json_objects.encode(summary).decode() + "\n"
    return report.text(captured, summary, audited.totals)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dledger-audit", description="Audit the logs of a DLedger group."
    )
    parser.add_argument("--group", required=True, help="name of the group")
    parser.add_argument(
        "--member", action="append", required=True, metavar="ID=URL",
        help="URL of a member's HTTP port; repeat for each member",
    )  # fmt: skip
    parser.add_argument(
        "--level",
        choices=("full",),
        default="full",
        help="full (default): check every byte of every entry",
    )
    parser.add_argument("--summary-file", type=Path, help="file to write the summary to, as JSON")
    parser.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="what to print: a report or the summary as JSON (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        options.members = parse_members(",".join(options.member))
        for url in options.members.values():
            check_url(url)
    except ValueError as error:
        parser.error(str(error))
    return options
