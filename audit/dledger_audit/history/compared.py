"""Compare the chunks that were read with the known ones, and with each other.

What was committed never changes, so a known chunk that reads differently now contradicts the
earlier audits. But a copy that differs from those of a majority of the voters was never committed,
whether or not its checksums are right, and its member is to be rebuilt. So

    it is learned             only if no other copy contradicts it, or a majority has it
    it may be replaced        by what a majority of the voters was known to have: it is mended

A chain CRC covers all entries before it, so the copies after a wrong entry differ, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger_audit.checks.electorate import Electorate
from dledger_audit.history.chunks import CHUNK, Chunks, chunk_starts, member_numbers, whole_chunks
from pyspark_dledger.layout import Bools, Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result for the chunks that were read whole and sound.

    Grids have a row per member and a column per chunk.
    """

    members: tuple[str, ...]
    starts: Longs
    """The first indexes of the chunks."""
    is_as_before: Bools
    """Known, and unchanged or mended."""
    is_changed: Bools
    """Known, and neither unchanged nor mended."""
    is_mended: Bools
    is_learned: Bools
    """Known from now on."""

    def as_before(self, member: str) -> Longs:
        """Return the first indexes of a member's chunks that are unchanged or mended."""
        if member not in self.members:
            return self.starts[:0]
        starts: Longs = self.starts[self.is_as_before[self.members.index(member)]]
        return starts

    def of_rows(self, rows: pa.Table, grid: Bools) -> Bools:
        """Return the grid's value for the chunk of each row; false for chunks that it lacks."""
        member, start = member_numbers(rows, self.members), chunk_starts(rows)
        chosen = np.flatnonzero((member >= 0) & np.isin(start, self.starts))
        values = np.zeros(len(rows), np.bool_)
        values[chosen] = grid[member[chosen], np.searchsorted(self.starts, start[chosen])]
        return values


def compared(known: pa.Table, read: pa.Table, electorate: Electorate) -> Compared:
    """Compare what was read with what is known; both are rows of DIGEST_SCHEMA."""
    whole = whole_chunks(read)
    listed = [*whole["member"].chunks, *known["member"].chunks]
    named = pc.unique(pa.chunked_array(listed, pa.string()))
    members = tuple(sorted(named.to_pylist()))
    starts = np.unique(chunk_starts(whole))
    before, now = (Chunks.of(rows, members, starts) for rows in (known, whole))
    is_known = before.has & now.has
    is_mended = is_known & _differs(now, before)
    is_mended &= _votes(now, before, members, electorate.voters) >= electorate.majority
    is_as_before = before.equals(now) | is_mended
    is_right = _votes(now, now, members, electorate.counted) >= electorate.majority
    return Compared(
        members=members,
        starts=starts,
        is_as_before=is_as_before,
        is_changed=is_known & ~is_as_before,
        is_mended=is_mended,
        is_learned=now.has & (is_right | ~_is_contradicted(now)) & (~before.has | is_mended),
    )


def _differs(these: Chunks, others: Chunks) -> Bools:
    """Return where both have a chunk, with different entries or histories before them.

    Chain CRCs count only where all entries of both have one: Java stores none.
    """
    both = these.has & others.has
    is_chained = (these.covered == CHUNK) & (others.covered == CHUNK)
    differs: Bools = both & (
        (these.digest != others.digest) | (is_chained & (these.chain != others.chain))
    )
    return differs


def _is_contradicted(now: Chunks) -> Bools:
    """Return which copies differ from at least one other copy."""
    found = np.zeros(now.has.shape, np.bool_)
    for row in range(len(now.has)):
        found |= _differs(now, now.of_member(row))
    return found


def _votes(these: Chunks, others: Chunks, members: Sequence[str], voters: frozenset[str]) -> Longs:
    """Count, for each of these copies, the voters whose copy in `others` is the same."""
    votes = np.zeros(these.has.shape, np.int64)
    for row, member in enumerate(members):
        if member in voters:
            other = others.of_member(row)
            votes += these.has & other.has & ~_differs(these, other)
    return votes
