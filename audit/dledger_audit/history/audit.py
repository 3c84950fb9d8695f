"""An audit that knows the earlier ones."""

from dataclasses import replace

from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture
from dledger_audit.checks.findings import Run, finding, merged, run_of
from dledger_audit.checks.history import changed, compared
from dledger_audit.history.memory import Memory
from dledger_audit.history.remembering import RememberingPasses
from dledger_audit.passes import Passes
from dledger_audit.settle import AskAgain
from dledger_audit.verdict import HISTORY_NOT_KEPT, INFO, KNOWN_BEFORE, WARNING
from dledger_formats.audit import Finding


def audit_with_history(
    passes: Passes, capture: Capture, ask_again: AskAgain, memory: Memory, *, since_last: bool
) -> tuple[AuditResult, Memory]:
    """Audit, compare with earlier audits, and return the memory for the next one.

    `since_last` reads only a part of what the memory has. Raises HistoryError if the memory is of
    another group.
    """
    memory.check_group(capture.manifests)
    remembering = RememberingPasses(passes, memory, since_last=since_last)
    result = audit(remembering, capture, ask_again)
    is_as_before = compared(memory, remembering.read)
    runs = merged(changed(memory, is_as_before, capture.manifests))
    if known := remembering.entries_known:
        runs.append(
            Run(check=KNOWN_BEFORE, severity=INFO, first_index=-1, last_index=-1, entries=known)
        )
    findings = (*result.findings, *(finding(run, is_elsewhere=False) for run in runs))
    suspects = remembering.suspects(is_as_before)
    after = memory.after(remembering.read, capture.manifests, suspects)
    return replace(result, findings=findings), after


def not_kept(error: Exception) -> Finding:
    """Tell that the history could not be replaced: the verdict counts more than the history."""
    run = run_of(HISTORY_NOT_KEPT, WARNING, -1, -1, reason=str(error))
    return finding(run, is_elsewhere=False)
