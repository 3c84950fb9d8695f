"""An audit that knows the earlier ones."""

from dataclasses import replace

from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture
from dledger_audit.checks.findings import Run, finding, merged, run_of
from dledger_audit.checks.history import changed
from dledger_audit.history.compared import compared
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
    found = compared(memory.rows, remembering.read, capture.electorate)
    runs = merged(changed(memory, found, capture.manifests))
    if known := remembering.entries_known:
        runs.append(
            Run(check=KNOWN_BEFORE, severity=INFO, first_index=-1, last_index=-1, entries=known)
        )
    findings = (*result.findings, *(finding(run, is_elsewhere=False) for run in runs))
    suspects = remembering.suspects(found)
    after = memory.after(
        remembering.read, found, capture.manifests, suspects, _group(capture, memory)
    )
    return replace(result, findings=findings), after


def _group(capture: Capture, memory: Memory) -> frozenset[str]:
    """Return the members of the group.

    Fewer members than a majority may report an old membership, so then the known members stay in
    it. A member without an open log reports no membership. If no member reports one, the settings
    count.
    """
    manifests = capture.manifests
    members = capture.members | manifests.keys()
    reporting = {each for each in manifests if manifests[each].status.voters} or manifests.keys()
    is_confirmed = len(capture.voters & reporting) >= capture.electorate.majority
    return members if is_confirmed else members | memory.said.keys()


def not_kept(error: Exception) -> Finding:
    """Report that the history could not be replaced; this does not change the verdict."""
    run = run_of(HISTORY_NOT_KEPT, WARNING, -1, -1, reason=str(error))
    return finding(run, is_elsewhere=False)
