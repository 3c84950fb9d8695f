"""The pass over the logs of an audit that trusts earlier audits.

It reads what they did not read, and a part of what they read.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger_audit.checks.comparison import Range
from dledger_audit.history.chunks import CHUNK, chunk_starts, member_numbers, runs_of, starts_of
from dledger_audit.history.compared import Compared
from dledger_audit.history.history_file import History
from dledger_audit.passes import Passes
from dledger_audit.pieces import PieceComparer
from dledger_audit.snapshots.reading import Listed, SnapshotRead
from dledger_formats.http.status import Manifest
from pyspark_dledger.layout import Longs
from pyspark_dledger.ranges import INDEX_MAX, IndexRange


class RememberingPasses:
    """Implements `passes.Passes`; keeps what was read, and reads less with `since_last`."""

    def __init__(self, passes: Passes, history: History, *, since_last: bool) -> None:
        self._passes = passes
        self._history = history
        self._since_last = since_last
        self._read: dict[str, pa.Table] = {}
        self._to_read: dict[str, Longs] = {}
        self._entries_known: dict[str, int] = {}

    @property
    def entries_known(self) -> int:
        """Return how many entries, of all members, were not read because earlier audits read them.

        A member that was read a second time, as a whole, has none.
        """
        return sum(self._entries_known.values())

    @property
    def read(self) -> pa.Table:
        """Return the rows that were read, the latest ones of each member."""
        return pa.concat_tables([self._history.rows.slice(0, 0), *self._read.values()])

    def suspects(self, found: Compared) -> dict[str, frozenset[int]]:
        """Return the suspect chunks of each member after this audit, which had this result."""
        suspects = dict(self._history.suspects)
        for member, starts in self._to_read.items():
            every = np.union1d(_sorted(suspects.get(member, frozenset())), starts)
            still = np.setdiff1d(every, found.as_before(member), assume_unique=True)
            suspects[member] = frozenset(still.tolist())
        return suspects

    def digests(
        self,
        manifests: Mapping[str, Manifest],
        cuts: Iterable[int],
        ranges: Sequence[Range] = (),
    ) -> pa.Table:
        """Return the digests of all entries: read, or known from earlier audits."""
        cuts = tuple(cuts)
        held = {
            member: _held(self._history, member, manifest) for member, manifest in manifests.items()
        }
        known: dict[str, Longs] = {}
        if self._since_last and not ranges:
            known = {
                member: _usable(self._history, member, manifest, held[member], cuts)
                for member, manifest in manifests.items()
            }
        trusted = _trusted(known, manifests, self._history)
        wanted = _without(trusted) if len(trusted) else ranges
        rows = self._passes.digests(manifests, cuts, wanted)
        skipped: dict[str, Longs] = {}
        for member, starts in held.items():
            self._read[member] = read = rows.filter(pc.equal(rows["member"], member))
            # A segment of which many parts are wanted was read with all that is between them.
            skipped[member] = np.setdiff1d(trusted, starts_of(read, member), assume_unique=True)
            self._to_read[member] = np.setdiff1d(starts, skipped[member], assume_unique=True)
        remembered = _remembered(self._history, known, skipped)
        for member in manifests:
            ours = remembered.filter(pc.equal(remembered["member"], member))
            self._entries_known[member] = pc.sum(ours["entries"]).as_py() or 0
        return pa.concat_tables([rows, remembered]).combine_chunks()

    def outcomes(self, manifests: Mapping[str, Manifest], comparer: PieceComparer) -> pa.Table:
        """Compare disputed pieces, which are always read."""
        return self._passes.outcomes(manifests, comparer)

    def snapshots(
        self, manifests: Mapping[str, Manifest], wanted: Sequence[Listed]
    ) -> list[SnapshotRead]:
        """Read snapshots."""
        return self._passes.snapshots(manifests, wanted)

    def changes(
        self, manifests: Mapping[str, Manifest], steps: Sequence[IndexRange], rows_max: int
    ) -> pa.Table | None:
        """Read the entries between snapshots."""
        return self._passes.changes(manifests, steps, rows_max)

    def data(self, listed: Listed) -> bytes | None:
        """Return the data of a snapshot."""
        return self._passes.data(listed)


def _held(history: History, member: str, manifest: Manifest) -> Longs:
    """Return the known chunks that a member should still have, whole."""
    begin, end = max(0, manifest.status.ledger_begin_index), manifest.status.committed_index
    starts = history.chunks(member)
    return starts[(starts >= begin) & (starts + CHUNK - 1 <= end)]


def _usable(
    history: History, member: str, manifest: Manifest, held: Longs, cuts: Sequence[int]
) -> Longs:
    """Return the chunks that need not be read again: none if the log was opened or replaced since.

    A cut divides what is compared, and the rows of a chunk cannot be divided.
    """
    before = history.reports.get(member)
    if before is None or not manifest.life or before.life != manifest.life:
        return held[:0]
    divided = [cut - cut % CHUNK for cut in cuts if cut % CHUNK]
    return held[~np.isin(held, divided)]


def _trusted(
    known: Mapping[str, Longs], manifests: Mapping[str, Manifest], history: History
) -> Longs:
    """Return the chunks that are not read again.

    Each is known of every member that has it, suspect on none, and not in the part to read again.
    """
    starts = np.unique(np.concatenate([np.array([], np.int64), *known.values()]))
    suspects = _sorted(frozenset[int]().union(*history.suspects.values()))
    is_everywhere = ~np.isin(starts, suspects)
    for member, chunks in known.items():
        status = manifests[member].status
        begin = max(0, status.ledger_begin_index)
        is_held = (starts + CHUNK > begin) & (starts <= status.committed_index)
        is_everywhere &= ~is_held | np.isin(starts, chunks)
    everywhere = starts[is_everywhere]
    first, end = history.again
    return everywhere[(everywhere < first) | (everywhere >= end)]


def _remembered(
    history: History, known: Mapping[str, Longs], skipped: Mapping[str, Longs]
) -> pa.Table:
    """Return the rows of the chunks that were not read. A table for each would take 16 KiB."""
    members, starts = member_numbers(history.rows, list(known)), chunk_starts(history.rows)
    chosen = np.zeros(len(history.rows), np.bool_)
    for number, (member, chunks) in enumerate(known.items()):
        wanted = np.intersect1d(chunks, skipped[member], assume_unique=True)
        chosen |= (members == number) & np.isin(starts, wanted)
    return history.rows.filter(pa.array(chosen))


def _without(chunks: Longs) -> list[Range]:
    """Return the ranges of all entries outside of these chunks, which are in order."""
    ranges, first = list[Range](), 0
    for start, last in runs_of(chunks):
        if first < start:
            ranges.append((first, start - 1))
        first = last + 1
    return [*ranges, (first, INDEX_MAX)]


def _sorted(starts: frozenset[int]) -> Longs:
    return np.array(sorted(starts), np.int64)
