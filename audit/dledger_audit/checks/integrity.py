"""Check the entries of each member by themselves: damage, and what could not be verified."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dledger_audit.checks.findings import Run, check_name
from dledger_audit.checks.table import DigestTable
from dledger_audit.verdict import BAD_INDEX_UNIT, CRITICAL, INFO, WARNING
from pyspark_dledger.layout import DAMAGED, UNCOVERED, Flag

SEVERITIES: Final = {
    Flag.BAD_MAGIC: CRITICAL,
    Flag.BAD_SIZE: CRITICAL,
    Flag.BAD_INDEX: CRITICAL,
    Flag.BAD_POS: CRITICAL,
    Flag.BAD_BODY_CRC: CRITICAL,
    Flag.BAD_CHAIN_CRC: CRITICAL,
    Flag.LOST_ENTRY: CRITICAL,
    Flag.SHORT_FILE: CRITICAL,
    Flag.TERM_BACK: CRITICAL,
    Flag.DISK_ERROR: CRITICAL,
    Flag.UNCOVERED: CRITICAL,
    Flag.TERM_ABOVE: CRITICAL,
    Flag.BAD_NOOP: CRITICAL,
    Flag.BAD_MEMBERSHIP: CRITICAL,
    Flag.BAD_BLANK: CRITICAL,
    # A starting node reads the end of its log, and rebuilds the index files there.
    Flag.INDEX_FILE_DIFFERS: WARNING,
    Flag.UNKNOWN_ENTRY: WARNING,
    Flag.UNREADABLE: WARNING,
    Flag.NO_CRC: INFO,
}
MARGIN_BYTES: Final = 4 << 20
"""How much of the end of its log a starting node reads (docs/disk-format.md, Recovery)."""


def integrity(table: DigestTable, end_pos: Mapping[str, int]) -> Iterator[Run]:
    """Yield a run for every row and flag; `end_pos` is where each member's entries end."""
    for row in np.flatnonzero(table.flags).tolist():
        member = table.members[int(table.member[row])]
        for flag, severity in SEVERITIES.items():
            if not int(table.flags[row]) & flag:
                continue
            run = _run(table, row, check_name(flag), severity)
            is_deep = 0 <= int(table.at[row]) < end_pos.get(member, 0) - MARGIN_BYTES
            if flag is Flag.INDEX_FILE_DIFFERS and is_deep:
                run = replace(run, check=BAD_INDEX_UNIT, severity=CRITICAL)
            yield run
    yield from _uncovered_before_covered(table)


def _uncovered_before_covered(table: DigestTable) -> Iterator[Run]:
    """Yield runs without checksums that end where covered entries of the same term follow.

    The decoder finds them unless a block of its entries ends just there.
    """
    covered = ~table.has(UNCOVERED | DAMAGED)
    begins = {
        (int(table.member[row]), int(table.first_index[row])): int(table.first_term[row])
        for row in np.flatnonzero(covered).tolist()
    }
    for row in np.flatnonzero(table.has(Flag.NO_CRC)).tolist():
        following = (int(table.member[row]), int(table.last_index[row]) + 1)
        if begins.get(following) == int(table.last_term[row]):
            yield _run(table, row, check_name(Flag.UNCOVERED), CRITICAL)


def _run(table: DigestTable, row: int, check: str, severity: str) -> Run:
    return Run(
        check=check,
        severity=severity,
        member=table.members[int(table.member[row])],
        segment=int(table.segment[row]),
        first_index=int(table.first_index[row]),
        last_index=int(table.last_index[row]),
        entries=int(table.entries[row]),
        reason=str(table.reason[row] or ""),
    )
