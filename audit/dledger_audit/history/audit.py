"""An audit that knows the earlier ones."""

from dataclasses import replace

from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture
from dledger_audit.checks.findings import Run, finding, merged, run_of
from dledger_audit.checks.history import changed
from dledger_audit.history.compared import compared
from dledger_audit.history.history_file import History
from dledger_audit.history.remembering import RememberingPasses
from dledger_audit.passes import Passes
from dledger_audit.settle import AskAgain
from dledger_audit.verdict import HISTORY_NOT_KEPT, INFO, KNOWN_BEFORE, WARNING
from dledger_formats.audit import Finding


def audit_with_history(
    passes: Passes, capture: Capture, ask_again: AskAgain, history: History, *, since_last: bool
) -> tuple[AuditResult, History]:
    """Audit, compare with earlier audits, and return the history for the next one.

    `since_last` reads only a part of what the history has. Raises HistoryError if the history is of
    another group.
    """
    history.check_group(capture.manifests)
    remembering = RememberingPasses(passes, history, since_last=since_last)
    result = audit(remembering, capture, ask_again)
    found = compared(history.rows, remembering.read, capture.electorate)
    runs = merged(changed(history, found, capture.manifests))
    if known := remembering.entries_known:
        runs.append(
            Run(check=KNOWN_BEFORE, severity=INFO, first_index=-1, last_index=-1, entries=known)
        )
    findings = (*result.findings, *(finding(run, is_elsewhere=False) for run in runs))
    suspects = remembering.suspects(found)
    after = history.after(
        remembering.read, found, capture.manifests, suspects, _group(capture, history)
    )
    return replace(result, findings=findings), after


def _group(capture: Capture, history: History) -> frozenset[str]:
    """Return the members of the group.

    Fewer members than a majority may report an old membership, so then the known members stay in
    it. A member without an open log reports no membership. If no member reports one, the settings
    count.
    """
    manifests = capture.manifests
    members = capture.members | manifests.keys()
    reporting = {each for each in manifests if manifests[each].status.voters} or manifests.keys()
    is_confirmed = len(capture.voters & reporting) >= capture.electorate.majority
    return members if is_confirmed else members | history.reports.keys()


def not_kept(error: Exception) -> Finding:
    """Report that the history could not be replaced; this does not change the verdict."""
    run = run_of(HISTORY_NOT_KEPT, WARNING, -1, -1, reason=str(error))
    return finding(run, is_elsewhere=False)
