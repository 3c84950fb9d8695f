"""Reduce runs of checked entries to digests: one row for up to 4096 entries of equal flags.

Two members hold the same entries of a piece if count and digest are equal. A *piece* is a range of
indexes that no multiple of 4096 and no *cut* divides. The cuts of an audit are the members' begins
and ends, so that a member should hold either all entries of a piece or none.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_dledger.decode import Entries
from pyspark_dledger.layout import Longs
from pyspark_dledger.segments import Run

PIECE_BITS: Final = 12
RUNS_MAX: Final = 16
"""Runs of flagged entries of one piece that get a row each; more are merged into one row."""

DIGEST_SCHEMA: Final = pa.schema(
    [
        ("member", pa.string()),
        ("segment", pa.int64()),
        ("first_index", pa.int64()),
        ("last_index", pa.int64()),
        ("entries", pa.int64()),
        ("flags", pa.int32()),
        ("first_term", pa.int64()),
        ("last_term", pa.int64()),
        ("bytes", pa.int64()),
        ("at", pa.int64()),
        ("digest", pa.int64()),
        ("chain_digest", pa.int64()),
        ("covered", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Columns of a row: `entries` with equal `flags` between two indexes, `bytes` long, the first of
them `at` this offset; the digest of their identities; the digest of the chain CRCs that are not 0,
and their number; and why they could not be read, if so. Absent entries have no term (-1).
"""

Words: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The entries [first, last] of a run, all of one piece, as positions in the run."""

    start: int
    """The first index of the piece."""
    first: int
    last: int


def piece_starts(first_index: int, last_index: int, cuts: Longs) -> Longs:
    """Return the first index of every piece that holds any of these indexes."""
    step = 1 << PIECE_BITS
    low = first_index - first_index % step
    before = int(np.searchsorted(cuts, first_index, "right")) - 1
    begin = max(low, int(cuts[before])) if before >= 0 else low
    inside = cuts[(cuts > first_index) & (cuts <= last_index)]
    starts: Longs = np.unique(
        np.concatenate(([begin], np.arange(low + step, last_index + 1, step), inside))
    ).astype(np.int64)
    return starts


def piece_end(start: int, cuts: Longs) -> int:
    """Return the index after the piece that begins with this index."""
    end = ((start >> PIECE_BITS) + 1) << PIECE_BITS
    after = cuts[cuts > start]
    return min(end, int(after[0])) if len(after) else end


def pieces(run: Run, cuts: Longs) -> list[Piece]:
    """Divide a run."""
    first_index, last_index = bounds(run)
    starts = piece_starts(first_index, last_index, cuts).tolist()
    ends = [*starts[1:], last_index + 1]
    return [
        Piece(start=start, first=max(start, first_index) - first_index, last=end - 1 - first_index)
        for start, end in zip(starts, ends, strict=True)
    ]


def bounds(run: Run) -> tuple[int, int]:
    """Return the first and the last index of a run."""
    if isinstance(run, Entries):
        return int(run.index[0]), int(run.index[-1])
    return run.first_index, run.last_index


def identities(entries: Entries) -> Words:
    """Hash the fields on which members must agree.

    These exclude pos and the stored checksums: a member may hold an entry at another position, and
    Java stores no checksums. The CRC that the reader computed represents the body.
    """
    headers = entries.headers
    mixed = _mix(entries.index.astype(np.uint64))
    for column in (
        headers["term"],
        headers["magic"],
        headers["channel"],
        headers["body_size"],
        entries.crc,
    ):
        mixed = _mix(mixed ^ column.astype(np.int64).view(np.uint64))
    return mixed


def chains(entries: Entries) -> Words:
    """Hash each chain CRC with its index; 0 where the entry has none."""
    stored = entries.headers["chain_crc"].astype(np.uint64)
    hashed: Words = np.where(
        stored == 0, np.uint64(0), _mix(stored ^ _mix(entries.index.astype(np.uint64)))
    )
    return hashed


def digests(run: Run, member: str, segment: int, cuts: Longs) -> pa.RecordBatch:
    """Reduce a run to rows of DIGEST_SCHEMA."""
    if isinstance(run, Entries):
        rows = _rows_of_entries(run, cuts)
    else:
        first_index = run.first_index
        rows = [
            {
                "first_index": first_index + piece.first,
                "last_index": first_index + piece.last,
                "entries": piece.last - piece.first + 1,
                "flags": int(run.flag),
                "first_term": -1,
                "last_term": -1,
                "bytes": 0,
                "at": run.at,
                "digest": 0,
                "chain_digest": 0,
                "covered": 0,
                "reason": run.reason,
            }
            for piece in pieces(run, cuts)
        ]
    for row in rows:
        row["member"], row["segment"] = member, segment
    return pa.RecordBatch.from_pylist(rows, schema=DIGEST_SCHEMA)


def _rows_of_entries(run: Entries, cuts: Longs) -> list[dict[str, object]]:
    identity, chain = identities(run), chains(run)
    terms = run.headers["term"].astype(np.int64)
    sizes = run.headers["size"].astype(np.int64)
    rows: list[dict[str, object]] = []
    for piece in pieces(run, cuts):
        for picked in _groups(run.flags[piece.first : piece.last + 1]):
            at = picked + piece.first
            first, last = int(at[0]), int(at[-1])
            rows.append(
                {
                    "first_index": int(run.index[first]),
                    "last_index": int(run.index[last]),
                    "entries": len(at),
                    "flags": int(run.flags[first]),
                    "first_term": int(terms[first]),
                    "last_term": int(terms[last]),
                    "bytes": int(sizes[at].sum()),
                    "at": int(run.at[first]),
                    "digest": _xor(identity[at]),
                    "chain_digest": _xor(chain[at]),
                    "covered": int(np.count_nonzero(chain[at])),
                    "reason": "",
                }
            )
    return rows


def _groups(flags: Longs) -> list[Longs]:
    """Group the positions of entries with equal flags; flagged ones by runs, if they are few."""
    if not flags.any():
        return [np.arange(len(flags))]
    groups: list[Longs] = []
    for value in np.unique(flags).tolist():
        picked = np.flatnonzero(flags == value)
        runs = np.split(picked, np.flatnonzero(np.diff(picked) > 1) + 1)
        groups += runs if value and len(runs) <= RUNS_MAX else [picked]
    return groups


def _xor(words: Words) -> int:
    return int(np.bitwise_xor.reduce(words).view(np.int64))


def _mix(words: Words) -> Words:
    """Mix every bit of a word into every other (the finalizer of SplitMix64)."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Words = mixed ^ (mixed >> np.uint64(31))
    return result
