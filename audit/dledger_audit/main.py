"""`dledger-audit`: audit the logs of a group.

    dledger-audit --group orders --member n0=http://orders-n0:40912 --member n1=http://...

The exit code tells the verdict (`dledger_formats.audit.ExitCode`): 0 Sound, 3 Incomplete,
4 Damaged, 5 Diverged. It is 2 for a wrong command line and 70 if the audit itself failed.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence

from dledger_audit import arguments as command_line
from dledger_audit import report
from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture, ask_again, capture
from dledger_audit.passes import SparkPasses
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
        return audit(SparkPasses(spark, captured.urls), captured, lambda: ask_again(captured))


def _output(kind: str, captured: Capture, audited: AuditResult, summary: AuditSummary) -> str:
    if kind == "json":
        return json_objects.encode(summary).decode() + "\n"
    return report.text(captured, summary, audited.totals)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line.parser()
    options = parser.parse_args(arguments)
    try:
        options.members = parse_members(",".join(options.member))
        for url in options.members.values():
            check_url(url)
    except ValueError as error:
        parser.error(str(error))
    return options
