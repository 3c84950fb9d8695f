"""The pass over the logs of an audit that trusts the earlier ones: it reads what they did not know,
and a seventh of what they knew.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_audit.checks.comparison import Range
from dledger_audit.history.memory import CHUNK, Memory, chunk_starts
from dledger_audit.passes import Passes
from dledger_audit.pieces import PieceComparer
from dledger_audit.snapshots.reading import Listed, SnapshotRead
from dledger_formats.http.status import Manifest
from pyspark_dledger.ranges import INDEX_MAX, IndexRange

PARTS: Final = 7
"""A chunk that is known is read again by one of so many audits in a row."""


class RememberingPasses:
    """Implements `passes.Passes`; keeps what was read, and reads less with `since_last`."""

    def __init__(self, passes: Passes, memory: Memory, *, since_last: bool) -> None:
        self._passes = passes
        self._memory = memory
        self._since_last = since_last
        self._read: dict[str, pa.Table] = {}
        self._to_read: dict[str, frozenset[int]] = {}
        self.entries_known = 0
        """Entries, of all members, that were not read, because earlier audits read them."""

    @property
    def read(self) -> pa.Table:
        """Return the rows that were read, of each member the latest."""
        return pa.concat_tables([self._memory.rows.slice(0, 0), *self._read.values()])

    def suspects(self, is_as_before: Mapping[tuple[str, int], bool]) -> dict[str, frozenset[int]]:
        """Return the suspect chunks of each member after this audit.

        `is_as_before` tells of the members and chunks that were read whether they are as they were.
        """
        suspects = dict(self._memory.suspects)
        for member, starts in self._to_read.items():
            every = suspects.get(member, frozenset()) | starts
            suspects[member] = frozenset(at for at in every if not is_as_before.get((member, at)))
        return suspects

    def digests(
        self,
        manifests: Mapping[str, Manifest],
        cuts: Iterable[int],
        ranges: Sequence[Range] = (),
    ) -> pa.Table:
        """Return the digests of all entries: read, or known from earlier audits."""
        cuts = tuple(cuts)
        held = {member: _held(self._memory, member, said) for member, said in manifests.items()}
        known: dict[str, dict[int, pa.Table]] = {}
        if self._since_last and not ranges:
            known = {
                member: _usable(self._memory, member, said, held[member], cuts)
                for member, said in manifests.items()
            }
        trusted = _trusted(known, manifests, self._memory)
        for member, starts in held.items():
            self._to_read[member] = starts - frozenset(trusted)
        wanted = _without(trusted) if trusted else ranges
        rows = self._passes.digests(manifests, cuts, wanted)
        for member in manifests:
            self._read[member] = rows.filter(pa.compute.equal(rows["member"], member))
        remembered = [
            chunks[start] for chunks in known.values() for start in trusted if start in chunks
        ]
        self.entries_known = sum(pa.compute.sum(each["entries"]).as_py() for each in remembered)
        return pa.concat_tables([rows, *remembered])

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


def _held(memory: Memory, member: str, said: Manifest) -> frozenset[int]:
    """Return the known chunks that a member should still have, whole."""
    begin, end = max(0, said.status.ledger_begin_index), said.status.committed_index
    starts = chunk_starts(memory.rows.filter(pa.compute.equal(memory.rows["member"], member)))
    whole = (starts >= begin) & (starts + CHUNK - 1 <= end)
    return frozenset(starts[whole].tolist())


def _usable(
    memory: Memory, member: str, said: Manifest, held: frozenset[int], cuts: Sequence[int]
) -> dict[int, pa.Table]:
    """Return the chunks that need not be read again: none if the log was opened or replaced since.

    A cut divides what is compared, and the rows of a chunk cannot be divided.
    """
    before = memory.said.get(member)
    if before is None or not said.life or before.life != said.life:
        return {}
    divided = {cut - cut % CHUNK for cut in cuts if cut % CHUNK}
    whole = held - divided
    return {start: rows for start, rows in memory.chunks(member).items() if start in whole}


def _trusted(
    known: Mapping[str, Mapping[int, pa.Table]], manifests: Mapping[str, Manifest], memory: Memory
) -> list[int]:
    """Return the chunks that are not read: known of each member that has them, and suspect of none,
    but for a part.
    """
    suspects = frozenset[int]().union(*memory.suspects.values())
    everywhere: list[int] = []
    for start in sorted({start for chunks in known.values() for start in chunks}):
        holders = [
            member
            for member, said in manifests.items()
            if max(0, said.status.ledger_begin_index) < start + CHUNK
            and said.status.committed_index >= start
        ]
        if start not in suspects and all(start in known[member] for member in holders):
            everywhere.append(start)
    parts = np.array_split(np.array(everywhere, np.int64), PARTS)
    again = set(parts[memory.audits % PARTS].tolist())
    return [start for start in everywhere if start not in again]


def _without(chunks: Sequence[int]) -> list[Range]:
    """Return the ranges of all entries outside of these chunks, which are in order."""
    ranges, first = list[Range](), 0
    for start in chunks:
        if first < start:
            ranges.append((first, start - 1))
        first = start + CHUNK
    return [*ranges, (first, INDEX_MAX)]
