"""Check the snapshots of the state: their bytes, their places in the log, and that members agree.

Members that applied the same entries have the same state and save the same bytes, so at one index
there can be only one snapshot. Each finding names a member and a snapshot.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from dledger_audit.checks.electorate import Electorate
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.checks.replayed import proven, wrong_snapshots
from dledger_audit.snapshots.gathering import Gathered, listed_by
from dledger_audit.snapshots.reading import Listed, Outcome, SnapshotRead
from dledger_audit.snapshots.replay import Replayed
from dledger_audit.verdict import (
    BAD_SNAPSHOT,
    CRITICAL,
    INFO,
    NO_SNAPSHOT,
    SNAPSHOT_AHEAD,
    SNAPSHOT_DIFFERS,
    SNAPSHOT_NOT_SERVED,
    SNAPSHOT_TERM,
    SNAPSHOT_UNREAD,
    WARNING,
)


def snapshots(gathered: Gathered, electorate: Electorate, replayed: Replayed) -> Iterator[Run]:
    """Yield a run for each fault of a snapshot."""
    yield from wrong_snapshots(replayed, electorate)
    yield from _unread(gathered)
    yield from _damaged(gathered)
    whole = [read for read in gathered.reads if read.outcome is Outcome.WHOLE]
    yield from _misplaced(gathered, whole)
    yield from _differing(whole, electorate, proven(replayed))
    yield from _without_snapshot(gathered)


def name_of(index: int) -> str:
    """Return the name of a snapshot's folder."""
    return f"snapshot_{index}"


def _unread(gathered: Gathered) -> Iterator[Run]:
    """Yield the snapshots that were not read, or that the member's release does not serve."""
    for read in gathered.reads:
        if read.outcome is Outcome.UNREAD:
            yield _run(SNAPSHOT_UNREAD, WARNING, read.listed, read.reason)
        elif read.outcome is Outcome.GONE:
            yield _run(SNAPSHOT_NOT_SERVED, INFO, read.listed)
    for member in gathered.missed:
        reason = "it removed each of its snapshots before it was read"
        yield run_of(SNAPSHOT_UNREAD, WARNING, -1, -1, member=member, reason=reason)


def _damaged(gathered: Gathered) -> Iterator[Run]:
    for read in gathered.reads:
        if read.outcome is Outcome.DAMAGED:
            yield _run(BAD_SNAPSHOT, CRITICAL, read.listed, read.reason)
    for member, manifest in gathered.manifests.items():
        known = manifest.retention.damaged_snapshots if manifest.retention is not None else []
        for index in known:
            reason = f"{name_of(index)}: the member has found it damaged"
            yield run_of(BAD_SNAPSHOT, CRITICAL, index, index, member=member, reason=reason)


def _misplaced(gathered: Gathered, whole: Sequence[SnapshotRead]) -> Iterator[Run]:
    """Yield the snapshots whose last entry is not that of the log."""
    listed = {each for manifest in gathered.manifests.values() for each in listed_by(manifest)}
    ends = [manifest.status.ledger_end_index for manifest in gathered.manifests.values()]
    for read in whole:
        term = read.listed.held.last_included_term
        if read.log_term >= 0 and read.log_term != term:
            reason = f"it says term {term}, and the entry has term {read.log_term}"
            yield _run(SNAPSHOT_TERM, CRITICAL, read.listed, reason)
        if read.listed in listed and read.listed.index > max(ends, default=-1):
            reason = f"the logs that were read end with entry {max(ends, default=-1)}"
            yield _run(SNAPSHOT_AHEAD, CRITICAL, read.listed, reason)


def _differing(
    whole: Sequence[SnapshotRead], electorate: Electorate, proven: set[tuple[int, bytes]]
) -> Iterator[Run]:
    """Yield the snapshots that differ at one index: those that are not the log's state.

    If that state is not known, yield those that a majority contradicts, or else all.
    """
    of_index = defaultdict[int, dict[bytes, list[SnapshotRead]]](lambda: defaultdict(list))
    for read in whole:
        of_index[read.listed.index][read.digest].append(read)
    for index, versions in of_index.items():
        if len(versions) < 2:
            continue
        agreed = [digest for digest in versions if (index, digest) in proven] or [
            digest
            for digest, reads in versions.items()
            if len({read.listed.member for read in reads} & electorate.counted)
            >= electorate.majority
        ]
        others = "the right one has" if agreed else "members have different ones:"
        for digest, reads in versions.items():
            for read in reads if digest not in agreed else ():
                held = read.listed.held
                reason = f"{others} other bytes; this one has CRC-32 {held.data_crc32}"
                yield _run(SNAPSHOT_DIFFERS, CRITICAL, read.listed, reason)


def _without_snapshot(gathered: Gathered) -> Iterator[Run]:
    """Yield the entries that members lack to restore their state, since all snapshots are damaged.

    The check `removed` reports logs that no listed snapshot reaches.
    """
    outcomes = {read.listed: read.outcome for read in gathered.reads}
    lacking: dict[str, int] = {}
    others = []
    for member, manifest in gathered.manifests.items():
        begin = manifest.status.ledger_begin_index
        if manifest.retention is None or manifest.retention.covered_index is None:
            continue
        reaching = [
            outcomes.get(each, Outcome.UNREAD)
            for each in listed_by(manifest)
            if each.index >= begin - 1
        ]
        if begin <= 0 or Outcome.WHOLE in reaching:
            others.append(member)
        elif reaching and all(outcome is Outcome.DAMAGED for outcome in reaching):
            lacking[member] = begin
    where = f"{', '.join(sorted(others))} can give it" if others else "nor on any other member"
    for member, begin in lacking.items():
        yield run_of(NO_SNAPSHOT, CRITICAL, 0, begin - 1, member=member, reason=where)


def _run(check: str, severity: str, listed: Listed, reason: str = "") -> Run:
    detail = f"{name_of(listed.index)}: {reason}" if reason else name_of(listed.index)
    return run_of(check, severity, listed.index, listed.index, member=listed.member, reason=detail)
