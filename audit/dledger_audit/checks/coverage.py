"""Count what was read."""

from dataclasses import dataclass
from typing import Final

from dledger_audit.checks.table import DigestTable
from pyspark_dledger.layout import ABSENT, DAMAGED, UNCOVERED


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
