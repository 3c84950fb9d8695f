"""`dledger-audit`: audit the logs of a group, compact them, and prove what was compacted.

    dledger-audit --group orders --member n0=http://orders-n0:40912 --member n1=http://...
    dledger-audit compact --group orders --member ... --decoder kv --archive FOLDER
    dledger-audit verify-compaction n0=http://orders-n0:40912,n1=http://... FOLDER

The exit code shows the verdict (`dledger_formats.audit.ExitCode`): 0 Sound, 3 Incomplete,
4 Damaged, 5 Diverged; with `--verdict-exits-0` it is 0 for each of them. It is 2 for a wrong
command line, 6 if compaction is refused, and 70 if the program itself failed.
"""

import argparse
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from dledger_audit import arguments as command_line
from dledger_audit import hadoop, page, report
from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture, ask_again, capture
from dledger_audit.compaction import amounts
from dledger_audit.compaction import command as compaction
from dledger_audit.executors.settings import ExecutorPodError
from dledger_audit.executors.starting import started
from dledger_audit.executors.watching import NoExecutorsError
from dledger_audit.history.audit import audit_with_history, not_kept
from dledger_audit.history.hadoop_history import hadoop_history
from dledger_audit.history.history_file import History, HistoryError, load, locked, save
from dledger_audit.output_places import STANDARD_OUTPUT
from dledger_audit.outputs import Outputs
from dledger_audit.passes import SparkPasses
from dledger_audit.places import is_uri
from dledger_audit.progress import doing
from dledger_audit.verdict import EXIT_CODES
from dledger_audit.waiting import waits_of
from dledger_formats import json_objects
from dledger_formats.audit import AuditFailure, AuditSummary, ExitCode
from dledger_formats.http.status import Manifest
from pyspark_dledger.bearer import Bearer, given_in
from pyspark_dledger.http_reader import check_url
from pyspark_dledger.keys import DecoderError, decoder
from pyspark_dledger.options import parse_members
from pyspark_dledger.pace import paced
from pyspark_dledger.patience import bounded

NO_EXECUTORS: Final = "NoExecutors"
NO_HISTORY: Final = "HistoryUnusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    """The result of an audit, and whether its history was kept."""

    result: AuditResult
    summary: AuditSummary
    not_kept: Exception | None = None
    """Why the history could not be replaced."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    command, options = _parse(sys.argv[1:] if arguments is None else arguments)
    with bounded(), given_in(options.token_file):
        return _run(command, options)


def _run(command: str, options: argparse.Namespace) -> int:
    """Run the command, which reads each member no faster than the options say."""
    with paced(options.read_rate):
        if command == command_line.COMPACT:
            return compaction.compact(options)
        if command == command_line.VERIFY_COMPACTION:
            return compaction.verify_compaction(options)
        return _run_audit(options)


def _run_audit(options: argparse.Namespace) -> int:
    """Run the audit, write the summary and print the report."""
    outputs = Outputs()
    try:
        with _local_history(options) as history:
            with doing(f"asking {', '.join(options.members)}"):
                captured = capture(options.group, options.members, waits_of(options).opened)
            audited = _audit(captured, options, history, outputs)
        result, summary = audited.result, audited.summary
        outputs.to_standard_output(_output(options.output, captured, result, summary))
        if options.html is not None:
            written = page.render(captured, summary, result, datetime.now(UTC))
            if options.html == STANDARD_OUTPUT:
                outputs.to_standard_output(written.decode())
            else:
                outputs.to_file(Path(options.html), written)
    except (NoExecutorsError, ExecutorPodError) as error:
        return _ended_without_result(options, NO_EXECUTORS, error, outputs)
    except (HistoryError, hadoop.HadoopError) as error:
        return _ended_without_result(options, NO_HISTORY, error, outputs)
    except Exception:  # exit code 70 distinguishes a failed audit from a verdict
        traceback.print_exc()
        return ExitCode.FAILED
    if audited.not_kept is not None:
        sys.stderr.write(f"dledger-audit: {audited.not_kept}\n")
    if outputs.has_failed:
        return ExitCode.FAILED
    if options.verdict_exits_0:
        return ExitCode.SOUND
    return ExitCode.FAILED if audited.not_kept is not None else EXIT_CODES[summary.verdict]


@contextmanager
def _local_history(options: argparse.Namespace) -> Iterator[History | None]:
    """Lock and load the history in a local folder; yield None if the options name none."""
    if options.history is None or is_uri(options.history):
        yield None
        return
    with locked(options.history):
        yield load(options.history, options.group)


def _audit(
    captured: Capture, options: argparse.Namespace, history: History | None, outputs: Outputs
) -> _Audited:
    """Audit the captured members; start Spark only if at least one member answered.

    The summary is written, and the history replaced, before the pass over the amounts, which may
    take more memory than the pod has. The summary does not contain the amounts.
    """
    if not captured.manifests:
        result = AuditResult(findings=captured.findings, totals={})
        return _Audited(result=result, summary=_summarized(captured, options, result, outputs))

    def again() -> dict[str, Manifest]:
        return ask_again(captured, waits_of(options).opened)

    tasks = sum(len(each.data) for each in captured.manifests.values())
    with started(options, tasks) as context, ExitStack() as stack:
        passes = SparkPasses(context, captured.urls)
        kept = None
        if is_uri(options.history):
            kept = stack.enter_context(hadoop_history(context, options.history))
            history = kept.load(options.group)
        if history is None:
            result = audit(passes, captured, again)
        else:
            result, history = audit_with_history(
                passes, captured, again, history, since_last=options.since_last
            )
        summary = _summarized(captured, options, result, outputs)
        failure = None
        if history is not None:
            failure = kept.keep(history) if kept else _saved(history, options.history)
        if failure is not None:
            result = replace(result, findings=(*result.findings, not_kept(failure)))
            summary = _summarized(captured, options, result, outputs)
        measured = _amounts(captured, options, context)
        result = replace(result, compaction=measured)
        return _Audited(result=result, summary=summary, not_kept=failure)


def _saved(history: History, folder: Path) -> HistoryError | None:
    """Replace the history. Return an error, because the verdict counts more than the history."""
    try:
        save(history, folder)
    except HistoryError as error:
        return error
    return None


def _summarized(
    captured: Capture, options: argparse.Namespace, result: AuditResult, outputs: Outputs
) -> AuditSummary:
    """Summarize a result, and write the summary if there is a file for it."""
    summary = report.summarize(captured, result)
    if options.summary_file is not None:
        outputs.to_file(options.summary_file, summary.to_json())
    return summary


def _amounts(
    captured: Capture, options: argparse.Namespace, context: SparkContext
) -> amounts.Amounts:
    """Return what compaction would drop by the decoder in the options, if there is one."""
    if not options.decoder:
        return amounts.NO_DECODER
    return amounts.measure(
        amounts.SparkAmounts(context),
        captured.group,
        captured.manifests,
        captured.urls,
        captured.voters,
        decoder_name=options.decoder,
        tombstone_entries=options.tombstone_entries,
    )


def _ended_without_result(
    options: argparse.Namespace, reason: str, error: Exception, outputs: Outputs
) -> int:
    """Report why there is no result; return the exit code.

    A Job that has reported the reason exits with 0: if it ran again, it would fail again.
    """
    sys.stderr.write(f"dledger-audit: {error}\n")
    if options.summary_file is not None:
        failure = AuditFailure(failed=reason, message=str(error))
        outputs.to_file(options.summary_file, failure.to_json())
    is_reported = options.verdict_exits_0 and not outputs.has_failed
    return ExitCode.SOUND if is_reported else ExitCode.FAILED


def _output(kind: str, captured: Capture, audited: AuditResult, summary: AuditSummary) -> str:
    if kind == "json":
        return json_objects.encode(report.full(summary, audited)).decode() + "\n"
    return report.text(captured, summary, audited)


def _parse(arguments: Sequence[str]) -> tuple[str, argparse.Namespace]:
    command, options, parser = command_line.parse(arguments)
    given = (
        options.source if command == command_line.VERIFY_COMPACTION else ",".join(options.member)
    )
    try:
        options.members = parse_members(given)
        for place in options.members.values():
            if not command or "://" in place:
                check_url(place)
        if options.token_file is not None:
            Bearer(file=options.token_file).headers()
        if command != command_line.VERIFY_COMPACTION and options.decoder:
            decoder(options.decoder)
        if not command and options.since_last and options.history is None:
            raise ValueError("--since-last needs --history FOLDER")
    except (ValueError, DecoderError) as error:
        parser.error(str(error))
    return command, options
