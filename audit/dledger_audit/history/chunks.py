"""Chunks of the log as arrays: a long log has too many of them for an object each.

A *chunk* is the 4096 entries from a multiple of 4096 on. A member's log may divide one between two
segments, so a chunk has one row or two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_dledger.digests import PIECE_BITS
from pyspark_dledger.layout import Bools, Flag, Longs

CHUNK: Final = 1 << PIECE_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """What members have of some chunks; grids have a row per member and a column per chunk."""

    has: Bools
    digest: Longs
    chain: Longs
    """The digest of the chain CRCs."""
    covered: Longs
    """How many entries have a chain CRC."""

    @classmethod
    def of(cls, rows: pa.Table, members: Sequence[str], starts: Longs) -> Self:
        """Collect the rows of these members and of the chunks that begin with these indexes."""
        member, start = member_numbers(rows, members), chunk_starts(rows)
        chosen = np.flatnonzero((member >= 0) & np.isin(start, starts))
        at = (member[chosen], np.searchsorted(starts, start[chosen]))
        shape = (len(members), len(starts))
        has = np.zeros(shape, np.bool_)
        digest, chain, covered = (np.zeros(shape, np.int64) for _ in range(3))
        has[at] = True
        np.bitwise_xor.at(digest, at, rows["digest"].to_numpy()[chosen])
        np.bitwise_xor.at(chain, at, rows["chain_digest"].to_numpy()[chosen])
        np.add.at(covered, at, rows["covered"].to_numpy()[chosen])
        return cls(has=has, digest=digest, chain=chain, covered=covered)

    def of_member(self, row: int) -> Self:
        """Return what one member has, as grids of one row."""
        one = slice(row, row + 1)
        return type(self)(
            has=self.has[one],
            digest=self.digest[one],
            chain=self.chain[one],
            covered=self.covered[one],
        )

    def equals(self, other: "Chunks") -> Bools:
        """Return where both have a chunk and it is the same."""
        same: Bools = (
            self.has
            & other.has
            & (self.digest == other.digest)
            & (self.chain == other.chain)
            & (self.covered == other.covered)
        )
        return same


def whole_chunks(rows: pa.Table) -> pa.Table:
    """Return the rows of the chunks that a member has whole and sound, entry by entry."""
    sound = rows.filter(pa.array(_is_sound(rows)))
    starts = chunk_starts(sound)
    counts = sound["entries"].to_numpy()
    names = sound["member"].combine_chunks().dictionary_encode()
    keys = np.stack([names.indices.to_numpy().astype(np.int64), starts])
    _, number = np.unique(keys, axis=1, return_inverse=True)
    totals = np.bincount(number.reshape(-1), weights=counts, minlength=1)
    return sound.filter(pa.array(totals[number.reshape(-1)] == CHUNK))


def chunk_starts(rows: pa.Table) -> Longs:
    """Return the first index of the chunk of each row."""
    starts: Longs = rows["first_index"].to_numpy() >> PIECE_BITS << PIECE_BITS
    return starts


def member_numbers(rows: pa.Table, members: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return, for each row, the position of its member among these; -1 for other members."""
    numbers = pc.index_in(rows["member"], value_set=pa.array(members, pa.string()))
    found: npt.NDArray[np.int32] = pc.fill_null(numbers, -1).to_numpy()
    return found


def starts_of(rows: pa.Table, member: str) -> Longs:
    """Return the first indexes of the chunks of a member, in order."""
    return np.unique(chunk_starts(rows)[member_numbers(rows, [member]) == 0])


def runs_of(starts: Longs) -> list[tuple[int, int]]:
    """Return the first and the last entry of each run of chunks; the starts are in order."""
    runs = np.split(starts, np.flatnonzero(np.diff(starts) != CHUNK) + 1) if len(starts) else []
    return [(int(run[0]), int(run[-1]) + CHUNK - 1) for run in runs]


def _is_sound(rows: pa.Table) -> Bools:
    flags = rows["flags"].to_numpy()
    sound: Bools = (flags & ~int(Flag.NO_CRC)) == 0
    return sound
