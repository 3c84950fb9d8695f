"""Count what was read."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dledger_audit.checks.table import DigestTable
from pyspark_dledger.layout import ABSENT, DAMAGED, UNCOVERED, Bools, Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTotals:
    """Totals of the entries that were read from one member."""

    first_index: int
    last_index: int
    entries: int
    record_bytes: int
    damaged: int
    """Entries that are present but differ from what was written."""
    uncovered: int
    """Entries not covered by a checksum."""


NOTHING: Final = MemberTotals(
    first_index=-1, last_index=-1, entries=0, record_bytes=0, damaged=0, uncovered=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTotals:
    """What was read of one segment of one member."""

    member: str
    segment: int
    """Position of the data file."""
    first_index: int
    last_index: int
    record_bytes: int
    damaged: int
    """Entries that are present but differ from what was written."""
    absent: int
    """Entries that should be there and were not read."""


def segments(table: DigestTable) -> list[SegmentTotals]:
    """Return the totals of every segment of every member, by member and position."""
    if not len(table):
        return []
    keys = np.stack((table.member, table.segment))
    begins = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    damaged, absent = table.has(DAMAGED), table.has(ABSENT)

    def sums(numbers: Longs, where: Bools) -> list[int]:
        found: list[int] = np.add.reduceat(np.where(where, numbers, 0), begins).tolist()
        return found

    columns = zip(
        table.member[begins].tolist(),
        table.segment[begins].tolist(),
        np.minimum.reduceat(table.first_index, begins).tolist(),
        np.maximum.reduceat(table.last_index, begins).tolist(),
        sums(table.bytes, ~damaged & ~absent),
        sums(table.entries, damaged & ~absent),
        sums(table.entries, absent),
        strict=True,
    )
    return [
        SegmentTotals(
            member=table.members[member], segment=segment, first_index=first, last_index=last,
            record_bytes=size, damaged=bad, absent=missing,
        )
        for member, segment, first, last, size, bad, missing in columns
    ]  # fmt: skip


def totals(table: DigestTable) -> dict[str, MemberTotals]:
    """Return the totals of every member from which any entry was read."""
    found = {}
    present = table.pick(~table.has(ABSENT))
    for number, member in enumerate(table.members):
        rows = present.pick(present.member == number)
        if not len(rows):
            continue
        sound, damaged = rows.pick(~rows.has(DAMAGED)), rows.pick(rows.has(DAMAGED))
        found[member] = MemberTotals(
            first_index=int(rows.first_index.min()),
            last_index=int(rows.last_index.max()),
            entries=int(rows.entries.sum()),
            record_bytes=int(sound.bytes.sum()),
            damaged=int(damaged.entries.sum()),
            uncovered=int(rows.pick(rows.has(UNCOVERED)).entries.sum()),
        )
    return found
