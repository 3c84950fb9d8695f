"""Compare what was read with what earlier audits read: what was committed never changes."""

from collections.abc import Iterator, Mapping

from dledger_audit.checks.electorate import is_counted
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.history.chunks import runs_of
from dledger_audit.history.compared import Compared
from dledger_audit.history.history_file import History
from dledger_audit.verdict import (
    CRITICAL,
    HISTORY_BEGIN,
    HISTORY_CHANGED,
    HISTORY_LOST,
    HISTORY_TERM,
    WARNING,
)
from dledger_formats.http.status import Manifest


def changed(history: History, found: Compared, manifests: Mapping[str, Manifest]) -> Iterator[Run]:
    """Yield what contradicts earlier audits: entries, and what members report about themselves.

    Reports of members that join, or whose storage is not sound, are ignored; their entries count.
    """
    for member, is_changed in zip(found.members, found.is_changed, strict=True):
        for first, last in runs_of(found.starts[is_changed]):
            yield run_of(HISTORY_CHANGED, CRITICAL, first, last, member=member)
    for member, manifest in manifests.items():
        if is_counted(manifest.status):
            yield from _gone_back(history, member, manifest)


def _gone_back(history: History, member: str, manifest: Manifest) -> Iterator[Run]:
    before, status = history.reports.get(member), manifest.status
    if before is None:
        return
    if status.ledger_end_index < before.committed_index:
        first = max(0, status.ledger_end_index + 1)
        yield run_of(HISTORY_LOST, CRITICAL, first, before.committed_index, member=member)
    if status.term < before.term:
        yield Run(
            check=HISTORY_TERM, severity=CRITICAL, member=member, first_index=-1, last_index=-1,
            entries=0, reason=f"it was {before.term}, and is {status.term}",
        )  # fmt: skip
    begin = max(0, status.ledger_begin_index)
    if status.committed_index >= 0 and begin < before.begin_index:
        yield run_of(HISTORY_BEGIN, WARNING, begin, before.begin_index - 1, member=member)
